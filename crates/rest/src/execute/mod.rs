//! The transaction of a request (steps 11 to 13 of contract 3).

pub(crate) mod explain;
pub(crate) mod missing_grant;
pub(crate) mod postgres_error;
pub(crate) mod session_settings;
pub(crate) mod statement_result;
pub(crate) mod transaction;

use portico_database::wire::{PooledConnection, RowSeparators, WireError};

use self::transaction::{ReadFailure, RequestStatements, TransactionEnding};
use crate::error::RestError;
use crate::execute::session_settings::TransactionContext;
use crate::execute::statement_result::StatementResult;
use crate::handler::ApiRequest;
use crate::plan::WriteAction;
use crate::plan::prepare::{Kind, Prepared};
use crate::request::preferences::{CountMode, TransactionEnd};
use crate::service::Rest;
use crate::snapshot::Snapshot;
use crate::sql::StatementOutput;

/// For whom something is done, and with what.
pub(crate) struct RequestContext<'a> {
    pub rest: &'a Rest,
    pub snapshot: &'a Snapshot,
    pub schema: &'a str,
    pub asked: &'a ApiRequest<'a>,
}

impl RequestContext<'_> {
    /// What the transaction begins with.
    pub fn setting<'a>(&'a self, prepared: &'a Prepared) -> TransactionContext<'a> {
        let asked = self.asked;
        let role = self.snapshot.roles.get(&asked.identity.role);
        TransactionContext {
            config: &self.snapshot.config,
            identity: &asked.identity,
            role,
            hoisted: &prepared.hoisted,
            isolation: prepared.isolation.or(role.and_then(|role| role.isolation)),
            read_only: prepared.read_only,
            schema: self.schema,
            method: &asked.parts.method,
            path: asked.parts.uri.path(),
            headers: &asked.parts.headers,
            outside: asked.outside,
            authorization: asked.caller.authorization.as_ref(),
            time_zone: asked.preferences.timezone.as_deref(),
        }
    }

    /// A refusal of PostgreSQL in the words of the contract.
    pub fn refusal(&self, error: &WireError) -> RestError {
        postgres_error::refusal(error, self.asked.identity.is_anonymous)
    }

    /// A connection.
    pub async fn lease(&self) -> Result<PooledConnection, RestError> {
        self.rest.inner.pool.checkout().await.map_err(|error| self.no_connection(error))
    }

    /// Why there is no connection.
    fn no_connection(&self, error: WireError) -> RestError {
        match error {
            // Not about the request: PostgreSQL starts, ends, is full or closed to us
            WireError::Postgres(why) => {
                tracing::error!(%why, "The database takes no connection of the data API");
                RestError::NoConnection("the database does not accept the server's connections".into())
            }
            other => self.refusal(&other),
        }
    }
}

/// Runs the statement of a request and decides whether it is kept.
///
/// # Errors
/// What PostgreSQL refuses; PGRST115, 116 and 124, after which nothing was written.
pub(crate) async fn run(doing: &RequestContext<'_>, prepared: &Prepared) -> Result<StatementResult, RestError> {
    let rolls_back = rolls_back(doing);
    let is_checked = !prepared.read_only && is_checked(prepared);
    let end = match (rolls_back, is_checked) {
        (true, _) => TransactionEnding::RollBack,
        (false, true) => TransactionEnding::Later,
        (false, false) => TransactionEnding::Commit,
    };
    let work = RequestStatements { main: &prepared.main, yields: prepared.yields, then: prepared.estimate.as_ref() };
    let setting = doing.setting(prepared);
    if let (StatementOutput::Rows(joining), TransactionEnding::Commit) = (prepared.yields, end)
        && prepared.read_only
        && prepared.estimate.is_none()
    {
        return read(doing, prepared, &setting, joining).await;
    }
    let mut lease = doing.lease().await?;
    let outcome = transaction::run(&mut lease, &setting, work, end).await;
    let mut outcome = outcome.map_err(|error| doing.refusal(&error))?;
    if prepared.negotiated.explain.is_some() {
        if end == TransactionEnding::Later {
            transaction::finish(&mut lease, &setting, true).await.map_err(|error| doing.refusal(&error))?;
        }
        return Ok(StatementResult::of_plan(explain::body(outcome.main())));
    }
    let mut reply = StatementResult::read(&mut outcome, prepared.yields)?;
    let verdict = check(prepared, &reply);
    if end == TransactionEnding::Later {
        // Deferred constraints speak at the commit; a refusal of ours comes before them
        let ended = transaction::finish(&mut lease, &setting, verdict.is_ok()).await;
        verdict?;
        ended.map_err(|error| doing.refusal(&error))?;
    } else {
        verdict?;
    }
    reply.total = total(doing, prepared, &reply, explain::estimate(outcome.then()));
    Ok(reply)
}

/// Runs a read that others may run for us.
async fn read(
    doing: &RequestContext<'_>,
    prepared: &Prepared,
    setting: &TransactionContext<'_>,
    joining: RowSeparators,
) -> Result<StatementResult, RestError> {
    let outcome = transaction::read(&doing.rest.inner.pool, setting, &prepared.main, joining).await;
    let mut outcome = outcome.map_err(|failure| match failure {
        ReadFailure::Connection(error) => doing.no_connection(error),
        ReadFailure::Statement(error) => doing.refusal(&error),
    })?;
    let mut reply = StatementResult::read(&mut outcome, prepared.yields)?;
    check(prepared, &reply)?;
    reply.total = total(doing, prepared, &reply, None);
    Ok(reply)
}

fn rolls_back(doing: &RequestContext<'_>) -> bool {
    let tx_end = doing.snapshot.config.tx_end;
    match doing.asked.preferences.transaction {
        Some(wish) if tx_end.may_override => wish == TransactionEnd::Rollback,
        _ => tx_end.rollback,
    }
}

fn is_checked(prepared: &Prepared) -> bool {
    let is_put = matches!(prepared.kind, Kind::Write { action: WriteAction::Put, .. });
    prepared.is_single || prepared.max_affected.is_some() || is_put
}

fn check(prepared: &Prepared, reply: &StatementResult) -> Result<(), RestError> {
    if matches!(prepared.kind, Kind::Write { action: WriteAction::Put, .. }) && reply.rows != 1 {
        return Err(RestError::PutKey);
    }
    if prepared.is_single && reply.rows != 1 {
        return Err(RestError::NotSingular(reply.rows));
    }
    let affected = match prepared.kind {
        Kind::Write { .. } => reply.total.unwrap_or(reply.rows),
        Kind::Read { .. } | Kind::Call { .. } => reply.rows,
    };
    match prepared.max_affected {
        Some(most) if affected > most => Err(RestError::MaxAffected(affected)),
        _ => Ok(()),
    }
}

/// The total that is told, by what was asked for (9.3).
fn total(
    doing: &RequestContext<'_>,
    prepared: &Prepared,
    reply: &StatementResult,
    estimate: Option<u64>,
) -> Option<u64> {
    match (&prepared.kind, prepared.count?) {
        (Kind::Read { .. }, CountMode::Planned) => estimate,
        (Kind::Read { .. }, CountMode::Estimated) => {
            let counted = reply.total.unwrap_or_default();
            match doing.snapshot.config.plan.max_rows {
                Some(most) if counted <= most => Some(counted),
                _ => Some(counted.max(estimate.unwrap_or_default())),
            }
        }
        (_, CountMode::Planned) => None,
        (_, CountMode::Exact | CountMode::Estimated) => reply.total,
    }
}
