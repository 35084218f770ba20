//! The scenarios, one module for each kind of place.

mod auth_functions;
mod columns;
pub mod constant_calls;
mod constraints;
mod foreign;
mod functions;
mod names;
mod partitions;
mod plans;
mod policies;
mod responses;
mod rules;
mod sessions;
mod triggers;
mod types;
mod views;

use crate::scenario::Scenario;

/// Returns every scenario, except the redefined account functions, which the other scenarios use
/// unchanged, and the expressions that make sessions end with each transaction.
pub fn all() -> Vec<Scenario> {
    [
        responses::scenarios(),
        columns::scenarios(),
        constraints::scenarios(),
        foreign::scenarios(),
        functions::scenarios(),
        names::scenarios(),
        partitions::scenarios(),
        plans::scenarios(),
        policies::scenarios(),
        rules::scenarios(),
        sessions::scenarios(),
        triggers::scenarios(),
        types::scenarios(),
        views::scenarios(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
