//! One operation as SQL sees it: under the role of its caller, or of the service.
//!
//! Every step is a transaction of its own that first sets the role, the claims and the description
//! of the request, for that transaction alone. A step is one write of the wire client, with the
//! session reset behind it (`portico_database::wire`): nothing of one caller reaches another.

mod request_description;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, Method};
use portico_base::CappedPermit;
use portico_database::wire::{Access, Batch, JoinedRows, Param, ResultSets, Row, RowSeparators, Statement, WireError};
use serde::de::DeserializeOwned;

pub(crate) use self::request_description::RequestDescription;
use crate::error::{Result, StorageError};
use crate::identity::CallerIdentity;
use crate::service::StorageService;
use crate::sql;

/// The identity that a step runs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Actor {
    /// The caller: row-level security applies.
    Caller,
    /// The service: row-level security does not apply.
    Service,
}

/// The end of a transaction that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionEnd {
    Commit,
    /// Only the verdict of PostgreSQL is of interest.
    RollBack,
}

/// An operation of one request. Clones share everything.
#[derive(Clone)]
pub(crate) struct Operation {
    pub service: Arc<StorageService>,
    inner: Arc<OperationState>,
}

struct OperationState {
    name: &'static str,
    caller: Option<CallerIdentity>,
    /// The identity of the service, once a step has needed it.
    own: OnceLock<CallerIdentity>,
    request: RequestDescription,
}

/// A statement of a step and its values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SqlStep<'a> {
    pub text: &'a str,
    pub values: &'a [Param<'a>],
}

/// The statement that sets the settings of a transaction, and its values.
struct SettingsStep<'a> {
    text: &'static str,
    values: Vec<Param<'a>>,
}

impl SettingsStep<'_> {
    /// Returns the statement as the first one of its transaction.
    fn first(&self) -> Statement<'_> {
        Statement::named(self.text, &self.values)
    }

    /// Returns the statement for a transaction that has the settings of `identity`. It is prepared
    /// apart: PostgreSQL parses and plans a statement anew when the search path has become another
    /// one since its last use.
    fn after<'a>(&'a self, identity: &'a CallerIdentity) -> Statement<'a> {
        self.first().scope(&identity.role)
    }
}

/// Joins rows to a JSON array.
pub(crate) const JSON_ARRAY: RowSeparators = RowSeparators { open: "[", between: ",", close: "]" };

/// The rows of a read.
pub(crate) struct ReadRows {
    /// The first column of all rows, with the separators.
    pub joined: JoinedRows,
}

impl ReadRows {
    /// Returns the bytes of the joined rows.
    pub fn bytes(&self) -> Bytes {
        self.joined.to_bytes()
    }

    /// Parses the only row of the main statement, which is JSON.
    ///
    /// # Errors
    /// [`StorageError::Internal`] if it has another form.
    pub fn one<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        if self.joined.rows == 0 {
            return Ok(None);
        }
        parse(&self.bytes()).map(Some)
    }
}

/// Parses JSON that PostgreSQL has made.
///
/// # Errors
/// [`StorageError::Internal`] if it has another form.
pub(crate) fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T> {
    serde_json::from_slice(json).map_err(|error| {
        tracing::error!(error = %error, "a row of the storage service has an unexpected form");
        StorageError::Internal
    })
}

/// The results of the steps of a transaction.
pub(crate) struct StepResults {
    results: ResultSets,
    /// The number of steps before the test, which has statements of its own.
    before_test: usize,
    test_statements: usize,
}

impl StepResults {
    /// Returns the rows of a step, counted from 0 without the test.
    pub fn rows(&self, step: usize) -> &[Row] {
        let skipped = if step < self.before_test { 0 } else { self.test_statements };
        self.results.rows(step + 2 + skipped)
    }
}

impl Operation {
    /// Returns an operation of a caller, or of none. `name` is the value of `storage.operation`.
    pub fn new(
        service: &Arc<StorageService>,
        name: &'static str,
        caller: Option<CallerIdentity>,
        request: RequestDescription,
    ) -> Self {
        let inner = OperationState { name, caller, own: OnceLock::new(), request };
        Self { service: Arc::clone(service), inner: Arc::new(inner) }
    }

