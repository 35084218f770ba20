//! What goes back: status, headers and body (contract 9.2, 12.6, 13.4, 16.1, 21.2).

mod chunked_body;
pub(crate) mod server_timing;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::error::RestError;
use crate::execute::statement_result::{StatementResult, content_range, read_status};
use crate::handler::ApiRequest;
use crate::plan::WriteAction;
use crate::plan::prepare::{Kind, Prepared};
use crate::query;
use crate::request::preferences::{HonouredPreferences, Resolution, ReturnPreference};
use crate::request::resource::{RequestAction, SchemaProfile};
use crate::response::chunked_body::ChunkedBody;

/// The version that clients and type generators go by (contract 1).
pub const VERSION: &str = "14.12";

const SERVER: HeaderValue = HeaderValue::from_static("postgrest/14.12");
const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const CONTENT_PROFILE: HeaderName = HeaderName::from_static("content-profile");
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");
/// Everything that a URL may hold as it is in a query's value.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A longer `Content-Location` is left out: clients and proxies refuse answers whose heads are too long, some from 8 KiB on, and the
/// encoded query can be three times as long as what was sent.
const LONGEST_LOCATION: usize = 4096;

/// What came out, and of what.
pub(crate) struct CompletedRequest<'a> {
    pub asked: &'a ApiRequest<'a>,
    pub prepared: &'a Prepared,
    pub reply: StatementResult,
    pub profile: SchemaProfile<'a>,
    /// The client may choose how the transaction ends.
    pub may_choose_end: bool,
}

