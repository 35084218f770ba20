//! One request's transaction: its settings, its statements, and whether it is kept (contract 14).
//!
//! Where the server has nothing to look at before the commit, everything travels in one write, with the statements
//! behind it that take the session back. Otherwise a second write ends it.

use portico_database::wire::{
    Access, Batch, JoinedRows, Param, Pool, PooledConnection, ResultSets, Row, RowSeparators, Statement, Taken,
    WireError,
};

use crate::config::database::Isolation;
use crate::execute::session_settings::{SessionSettings, TransactionContext, set_local};
use crate::sql::{Sql, StatementOutput};

/// The wishes of SQL for the answer, for main statements that do not yield it themselves.
const WISHES: &str =
    "select pg_catalog.current_setting('response.headers', true), pg_catalog.current_setting('response.status', true)";

impl TransactionContext<'_> {
    fn access(&self) -> Access {
        if self.read_only { Access::ReadOnly } else { Access::ReadWrite }
    }
}

/// How the transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionEnding {
    /// Commit, whatever comes out.
    Commit,
    /// Roll back, whatever comes out; deferred constraints are checked before.
    RollBack,
    /// Somebody looks at the answers first: the transaction is left open for [`finish`].
    Later,
}

/// The statements of a request, after its settings.
pub(crate) struct RequestStatements<'a> {
    pub main: &'a Sql,
    /// What the main statement yields.
    pub yields: StatementOutput,
    /// Another statement behind the main one.
    pub then: Option<&'a Sql>,
}

/// What came out.
pub(crate) struct BatchResults {
    answers: ResultSets,
    places: BatchPositions,
}

/// The places of statements in the batch.
#[derive(Debug, Clone, Copy, Default)]
struct BatchPositions {
    main: usize,
    then: usize,
    wishes: usize,
}

impl BatchResults {
    /// The rows of the main statement.
    pub fn main(&self) -> &[Row] {
        self.answers.rows(self.places.main)
    }

    /// The main statement's rows, joined.
    pub fn take_joined_rows(&mut self) -> Option<JoinedRows> {
        self.answers.take_joined_rows()
    }

    /// How many rows the main statement wrote.
    pub fn affected(&self) -> u64 {
        self.answers.affected(self.places.main).unwrap_or_default()
    }

    /// The rows of the statement behind it.
    pub fn then(&self) -> &[Row] {
        self.answers.rows(self.places.then)
    }

    /// The wishes of SQL for the answer: headers and status. `None` where the main statement yields it.
    pub fn wishes(&self) -> Option<&Row> {
        self.answers.row(self.places.wishes).filter(|_| self.places.wishes > 0)
    }
}

/// The texts and values of a transaction.
struct TransactionBatch<'a> {
    setting: &'a TransactionContext<'a>,
    work: &'a RequestStatements<'a>,
    set: std::borrow::Cow<'static, str>,
    settings: Vec<Param<'a>>,
    pre_request: Option<Sql>,
    main: Vec<Param<'a>>,
    then: Vec<Param<'a>>,
}

impl<'a> TransactionBatch<'a> {
    fn of(
        setting: &'a TransactionContext<'a>,
        settings: &'a SessionSettings<'a>,
        work: &'a RequestStatements<'a>,
    ) -> Self {
        let list = settings.list();
        let pre_request = setting.config.pre_request.as_ref().map(|function| {
            let mut call = Sql::new();
            call.raw("select ");
            if !function.schema.is_empty() {
                call.name(&function.schema).raw(".");
            }
            call.name(&function.name).raw("()");
            call
        });
        Self {
            setting,
            work,
            set: set_local(list.len()),
            settings: list.iter().flat_map(|(name, value)| [Some(name.as_bytes()), Some(value.as_bytes())]).collect(),
            pre_request,
            main: params(work.main),
            then: work.then.map(params).unwrap_or_default(),
        }
    }