    /// Returns an operation of the program itself, which no request has caused.
    pub fn of_program(service: &Arc<StorageService>, name: &'static str, method: &Method, path: &str) -> Self {
        Self::new(service, name, None, RequestDescription::new(method, path, &HeaderMap::new(), None))
    }

    /// Returns the caller.
    ///
    /// # Errors
    /// Without one.
    pub fn caller(&self) -> Result<&CallerIdentity> {
        self.inner
            .caller
            .as_ref()
            .ok_or_else(|| StorageError::Schema("headers must have required property 'authorization'".into()))
    }

    /// Returns the caller, if there is one.
    pub fn known_caller(&self) -> Option<&CallerIdentity> {
        self.inner.caller.as_ref()
    }

    /// Returns the name under which limits per caller count the request: the user, or the network
    /// of the address where there is none.
    pub fn requester(&self) -> String {
        match (self.known_caller().and_then(|caller| caller.subject.as_deref()), self.inner.request.client) {
            (Some(subject), _) => format!("user {subject}"),
            (None, Some(address)) => format!("network {}", address.network()),
            (None, None) => "server".to_owned(),
        }
    }

    /// Returns the name under which a new upload counts for the bound on unfinished ones; `None`
    /// for the service, which has no bound. `subject` is that of a signed URL, which has no caller.
    pub fn bounded_requester(&self, subject: Option<&str>) -> Option<String> {
        let is_service = self.known_caller().is_some_and(CallerIdentity::is_service_role);
        (!is_service).then(|| subject.map_or_else(|| self.requester(), |subject| format!("user {subject}")))
    }

    /// Waits until the requester may send the content of one more upload, up to the configured
    /// time.
    ///
    /// # Errors
    /// [`StorageError::TooManyUploads`]
    pub async fn upload_slot(&self) -> Result<CappedPermit> {
        let StorageService { settings, uploads, .. } = &*self.service;
        let requester = self.requester();
        let waiting = tokio::time::timeout(settings.upload_wait, uploads.acquire(&requester, 1));
        waiting.await.map_err(|_| StorageError::TooManyUploads)
    }

    /// Waits until the requester may hold this number of bytes of a body in memory, up to the
    /// configured time.
    ///
    /// # Errors
    /// [`StorageError::TooManyUploads`]
    pub async fn reserve_memory(&self, bytes: usize) -> Result<CappedPermit> {
        let StorageService { settings, body_memory, .. } = &*self.service;
        let requester = self.requester();
        let waiting = tokio::time::timeout(settings.upload_wait, body_memory.acquire(&requester, bytes));
        waiting.await.map_err(|_| StorageError::TooManyUploads)
    }

    fn identity(&self, actor: Actor) -> Result<&CallerIdentity> {
        match actor {
            Actor::Caller => self.caller(),
            Actor::Service => Ok(self.own()),
        }
    }

    /// Returns the identity of the service.
    fn own(&self) -> &CallerIdentity {
        self.inner.own.get_or_init(|| CallerIdentity::service(&self.service.keys))
    }

