//! What a session carries from one transaction to the next: nothing that a request could see.
//!
//! Connections are shared by all callers of the data API. Two things keep the callers apart, and both are
//! PostgreSQL's own:
//!
//! 1. **Everything of a request that SQL can see** (role, claims, method, path, headers, cookies, response
//!    settings) is set by `set_config(…, true)` for that transaction, to this request's value, in every
//!    transaction. All that the transaction runs, deferred triggers at its commit included, sees these
//!    values, and PostgreSQL takes them back at its end.
//! 2. **What functions leave in the session** is taken back behind the transaction by [`SessionReset`], in the same
//!    write, whatever the transaction was: settings (`reset all`), channels, cursors, advisory locks, the
//!    sequences that `lastval` knows. Its last statement asks PostgreSQL for what is left all the same: another
//!    role, a temporary schema, prepared statements. Only a session for which PostgreSQL has confirmed that
//!    there is nothing is [clean](Session::is_clean).
//!
//! Invariant: a connection that is not clean is never handed to another caller. It is restored first
//! ([`restore`](super::connection::WireConnection::restore)), or closed. A connection counts as not clean from
//! the moment a batch is sent on it, so whatever happens in between (an error, an abort, a caller that goes
//! away) cannot be forgotten.
//!
//! **The answer cannot be forged.** SQL can deallocate our prepared statements and prepare its own under their
//! names. It can prepare queries only, so a command that was exchanged shows by its tag. The question is a
//! query: it is kept in the unnamed prepared statement, which SQL has no word for.
//!
//! **Plans.** PostgreSQL keeps the plans of prepared statements and of statements inside functions for the
//! session. A function that is declared immutable may be computed while a plan is made, so a function that is
//! declared so wrongly and reads the claims would leave one caller's value in a plan that another uses. As long
//! as the database has any immutable function in an interpreted language ([`FunctionTraits::folds`]), plans
//! are discarded behind each transaction. What such functions return in the expressions of indexes, domains and
//! partitions is kept outside of plans until the session ends: while there are such expressions
//! ([`FunctionTraits::keeps`]), a session ends with its transaction. Event triggers keep the list of all these
//! functions in the transactions that change them (`bootstrap/sql/session_traits.sql`), and [`SessionReset`] asks for it
//! behind each transaction: what the server knows of the schema decides only how much time is spent.

use std::sync::Arc;

use crate::wire::protocol::batch::{Access, Statement};
use crate::wire::protocol::result_sets::ResultSets;

/// Properties of the functions in a database that decide what a session has to take back. Knowing less than
/// is true costs a restored session and never lets anything pass; see [`session`](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionTraits {
    /// Some function in an interpreted language is declared immutable, so plans may hold what it returned.
    pub folds: bool,
    /// Some function may run `prepare`.
    pub prepares: bool,
    /// Some expression has parts that PostgreSQL computes once and keeps for a session.
    pub keeps: bool,
}

impl FunctionTraits {
    /// The properties of a database with functions of PostgreSQL only.
    pub const NONE: Self = Self { folds: false, prepares: false, keeps: false };

    /// The properties of a database of which nothing is known. PostgreSQL's own list, which is asked for behind each
    /// transaction, adds [`keeps`](Self::keeps).
    pub const UNKNOWN: Self = Self { folds: true, prepares: true, keeps: false };

