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
//!
//! **Kept values.** What immutable functions return in the expressions of indexes, domains and
//! partitions is kept until the session ends, and cannot be seen from outside. So while the
//! database has such expressions, a session runs one transaction with the project's code: every
//! such transaction begins with [`MARK_AS_USED`], and [`END_UNLESS_CLEAN`] in front of it ends a
//! session that bears the mark. The server itself decides, from the list that event triggers
//! maintain in the transactions that change expressions, or from the version of the expressions. An
//! expression that is created while a transaction runs, and even one whose transaction then fails
//! at its commit, is therefore in time for the next transaction of that session, whatever this
//! program knows. When the last such expression is gone, a used session that began before ends as
//! well, however long the pooler keeps it.

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

/// Ends the server session if a condition holds.
macro_rules! end_if {
    ($($condition:expr),+) => {
        concat!(
            "select case when ", $($condition),+,
            " then pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid()) end"
        )
    };
}

/// Holds for a session with a temporary schema, with statements that SQL has prepared, or that
/// listens: `unlisten` takes effect at the commit.
macro_rules! is_not_bare {
    () => {
        "(pg_catalog.pg_my_temp_schema() operator(pg_catalog.<>) 0::pg_catalog.oid \
          or exists (select from pg_catalog.pg_prepared_statement() as prepared where prepared.from_sql) \
          or exists (select from pg_catalog.pg_listening_channels()))"
    };
}

/// Holds for a session that [`MARK_AS_USED`] was run in: PostgreSQL keeps the name of a custom
/// setting until the session ends, whatever resets its value or rolls it back.
macro_rules! is_used {
    () => {
        "pg_catalog.current_setting('portico_session.used', true) is not null"
    };
}

/// Holds while the list has expressions whose values PostgreSQL keeps until the end of a session.
macro_rules! has_kept_values {
    () => {
        "exists (select from portico_session.noted where noted.bit operator(pg_catalog.&) 4 operator(pg_catalog.<>) 0)"
    };
}

/// The time when the session began. A setting could be changed by SQL, this cannot.
macro_rules! session_start {
    () => {
        "(select own.backend_start from pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) as own)"
    };
}

/// Holds for a session that may keep values if it was used: while the list has expressions that
/// keep some, and afterwards for the sessions that began before.
macro_rules! may_keep_values {
    () => {
        concat!(
            "(",
            has_kept_values!(),
            " or exists (select from portico_session.noted where noted.bit operator(pg_catalog.=) 8 and coalesce(noted.gone_at operator(pg_catalog.>=) ",
            session_start!(),
            ", true)))"
        )
    };
}

/// Ends the server session if it has a temporary schema or statements that SQL has prepared, or
/// listens. A temporary table may have been taken for another one by functions that were compiled
/// while it existed.
pub(crate) const END_UNLESS_BARE: &str = end_if!(is_not_bare!());

/// Like [`END_UNLESS_BARE`], and also if the session was used and may keep values.
pub(crate) const END_UNLESS_CLEAN: &str = end_if!(is_not_bare!(), " or ", is_used!(), " and ", may_keep_values!());

/// Like [`END_UNLESS_CLEAN`], where no event trigger maintains the list: also if the session was
/// used and `$1` is not the version of the expressions, among which none keeps values, or if it
/// began before that was found, at the time `$2` (microseconds since 1970).
pub(crate) const END_UNLESS_CLEAN_AT_VERSION: &str = end_if!(
    is_not_bare!(),
    " or ",
    is_used!(),
    " and (",
    may_keep_values!(),
    " or (select version from portico_session.expressions) operator(pg_catalog.<>) $1::pg_catalog.int8 \
      or coalesce(pg_catalog.date_part('epoch', ",
    session_start!(),
    ") operator(pg_catalog.*) 1e6::pg_catalog.float8 operator(pg_catalog.<=) $2::pg_catalog.float8, true))"
);

/// Like [`END_UNLESS_BARE`], and also if the session was used: where this program has found
/// expressions that keep values.
pub(crate) const END_UNLESS_UNUSED: &str = end_if!(is_not_bare!(), " or ", is_used!());

/// Like [`END_UNLESS_BARE`], but behind a transaction, and also while expressions keep values.
pub(crate) const END_UNLESS_BARE_OR_KEPT: &str = end_if!(is_not_bare!(), " or ", has_kept_values!());

/// Ends the server session.
pub(crate) const END: &str = end_if!("true");

/// Marks the server session as used, in a way that SQL cannot take back; see [`is_used`].
pub(crate) const MARK_AS_USED: &str = "set local portico_session.used = 'true'";

/// Like [`END_UNLESS_CLEAN`], as to the values that the session keeps, for sessions that may begin
/// before the list exists. Where no event trigger maintains the list, the version of the
/// expressions has to be the one among which none keeps values, found before the session began. A
/// superuser reads the list only if it is a table of superusers: another role could have put a view
/// in its place, which runs functions.
pub(crate) const END_IF_VALUES_ARE_KEPT: &str = concat!(
    "do $$ begin if ",
    is_used!(),
    " and (select pg_catalog.count(*) operator(pg_catalog.>) 0
              and (pg_catalog.bool_and(owner.rolsuper) or not pg_catalog.bool_or(login.rolsuper))
             from pg_catalog.pg_class as list
             join pg_catalog.pg_namespace as space on space.oid operator(pg_catalog.=) list.relnamespace
             join pg_catalog.pg_roles as owner on owner.oid operator(pg_catalog.=) list.relowner
                  or owner.oid operator(pg_catalog.=) space.nspowner
             join pg_catalog.pg_roles as login on login.rolname operator(pg_catalog.=) session_user
            where space.nspname operator(pg_catalog.=) 'portico_session'
              and list.relname operator(pg_catalog.=) any ('{noted,valueless,expressions}'::pg_catalog.name[])
              and list.relkind operator(pg_catalog.=) any ('{r,v}'::pg_catalog.\"char\"[])) then if ",
    may_keep_values!(),
    " then perform pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid());
      elsif (select pg_catalog.count(*) operator(pg_catalog.<>) 2 from pg_catalog.pg_event_trigger
              where evtname operator(pg_catalog.=) any ('{portico_functions_changed,portico_functions_dropped}'::pg_catalog.name[])
                and evtenabled operator(pg_catalog.=) 'A') then
        if pg_catalog.to_regclass('portico_session.valueless') is null then
          perform pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid());
        elsif not exists (select from portico_session.valueless
                           where version operator(pg_catalog.=) (select version from portico_session.expressions)
                             and since operator(pg_catalog.<) ",
    session_start!(),
    ") then perform pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid()); end if; end if; end if; end $$"
);
