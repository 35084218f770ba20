//! The transaction of a request: its session settings, its statements, and its end.
//!
//! Where the server checks nothing before the commit, everything is sent in one write, together
//! with the statements of the session reset. Otherwise a second write ends the transaction.

use std::borrow::Cow;

use portico_database::wire::{
    Access, Batch, JoinedRows, Param, PooledConnection, ReadCoalescer, ReadError, ResultSets, Row, RowSeparators,
    Statement, WireError,
};

use super::transaction_settings::{TransactionContext, TransactionSettings, set_local};
use crate::config::database::Isolation;
use crate::sql::StatementOutput;
use crate::statement_builder::Sql;

/// Reads `response.headers` and `response.status`, for main statements that do not return them.
const RESPONSE_OVERRIDES: &str =
    "select pg_catalog.current_setting('response.headers', true), pg_catalog.current_setting('response.status', true)";

impl TransactionContext<'_> {
    fn access(&self) -> Access {
        if self.read_only { Access::ReadOnly } else { Access::ReadWrite }
    }
}

/// The end of the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionEnding {
    /// With a commit, whatever the results are.
    Commit,
    /// With a rollback, whatever the results are; deferred constraints are checked before.
    RollBack,
    /// The results decide: the transaction is left open for [`finish`].
    Undecided,
}

/// The statements of a request, after its session settings.
pub(crate) struct RequestStatements<'a> {
    pub main: &'a Sql,
    /// The form of the main statement's result.
    pub output: StatementOutput,
    /// Another statement after the main one.
    pub then: Option<&'a Sql>,
}

/// The results of the statements of a transaction.
pub(crate) struct BatchResults {
    results: ResultSets,
    positions: BatchPositions,
}

/// The positions of statements in the batch.
#[derive(Debug, Clone, Copy, Default)]
struct BatchPositions {
    main: usize,
    then: usize,
    overrides: usize,
}

impl BatchResults {
    /// Returns the rows of the main statement.
    pub fn main(&self) -> &[Row] {
        self.results.rows(self.positions.main)
    }

    /// Takes the joined rows of the main statement.
    pub fn take_joined_rows(&mut self) -> Option<JoinedRows> {
        self.results.take_joined_rows()
    }

    /// Returns the number of rows that the main statement wrote.
    pub fn affected(&self) -> u64 {
        self.results.affected(self.positions.main).unwrap_or_default()
    }

    /// Returns the rows of the statement after the main one.
    pub fn then(&self) -> &[Row] {
        self.results.rows(self.positions.then)
    }

    /// Returns the row with `response.headers` and `response.status`; `None` where the main
    /// statement returns them.
    pub fn overrides(&self) -> Option<&Row> {
        self.results.row(self.positions.overrides).filter(|_| self.positions.overrides > 0)
    }
}

/// The texts and parameters of a transaction, which its batch borrows.
struct TransactionBatch<'a> {
    context: &'a TransactionContext<'a>,
    statements: &'a RequestStatements<'a>,
    set: Cow<'static, str>,
    settings: Vec<Param<'a>>,
    pre_request: Option<Sql>,
    main: Vec<Param<'a>>,
    then: Vec<Param<'a>>,
}

impl<'a> TransactionBatch<'a> {
    fn of(
        context: &'a TransactionContext<'a>,
        settings: &'a TransactionSettings<'a>,
        statements: &'a RequestStatements<'a>,
    ) -> Self {
        let list = settings.list();
        let pre_request = context.config.pre_request.as_ref().map(|function| {
            let mut call = Sql::new();
            call.raw("select ");
            if !function.schema.is_empty() {
                call.name(&function.schema).raw(".");
            }
            call.name(&function.name).raw("()");
            call
        });
        Self {
            context,
            statements,
            set: set_local(list.len()),
            settings: list.iter().flat_map(|(name, value)| [Some(name.as_bytes()), Some(value.as_bytes())]).collect(),
            pre_request,
            main: params(statements.main),
            then: statements.then.map(params).unwrap_or_default(),
        }
    }

