//! The response: status, headers and body.

mod chunk_list_body;
mod content_range;
pub(crate) mod server_timing;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use self::chunk_list_body::ChunkListBody;
use self::content_range::{content_range, read_status};
use crate::error::RestError;
use crate::execute::statement_result::StatementResult;
use crate::plan::{PlannedStatement, StatementPlan, WritePlan};
use crate::query;
use crate::request::preferences::{HonouredPreferences, Resolution, ReturnPreference};
use crate::request::resource::{RequestAction, SchemaProfile};
use crate::request::{ApiRequest, WriteAction};

/// The version of PostgREST whose behaviour this is; clients and type generators depend on it.
pub const VERSION: &str = "14.12";

const SERVER: HeaderValue = HeaderValue::from_static("postgrest/14.12");
const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const CONTENT_PROFILE: HeaderName = HeaderName::from_static("content-profile");
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");
/// Percent-encodes everything but the unreserved characters of RFC 3986.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A longer `Content-Location` is left out. Clients and proxies reject responses whose heads are
/// too long, some from 8 KiB on, and the encoded query can be three times as long as the one that
/// was sent.
const LONGEST_LOCATION: usize = 4096;

/// A request whose statement has succeeded.
pub(crate) struct CompletedRequest<'a> {
    pub request: &'a ApiRequest<'a>,
    pub plan: &'a StatementPlan,
    pub result: StatementResult,
    /// The client may choose how the transaction ends.
    pub may_choose_end: bool,
}

