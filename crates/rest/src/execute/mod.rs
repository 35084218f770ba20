//! Runs the statements of a request in one transaction, in the role of the request.

mod call_stack;
pub(crate) mod max_affected;
pub(crate) mod missing_grant;
pub(crate) mod postgres_error;
pub(crate) mod response_overrides;
pub(crate) mod statement_result;
pub(crate) mod transaction;
pub(crate) mod transaction_settings;

use portico_database::wire::{PooledConnection, ReadError, RowSeparators, WireError};

use self::statement_result::StatementResult;
use self::transaction::{RequestStatements, TransactionEnding};
use self::transaction_settings::TransactionContext;
use crate::data_api::DataApi;
use crate::error::RestError;
use crate::plan::{PlannedStatement, StatementPlan};
use crate::request::ApiRequest;
use crate::request::preferences::{CountMode, TransactionPreference};
use crate::snapshot::Snapshot;
use crate::sql::{MainStatement, StatementOutput};

/// A request, the service that responds, and the snapshot that it uses.
pub(crate) struct RequestContext<'a> {
    pub service: &'a DataApi,
    pub snapshot: &'a Snapshot,
    pub request: &'a ApiRequest<'a>,
}

impl RequestContext<'_> {
    /// Returns the context of the transaction of a plan.
    fn transaction<'a>(&'a self, plan: &'a StatementPlan) -> TransactionContext<'a> {
        let context = self.read_only_transaction();
        TransactionContext {
            hoisted: &plan.hoisted,
            isolation: plan.isolation.or(context.isolation),
            read_only: plan.read_only,
            time_zone: self.request.preferences.timezone.as_deref(),
            ..context
        }
    }

    /// Returns the context of a read-only transaction that depends on the head of the request only.
    pub fn read_only_transaction(&self) -> TransactionContext<'_> {
        let head = &self.request.head;
        let role = self.snapshot.roles.get(&head.role.name);
        TransactionContext {
            config: &self.snapshot.config,
            role: &head.role,
            role_settings: role,
            hoisted: &[],
            isolation: role.and_then(|role| role.isolation),
            read_only: true,
            schema: head.schema,
            method: &head.parts.method,
            path: head.parts.uri.path(),
            headers: &head.parts.headers,
            forwarded: head.forwarded,
            authorization: head.caller.authorization.as_ref(),
            time_zone: None,
        }
    }

    /// Returns the error that the client sees for an error of PostgreSQL or of the connection.
    pub fn error(&self, error: &WireError) -> RestError {
        postgres_error::rest_error(error, self.request.head.role.is_anonymous)
    }

    /// Checks out a connection.
    pub async fn checkout(&self) -> Result<PooledConnection, RestError> {
        self.service.pool.checkout().await.map_err(|error| self.checkout_error(error))
    }

    fn checkout_error(&self, error: WireError) -> RestError {
        match error {
            // Not caused by the request: PostgreSQL starts, stops, has too many connections, or
            // rejects the login
            WireError::Postgres(error) => {
                tracing::error!(error = %error, "the database accepts no connection of the data API");
                RestError::NoConnection("the database does not accept the server's connections".into())
            }
            other => self.error(&other),
        }
    }
}

