//! The subscriptions in memory: those of the same content in a group, their readers, and the pauses
//! of slow ones.

pub(super) mod condition_budgets;
pub(super) mod group;
pub(super) mod prepared_tables;
pub(super) mod reader_pauses;
pub(super) mod registry;
mod renewal;