/// Makes the response to a request whose statement has succeeded.
///
/// # Errors
/// PGRST103 if the requested rows lie behind the last one; PGRST111 and 112, after the commit.
pub(crate) fn success(completed: CompletedRequest<'_>) -> Result<Response, RestError> {
    let CompletedRequest { request, plan, mut result, may_choose_end } = completed;
    let body = result.body.take();
    let mut headers = HeaderMap::with_capacity(24);
    if let Some(applied) = request.preferences.applied(honoured(plan, may_choose_end)) {
        headers.insert(PREFERENCE_APPLIED, applied);
    }
    let (mut status, has_body) = match &plan.operation {
        _ if plan.format.explain.is_some() => (StatusCode::OK, true),
        PlannedStatement::Read { relation, .. } => {
            let (status, range) = read_status(plan.first_row, result.rows, result.total)?;
            set(&mut headers, header::CONTENT_RANGE, &range);
            let mut location = format!("/{}", utf8_percent_encode(&relation.name, QUERY));
            let query = query::canonical(request.head.parts.uri.query().unwrap_or_default());
            if !query.is_empty() {
                location.push('?');
                location.push_str(&query);
            }
            if location.len() <= LONGEST_LOCATION {
                set(&mut headers, header::CONTENT_LOCATION, &location);
            }
            (status, true)
        }
        PlannedStatement::Call { plan } if plan.routine.returns.void => {
            set(&mut headers, header::CONTENT_RANGE, "0-0/*");
            (StatusCode::NO_CONTENT, false)
        }
        PlannedStatement::Call { .. } => {
            let (status, range) = read_status(plan.first_row, result.rows, result.total)?;
            set(&mut headers, header::CONTENT_RANGE, &range);
            (status, true)
        }
        PlannedStatement::Write { plan, returns, .. } => write_head(&mut headers, plan, *returns, &result),
    };
    if !plan.legacy_names().is_empty() {
        let names: Vec<_> =
            plan.legacy_names().iter().map(|(name, alias)| format!("'{name}' has the alias '{alias}'")).collect();
        let text = format!("299 - \"{}: use aliases in filters, orders and limits\"", names.join(", "));
        set(&mut headers, header::WARNING, &text);
    }
    if has_body {
        set(&mut headers, header::CONTENT_TYPE, &plan.format.content_type);
        set_content_profile(&mut headers, request.head.profile);
    }
    set_server(&mut headers);
    result.overrides.apply(&mut status, &mut headers)?;
    let has_body = has_body && !is_bodiless(status);
    if is_bodiless(status) {
        headers.remove(header::CONTENT_TYPE);
    }

    let is_head = request.head.action == (RequestAction::Read { body: false });
    let body = match body {
        Some(chunks) if has_body && !is_head => ChunkListBody::body(chunks),
        _ => Body::empty(),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Returns true if responses of this status have no body, even where SQL has set the status.
fn is_bodiless(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Returns the preferences that an operation honours.
fn honoured(plan: &StatementPlan, transaction: bool) -> HonouredPreferences {
    match &plan.operation {
        PlannedStatement::Read { .. } => HonouredPreferences { transaction, ..HonouredPreferences::default() },
        PlannedStatement::Call { .. } => {
            HonouredPreferences { transaction, max_affected: true, ..HonouredPreferences::default() }
        }
        PlannedStatement::Write { plan: WritePlan { action, .. }, resolvable, .. } => HonouredPreferences {
            resolution: *action == WriteAction::Insert && *resolvable,
            missing: matches!(action, WriteAction::Insert | WriteAction::Update),
            returned: true,
            transaction,
            max_affected: matches!(action, WriteAction::Update | WriteAction::Delete),
        },
    }
}

/// Returns the status of a write, and whether the response has a body. Sets the headers that depend
/// on the action.
fn write_head(
    headers: &mut HeaderMap,
    plan: &WritePlan,
    returns: ReturnPreference,
    result: &StatementResult,
) -> (StatusCode, bool) {
    let returns_rows = returns == ReturnPreference::Representation;
    let done = if returns_rows { StatusCode::OK } else { StatusCode::NO_CONTENT };
    let status = match plan.action {
        WriteAction::Insert => {
            set(headers, header::CONTENT_RANGE, &content_range(0, 0, result.total));
            let relation = &plan.relation.name.name;
            if let Some(location) = result.location.as_deref().and_then(|key| location(relation, key)) {
                set(headers, header::LOCATION, &location);
            }
            // A merge without new rows has only changed existing ones
            let only_changed =
                plan.resolution() == Some(Resolution::MergeDuplicates) && result.inserted.unwrap_or_default() == 0;
            if only_changed { StatusCode::OK } else { StatusCode::CREATED }
        }
        WriteAction::Update => {
            set(headers, header::CONTENT_RANGE, &content_range(0, result.rows, result.total));
            done
        }
        WriteAction::Delete => {
            set(headers, header::CONTENT_RANGE, &content_range(0, 0, result.total));
            done
        }
        WriteAction::Put if returns_rows && result.inserted.unwrap_or_default() > 0 => StatusCode::CREATED,
        WriteAction::Put => done,
    };
    (status, returns_rows)
}

/// Returns `/people?id=eq.7` for `[["id","7"]]`.
fn location(relation: &str, key: &str) -> Option<String> {
    let key: Vec<(String, Option<String>)> = serde_json::from_str(key).ok()?;
    let pairs: Vec<_> = key
        .iter()
        .map(|(column, value)| {
            let column = utf8_percent_encode(column, QUERY);
            match value {
                None => format!("{column}=is.null"),
                Some(text) => format!("{column}=eq.{}", utf8_percent_encode(text, QUERY)),
            }
        })
        .collect();
    Some(format!("/{}?{}", utf8_percent_encode(relation, QUERY), pairs.join("&")))
}

/// Names the schema of the body in `Content-Profile`, where it is not obvious.
pub(crate) fn set_content_profile(headers: &mut HeaderMap, profile: SchemaProfile<'_>) {
    if profile.is_shown {
        set(headers, CONTENT_PROFILE, profile.schema);
    }
}

/// Sets `Server` and `Vary`.
pub(crate) fn set_server(headers: &mut HeaderMap) {
    headers.insert(header::VARY, HeaderValue::from_static("Accept, Prefer, Range"));
    headers.insert(header::SERVER, SERVER);
}

/// Makes the response to OPTIONS, which needs no database and has no body.
pub(crate) fn allow(methods: &str) -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    set(headers, header::ALLOW, methods);
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    headers.insert(header::SERVER, SERVER);
    response
}

/// Makes the response for an error. `terse` leaves details and hint out.
pub(crate) fn error(error: &RestError, terse: bool) -> Response {
    if *error == RestError::Internal {
        tracing::error!("a request of the data API failed for a reason that must not occur");
    }
    let mut body = error.body();
    if terse && let Some(object) = body.as_object_mut() {
        object.retain(|key, _| key == "code" || key == "message");
    }
    let has_body = !is_bodiless(error.status());
    let mut response = Response::new(if has_body { Body::from(body.to_string()) } else { Body::empty() });
    *response.status_mut() = error.status();
    let headers = response.headers_mut();
    if has_body {
        headers.insert(header::CONTENT_TYPE, JSON);
    }
    headers.insert(header::SERVER, SERVER);
    set(headers, PROXY_STATUS, &format!("PostgREST; error={}", error.code()));
    for (name, value) in error.headers() {
        headers.insert(name, value);
    }
    if let RestError::Postgres(error) = error
        && let Some(reason) = &error.reason
        && let Ok(reason) = hyper::ext::ReasonPhrase::try_from(reason.as_bytes())
    {
        response.extensions_mut().insert(reason);
    }
    response
}

/// Sets a header whose text contains names of the request. A text that no header can hold is left
/// out.
fn set(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
        headers.insert(name, value);
    }
}
