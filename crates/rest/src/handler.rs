//! Responds to one request: the stages in their order.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::Method;
use http::request::Parts;
use portico_base::ForwardedHeaders;
use portico_tokens::Caller;

use crate::data_api::DataApi;
use crate::error::RestError;
use crate::execute::statement_result::StatementResult;
use crate::execute::{self, RequestContext, missing_grant};
use crate::openapi;
use crate::plan::{self, RequestPlan, StatementPlan};
use crate::request::resource::{RequestAction, Resource};
use crate::request::role::RequestRole;
use crate::request::{ApiRequest, RequestHead};
use crate::response::server_timing::{ServerTiming, since};
use crate::response::{self, CompletedRequest};
use crate::snapshot::Snapshot;
use crate::sql::MainStatement;

/// Responds to a request. Errors become responses.
pub(crate) async fn respond(service: &DataApi, request: Request, forwarded: ForwardedHeaders<'_>) -> Response {
    let (parts, body) = request.into_parts();
    let snapshot = service.snapshots.current().await;
    let config = Arc::clone(&snapshot.config);
    let mut timing = ServerTiming::new(config.server_timing);
    let outcome = run_stages(service, snapshot, &parts, body, forwarded, &mut timing).await;
    let mut response = match outcome {
        Ok(response) => response,
        Err(error) => response::error(&error, config.terse_errors),
    };
    if let Some(name) = &config.trace_header
        && let Some(value) = parts.headers.get(name)
    {
        response.headers_mut().insert(name.clone(), value.clone());
    }
    timing.write(response.headers_mut());
    if parts.method == Method::HEAD {
        // A body of unknown length: no `Content-Length` describes a body that was not made
        *response.body_mut() =
            Body::from_stream(futures_util::stream::empty::<Result<Bytes, std::convert::Infallible>>());
    }
    response
}

async fn run_stages(
    service: &DataApi,
    snapshot: Arc<Snapshot>,
    parts: &Parts,
    body: Body,
    forwarded: ForwardedHeaders<'_>,
    timing: &mut ServerTiming,
) -> Result<Response, RestError> {
    let started = timing.begin();
    let config = Arc::clone(&snapshot.config);
    let anonymous = Caller::anonymous();
    let caller = parts.extensions.get::<Caller>().unwrap_or(&anonymous);
    let role = RequestRole::of(caller, &parts.headers, &config, &service.login, service.clock.now())?;
    timing.jwt = since(started);

    let started = timing.begin();
    let cache = snapshot.cache.clone().ok_or(RestError::NoSchemaCache)?;
    let head = RequestHead::read(parts, forwarded, caller, role, &config)?;
    if head.resource == Resource::Root && head.action == RequestAction::Options {
        return Ok(response::allow("OPTIONS,GET,HEAD"));
    }
    let needs_secret_key = head.is_root && head.action != RequestAction::Options && config.openapi_secret_key_only;
    if needs_secret_key && !openapi::has_secret_key(caller) {
        return Ok(openapi::forbidden());
    }
    let request = ApiRequest::read(head, &cache.time_zones, body).await?;
    timing.parse = since(started);

    if request.head.resource == Resource::Root {
        let started = timing.begin();
        let response = openapi::respond(&RequestContext { service, snapshot: &snapshot, request: &request }).await;
        timing.transaction = since(started);
        return response;
    }

    let started = timing.begin();
    let (snapshot, plan) = plan(service, snapshot, &request).await?;
    let plan = match plan {
        RequestPlan::Allow(methods) => return Ok(response::allow(&methods)),
        RequestPlan::Statement(plan) => plan,
    };
    let statement = MainStatement::of(&plan);
    timing.plan = since(started);

    let started = timing.begin();
    let (plan, result) = run(service, snapshot, &request, plan, statement).await?;
    timing.transaction = since(started);

    let started = timing.begin();
    let may_choose_end = config.tx_end.may_override;
    let response = response::success(CompletedRequest { request: &request, plan: &plan, result, may_choose_end });
    timing.response = since(started);
    response
}

/// Plans a request by the snapshot, or by a newer one where the age of the snapshot may be the
/// cause of an error. Returns the snapshot that was used.
async fn plan(
    service: &DataApi,
    snapshot: Arc<Snapshot>,
    request: &ApiRequest<'_>,
) -> Result<(Arc<Snapshot>, RequestPlan), RestError> {
    let planned = plan_by(&snapshot, request);
    if planned.as_ref().is_err_and(is_about_the_schema)
        && let Some(newer) = service.snapshots.newer_than(&snapshot).await
    {
        let planned = plan_by(&newer, request)?;
        return Ok((newer, planned));
    }
    Ok((snapshot, planned?))
}

fn plan_by(snapshot: &Snapshot, request: &ApiRequest<'_>) -> Result<RequestPlan, RestError> {
    let cache = snapshot.cache.as_deref().ok_or(RestError::NoSchemaCache)?;
    plan::plan(cache, &snapshot.config, request)
}

/// Runs the statement of a plan. Where PostgreSQL rejects it because the schema has changed since,
/// the request is planned again by a newer snapshot. Returns the plan that was run.
async fn run(
    service: &DataApi,
    snapshot: Arc<Snapshot>,
    request: &ApiRequest<'_>,
    plan: Box<StatementPlan>,
    statement: MainStatement,
) -> Result<(Box<StatementPlan>, StatementResult), RestError> {
    let context = RequestContext { service, snapshot: &snapshot, request };
    let result = run_with_hint(&context, &plan, &statement).await;
    if result.as_ref().is_err_and(does_not_fit_the_schema)
        && let Some(newer) = service.snapshots.newer_than(&snapshot).await
        // PostgreSQL has rolled the first attempt back
        && let RequestPlan::Statement(plan) = plan_by(&newer, request)?
    {
        let context = RequestContext { service, snapshot: &newer, request };
        let result = run_with_hint(&context, &plan, &MainStatement::of(&plan)).await?;
        return Ok((plan, result));
    }
    Ok((plan, result?))
}

/// Runs a statement. The error for a missing privilege gets a hint that names the missing grant.
async fn run_with_hint(
    context: &RequestContext<'_>,
    plan: &StatementPlan,
    statement: &MainStatement,
) -> Result<StatementResult, RestError> {
    match execute::run(context, plan, statement).await {
        Err(RestError::Postgres(error)) => Err(RestError::Postgres(missing_grant::with_hint(context, error).await)),
        result => result,
    }
}

/// Returns true for errors that a newer schema cache may resolve.
fn is_about_the_schema(error: &RestError) -> bool {
    matches!(
        error,
        RestError::NoRelationship { .. }
            | RestError::NoFunction { .. }
            | RestError::NoColumn { .. }
            | RestError::NoRelation { .. }
    )
}

/// Returns true for errors of PostgreSQL about a name that no longer exists or whose type has
/// changed.
fn does_not_fit_the_schema(error: &RestError) -> bool {
    const UNFIT: [&str; 7] = ["42703", "42704", "42804", "42883", "42P01", "0A000", "22P02"];
    matches!(error, RestError::Postgres(error) if UNFIT.contains(&error.code.as_str()))
}
