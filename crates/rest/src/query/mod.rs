//! The query string: its grammar (contract 4) as types.

mod types;

pub use types::{
    Aggregate, Arrow, At, Direction, EmbedPath, Field, Filter, Fts, IsValue, Join, JsonStep, Logic, LogicTree, Nulls,
    Operand, Operation, OrderTerm, QuantOperator, Quantifier, Query, Range, SelectColumn, SelectItem, SelectRelation,
    SimpleOperator,
};
