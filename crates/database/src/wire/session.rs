//! What a session carries from one transaction to the next: nothing that a request could see.
//!
//! Connections are shared by all callers of the data API. Two things keep the callers apart, and both are
//! PostgreSQL's own:
//!
//! 1. **Everything of a request that SQL can see** (role, claims, method, path, headers, cookies, response
//!    settings) is set by `set_config(…, true)` for that transaction, to this request's value, in every
//!    transaction. All that the transaction runs, deferred triggers at its commit included, sees these
//!    values, and PostgreSQL takes them back at its end.
//! 2. **What functions leave in the session** is taken back behind the transaction by [`Tail`], in the same
//!    write, whatever the transaction was: settings (`reset all`), advisory locks, the sequences that
//!    `lastval` knows. Its last statement asks PostgreSQL for everything else that can be left: another
//!    role, temporary tables, cursors, channels that are listened to, prepared statements. Only a session
//!    for which PostgreSQL has confirmed that there is nothing is [clean](Session::is_clean).
//!
//! Invariant: a connection that is not clean is never handed to another caller. It is restored first
//! ([`restore`](super::connection::Connection::restore)), or closed. A connection counts as not clean from
//! the moment a batch is sent on it, so whatever happens in between (an error, an abort, a caller that goes
//! away) cannot be forgotten.
//!
//! **Plans.** PostgreSQL keeps the plans of prepared statements and of statements inside functions for the
//! session. A function that is declared immutable may be computed while a plan is made, so a function that is
//! declared so wrongly and reads the claims would leave one caller's value in a plan that another uses. As long
//! as the database has any immutable function in an interpreted language ([`FunctionTraits::folds`]), plans
//! are discarded behind each transaction. Whether it has one is kept up to date by event triggers in the
//! transactions that change functions (`bootstrap/sql/session_traits.sql`), and [`Tail`] asks for it behind
//! each transaction: what the server knows of the schema decides only how much time is spent.

use std::sync::Arc;

use super::answers::Answers;
use super::batch::{Access, Param, Statement};

/// Properties of the functions in a database that decide what a session has to take back. Knowing less than
/// is true costs a restored session and never lets anything pass; see [`session`](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionTraits {
    /// Some function in an interpreted language is declared immutable, so plans may hold what it returned.
    pub folds: bool,
    /// Some function may run `prepare`.
    pub prepares: bool,
}

impl FunctionTraits {
    /// The properties of a database of which nothing is known.
    pub const UNKNOWN: Self = Self { folds: true, prepares: true };

    /// Asks the database. Unknown where no event triggers keep the lists of functions, as in a database that was
    /// set up without a superuser.
    ///
    /// # Errors
    /// PostgreSQL's error.
    pub async fn load(client: &tokio_postgres::Client) -> Result<Self, tokio_postgres::Error> {
        const IS_WATCHED: &str = "
            select pg_catalog.count(*) = 2 and pg_catalog.to_regclass('portico_session.traits') is not null
              from pg_catalog.pg_event_trigger
             where evtname in ('portico_functions_changed', 'portico_functions_dropped') and evtenabled = 'A'";
        // The lists may lack a function that came before the event triggers; no function may be missing in both
        const TRAITS: &str = "
            select exists (select from portico_session.folding) or exists (select from portico_session.traits where folds),
                   exists (select from portico_session.preparing) or exists (select from portico_session.traits where prepares)";
        if !client.query_one(IS_WATCHED, &[]).await?.get::<_, bool>(0) {
            return Ok(Self::UNKNOWN);
        }
        let row = client.query_one(TRAITS, &[]).await?;
        Ok(Self { folds: row.get(0), prepares: row.get(1) })
    }

    pub(super) fn from_bits(bits: u8) -> Self {
        Self { folds: bits & 1 != 0, prepares: bits & 2 != 0 }
    }

    pub(super) fn bits(self) -> u8 {
        u8::from(self.folds) | (u8::from(self.prepares) << 1)
    }
}

/// The beginning of a session, which it returns to.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// The role that is set in the session, as the setting `role` shows it.
    pub role: String,
    /// The user that the session acts as by itself.
    pub session_user: String,
    /// The statement that takes on the role again. Empty where the login role is the role.
    pub take_role: String,
}

impl Origin {
    /// Returns the origin of a session of the role that logged in.
    pub fn of_login(role: &str) -> Self {
        Self { role: "none".into(), session_user: role.to_owned(), take_role: String::new() }
    }
}

/// The state of a connection's session between two batches.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub origin: Arc<Origin>,
    is_clean: bool,
    /// The session had a temporary table: functions that were compiled meanwhile may have taken it for another one,
    /// and stay compiled for as long as the session lives.
    must_end: bool,
}

impl Session {
    /// Returns the state of a new session.
    pub fn new(origin: Origin) -> Self {
        Self { origin: Arc::new(origin), is_clean: true, must_end: false }
    }

    /// Returns whether PostgreSQL has confirmed that nothing of the last transaction is left.
    pub fn is_clean(&self) -> bool {
        self.is_clean
    }

    /// Notes that statements are about to be sent.
    pub fn soil(&mut self) {
        self.is_clean = false;
    }

    /// Returns whether nothing brings back the session's beginning.
    pub fn must_end(&self) -> bool {
        self.must_end
    }

