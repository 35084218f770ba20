//! The entries of a channel: what a client asks for, checked against the database as the client's
//! role, and compiled conditions.

pub(super) mod column_test;
pub(super) mod entry;
pub(super) mod filter;
pub(super) mod validate;