    /// Returns the statement that sets the settings of a read. No policy applies to a read as the
    /// service, and it calls nothing of the project, so that nothing could see the request.
    fn settings_of_read(&self, actor: Actor) -> Result<SettingsStep<'_>> {
        match actor {
            Actor::Caller => Ok(self.settings(self.caller()?)),
            Actor::Service => Ok(self.settings_of_service()),
        }
    }

    /// Returns the statement that sets the settings of a read as the service.
    fn settings_of_service(&self) -> SettingsStep<'_> {
        let own = self.own();
        let values = [&*own.role, &*own.claims, self.inner.name];
        SettingsStep { text: sql::SET_SERVICE, values: values.map(|value| Some(value.as_bytes())).to_vec() }
    }

    /// Returns the statement that sets the settings of a step.
    fn settings<'a>(&'a self, identity: &'a CallerIdentity) -> SettingsStep<'a> {
        let OperationState { name, request, .. } = &*self.inner;
        let values = [
            &*identity.role,
            identity.token.expose(),
            identity.subject.as_deref().unwrap_or_default(),
            &*identity.claims,
            &*request.headers,
            &*request.method,
            &*request.path,
            name,
        ];
        SettingsStep { text: sql::SET_REQUEST, values: values.map(|value| Some(value.as_bytes())).to_vec() }
    }

    /// Runs a read. Its rows have one column. Quick reads of waiting callers share a write.
    ///
    /// # Errors
    /// Those of PostgreSQL and of the connection.
    pub async fn read(&self, actor: Actor, main: SqlStep<'_>, separators: RowSeparators) -> Result<ReadRows> {
        let identity = self.identity(actor)?;
        let settings = self.settings_of_read(actor)?;
        let batch = Batch::new()
            .statement(Statement::named(sql::BEGIN_READ, &[]))
            .statement(settings.first())
            .statement(Statement::named(main.text, main.values).scope(&identity.role).joined(separators))
            .statement(Statement::named("commit", &[]))
            .ending(Access::ReadOnly);
        let mut results = self.service.reads.run(&batch).await?;
        Ok(ReadRows { joined: results.take_joined_rows().unwrap_or_default() })
    }

    /// Runs a read whose rows have several columns, in PostgreSQL's binary form. Quick reads of
    /// waiting callers share a write.
    ///
    /// # Errors
    /// Those of PostgreSQL and of the connection.
    pub async fn read_rows(&self, actor: Actor, step: SqlStep<'_>) -> Result<StepResults> {
        let identity = self.identity(actor)?;
        let settings = self.settings_of_read(actor)?;
        let batch = Batch::new()
            .statement(Statement::named(sql::BEGIN_READ, &[]))
            .statement(settings.first())
            .statement(Statement::named(step.text, step.values).scope(&identity.role).binary().main())
            .statement(Statement::named("commit", &[]))
            .ending(Access::ReadOnly);
        let results = self.service.reads.run(&batch).await?;
        Ok(StepResults { results, before_test: 0, test_statements: 0 })
    }

    /// Runs statements in one transaction.
    ///
    /// # Errors
    /// Those of PostgreSQL and the connection, so that a caller can distinguish a transaction
    /// without effect from one whose outcome is unknown.
    pub async fn write(
        &self,
        actor: Actor,
        steps: &[SqlStep<'_>],
        ending: TransactionEnd,
    ) -> std::result::Result<StepResults, WriteError> {
        self.write_tested(actor, steps, None, &[], ending).await
    }

    /// Like [`write`](Self::write), but with a test between two groups of steps: a statement that
    /// runs as the caller and is undone. If it fails, so does the transaction.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub async fn write_tested(
        &self,
        actor: Actor,
        before: &[SqlStep<'_>],
        test: Option<SqlStep<'_>>,
        after: &[SqlStep<'_>],
        ending: TransactionEnd,
    ) -> std::result::Result<StepResults, WriteError> {
        let identity = self.identity(actor).map_err(WriteError::NotRun)?;
        let settings = self.settings(identity);
        let tester = if test.is_some() { self.caller().map_err(WriteError::NotRun)? } else { identity };
        let test_settings = test.is_some().then(|| self.settings(tester));
        let mut batch = Batch::new().statement(Statement::named(sql::BEGIN_WRITE, &[])).statement(settings.first());
        for step in before {
            batch.push(Statement::named(step.text, step.values).scope(&identity.role));
        }
        let first_of_test = batch.len();
        if let (Some(test), Some(test_settings)) = (test, &test_settings) {
            batch.push(Statement::named("savepoint before_test", &[]));
            batch.push(test_settings.after(identity));
            batch.push(Statement::named(test.text, test.values).scope(&tester.role));
            batch.push(Statement::named(sql::CHECK_CONSTRAINTS, &[]));
            // This restores the role and the other settings too
            batch.push(Statement::named("rollback to savepoint before_test", &[]));
        }
        let test_statements = batch.len() - first_of_test;
        for step in after {
            batch.push(Statement::named(step.text, step.values).scope(&identity.role));
        }
        // A failure of the commit itself would end the transaction before the session reset
        batch.push(Statement::named(sql::CHECK_CONSTRAINTS, &[]));
        if ending == TransactionEnd::Commit {
            // Behind all triggers, also the deferred ones, which may change the setting. Content is
            // deleted after the commit, so the commit must not be lost
            batch.push(Statement::named(sql::SYNCHRONOUS_COMMIT, &[]));
        }
        batch.push(match ending {
            TransactionEnd::Commit => Statement::named("commit", &[]),
            TransactionEnd::RollBack => Statement::named("rollback", &[]),
        });
        let results = self.run_write(batch).await?;
        Ok(StepResults { results, before_test: before.len(), test_statements })
    }

    /// Runs a statement that is undone, after another one in the same transaction, which runs as
    /// the service. Returns the rows of both.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), for either statement.
    pub async fn test_after(
        &self,
        before: SqlStep<'_>,
        actor: Actor,
        test: SqlStep<'_>,
    ) -> std::result::Result<StepResults, WriteError> {
        let tester = self.identity(actor).map_err(WriteError::NotRun)?;
        let own = self.own();
        let (own_settings, test_settings) = (self.settings_of_service(), self.settings(tester));
        let batch = Batch::new()
            .statement(Statement::named(sql::BEGIN_WRITE, &[]))
            .statement(own_settings.first())
            .statement(Statement::named(before.text, before.values).scope(&own.role))
            .statement(test_settings.after(own))
            .statement(Statement::named(test.text, test.values).scope(&tester.role))
            .statement(Statement::named(sql::CHECK_CONSTRAINTS, &[]))
            .statement(Statement::named("rollback", &[]));
        let results = self.run_write(batch).await?;
        // Between the two are the settings of the second
        Ok(StepResults { results, before_test: 1, test_statements: 1 })
    }

    async fn run_write(&self, batch: Batch<'_>) -> std::result::Result<ResultSets, WriteError> {
        let batch = batch.ending(Access::ReadWrite);
        let mut connection =
            self.service.reads.pool().checkout().await.map_err(|error| WriteError::NotRun(error.into()))?;
        connection.run(&batch).await.map_err(|error| match error {
            error if is_known_rollback(&error) => WriteError::RolledBack(error),
            error => WriteError::Unknown(error.into()),
        })
    }
}

/// Returns true for an error that proves that the transaction had no effect. The commit was sent
/// together with the statements, so the end of a session may be reported behind it, and so may a
/// cancellation that arrives late.
fn is_known_rollback(error: &WireError) -> bool {
    match error {
        WireError::Postgres(error) => {
            // Connection, operator intervention, system error, internal error
            let is_of_server = ["08", "57", "58", "XX"].iter().any(|class| error.code.starts_with(class));
            !error.is_fatal() && !is_of_server && error.code != "40003"
        }
        // Detected before anything is sent
        WireError::TooLarge(_) | WireError::ZeroByte => true,
        _ => false,
    }
}

/// The reason why a transaction that writes failed.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// It was not begun.
    NotRun(StorageError),
    /// It had no effect.
    RolledBack(WireError),
    /// The connection was lost or the server ended it: it may have taken effect.
    Unknown(StorageError),
}

impl From<WriteError> for StorageError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NotRun(error) | WriteError::Unknown(error) => error,
            WriteError::RolledBack(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use portico_database::wire::PostgresError;

    use super::*;

    #[test]
    fn only_an_error_before_the_commit_proves_a_rollback() {
        let postgres = |severity: &str, code: &str| {
            let error = PostgresError { severity: severity.into(), code: code.into(), ..PostgresError::default() };
            is_known_rollback(&WireError::Postgres(Box::new(error)))
        };
        assert!(postgres("ERROR", "42501") && postgres("ERROR", "23505") && postgres("ERROR", "55P03"));
        assert!(!postgres("FATAL", "57P01") && !postgres("PANIC", "XX000") && !postgres("FATAL", "42501"));
        assert!(!postgres("ERROR", "57014") && !postgres("ERROR", "40003"));
        assert!(is_known_rollback(&WireError::ZeroByte) && !is_known_rollback(&WireError::Protocol("")));
        assert!(!is_known_rollback(&WireError::Lost(std::io::ErrorKind::ConnectionReset.into())));
    }
}
