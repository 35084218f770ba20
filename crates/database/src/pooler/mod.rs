//! Connection poolers between Portico and PostgreSQL, such as PgBouncer.
//!
//! A pooler in transaction mode lends a server session for one transaction: from the first message
//! until `ReadyForQuery` reports that no transaction is open. A pooler in session mode lends one
//! for as long as the connection lasts, and refuses or drops the settings with which a session is
//! to begin. Neither is what the rest of this crate expects of a connection, so
//! [`SessionEmulation`](emulation::SessionEmulation) stands between the driver and the pooler and
//! begins each transaction with the role and the settings of the session. The wire client of the
//! data API does the same for its batches (`wire::pooled`). [`cleaning`] has the rules that keep
//! transactions apart.

pub(crate) mod cleaning;
pub(crate) mod detection;
pub(crate) mod emulation;
mod messages;
pub(crate) mod pooling;
mod session_statements;
