//! A request as types.
//!
//! [`RequestHead`] says who calls and what is requested; [`ApiRequest`] adds the query string, the
//! preferences and the body. Neither changes once it is read: every later stage borrows the request
//! and adds a type of its own.

pub mod body;
mod jwt_leeway;
pub mod media;
pub mod preferences;
pub(crate) mod resource;
pub(crate) mod role;
pub mod row_window;

use std::collections::HashSet;

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http_body_util::BodyExt as _;
use portico_base::ForwardedHeaders;
use portico_tokens::Caller;

use self::body::{BodyPurpose, Payload};
use self::media::MediaType;
use self::preferences::Preferences;
pub use self::resource::WriteAction;
use self::resource::{RequestAction, Resource, SchemaProfile};
use self::role::RequestRole;
use self::row_window::RowWindow;
use crate::config::RestConfig;
use crate::error::RestError;
use crate::query::{self, QueryTarget, RequestQuery, RowRange};

/// Bodies of this size and longer take milliseconds to parse.
const LONG_BODY: usize = 512 * 1024;

/// The caller of a request and the resource that it names.
pub(crate) struct RequestHead<'a> {
    pub parts: &'a Parts,
    pub forwarded: ForwardedHeaders<'a>,
    pub caller: &'a Caller,
    pub role: RequestRole,
    pub profile: SchemaProfile<'a>,
    /// The schema in which the resource is looked up: that of the profile, or of the function that
    /// responds at the root.
    pub schema: &'a str,
    pub resource: Resource,
    pub action: RequestAction,
    /// The root was requested, whether the OpenAPI document or a function serves it.
    pub is_root: bool,
}

impl<'a> RequestHead<'a> {
    /// Reads path, method and schema.
    ///
    /// # Errors
    /// PGRST125 and 126 for paths, PGRST106 for schemas, PGRST101 and 117 for methods.
    pub fn read(
        parts: &'a Parts,
        forwarded: ForwardedHeaders<'a>,
        caller: &'a Caller,
        role: RequestRole,
        config: &'a RestConfig,
    ) -> Result<Self, RestError> {
        let requested = Resource::of(parts.uri.path(), config)?;
        let profile = SchemaProfile::of(&parts.headers, &parts.method, config)?;
        let is_root = requested == Resource::Root;
        let (resource, schema) = match &config.root_spec {
            Some(function) if is_root && !function.schema.is_empty() => {
                (Resource::Function(function.name.clone()), function.schema.as_str())
            }
            Some(function) if is_root => (Resource::Function(function.name.clone()), profile.schema),
            _ => (requested, profile.schema),
        };
        let action = RequestAction::of(&resource, &parts.method)?;
        Ok(Self { parts, forwarded, caller, role, profile, schema, resource, action, is_root })
    }
}

/// A request of the data API, read completely but not yet compared with the schema.
pub(crate) struct ApiRequest<'a> {
    pub head: RequestHead<'a>,
    pub preferences: Preferences,
    pub query: RequestQuery,
    pub payload: Option<Payload>,
    /// The media type of the body.
    pub content_type: MediaType,
    /// The media types that the client accepts, the best first.
    pub accepted: Vec<MediaType>,
}

impl<'a> ApiRequest<'a> {
    /// Reads query string, headers and body. `time_zones` are the names that PostgreSQL knows.
    ///
    /// # Errors
    /// PGRST100, 103 and 114 for the query string, PGRST102 for the body.
    pub async fn read(head: RequestHead<'a>, time_zones: &HashSet<String>, body: Body) -> Result<Self, RestError> {
        let parts = head.parts;
        let query = query::parse(parts.uri.query().unwrap_or_default(), head.query_target())?;
        let window = RowWindow::of(&query, &parts.method, &parts.headers)?;
        let query = query.with_root_range(root_range(window));
        let knows_zone = |zone: &str| time_zones.contains(zone) || preferences::is_offset(zone);
        let preferences = Preferences::parse(&parts.headers, knows_zone);
        let content_type = media::content_type(&parts.headers);
        let payload = payload(head.action, &query, &content_type, body).await?;
        let accepted = head.accepted();
        Ok(Self { head, preferences, query, payload, content_type, accepted })
    }
}

impl RequestHead<'_> {
    fn query_target(&self) -> QueryTarget {
        match &self.resource {
            Resource::Function(_) => QueryTarget::Function { read: self.action != RequestAction::Call },
            Resource::Relation(_) | Resource::Root => QueryTarget::Relation,
        }
    }

    fn accepted(&self) -> Vec<MediaType> {
        let accepted = media::accepted(&self.parts.headers);
        if !self.is_root || self.resource == Resource::Root {
            return accepted;
        }
        // A client that asks for the document accepts the JSON that the root function returns
        let json = |media| if media == MediaType::OpenApi { vec![media, MediaType::Json] } else { vec![media] };
        accepted.into_iter().flat_map(json).collect()
    }
}

/// Returns limit and offset of the root level, narrowed by the `Range` header.
fn root_range(window: RowWindow) -> RowRange {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    RowRange { limit: window.limit.map(signed), offset: Some(window.offset).filter(|n| *n > 0).map(signed) }
}

/// Reads the body, if the action has a use for it.
async fn payload(
    action: RequestAction,
    query: &RequestQuery,
    content_type: &MediaType,
    body: Body,
) -> Result<Option<Payload>, RestError> {
    let purpose = match action {
        RequestAction::Call => BodyPurpose::Arguments,
        RequestAction::Write(WriteAction::Insert | WriteAction::Update | WriteAction::Put) => BodyPurpose::Rows,
        _ => return Ok(None),
    };
    // `columns` has no effect on a PUT
    let has_columns = query.columns.is_some() && action != RequestAction::Write(WriteAction::Put);
    let bytes = collect(body).await?;
    if bytes.len() < LONG_BODY {
        return body::parse(purpose, content_type, has_columns, bytes).map(Some);
    }
    // Parsing a long body here would delay the other requests of this worker
    let content_type = content_type.clone();
    let parsing = portico_base::spawn_blocking(move || body::parse(purpose, &content_type, has_columns, bytes));
    parsing.await.map_err(|_| RestError::Internal)?.map(Some)
}

async fn collect(body: Body) -> Result<Bytes, RestError> {
    // The gateway limits the length of bodies
    let collected = body.collect().await.map_err(|_| RestError::Body("The body could not be read".into()))?;
    Ok(collected.to_bytes())
}