    /// Notes that everything was discarded.
    pub fn discarded(&mut self) {
        self.is_clean = !self.must_end;
    }

    /// Returns the statements that end a transaction's use of the session.
    pub fn tail(&self, access: Access, traits: FunctionTraits) -> Tail {
        Tail { access, traits, origin: Arc::clone(&self.origin) }
    }

    /// Takes what PostgreSQL answered to a tail. Returns the verdict.
    pub fn settle(&mut self, verdict: Verdict) -> Verdict {
        self.must_end |= verdict.has_temporary_schema;
        self.is_clean = verdict.is_bare && !self.must_end && !verdict.has_new_traits;
        verdict
    }
}

/// The statements behind a transaction that take back what functions may have left in the session.
#[derive(Debug, Clone)]
pub(super) struct Tail {
    access: Access,
    traits: FunctionTraits,
    origin: Arc<Origin>,
}

/// PostgreSQL's answer to a [`Tail`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Verdict {
    /// Neither another role nor a channel, a cursor or a prepared statement is left.
    is_bare: bool,
    has_temporary_schema: bool,
    /// The database has functions with a property that the tail did not know of.
    pub has_new_traits: bool,
}

impl Tail {
    /// Returns the values of the last statement.
    pub fn params(&self) -> [Param<'_>; 2] {
        [Some(self.origin.role.as_bytes()), Some(self.origin.session_user.as_bytes())]
    }

    /// Returns the statements, for values from [`params`](Self::params).
    pub fn statements<'a>(&self, params: &'a [Param<'a>; 2]) -> impl Iterator<Item = Statement<'a>> {
        let commands = [
            (true, "reset all"),
            // Only a transaction that writes can draw from a sequence
            (self.access == Access::ReadWrite, "discard sequences"),
            (self.traits.folds, "discard plans"),
        ];
        let commands = commands.into_iter().filter(|(is_needed, _)| *is_needed);
        // By its name it could be another statement by now: SQL can deallocate ours and prepare its own, also in the
        // places of the commands. Parsed anew it sees those that SQL has prepared
        let verify = match self.traits.prepares {
            true => Statement::unnamed(verify(self.traits), params),
            false => Statement::named(verify(self.traits), params),
        };
        commands.map(|(_, command)| Statement::named(command, &[])).chain([verify])
    }

    /// Returns the number of statements.
    pub fn len(&self) -> usize {
        let optional = [self.access == Access::ReadWrite, self.traits.folds];
        2 + optional.into_iter().filter(|is_needed| *is_needed).count()
    }

    /// Reads the verdict from the answer to the statement `at` of a batch.
    pub fn verdict(answers: &Answers, at: usize) -> Option<Verdict> {
        let row = answers.row(at)?;
        let flag = |column| match row.bytes(column) {
            Some(b"t") => Some(true),
            Some(b"f") => Some(false),
            _ => None,
        };
        Some(Verdict { is_bare: flag(1)?, has_temporary_schema: flag(2)?, has_new_traits: flag(3)? })
    }
}

/// Releases advisory locks and asks for the rest. `$1` and `$2`: role and session user as they should be.
macro_rules! verify {
    ($prepared:literal, $traits:literal) => {
        concat!(
            "select pg_catalog.pg_advisory_unlock_all(), \
             pg_catalog.current_setting('role') operator(pg_catalog.=) $1::pg_catalog.text \
             and session_user operator(pg_catalog.=) $2::pg_catalog.name \
             and not exists (select from pg_catalog.pg_listening_channels()) \
             and not exists (select from pg_catalog.pg_cursor() as held where held.is_holdable)",
            $prepared,
            ", pg_catalog.pg_my_temp_schema() operator(pg_catalog.<>) 0::pg_catalog.oid, ",
            $traits
        )
    };
}

/// Where the database's functions may prepare statements, those are looked for: that takes longer the more
/// statements of ours the session has.
fn verify(traits: FunctionTraits) -> &'static str {
    const NONE: &str =
        verify!("", "exists (select from portico_session.folding) or exists (select from portico_session.preparing)");
    const FOLDS: &str = verify!("", "exists (select from portico_session.preparing)");
    const PREPARES: &str = verify!(
        " and not exists (select from pg_catalog.pg_prepared_statement() as left_over where left_over.from_sql)",
        "exists (select from portico_session.folding)"
    );
    const BOTH: &str = verify!(
        " and not exists (select from pg_catalog.pg_prepared_statement() as left_over where left_over.from_sql)",
        "false"
    );
    match (traits.folds, traits.prepares) {
        (false, false) => NONE,
        (true, false) => FOLDS,
        (false, true) => PREPARES,
        (true, true) => BOTH,
    }
}

/// Everything that a session can hold, for connections behind a pooler, where the session is lent for one
/// transaction and cannot be asked later. `take_role` is the origin's.
pub(super) fn discard_everything(take_role: &str) -> impl Iterator<Item = Statement<'_>> {
    let take_role = if take_role.is_empty() { "reset role" } else { take_role };
    let commands = [
        "close all",
        "reset all",
        "reset session authorization",
        take_role,
        "unlisten *",
        "select pg_catalog.pg_advisory_unlock_all()",
        "discard temp",
        "discard sequences",
        "discard plans",
        "deallocate all",
    ];
    commands.into_iter().map(|command| Statement::unnamed(command, &[]))
}
