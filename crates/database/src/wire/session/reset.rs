//! The session reset: a session carries nothing from one transaction to the next that a request
//! could see.
//!
//! Connections are shared by all callers of the data API. Two mechanisms of PostgreSQL separate the
//! callers:
//!
//! 1. **Everything of a request that SQL can see** (role, claims, method, path, headers, cookies,
//!    response settings) is set with `set_config(…, true)`, to this request's value, in every
//!    transaction. Everything that the transaction runs, including deferred triggers at its commit,
//!    sees these values, and PostgreSQL restores the previous ones at its end.
//! 2. **What functions leave in the session** is removed after the transaction by a
//!    [`SessionReset`], in the same write, whatever the transaction was: settings (`reset all`),
//!    channels, cursors, advisory locks, the sequences that `lastval` knows. Its last statement,
//!    the reset check, nevertheless asks PostgreSQL what is left: another role, a temporary schema,
//!    prepared statements. Only a session for which PostgreSQL has confirmed that nothing is left
//!    is [clean](super::state::SessionState::is_clean).
//!
//! Invariant: a connection that is not clean never reaches another caller. It is restored first
//! ([`restore`](super::connection::WireConnection::restore)), or closed. A connection counts as not
//! clean from the moment a batch is sent on it, so no event in between (an error, an abort, a
//! cancelled caller) can be missed.
//!
//! **The reset check cannot be forged.** SQL can deallocate our prepared statements and prepare its
//! own under their names. It can only prepare queries, so a command that was replaced is detected
//! by its command tag. The check is a query: it is kept in the unnamed prepared statement, which
//! SQL cannot address.
//!
//! **Plans.** PostgreSQL keeps the plans of prepared statements and of statements inside functions
//! for the session. A function that is declared immutable may be evaluated while a plan is made, so
//! a function that is wrongly declared immutable and reads the claims would leave one caller's
//! value in a plan that another caller uses. As long as the database has any immutable function in
//! an interpreted language ([`FunctionTraits::folds`]), plans are discarded after each transaction.
//! What such functions return in the expressions of indexes, domains and partitions is kept outside
//! of plans until the session ends: while there are such expressions ([`FunctionTraits::keeps`]), a
//! session ends with its transaction. Event triggers maintain the list of all these functions in
//! the transactions that change them (`bootstrap/sql/session_traits.sql`), and the reset check
//! reads it after each transaction: what the server knows of the schema only affects the time that
//! is spent.

use std::sync::Arc;

use super::function_traits::FunctionTraits;
use super::mode::SessionMode;
use super::origin::SessionOrigin;
use crate::wire::protocol::batch::{Access, Statement};
use crate::wire::protocol::result_sets::ResultSets;

/// The statements after a transaction that remove what functions may have left in the session.
#[derive(Debug, Clone)]
pub(crate) struct SessionReset {
    /// False where no statement leaves anything in the session.
    is_needed: bool,
    access: Access,
    traits: FunctionTraits,
    origin: Arc<SessionOrigin>,
}

/// The result of the check at the end of a [`SessionReset`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResetCheck {
    /// Every command took effect, and neither another role nor a prepared statement is left.
    pub(super) is_reset: bool,
    /// The session holds something that no reset removes.
    pub(super) must_end: bool,
    /// The database has functions with a property that the reset did not take into account.
    pub has_new_traits: bool,
}

impl SessionReset {
    /// Returns the reset after a transaction with this access mode.
    pub fn new(access: Access, mode: SessionMode, origin: Arc<SessionOrigin>) -> Self {
        Self { is_needed: mode.runs_project_code, access, traits: mode.traits, origin }
    }

    /// Returns the commands and the command tags of their success.
    fn commands(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let commands = [
            (true, "reset all", "RESET"),
            (true, "close all", "CLOSE CURSOR ALL"),
            (true, "unlisten *", "UNLISTEN"),
            // Only a transaction that writes can draw from a sequence
            (self.access == Access::ReadWrite, "discard sequences", "DISCARD SEQUENCES"),
            (self.traits.folds, "discard plans", "DISCARD PLANS"),
        ];
        let needed = commands.into_iter().filter(|(is_needed, ..)| self.is_needed && *is_needed);
        needed.map(|(_, command, tag)| (command, tag))
    }

    /// Returns the statements: the commands, then the reset check.
    pub fn statements<'a>(&self) -> impl Iterator<Item = Statement<'a>> {
        let commands = self.commands().map(|(command, _)| Statement::named(command, &[]));
        commands.chain(self.is_needed.then(|| Statement::kept_unnamed(reset_check(self.traits))))
    }

