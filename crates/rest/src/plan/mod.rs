//! Types to a plan, checked against the schema cache. Pure.

mod call;
mod embed;
mod filter;
mod negotiate;
mod node;
mod overload;
pub(crate) mod prepare;
mod producer;
mod read;
#[cfg(test)]
mod tests;
mod tree;
mod write;

#[cfg(test)]
pub(crate) use call::tests as call_tests;
pub use call::{Argument, Arguments, CallPlan, Given, Target, find, hoisted_settings, is_read_only};
pub use filter::{Condition, conditions_of_write};
pub use negotiate::{Agreement, Subject, negotiate};
pub use overload::BodyKind;
pub use producer::{Producer, Rows};
pub use read::{CALL, Root};
pub(crate) use read::{counts_rows, name_of as aggregate_name};
pub use tree::{Column, Embed, Level, Lifted, Order, OrderBy, OrderKey, Output, ReadPlan, Returned, Shape, Source};
#[cfg(test)]
pub(crate) use write::tests as write_tests;
pub use write::{Answer, Assigned, Body, Change, Conflict, KeyValue, WriteAction, WriteOptions, WritePlan};

use crate::schema::SchemaCache;

/// What every plan is made with.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
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
    pub plans: bool,
    /// `db-max-rows`
    pub max_rows: Option<u64>,
    /// `url-use-legacy-target-names`
    pub legacy_target_names: bool,
    /// Refuse UPDATE and DELETE without a condition, as the hosted service does (12.2).
    pub safe_update: bool,
}

impl Default for PlanSettings {
    fn default() -> Self {
        Self { aggregates: false, plans: false, max_rows: None, legacy_target_names: true, safe_update: true }
    }
}
