//! Reads that run as the role of a channel.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash, Hasher};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use portico_database::wire::{Access, Batch, Param, ReadCoalescer, ReadError, RowSeparators, Statement, WireError};
use tokio::time::Instant;

use super::times::DeliveryTimes;
use crate::identity::ChannelIdentity;

/// The time that the evaluation of conditions may take. They read no table.
const CONDITION_TIMEOUT: &str = "1s";
/// The number of attempts while the database is not available, and the first pause between them.
/// Each pause is twice the one before.
const ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// PostgreSQL's code of a statement that took too long.
pub(crate) const CANCELED: &str = "57014";
const BEGIN: &str = "begin isolation level read committed read only";
const SET: &str = "select pg_catalog.set_config('statement_timeout', $1, true), \
                          pg_catalog.set_config('request.jwt.claims', $2, true), \
                          pg_catalog.set_config('search_path', 'public, extensions', true), \
                          pg_catalog.set_config('lock_timeout', $4, true), \
                          pg_catalog.set_config('role', $3, true)";
const JSON_ARRAY: RowSeparators = RowSeparators { open: "[", between: ",", close: "]" };

/// The role and the claims that a channel reads changes with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangeReader {
    pub role: Box<str>,
    /// JSON text, as it was signed.
    pub claims: Box<str>,
    /// The person whose tokens have such claims. `None`: they have no subject.
    pub person: Option<Arc<str>>,
    /// The hash of the rest: with each change, readers are looked up several times.
    hash: u64,
}

impl ChangeReader {
    /// Returns the reader of a channel.
    pub fn of(identity: &ChannelIdentity) -> Self {
        Self::new(identity.role().into(), identity.claims().into(), identity.person().map(Into::into))
    }

    /// Returns a reader.
    pub fn new(role: Box<str>, claims: Box<str>, person: Option<Arc<str>>) -> Self {
        // A person may choose some of the claims, so equal hashes must not be predictable
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let hash = HASHER.hash_one((&role, &claims, &person));
        Self { role, claims, person, hash }
    }
}

impl Hash for ChangeReader {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Runs reads as the roles of channels, each in a transaction of its own. Reads of waiting callers
/// share round trips.
#[derive(Debug, Clone)]
pub(crate) struct RoleReads {
    reads: ReadCoalescer,
    limits: Arc<ReadLimits>,
}

/// The time limits of a read and of its wait for a lock, as PostgreSQL reads them.
#[derive(Debug)]
struct ReadLimits {
    read: String,
    lock: String,
}

/// A failed read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReadFailure {
    /// PostgreSQL's error.
    #[error("{message} ({code})")]
    Rejected { code: Box<str>, message: Box<str> },
    /// The database is not available at the moment.
    #[error("{0}")]
    Unavailable(Arc<str>),
}

impl ReadFailure {
    /// Returns true for an error that one of several items may have caused: neither a missing right
    /// or object, nor a timeout, which would only take as long again.
    pub fn is_of_an_item(&self) -> bool {
        match self {
            Self::Rejected { code, .. } => !matches!(code.get(..2), Some("40" | "42" | "53" | "55" | "57")),
            Self::Unavailable(_) => false,
        }
    }

    /// Returns true for an error of the server's state, such as a lock of a migration, a lack of
    /// connections or a timeout: the same read may succeed later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Rejected { code, .. } => matches!(code.get(..2), Some("40" | "53" | "55" | "57")),
            Self::Unavailable(_) => true,
        }
    }

    /// Returns true if a read was not answered for a reason other than its own time limit.
    pub fn is_unanswered(&self) -> bool {
        self.is_temporary() && !self.has_code(CANCELED)
    }

    /// Returns true for PostgreSQL's error with this code.
    pub fn has_code(&self, expected: &str) -> bool {
        matches!(self, Self::Rejected { code, .. } if **code == *expected)
    }
}

impl RoleReads {
    /// Returns reads on the connections of `reads`.
    pub fn new(reads: ReadCoalescer, times: &DeliveryTimes) -> Self {
        let [read, lock] = [times.read, times.lock].map(|time| format!("{}ms", time.as_millis()));
        Self { reads, limits: Arc::new(ReadLimits { read, lock }) }
    }

    /// Runs a statement with the role and the claims of a channel. Its rows have one column, of
    /// JSON text. Returns an array of them.
    ///
    /// # Errors
    /// [`ReadFailure`]
    pub async fn read_as(&self, reader: &ChangeReader, sql: &str, values: &[Param<'_>]) -> Result<Bytes, ReadFailure> {
        self.read([&self.limits.read, &reader.claims, &reader.role], sql, values).await
    }

    /// Like [`read_as`](Self::read_as), but with a role alone.
    ///
    /// # Errors
    /// [`ReadFailure`]
    pub async fn read_as_role(&self, role: &str, sql: &str, values: &[Param<'_>]) -> Result<Bytes, ReadFailure> {
        self.read([&self.limits.read, "", role], sql, values).await
    }

    /// Like [`read_as_role`](Self::read_as_role), but with the time that conditions have.
    ///
    /// # Errors
    /// [`ReadFailure`]
    pub async fn test_as_role(&self, role: &str, sql: &str, values: &[Param<'_>]) -> Result<Bytes, ReadFailure> {
        self.read([CONDITION_TIMEOUT, "", role], sql, values).await
    }

    /// Runs a statement with settings: time limit, claims and role.
    async fn read(&self, settings: [&str; 3], sql: &str, values: &[Param<'_>]) -> Result<Bytes, ReadFailure> {
        let [time, claims, role] = settings;
        let settings = [time, claims, role, &self.limits.lock].map(|value| Some(value.as_bytes()));
        // The role is the scope of every statement with a plan of its own: also one that names no
        // table may call functions that the role may not
        let batch = Batch::new()
            .statement(Statement::named(BEGIN, &[]))
            .statement(Statement::named(SET, &settings))
            .statement(Statement::named(sql, values).scope(role).joined(JSON_ARRAY))
            .statement(Statement::named("commit", &[]))
            .ending(Access::ReadOnly);
        let mut results = self.reads.run(&batch).await.map_err(|error| match error {
            ReadError::Checkout(error) | ReadError::Run(error) => failure(&error),
        })?;
        let joined = results.take_joined_rows().unwrap_or_default();
        Ok(match joined.pieces.as_slice() {
            [] => Bytes::from_static(b"[]"),
            [piece] => piece.clone(),
            pieces => pieces.concat().into(),
        })
    }
}

fn failure(error: &WireError) -> ReadFailure {
    match error.postgres() {
        Some(rejection) if !error.is_unavailable() => {
            ReadFailure::Rejected { code: rejection.code.as_str().into(), message: rejection.message.as_str().into() }
        }
        _ => ReadFailure::Unavailable(error.to_string().into()),
    }
}

/// The time after which a read is not repeated any more. All changes wait for it.
const RETRY_TIME: Duration = Duration::from_secs(3);

/// Repeats a read while the database is not available, for some seconds.
pub(crate) async fn retrying<'a, T>(
    read: impl Fn() -> BoxFuture<'a, Result<T, ReadFailure>>,
) -> Result<T, ReadFailure> {
    let mut pause = FIRST_PAUSE;
    let start = Instant::now();
    for _ in 1..ATTEMPTS {
        match read().await {
            Err(ReadFailure::Unavailable(_)) if start.elapsed() < RETRY_TIME => tokio::time::sleep(pause).await,
            outcome => return outcome,
        }
        pause *= 2;
    }
    read().await
}
