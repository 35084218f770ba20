//! The statements of a probe.

use std::hash::{Hash, Hasher};

use portico_base::{hash, random};
use portico_database::wire::{Access, Batch, Param, PooledConnection, ResultSets, Statement, WireError};
use uuid::Uuid;

use super::error::AuthoriseError;
use super::subject::Subject;
use crate::identity::ChannelIdentity;
use crate::sql::{SERVICE_ROLE, SET_2, SET_8, STATEMENT_TIMEOUT, service_settings};

/// The schemas of the extensions are there, as they are for the hosted service's own login.
const SEARCH_PATH: &str = r#""$user", public, auth, extensions"#;

const BEGIN: &str = "begin isolation level read committed read write";
const ROLLBACK: &str = "rollback";
const SAVEPOINT: &str = "savepoint before_probe";
/// Takes back the probe before, and everything that its policies have set.
const TO_SAVEPOINT: &str = "rollback to savepoint before_probe";

/// The time of the transaction as the columns have it: in UTC, without a zone.
macro_rules! now {
    () => {
        "pg_catalog.timezone('utc', pg_catalog.now())"
    };
}

macro_rules! insert_visible {
    ($rows:expr) => {
        concat!("insert into realtime.messages (id, topic, extension, inserted_at, updated_at) values ", $rows)
    };
}

/// One probe row.
const INSERT_BROADCAST: &str = insert_visible!(concat!("($1, $2, 'broadcast', ", now!(), ", ", now!(), ")"));
/// Two probe rows.
const INSERT_BOTH: &str = insert_visible!(concat!(
    "($1, $2, 'broadcast', ",
    now!(),
    ", ",
    now!(),
    "), ($3, $2, 'presence', ",
    now!(),
    ", ",
    now!(),
    ")"
));
/// The probe rows that the role may see. The time leaves one partition to be searched.
const SELECT_ONE: &str = concat!("select id from realtime.messages where id = $1 and inserted_at = ", now!());
const SELECT_BOTH: &str = concat!("select id from realtime.messages where id in ($1, $2) and inserted_at = ", now!());
/// A row of the role itself. `returning` would need a policy for reading too.
const INSERT_AS_ROLE: &str = concat!(
    "insert into realtime.messages (topic, extension, inserted_at, updated_at) values ($1, $2, ",
    now!(),
    ", ",
    now!(),
    ")"
);

/// The permissions that a probe asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ProbeKind {
    /// To receive broadcasts and, if `presence`, presence.
    Read { presence: bool },
    /// To send both.
    Write,
}

/// The answer to a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProbeResult {
    pub broadcast: bool,
    /// `None`: not evaluated.
    pub presence: Option<bool>,
}

/// A question to the policies, with everything that they can read. Equal probes have equal answers
/// at any moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Probe {
    kind: ProbeKind,
    identity: ChannelIdentity,
    headers: Box<str>,
    topic: Box<str>,
}

impl Eq for Probe {}

impl Hash for Probe {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.kind, self.identity.claims(), &self.headers, &self.topic).hash(state);
    }
}

impl Probe {
    /// Returns a probe about a subject.
    pub fn new(kind: ProbeKind, subject: &Subject<'_>) -> Self {
        let Subject { identity, headers, topic } = *subject;
        Self { kind, identity: identity.clone(), headers: headers.into(), topic: topic.into() }
    }

    /// Returns the kind.
    pub fn kind(&self) -> ProbeKind {
        self.kind
    }

    /// Returns a digest that no other probe has.
    pub fn digest(&self) -> [u8; 32] {
        let kind = match self.kind {
            ProbeKind::Read { presence: false } => b"r",
            ProbeKind::Read { presence: true } => b"p",
            ProbeKind::Write => b"w",
        };
        let fields = [self.identity.claims(), &self.headers, &self.topic];
        let mut bytes = kind.to_vec();
        for field in fields {
            bytes.extend((field.len() as u64).to_le_bytes());
            bytes.extend(field.as_bytes());
        }
        hash::sha256(&bytes)
    }

    /// Asks PostgreSQL, in a transaction that is rolled back.
    ///
    /// # Errors
    /// See [`AuthoriseError`].
    pub async fn run(&self, connection: &mut PooledConnection) -> Result<ProbeResult, AuthoriseError> {
        match self.kind {
            ProbeKind::Read { presence } => self.read(connection, presence).await,
            ProbeKind::Write => self.write(connection).await,
        }
    }