    /// Returns the number of statements.
    pub fn len(&self) -> usize {
        self.commands().count() + usize::from(self.is_needed)
    }

    /// Reads the check from the results of a batch in which the reset starts at the statement
    /// `first`. `None`: PostgreSQL did not answer it.
    pub fn check(&self, results: &ResultSets, first: usize) -> Option<ResetCheck> {
        if !self.is_needed {
            return Some(ResetCheck { is_reset: true, must_end: false, has_new_traits: false });
        }
        let mut position = first;
        let mut took_effect = true;
        for (_, tag) in self.commands() {
            took_effect &= results.tag(position) == tag;
            position += 1;
        }
        let row = results.row(position)?;
        let flag = |column| match row.bytes(column) {
            Some(b"t") => Some(true),
            Some(b"f") => Some(false),
            _ => None,
        };
        let is_origin = row.text(1) == Some(&self.origin.role) && row.text(2) == Some(&self.origin.session_user);
        let (has_temporary_schema, has_prepared) = (flag(3)?, flag(5)?);
        let found = FunctionTraits::from_bits(row.text(4)?.parse().ok()?);
        Some(ResetCheck {
            is_reset: took_effect && is_origin && !has_prepared,
            must_end: has_temporary_schema || found.keeps || self.traits.keeps || self.traits.is_outdated(row.text(6)),
            has_new_traits: found.bits() & !self.traits.bits() != 0,
        })
    }
}

/// The query that releases advisory locks and returns the rest: role, session user, temporary
/// schema, traits of functions, statements that SQL has prepared, and, where it is asked for, the
/// version of the expressions that may keep values.
macro_rules! reset_check {
    ($prepared:literal $(, $version:literal)?) => {
        concat!(
            "select pg_catalog.pg_advisory_unlock_all(), pg_catalog.current_setting('role'), session_user, \
             pg_catalog.pg_my_temp_schema() operator(pg_catalog.<>) 0::pg_catalog.oid, \
             (select coalesce(pg_catalog.bit_or(noted.bit), 0) from portico_session.noted), ",
            $prepared
            $(, $version)?
        )
    };
}

/// Returns the reset check. It looks for prepared statements only where functions of the database
/// may prepare some: the search takes longer the more statements of ours the session has.
fn reset_check(traits: FunctionTraits) -> &'static str {
    const PLAIN: &str = reset_check!("false");
    // There functions may prepare statements, as far as is known
    const UNWATCHED: &str = reset_check!(
        "exists (select from pg_catalog.pg_prepared_statement() as left_over where left_over.from_sql), ",
        "(select version from portico_session.expressions)"
    );
    const PREPARES: &str =
        reset_check!("exists (select from pg_catalog.pg_prepared_statement() as left_over where left_over.from_sql)");
    match traits {
        FunctionTraits { unwatched: Some(_), .. } => UNWATCHED,
        FunctionTraits { prepares: true, .. } => PREPARES,
        FunctionTraits { .. } => PLAIN,
    }
}

/// Returns the statements that discard everything that a session can hold and SQL can take back,
/// for connections without prepared statements. `assume_role` is the origin's. The last statement
/// is read by [`has_kept_values`].
pub(crate) fn discard_everything(assume_role: &str, traits: FunctionTraits) -> impl Iterator<Item = Statement<'_>> {
    const HAS_KEPT: &str = "select exists (select from portico_session.noted where noted.bit operator(pg_catalog.&) 4 operator(pg_catalog.<>) 0)";
    const UNWATCHED: &str = "
        select exists (select from portico_session.noted where noted.bit operator(pg_catalog.&) 4 operator(pg_catalog.<>) 0),
               (select version from portico_session.expressions)";
    let assume_role = if assume_role.is_empty() { "reset role" } else { assume_role };
    let statements = [
        "close all",
        "reset all",
        "reset session authorization",
        assume_role,
        "unlisten *",
        "select pg_catalog.pg_advisory_unlock_all()",
        "discard temp",
        "discard sequences",
        "discard plans",
        "deallocate all",
        if traits.unwatched.is_some() { UNWATCHED } else { HAS_KEPT },
    ];
    statements.into_iter().map(|statement| Statement::unnamed(statement, &[]))
}

/// Reads from the results of a batch that ends with [`discard_everything`] whether the session may
/// keep values of immutable functions. `None`: PostgreSQL did not answer that.
pub(crate) fn has_kept_values(results: &ResultSets, traits: FunctionTraits) -> Option<bool> {
    let row = results.row(results.len().checked_sub(1)?)?;
    match row.bytes(0)? {
        b"t" => Some(true),
        b"f" => Some(traits.keeps || traits.is_outdated(row.text(1))),
        _ => None,
    }
}
