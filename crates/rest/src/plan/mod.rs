//! Types to a plan, checked against the schema cache. Pure.

mod body_format;
mod call;
mod embed;
mod filter;
mod negotiate;
mod node;
mod overload;
pub(crate) mod prepare;
mod read;
#[cfg(test)]
mod tests;
mod tree;
mod write;

pub use body_format::{BodyFormat, ResultShape};
#[cfg(test)]
pub(crate) use call::tests as call_tests;
pub use call::{CallArguments, CallInput, CallPlan, NamedArgument, ResolvedCall, find, hoisted_settings, is_read_only};
pub use filter::{Condition, conditions_of_write};
pub use negotiate::{NegotiatedFormat, ResultSource, negotiate};
pub use overload::ArgumentSource;
pub use read::{CALL, ReadRoot};
pub(crate) use read::{counts_rows, name_of as aggregate_name};
pub use tree::{
    ColumnPath, Embed, EmbedShape, EmbedSortKey, Level, LevelSource, OutputColumn, ReadPlan, ReturnedColumns,
    SortExpression, SortTerm, SpreadColumn,
};
#[cfg(test)]
pub(crate) use write::tests as write_tests;
pub use write::{
    AssignedColumn, ConflictClause, JsonBody, KeyValue, RowChange, WriteAction, WriteOptions, WritePlan, WriteReturn,
};

use crate::schema::SchemaCache;

/// What every plan is made with.
#[derive(Debug, Clone, Copy)]
pub struct PlanContext<'a> {
    /// What is known of the database.
    pub cache: &'a SchemaCache,
    /// The schema that the request chose.
    pub schema: &'a str,
    /// What the operator decided.
    pub settings: &'a PlanSettings,
}

/// The part of the configuration that plans depend on (contract 22).
#[derive(Debug, Clone)]
pub struct PlanSettings {
    /// `db-aggregates-enabled`
    pub aggregates: bool,
    /// `db-plan-enabled`
    pub explain_enabled: bool,
    /// `db-max-rows`
    pub max_rows: Option<u64>,
    /// `url-use-legacy-target-names`
    pub legacy_target_names: bool,
    /// Refuse UPDATE and DELETE without a condition, as the hosted service does (12.2).
    pub safe_update: bool,
}

impl Default for PlanSettings {
    fn default() -> Self {
        Self { aggregates: false, explain_enabled: false, max_rows: None, legacy_target_names: true, safe_update: true }
    }
}