/// Runs the statements of a request and decides whether the transaction is committed.
///
/// # Errors
/// The errors of PostgreSQL; PGRST115, 116 and 124, after which nothing is written.
pub(crate) async fn run(
    context: &RequestContext<'_>,
    plan: &StatementPlan,
    statement: &MainStatement,
) -> Result<StatementResult, RestError> {
    let ending = match (rolls_back(context), !plan.read_only && needs_check(plan)) {
        (true, _) => TransactionEnding::RollBack,
        (false, true) => TransactionEnding::Undecided,
        (false, false) => TransactionEnding::Commit,
    };
    let transaction = context.transaction(plan);
    if let (StatementOutput::Rows(separators), TransactionEnding::Commit) = (statement.output, ending)
        && plan.read_only
        && statement.estimate.is_none()
    {
        return read(context, plan, statement, &transaction, separators).await;
    }
    let statements =
        RequestStatements { main: &statement.main, output: statement.output, then: statement.estimate.as_ref() };
    let mut connection = context.checkout().await?;
    let results = transaction::run(&mut connection, &transaction, statements, ending).await;
    let mut results = results.map_err(|error| context.error(&error))?;
    if plan.format.explain.is_some() {
        if ending == TransactionEnding::Undecided {
            transaction::finish(&mut connection, &transaction, true).await.map_err(|error| context.error(&error))?;
        }
        return Ok(StatementResult::of_explain(results.main()));
    }
    let result = StatementResult::read(&mut results, statement.output)?;
    let checked = check(plan, &result);
    if ending == TransactionEnding::Undecided {
        // Deferred constraints are checked at the commit; an error of this server takes precedence
        let ended = transaction::finish(&mut connection, &transaction, checked.is_ok()).await;
        checked?;
        ended.map_err(|error| context.error(&error))?;
    } else {
        checked?;
    }
    let estimate = statement_result::estimate(results.then());
    let total = total(context, plan, &result, estimate);
    Ok(StatementResult { total, ..result })
}

/// Runs a read that may be coalesced with others.
async fn read(
    context: &RequestContext<'_>,
    plan: &StatementPlan,
    statement: &MainStatement,
    transaction: &TransactionContext<'_>,
    separators: RowSeparators,
) -> Result<StatementResult, RestError> {
    let results = transaction::read(&context.service.reads, transaction, &statement.main, separators).await;
    let mut results = results.map_err(|failure| match failure {
        ReadError::Checkout(error) => context.checkout_error(error),
        ReadError::Run(error) => context.error(&error),
    })?;
    let result = StatementResult::read(&mut results, statement.output)?;
    check(plan, &result)?;
    let total = total(context, plan, &result, None);
    Ok(StatementResult { total, ..result })
}

fn rolls_back(context: &RequestContext<'_>) -> bool {
    let policy = context.snapshot.config.tx_end;
    match context.request.preferences.transaction {
        Some(preferred) if policy.may_override => preferred == TransactionPreference::Rollback,
        _ => policy.rollback,
    }
}

/// Returns true if the result decides whether the transaction is committed.
fn needs_check(plan: &StatementPlan) -> bool {
    plan.is_single || plan.max_affected.is_some() || plan.is_put()
}

fn check(plan: &StatementPlan, result: &StatementResult) -> Result<(), RestError> {
    if plan.is_put() && result.rows != 1 {
        return Err(RestError::PutKey);
    }
    if plan.is_single && result.rows != 1 {
        return Err(RestError::NotSingular(result.rows));
    }
    max_affected::check(plan, result)
}

/// Returns the number of rows up to the last one of the page, and zero for an empty page.
fn page_end(plan: &StatementPlan, result: &StatementResult) -> u64 {
    if result.rows == 0 { 0 } else { plan.first_row.saturating_add(result.rows) }
}

/// Returns the total that the response shows, depending on the `count` preference.
fn total(
    context: &RequestContext<'_>,
    plan: &StatementPlan,
    result: &StatementResult,
    estimate: Option<u64>,
) -> Option<u64> {
    match (&plan.operation, plan.count?) {
        (PlannedStatement::Read { .. }, CountMode::Planned) => estimate,
        (PlannedStatement::Read { .. }, CountMode::Estimated) => {
            let counted = result.total.unwrap_or_default();
            match context.snapshot.config.plan.max_rows {
                Some(most) if counted <= most => Some(counted),
                // Not all rows were counted, and the page shows how many there are at least
                _ => Some(counted.max(estimate.unwrap_or_default()).max(page_end(plan, result))),
            }
        }
        (_, CountMode::Planned) => None,
        (_, CountMode::Exact | CountMode::Estimated) => result.total,
    }
}