    /// Returns the statements up to `end`.
    fn batch(&'a self, end: TransactionEnding) -> (Batch<'a>, BatchPositions) {
        let setting = self.setting;
        let scope = setting.identity.role.as_str();
        let mut batch = Batch::new()
            .statement(Statement::named(begin(setting.isolation, setting.read_only), &[]))
            .statement(Statement::named(&self.set, &self.settings));
        if let Some(call) = &self.pre_request {
            batch.push(Statement::named(call.text(), &[]).scope(scope));
        }
        let mut places = BatchPositions { main: batch.len(), ..BatchPositions::default() };
        // Bodies may be bytes, which the text form would double
        let main = Statement::named(self.work.main.text(), &self.main).scope(scope).binary();
        batch.push(match self.work.yields {
            StatementOutput::Rows(separators) => main.joined(separators),
            StatementOutput::Envelope | StatementOutput::Count => main,
        });
        if let Some(then) = self.work.then {
            places.then = batch.len();
            batch.push(Statement::named(then.text(), &self.then).scope(scope));
        }
        if self.work.yields != StatementOutput::Envelope {
            places.wishes = batch.len();
            batch.push(Statement::named(WISHES, &[]));
        }
        let batch = match end {
            TransactionEnding::Later => batch,
            TransactionEnding::Commit => committed(setting, batch).ending(setting.access()),
            TransactionEnding::RollBack => rolled_back(batch).ending(setting.access()),
        };
        (batch, places)
    }
}

/// Runs the statements of a request in its settings.
pub(crate) async fn run(
    lease: &mut PooledConnection,
    setting: &TransactionContext<'_>,
    work: RequestStatements<'_>,
    end: TransactionEnding,
) -> Result<BatchResults, WireError> {
    let settings = SessionSettings::of(setting);
    let texts = TransactionBatch::of(setting, &settings, &work);
    let (batch, places) = texts.batch(end);
    Ok(BatchResults { answers: lease.run(&batch).await?, places })
}

/// Runs a read on a connection of the pool, or has it sent along by a caller that has one.
///
/// Precondition: the transaction is read-only.
///
/// # Errors
/// No connection, or the failure of the statement.
pub(crate) async fn read(
    pool: &Pool,
    setting: &TransactionContext<'_>,
    main: &Sql,
    joining: RowSeparators,
) -> Result<BatchResults, ReadFailure> {
    let settings = SessionSettings::of(setting);
    let work = RequestStatements { main, yields: StatementOutput::Rows(joining), then: None };
    let texts = TransactionBatch::of(setting, &settings, &work);
    let (batch, places) = texts.batch(TransactionEnding::Commit);
    let answers = match pool.take_for_read(&batch).await.map_err(ReadFailure::Connection)? {
        Taken::ResultSets(answers) => answers,
        Taken::PooledConnection(lease) => lease.read(&batch).await.map_err(ReadFailure::Statement)?,
    };
    Ok(BatchResults { answers, places })
}

/// What a read fails with.
pub(crate) enum ReadFailure {
    /// There was no connection to be had.
    Connection(WireError),
    /// It was refused, or the connection broke.
    Statement(WireError),
}

/// Ends a transaction that was left open.
pub(crate) async fn finish(
    lease: &mut PooledConnection,
    setting: &TransactionContext<'_>,
    commit: bool,
) -> Result<(), WireError> {
    let batch = match commit {
        true => committed(setting, Batch::new()),
        false => rolled_back(Batch::new()),
    };
    lease.run(&batch.ending(setting.access())).await.map(drop)
}

/// Commits. A failure of the commit itself would end the transaction before the session is taken back, and a pooler would
/// lend the session to another client as it is: so there, deferred constraints are checked before.
fn committed<'a>(setting: &TransactionContext<'_>, mut batch: Batch<'a>) -> Batch<'a> {
    if !setting.config.prepared_statements {
        batch.push(Statement::named("set constraints all immediate", &[]));
    }
    // Not by its name, which a function may have deallocated before the second write
    if batch.is_empty() {
        return batch.statement(Statement::unnamed("commit", &[]));
    }
    batch.statement(Statement::named("commit", &[]))
}

/// Rolls back, after deferred constraints were checked.
fn rolled_back(batch: Batch<'_>) -> Batch<'_> {
    batch.statement(Statement::named("set constraints all immediate", &[])).statement(Statement::named("rollback", &[]))
}

fn begin(isolation: Option<Isolation>, read_only: bool) -> &'static str {
    match (isolation, read_only) {
        (None, true) => "begin isolation level read committed read only",
        (None, false) => "begin isolation level read committed read write",
        (Some(Isolation::RepeatableRead), true) => "begin isolation level repeatable read read only",
        (Some(Isolation::RepeatableRead), false) => "begin isolation level repeatable read read write",
        (Some(Isolation::Serializable), true) => "begin isolation level serializable read only",
        (Some(Isolation::Serializable), false) => "begin isolation level serializable read write",
    }
}

fn params(sql: &Sql) -> Vec<Param<'_>> {
    sql.params().iter().map(|param| Some(param.as_bytes())).collect()
}