    /// Asks the database. Where no event triggers keep the list of functions, as in a database that was set up without
    /// a superuser, functions count as unknown, and the expressions are those of this moment.
    ///
    /// # Errors
    /// PostgreSQL's error.
    pub async fn load(client: &tokio_postgres::Client) -> Result<Self, tokio_postgres::Error> {
        const IS_WATCHED: &str = "
            select pg_catalog.count(*) = 2
              from pg_catalog.pg_event_trigger
             where evtname in ('portico_functions_changed', 'portico_functions_dropped') and evtenabled = 'A'";
        // The list may lack a function that came before the event triggers; no function may be missing in both
        const TRAITS: &str = "
            select coalesce(pg_catalog.bit_or(bits), 0)
              from (select bit from portico_session.noted
                    union all
                    select case when folds then 1 else 0 end | case when prepares then 2 else 0 end from portico_session.traits) as all_traits (bits)";
        const KEPT: &str = "select distinct holder from portico_session.find_kept(null) order by 1";
        let kept: Vec<String> = client.query(KEPT, &[]).await?.iter().map(|row| row.get(0)).collect();
        if !kept.is_empty() {
            tracing::warn!(
                expressions = kept.join(", "),
                "connections of the data API end with each transaction: PostgreSQL keeps what immutable functions return in these expressions; let the functions take a column as argument"
            );
        }
        if client.query_one(IS_WATCHED, &[]).await?.get::<_, bool>(0) {
            let bits: i32 = client.query_one(TRAITS, &[]).await?.get(0);
            return Ok(Self::from_bits(u8::try_from(bits).unwrap_or(u8::MAX)));
        }
        Ok(Self { keeps: !kept.is_empty(), ..Self::UNKNOWN })
    }

    /// Returns these properties, and those of a database of which nothing is known.
    pub(crate) fn with_unknown(self) -> Self {
        Self::from_bits(self.bits() | Self::UNKNOWN.bits())
    }

    pub(crate) fn from_bits(bits: u8) -> Self {
        Self { folds: bits & 1 != 0, prepares: bits & 2 != 0, keeps: bits & 4 != 0 }
    }

    pub(crate) fn bits(self) -> u8 {
        u8::from(self.folds) | (u8::from(self.prepares) << 1) | (u8::from(self.keeps) << 2)
    }
}

/// The beginning of a session, which it returns to.
#[derive(Debug, Default)]
pub(crate) struct SessionOrigin {
    /// The role that is set in the session, as the setting `role` shows it.
    pub role: String,
    /// The user that the session acts as by itself.
    pub session_user: String,
    /// The statement that takes on the role again. Empty where the login role is the role.
    pub take_role: String,
}

impl SessionOrigin {
    /// Returns the origin of a session of the role that logged in.
    pub fn of_login_role(role: &str) -> Self {
        Self { role: "none".into(), session_user: role.to_owned(), take_role: String::new() }
    }
}

/// The state of a connection's session between two batches.
#[derive(Debug, Default)]
pub(crate) struct SessionState {
    pub origin: Arc<SessionOrigin>,
    is_clean: bool,
    /// The session holds something until its end: it had a temporary table, which functions that were compiled
    /// meanwhile may have taken for another one, or values of immutable functions in expressions.
    must_end: bool,
}

impl SessionState {
    /// Returns the state of a new session.
    pub fn new(origin: SessionOrigin) -> Self {
        Self { origin: Arc::new(origin), is_clean: true, must_end: false }
    }

    /// Returns whether PostgreSQL has confirmed that nothing of the last transaction is left.
    pub fn is_clean(&self) -> bool {
        self.is_clean
    }

    /// Notes that statements are about to be sent.
    pub fn mark_dirty(&mut self) {
        self.is_clean = false;
    }

    /// Returns whether nothing brings back the session's beginning.
    pub fn must_end(&self) -> bool {
        self.must_end
    }

    /// Notes that everything was discarded, behind a pooler.
    pub fn discarded(&mut self, traits: FunctionTraits) {
        self.must_end |= traits.keeps;
        self.is_clean = !self.must_end;
    }

    /// Returns the statements that end a transaction's use of the session.
    pub fn tail(&self, access: Access, traits: FunctionTraits) -> SessionReset {
        SessionReset { access, traits, origin: Arc::clone(&self.origin) }
    }

    /// Takes what PostgreSQL answered to a tail. Returns the verdict.
    pub fn settle(&mut self, verdict: ResetCheck) -> ResetCheck {
        self.must_end |= verdict.must_end;
        self.is_clean = verdict.is_bare && !self.must_end && !verdict.has_new_traits;
        verdict
    }
}

