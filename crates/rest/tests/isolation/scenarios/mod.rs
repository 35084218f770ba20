//! The places, one module for each kind.

mod answers;
mod auth_functions;
mod columns;
mod constraints;
mod foreign;
mod functions;
mod kept;
mod names;
mod partitions;
mod plans;
mod policies;
mod rules;
mod sessions;
mod triggers;
mod types;
mod views;

use crate::scenario::Scenario;

/// Every scenario of the suite, but for the redefined functions of the accounts, which the others
/// use as they are, and for expressions with which sessions end with each transaction.
pub fn all() -> Vec<Scenario> {
    [
        answers::scenarios(),
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
