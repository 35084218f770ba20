//! Statements that clean a server session which other transactions have used before.
//!
//! Behind a pooler every transaction may run on another server session, and other transactions have
//! used that session: those of other callers, and those of other programs that share the pooler.
//! Two rules keep them apart.
//!
//! 1. **Every transaction of ours begins clean.** Its first statements are [`RESET`] and
//!    [`END_UNLESS_BARE`], in the same transaction, and with it on the same server session. What
//!    `RESET` cannot take back ends the session before any other statement of the transaction runs,
//!    and the transaction is repeated on another session. This rule alone keeps callers apart: it
//!    holds whatever happened to the transaction before, be it an error at its commit, a lost
//!    connection or another program.
//! 2. **Every transaction of ours leaves a clean session**, as far as the pooler lets it: the same
//!    statements follow the `commit` before the `ReadyForQuery` by which the pooler takes the
//!    session away. They protect other programs.
//!
//! Prepared statements are ended with the session and not deallocated, since poolers keep
//! statements of their own under names that we do not know.

/// Commands that take back what a transaction can leave in its session, as far as that is possible.
pub(crate) const RESET: [&str; 9] = [
    "reset session authorization",
    "reset role",
    "reset all",
    "close all",
    "unlisten *",
    "select pg_catalog.pg_advisory_unlock_all()",
    "discard sequences",
    "discard plans",
    // `reset role` may return to another role than the login, and only the login may end its
    // session
    "set local role none",
];

/// Ends the server session if it has a temporary schema or statements that SQL has prepared. A
/// temporary table may have been taken for another one by functions that were compiled while it
/// existed.
pub(crate) const END_UNLESS_BARE: &str = "
    select case when pg_catalog.pg_my_temp_schema() operator(pg_catalog.<>) 0::pg_catalog.oid
                  or exists (select from pg_catalog.pg_prepared_statement() as prepared where prepared.from_sql)
                then pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid()) end";

/// As [`END_UNLESS_BARE`], and also while expressions of the database keep values until the end of
/// a session.
pub(crate) const END_UNLESS_BARE_OR_KEPT: &str = "
    select case when pg_catalog.pg_my_temp_schema() operator(pg_catalog.<>) 0::pg_catalog.oid
                  or exists (select from pg_catalog.pg_prepared_statement() as prepared where prepared.from_sql)
                  or exists (select from portico_session.noted where noted.bit operator(pg_catalog.&) 4 operator(pg_catalog.<>) 0)
                then pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid()) end";

/// Marks the server session as used, in a way that SQL cannot take back: the temporary schema lasts
/// as long as the session.
pub(crate) const MARK_AS_USED: &str = "create temporary table portico_session_was_used ()";