    /// Returns names and values of the settings that the policies run under.
    fn settings(&self) -> [Param<'_>; 16] {
        let identity = &self.identity;
        let settings = [
            ("search_path", SEARCH_PATH),
            ("statement_timeout", STATEMENT_TIMEOUT),
            ("realtime.topic", &*self.topic),
            ("request.jwt.claims", identity.claims()),
            ("request.jwt.claim.sub", identity.subject().unwrap_or_default()),
            ("request.jwt.claim.role", identity.role()),
            ("request.headers", &*self.headers),
            // The last one, because the others need no rights
            ("role", identity.role()),
        ];
        let mut values = [None; 16];
        for (index, (name, value)) in settings.into_iter().enumerate() {
            values[2 * index] = Some(name.as_bytes());
            values[2 * index + 1] = Some(value.as_bytes());
        }
        values
    }

    async fn read(&self, connection: &mut PooledConnection, presence: bool) -> Result<ProbeResult, AuthoriseError> {
        let ids = [random::uuid(), random::uuid()];
        let texts = ids.map(|id| id.to_string());
        let [broadcast_id, presence_id] = texts.each_ref().map(|text| Some(text.as_bytes()));
        let topic = Some(self.topic.as_bytes());
        let service = service_settings();
        let settings = self.settings();
        let (insert, inserted, select, selected): (_, &[Param<'_>], _, &[Param<'_>]) = match presence {
            true => (INSERT_BOTH, &[broadcast_id, topic, presence_id], SELECT_BOTH, &[broadcast_id, presence_id]),
            false => (INSERT_BROADCAST, &[broadcast_id, topic], SELECT_ONE, &[broadcast_id]),
        };
        let batch = Batch::new()
            .statement(Statement::named(BEGIN, &[]))
            .statement(Statement::named(SET_2, &service))
            .statement(Statement::named(insert, inserted).scope(SERVICE_ROLE))
            .statement(Statement::named(SET_8, &settings))
            .statement(Statement::named(select, selected).scope(self.identity.role()))
            .statement(Statement::named(ROLLBACK, &[]))
            .ending(Access::ReadWrite);
        let results = connection.run(&batch).await?;
        let is_visible = |id: Uuid| contains(&results, 4, id);
        Ok(ProbeResult { broadcast: is_visible(ids[0]), presence: presence.then(|| is_visible(ids[1])) })
    }

    async fn write(&self, connection: &mut PooledConnection) -> Result<ProbeResult, AuthoriseError> {
        let settings = self.settings();
        let row = |extension: &'static str| [Some(self.topic.as_bytes()), Some(extension.as_bytes())];
        let rows = [row("broadcast"), row("presence")];
        let [broadcast, presence] =
            rows.each_ref().map(|row| Statement::named(INSERT_AS_ROLE, row).scope(self.identity.role()));
        let batch = Batch::new()
            .statement(Statement::named(BEGIN, &[]))
            .statement(Statement::named(SET_8, &settings))
            .statement(Statement::named(SAVEPOINT, &[]))
            .statement(broadcast)
            .statement(Statement::named(TO_SAVEPOINT, &[]))
            .statement(presence)
            .statement(Statement::named(ROLLBACK, &[]))
            .ending(Access::ReadWrite);
        match connection.run(&batch).await {
            Ok(_) => return Ok(ProbeResult { broadcast: true, presence: Some(true) }),
            // One of the two, or the role may not be assumed
            Err(error) if is_rejection(&error) && connection.in_transaction() => {}
            Err(error) => return Err(error.into()),
        }
        let broadcast = may_insert(connection, broadcast).await?;
        let presence = may_insert(connection, presence).await?;
        connection.run(&Batch::new().statement(Statement::named(ROLLBACK, &[])).ending(Access::ReadWrite)).await?;
        Ok(ProbeResult { broadcast, presence: Some(presence) })
    }
}

/// Inserts one row behind the savepoint of the open transaction.
async fn may_insert(connection: &mut PooledConnection, insert: Statement<'_>) -> Result<bool, AuthoriseError> {
    let batch = Batch::new().statement(Statement::named(TO_SAVEPOINT, &[])).statement(insert);
    match connection.run(&batch).await {
        Ok(_) => Ok(true),
        Err(error) if is_rejection(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn is_rejection(error: &WireError) -> bool {
    matches!(error, WireError::Postgres(error) if error.code == "42501")
}

/// Returns true if a statement has returned a row with this id.
fn contains(results: &ResultSets, statement: usize, id: Uuid) -> bool {
    let mut ids = results.rows(statement).iter().filter_map(|row| row.text(0)?.parse::<Uuid>().ok());
    ids.any(|found| found == id)
}
