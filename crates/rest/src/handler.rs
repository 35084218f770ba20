//! One request, from its head to its answer: the steps of contract 3 in their order.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::Method;
use http::request::Parts;
use http_body_util::BodyExt as _;
use portico_tokens::Caller;

use crate::error::RestError;
use crate::execute::missing_grant;
use crate::execute::session_settings::ForwardedHeaders;
use crate::execute::statement_result::StatementResult;
use crate::execute::{self, RequestContext};
use crate::openapi;
use crate::plan::WriteAction;
use crate::plan::prepare::{self, Planned, Prepared};
use crate::query::{self, AtLevel, Query, QueryTarget, RowRange};
use crate::request::body::{self, BodyPurpose, Payload};
use crate::request::media::{self, MediaType};
use crate::request::preferences::{self, Preferences};
use crate::request::resource::{RequestAction, Resource, SchemaProfile};
use crate::request::role::RequestRole;
use crate::request::row_window::RowWindow;
use crate::response::server_timing::{ServerTiming, since};
use crate::response::{self, CompletedRequest};
use crate::service::Rest;
use crate::snapshot::Snapshot;

/// Answers a request; never fails.
pub(crate) async fn answer(rest: Rest, request: Request, outside: ForwardedHeaders<'_>) -> Response {
    let (parts, body) = request.into_parts();
    let snapshot = rest.inner.state.current().await;
    let config = Arc::clone(&snapshot.config);
    let mut timing = ServerTiming::new(config.server_timing);
    let outcome = respond(&rest, snapshot, &parts, body, outside, &mut timing).await;
    let mut response = match outcome {
        Ok(response) => response,
        Err(error) => response::refuse(&error, config.terse_errors),
    };
    if let Some(name) = &config.trace_header
        && let Some(value) = parts.headers.get(name)
    {
        response.headers_mut().insert(name.clone(), value.clone());
    }
    timing.tell(response.headers_mut());
    if parts.method == Method::HEAD {
        // Nothing is said of a body that was not made
        *response.body_mut() =
            Body::from_stream(futures_util::stream::empty::<Result<Bytes, std::convert::Infallible>>());
    }
    response
}

/// What is known of a request before it is looked up in the schema.
pub(crate) struct ApiRequest<'a> {
    pub parts: &'a Parts,
    pub outside: ForwardedHeaders<'a>,
    pub caller: &'a Caller,
    pub identity: RequestRole,
    pub resource: Resource,
    pub action: RequestAction,
    pub preferences: Preferences,
    pub query: Query,
    pub payload: Option<Payload>,
    /// What the body is.
    pub content_type: MediaType,
    /// What the client takes, the best first.
    pub accepted: Vec<MediaType>,
}

async fn respond(
    rest: &Rest,
    mut snapshot: Arc<Snapshot>,
    parts: &Parts,
    body: Body,
    outside: ForwardedHeaders<'_>,
    timing: &mut ServerTiming,
) -> Result<Response, RestError> {
    let begun = timing.begin();
    let config = Arc::clone(&snapshot.config);
    let nobody = Caller::anonymous();
    let caller = parts.extensions.get::<Caller>().unwrap_or(&nobody);
    let identity = RequestRole::of(caller, &parts.headers, &config, &rest.inner.login, rest.inner.clock.now())?;
    timing.jwt = since(begun);

    let begun = timing.begin();
    let cache = snapshot.cache.clone().ok_or(RestError::NoSchemaCache)?;
    let resource = Resource::of(parts.uri.path(), &config)?;
    let profile = SchemaProfile::of(&parts.headers, &parts.method, &config)?;
    let (resource, is_root_call) = match (resource, &config.root_spec) {
        (Resource::Root, Some(function)) => (Resource::Function(function.name.clone()), true),
        (resource, _) => (resource, false),
    };
    let action = RequestAction::of(&resource, &parts.method)?;
    if resource == Resource::Root && action == RequestAction::Options {
        return Ok(response::allow("OPTIONS,GET,HEAD"));
    }
    let is_root = is_root_call || resource == Resource::Root;
    if is_root
        && action != RequestAction::Options
        && config.openapi_secret_key_only
        && !openapi::holds_secret_key(caller)
    {
        return Ok(openapi::refuse());
    }
    let target = match &resource {
        Resource::Function(_) => QueryTarget::Function { read: action != RequestAction::Call },
        Resource::Relation(_) | Resource::Root => QueryTarget::Relation,
    };
    let raw_query = parts.uri.query().unwrap_or_default();
    let mut query = query::parse(raw_query, target)?;
    let window = RowWindow::of(&query, &parts.method, &parts.headers)?;
    settle_window(&mut query, window);
    let knows_zone = |zone: &str| cache.time_zones.contains(zone) || preferences::is_offset(zone);
    let preferences = Preferences::parse(&parts.headers, knows_zone);
    let content_type = media::content_type(&parts.headers);
    let payload = payload(action, &query, &content_type, body).await?;
    let mut accepted = media::accepted(&parts.headers);
    if is_root_call {
        // Whoever wants the document takes what the function makes of it
        let json = |media| if media == MediaType::OpenApi { vec![media, MediaType::Json] } else { vec![media] };
        accepted = accepted.into_iter().flat_map(json).collect();
    }
    timing.parse = since(begun);

    let asked = ApiRequest {
        parts,
        outside,
        caller,
        identity,
        resource,
        action,
        preferences,
        query,
        payload,
        content_type,
        accepted,
    };
    if asked.resource == Resource::Root {
        let begun = timing.begin();
        let doing = RequestContext { rest, snapshot: &snapshot, schema: profile.schema, asked: &asked };
        let response = openapi::answer(&doing, profile).await;
        timing.transaction = since(begun);
        return response;
    }
    let schema = match (&config.root_spec, is_root_call) {
        (Some(function), true) if !function.schema.is_empty() => function.schema.clone(),
        _ => profile.schema.to_owned(),
    };

    let begun = timing.begin();
    let planned = plan(rest, &mut snapshot, &schema, &asked).await?;
    timing.plan = since(begun);
    let mut prepared = match planned {
        Planned::Allow(methods) => return Ok(response::allow(&methods)),
        Planned::Statement(prepared) => *prepared,
    };

    let begun = timing.begin();
    let reply = run(rest, &mut snapshot, &schema, &asked, &mut prepared).await?;
    timing.transaction = since(begun);

    let begun = timing.begin();
    let may_choose_end = config.tx_end.may_override;
    let response =
        response::make(CompletedRequest { asked: &asked, prepared: &prepared, reply, profile, may_choose_end });
    timing.response = since(begun);
    response
}

