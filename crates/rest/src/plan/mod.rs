//! Plans: what a request means for the database, checked against the schema cache. Pure.

mod body_format;
mod call;
mod column_path;
mod embed;
mod filter;
mod negotiate;
mod node;
mod overload;
mod read;
mod request_plan;
mod row_count;
#[cfg(test)]
mod tests;
mod tree;
mod write;

pub use body_format::{BodyFormat, ResultShape};
#[cfg(test)]
pub(crate) use call::tests as call_tests;
pub use call::{CallArguments, CallInput, CallPlan, NamedArgument, ResolvedCall, find, hoisted_settings, is_read_only};
pub use column_path::ColumnPath;
pub use filter::{RowCondition, conditions_of_write};
pub use negotiate::{NegotiatedFormat, ResultSource, negotiate};
pub use overload::ArgumentSource;
pub(crate) use read::name_of as aggregate_name;
pub use read::{CALL, ReadRoot};
pub(crate) use request_plan::{PlannedStatement, RequestPlan, StatementPlan, plan};
pub use row_count::RowCount;
pub(crate) use tree::counts_rows;
pub use tree::{
    Embed, EmbedShape, EmbedSortKey, Level, LevelSource, OutputColumn, ReadPlan, ReturnedColumns, SortExpression,
    SortTerm, SpreadColumn,
};
#[cfg(test)]
pub(crate) use write::tests as write_tests;
pub use write::{
    AssignedColumn, ConflictClause, JsonBody, KeyValue, WriteChange, WriteOptions, WritePlan, WriteReturn,
};

use crate::config::PlanSettings;
use crate::schema::SchemaCache;

/// The inputs of every plan besides the request.
#[derive(Debug, Clone, Copy)]
pub struct PlanContext<'a> {
    /// The schema cache.
    pub cache: &'a SchemaCache,
    /// The schema of the request.
    pub schema: &'a str,
    /// The settings of the operator.
    pub settings: &'a PlanSettings,
}