/// The statements behind a transaction that take back what functions may have left in the session.
#[derive(Debug, Clone)]
pub(crate) struct SessionReset {
    access: Access,
    traits: FunctionTraits,
    origin: Arc<SessionOrigin>,
}

/// PostgreSQL's answer to a [`SessionReset`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResetCheck {
    /// Every command took effect, and neither another role nor a prepared statement is left.
    is_bare: bool,
    /// The session holds something that nothing takes back.
    must_end: bool,
    /// The database has functions with a property that the tail did not know of.
    pub has_new_traits: bool,
}

impl SessionReset {
    /// Returns the commands and the tags that PostgreSQL answers to them.
    fn commands(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let commands = [
            (true, "reset all", "RESET"),
            (true, "close all", "CLOSE CURSOR ALL"),
            (true, "unlisten *", "UNLISTEN"),
            // Only a transaction that writes can draw from a sequence
            (self.access == Access::ReadWrite, "discard sequences", "DISCARD SEQUENCES"),
            (self.traits.folds, "discard plans", "DISCARD PLANS"),
        ];
        commands.into_iter().filter(|(is_needed, ..)| *is_needed).map(|(_, command, tag)| (command, tag))
    }

    /// Returns the statements.
    pub fn statements<'a>(&self) -> impl Iterator<Item = Statement<'a>> {
        let commands = self.commands().map(|(command, _)| Statement::named(command, &[]));
        commands.chain([Statement::kept_unnamed(verify(self.traits))])
    }

    /// Returns the number of statements.
    pub fn len(&self) -> usize {
        self.commands().count() + 1
    }

    /// Reads the verdict from the answers to a batch whose statements from `first` on are the tail's. `None`: PostgreSQL
    /// did not answer the question.
    pub fn verdict(&self, answers: &ResultSets, first: usize) -> Option<ResetCheck> {
        let mut at = first;
        let mut is_bare = true;
        for (_, tag) in self.commands() {
            is_bare &= answers.tag(at) == tag;
            at += 1;
        }
        let row = answers.row(at)?;
        let flag = |column| match row.bytes(column) {
            Some(b"t") => Some(true),
            Some(b"f") => Some(false),
            _ => None,
        };
        let is_origin = row.text(1) == Some(&self.origin.role) && row.text(2) == Some(&self.origin.session_user);
        let (has_temporary_schema, has_prepared) = (flag(3)?, flag(5)?);
        let found = FunctionTraits::from_bits(row.text(4)?.parse().ok()?);
        Some(ResetCheck {
            is_bare: is_bare && is_origin && !has_prepared,
            must_end: has_temporary_schema || found.keeps || self.traits.keeps,
            has_new_traits: found.bits() & !self.traits.bits() != 0,
        })
    }
}

/// Releases advisory locks and asks for the rest: role, session user, temporary schema, traits of functions, statements
/// that SQL has prepared.
macro_rules! verify {
    ($prepared:literal) => {
        concat!(
            "select pg_catalog.pg_advisory_unlock_all(), pg_catalog.current_setting('role'), session_user, \
             pg_catalog.pg_my_temp_schema() operator(pg_catalog.<>) 0::pg_catalog.oid, \
             (select coalesce(pg_catalog.bit_or(noted.bit), 0) from portico_session.noted), ",
            $prepared
        )
    };
}

/// Where the database's functions may prepare statements, those are looked for: that takes longer the more
/// statements of ours the session has.
fn verify(traits: FunctionTraits) -> &'static str {
    const PLAIN: &str = verify!("false");
    const PREPARES: &str =
        verify!("exists (select from pg_catalog.pg_prepared_statement() as left_over where left_over.from_sql)");
    if traits.prepares { PREPARES } else { PLAIN }
}

/// Everything that a session can hold, for connections behind a pooler, where the session is lent for one
/// transaction and cannot be asked later. `take_role` is the origin's.
pub(crate) fn discard_everything(take_role: &str) -> impl Iterator<Item = Statement<'_>> {
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