/// The answer to a request that went well.
///
/// # Errors
/// PGRST103 when the rows lie behind the last one; PGRST111 and 112, after the commit.
pub(crate) fn make(mut answered: CompletedRequest<'_>) -> Result<Response, RestError> {
    let body = answered.reply.body.take();
    let CompletedRequest { asked, prepared, reply, profile, .. } = &answered;
    let mut headers = HeaderMap::with_capacity(24);
    if let Some(applied) = asked.preferences.applied(honoured(&answered)) {
        headers.insert(PREFERENCE_APPLIED, applied);
    }
    let is_plan = prepared.negotiated.explain.is_some();
    let (mut status, has_body) = match &prepared.kind {
        _ if is_plan => (StatusCode::OK, true),
        Kind::Read { relation } => {
            let (status, range) = read_status(prepared.first, reply.rows, reply.total)?;
            set(&mut headers, header::CONTENT_RANGE, &range);
            let mut location = format!("/{}", utf8_percent_encode(&relation.name, QUERY));
            let query = query::canonical(asked.parts.uri.query().unwrap_or_default());
            if !query.is_empty() {
                location.push('?');
                location.push_str(&query);
            }
            if location.len() <= LONGEST_LOCATION {
                set(&mut headers, header::CONTENT_LOCATION, &location);
            }
            (status, true)
        }
        Kind::Call { void: true } => {
            set(&mut headers, header::CONTENT_RANGE, "0-0/*");
            (StatusCode::NO_CONTENT, false)
        }
        Kind::Call { void: false } => {
            let (status, range) = read_status(prepared.first, reply.rows, reply.total)?;
            set(&mut headers, header::CONTENT_RANGE, &range);
            (status, true)
        }
        Kind::Write { relation, action, returns, resolution, .. } => {
            write_head(&mut headers, &relation.name, *action, *returns, *resolution, reply)
        }
    };
    if !prepared.legacy_names.is_empty() {
        let names: Vec<_> =
            prepared.legacy_names.iter().map(|(name, alias)| format!("'{name}' has the alias '{alias}'")).collect();
        let text = format!("299 - \"{}: use aliases in filters, orders and limits\"", names.join(", "));
        set(&mut headers, header::WARNING, &text);
    }
    if has_body {
        set(&mut headers, header::CONTENT_TYPE, &prepared.negotiated.content_type);
        tell_profile(&mut headers, *profile);
    }
    tell_server(&mut headers);
    reply.apply_wishes(&mut status, &mut headers)?;
    let has_body = has_body && !is_bodiless(status);
    if is_bodiless(status) {
        headers.remove(header::CONTENT_TYPE);
    }

    let is_head = asked.action == (RequestAction::Read { body: false });
    let body = match body {
        Some(pieces) if has_body && !is_head => ChunkedBody::body(pieces),
        _ => Body::empty(),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Whether answers of this status end with their head, whatever SQL has chosen it for.
fn is_bodiless(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Which preferences this kind of request honours (contract 8).
fn honoured(answered: &CompletedRequest<'_>) -> HonouredPreferences {
    let transaction = answered.may_choose_end;
    match &answered.prepared.kind {
        Kind::Read { .. } => HonouredPreferences { transaction, ..HonouredPreferences::default() },
        Kind::Call { .. } => HonouredPreferences { transaction, max_affected: true, ..HonouredPreferences::default() },
        Kind::Write { action, resolvable, .. } => HonouredPreferences {
            resolution: *action == WriteAction::Insert && *resolvable,
            missing: matches!(action, WriteAction::Insert | WriteAction::Update),
            returned: true,
            transaction,
            max_affected: matches!(action, WriteAction::Update | WriteAction::Delete),
        },
    }
}

/// The status of a write, its headers, and whether rows go back.
fn write_head(
    headers: &mut HeaderMap,
    relation: &str,
    action: WriteAction,
    returns: ReturnPreference,
    resolution: Option<Resolution>,
    reply: &StatementResult,
) -> (StatusCode, bool) {
    let rows = returns == ReturnPreference::Representation;
    match action {
        WriteAction::Insert => {
            set(headers, header::CONTENT_RANGE, &content_range(0, 0, reply.total));
            if let Some(location) = reply.location.as_deref().and_then(|key| location(relation, key)) {
                set(headers, header::LOCATION, &location);
            }
            // A merge that put nothing in has only changed what was there
            let only_changed =
                resolution == Some(Resolution::MergeDuplicates) && reply.inserted.unwrap_or_default() == 0;
            let status = if only_changed { StatusCode::OK } else { StatusCode::CREATED };
            (status, rows)
        }
        WriteAction::Update => {
            set(headers, header::CONTENT_RANGE, &content_range(0, reply.rows, reply.total));
            (if rows { StatusCode::OK } else { StatusCode::NO_CONTENT }, rows)
        }
        WriteAction::Delete => {
            set(headers, header::CONTENT_RANGE, &content_range(0, 0, reply.total));
            (if rows { StatusCode::OK } else { StatusCode::NO_CONTENT }, rows)
        }
        WriteAction::Put => {
            let is_new = reply.inserted.unwrap_or_default() > 0;
            let status = match (rows, is_new) {
                (true, true) => StatusCode::CREATED,
                (true, false) => StatusCode::OK,
                (false, _) => StatusCode::NO_CONTENT,
            };
            (status, rows)
        }
    }
}

/// `/people?id=eq.7` of `[["id","7"]]`.
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

/// Says which schema the body is of, where that is not plain.
pub(crate) fn tell_profile(headers: &mut HeaderMap, profile: SchemaProfile<'_>) {
    if profile.told {
        set(headers, CONTENT_PROFILE, profile.schema);
    }
}

/// Says who answers, and what an answer depends on.
pub(crate) fn tell_server(headers: &mut HeaderMap) {
    headers.insert(header::VARY, HeaderValue::from_static("Accept, Prefer, Range"));
    headers.insert(header::SERVER, SERVER);
}

/// OPTIONS: no database, no body.
pub(crate) fn allow(methods: &str) -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    set(headers, header::ALLOW, methods);
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    headers.insert(header::SERVER, SERVER);
    response
}

/// A refusal on the wire. `terse`: without details and hint.
pub(crate) fn refuse(error: &RestError, terse: bool) -> Response {
    if *error == RestError::Internal {
        tracing::error!("A request of the data API failed for a reason that must not occur");
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
    if let RestError::Postgres(refusal) = error
        && let Some(reason) = &refusal.reason
        && let Ok(reason) = hyper::ext::ReasonPhrase::try_from(reason.as_bytes())
    {
        response.extensions_mut().insert(reason);
    }
    response
}

/// Sets a header whose text comes from names of the request: what no header can hold is left out.
fn set(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
        headers.insert(name, value);
    }
}