    /// Returns the statements up to the end of the transaction.
    fn batch(&'a self, ending: TransactionEnding) -> (Batch<'a>, BatchPositions) {
        let context = self.context;
        let scope = context.role.name.as_str();
        let mut batch = Batch::new()
            .statement(Statement::named(begin(context.isolation, context.read_only), &[]))
            .statement(Statement::named(&self.set, &self.settings));
        if let Some(call) = &self.pre_request {
            batch.push(Statement::named(call.text(), &[]).scope(scope));
        }
        let mut positions = BatchPositions { main: batch.len(), ..BatchPositions::default() };
        // A body may be bytes, whose text form is twice as long
        let main = Statement::named(self.statements.main.text(), &self.main).scope(scope).binary();
        batch.push(match self.statements.output {
            StatementOutput::Rows(separators) => main.joined(separators),
            StatementOutput::Envelope | StatementOutput::Count => main,
        });
        if let Some(then) = self.statements.then {
            positions.then = batch.len();
            batch.push(Statement::named(then.text(), &self.then).scope(scope));
        }
        if self.statements.output != StatementOutput::Envelope {
            positions.overrides = batch.len();
            batch.push(Statement::named(RESPONSE_OVERRIDES, &[]));
        }
        let batch = match ending {
            TransactionEnding::Undecided => batch,
            TransactionEnding::Commit => committed(context, batch).ending(context.access()),
            TransactionEnding::RollBack => rolled_back(batch).ending(context.access()),
        };
        (batch, positions)
    }
}

/// Runs the statements of a request with its session settings.
pub(crate) async fn run(
    connection: &mut PooledConnection,
    context: &TransactionContext<'_>,
    statements: RequestStatements<'_>,
    ending: TransactionEnding,
) -> Result<BatchResults, WireError> {
    let settings = TransactionSettings::of(context);
    let transaction = TransactionBatch::of(context, &settings, &statements);
    let (batch, positions) = transaction.batch(ending);
    Ok(BatchResults { results: connection.run(&batch).await?, positions })
}

/// Runs a read on a connection of the pool, or coalesced with the reads of another caller.
///
/// Precondition: the transaction is read-only.
///
/// # Errors
/// No connection, or the failure of the statement.
pub(crate) async fn read(
    reads: &ReadCoalescer,
    context: &TransactionContext<'_>,
    main: &Sql,
    separators: RowSeparators,
) -> Result<BatchResults, ReadError> {
    let settings = TransactionSettings::of(context);
    let statements = RequestStatements { main, output: StatementOutput::Rows(separators), then: None };
    let transaction = TransactionBatch::of(context, &settings, &statements);
    let (batch, positions) = transaction.batch(TransactionEnding::Commit);
    Ok(BatchResults { results: reads.run(&batch).await?, positions })
}

/// Ends a transaction that was left open.
pub(crate) async fn finish(
    connection: &mut PooledConnection,
    context: &TransactionContext<'_>,
    commit: bool,
) -> Result<(), WireError> {
    let batch = match commit {
        true => committed(context, Batch::new()),
        false => rolled_back(Batch::new()),
    };
    connection.run(&batch.ending(context.access())).await.map(drop)
}

/// Appends the commit.
///
/// A failure of the commit itself would end the transaction before the session reset, and a pooler
/// would hand the session to another client as it is. Where a pooler may be in use, deferred
/// constraints are therefore checked before.
fn committed<'a>(context: &TransactionContext<'_>, mut batch: Batch<'a>) -> Batch<'a> {
    if !context.config.prepared_statements {
        batch.push(Statement::named("set constraints all immediate", &[]));
    }
    // Not by its name: a function may have deallocated the prepared statement before the second
    // write
    if batch.is_empty() {
        return batch.statement(Statement::unnamed("commit", &[]));
    }
    batch.statement(Statement::named("commit", &[]))
}

/// Appends the rollback, after a check of deferred constraints.
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