/// A body from so many bytes on takes milliseconds to read.
const LONG_BODY: usize = 512 * 1024;

/// The body, if the action has a use for it.
async fn payload(
    action: RequestAction,
    query: &Query,
    content_type: &MediaType,
    body: Body,
) -> Result<Option<Payload>, RestError> {
    let purpose = match action {
        RequestAction::Call => BodyPurpose::Arguments,
        RequestAction::Write(WriteAction::Insert | WriteAction::Update | WriteAction::Put) => BodyPurpose::Rows,
        _ => return Ok(None),
    };
    // A PUT has no say in its columns
    let has_columns = query.columns.is_some() && action != RequestAction::Write(WriteAction::Put);
    let body = read(body).await?;
    if body.len() < LONG_BODY {
        return body::parse(purpose, content_type, has_columns, body).map(Some);
    }
    // Nobody else may have to wait for it
    let content_type = content_type.clone();
    let parsing = tokio::task::spawn_blocking(move || body::parse(purpose, &content_type, has_columns, body));
    parsing.await.map_err(|_| RestError::Internal)?.map(Some)
}

/// Plans by the snapshot; by a newer one, which takes its place, where the refusal may be due to its age.
async fn plan(
    rest: &Rest,
    snapshot: &mut Arc<Snapshot>,
    schema: &str,
    asked: &ApiRequest<'_>,
) -> Result<Planned, RestError> {
    let planned = prepare::plan(snapshot, schema, asked);
    if planned.as_ref().is_err_and(is_about_the_schema)
        && let Some(newer) = rest.inner.state.newer_than(snapshot).await
    {
        *snapshot = newer;
        return prepare::plan(snapshot, schema, asked);
    }
    planned
}

/// Runs the statement; and one planned anew, which takes its place, where it was made for a schema that is gone.
async fn run(
    rest: &Rest,
    snapshot: &mut Arc<Snapshot>,
    schema: &str,
    asked: &ApiRequest<'_>,
    prepared: &mut Prepared,
) -> Result<StatementResult, RestError> {
    let reply = with_hint(&RequestContext { rest, snapshot, schema, asked }, prepared).await;
    if reply.as_ref().is_err_and(does_not_fit_the_schema)
        && let Some(newer) = rest.inner.state.newer_than(snapshot).await
    {
        // PostgreSQL took it back without a trace
        *snapshot = newer;
        if let Planned::Statement(again) = prepare::plan(snapshot, schema, asked)? {
            *prepared = *again;
            return with_hint(&RequestContext { rest, snapshot, schema, asked }, prepared).await;
        }
    }
    reply
}

/// Runs the statement; a refusal for want of a privilege says which grant is missing.
async fn with_hint(doing: &RequestContext<'_>, prepared: &Prepared) -> Result<StatementResult, RestError> {
    let mut reply = execute::run(doing, prepared).await;
    if let Err(RestError::Postgres(refusal)) = &mut reply {
        missing_grant::add_hint(doing, refusal).await;
    }
    reply
}

/// Refusals that a newer schema may lift.
fn is_about_the_schema(error: &RestError) -> bool {
    matches!(
        error,
        RestError::NoRelationship { .. }
            | RestError::NoFunction { .. }
            | RestError::NoColumn { .. }
            | RestError::NoRelation { .. }
    )
}

/// PostgreSQL's refusals of a statement that names what no longer is, or has another type now.
fn does_not_fit_the_schema(error: &RestError) -> bool {
    const UNFIT: [&str; 7] = ["42703", "42704", "42804", "42883", "42P01", "0A000", "22P02"];
    matches!(error, RestError::Postgres(refusal) if UNFIT.contains(&refusal.code.as_str()))
}

/// Limit and offset of the root are those that the headers leave.
fn settle_window(query: &mut Query, window: RowWindow) {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    query.ranges.retain(|range| !range.path.is_empty());
    let value =
        RowRange { limit: window.limit.map(signed), offset: Some(window.offset).filter(|n| *n > 0).map(signed) };
    if value != RowRange::default() {
        query.ranges.push(AtLevel { path: Vec::new(), value });
    }
}

async fn read(body: Body) -> Result<Bytes, RestError> {
    // The front door ends bodies that are too long
    let collected = body.collect().await.map_err(|_| RestError::Body("The body could not be read".into()))?;
    Ok(collected.to_bytes())
}
