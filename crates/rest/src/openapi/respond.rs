//! Requests for the document: who may, in which form, and in the caller's role.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use portico_tokens::{ApiRole, Caller};
use serde_json::json;

use super::{DocumentSource, SchemaVisibility, VisibleObjects, document, read_visibility, visibility_query};
use crate::config::OpenApiMode;
use crate::error::RestError;
use crate::execute::RequestContext;
use crate::execute::session_settings::TransactionContext;
use crate::execute::transaction::{self, RequestStatements, TransactionEnding};
use crate::request::media::MediaType;
use crate::request::resource::SchemaProfile;
use crate::response::{self, VERSION};
use crate::sql::StatementOutput;

const TYPE: HeaderValue = HeaderValue::from_static("application/openapi+json; charset=utf-8");

/// Whether a caller holds the secret key: the key decides, and of a request without one its token.
pub(crate) fn holds_secret_key(caller: &Caller) -> bool {
    match caller.api_key {
        Some(role) => role == ApiRole::ServiceRole,
        None => caller.is_service_role(),
    }
}

/// What everybody else is told where only the secret key may read the root. The hosted service's front door says it, in its own form.
pub(crate) fn refuse() -> Response {
    let body = json!({
        "message": "Access to schema is forbidden",
        "hint": "Accessing the schema via the Data API is only allowed using a secret API key.",
    });
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    response
}

/// The document as the caller may see it.
///
/// # Errors
/// PGRST107 when it is not what the client takes; what PostgreSQL refuses.
pub(crate) async fn answer(doing: &RequestContext<'_>, profile: SchemaProfile<'_>) -> Result<Response, RestError> {
    let asked = doing.asked;
    if !asked.accepted.iter().any(|accepted| matches!(accepted, MediaType::OpenApi | MediaType::Json | MediaType::Any))
    {
        let refused = asked.accepted.iter().map(|accepted| accepted.text().into_owned()).collect();
        return Err(RestError::Unacceptable(refused));
    }
    let snapshot = doing.snapshot;
    let cache = snapshot.cache.clone().ok_or(RestError::NoSchemaCache)?;
    let config = Arc::clone(&snapshot.config);
    let SchemaVisibility { mut allowed, comment } = ask(doing).await?;
    if config.openapi_mode == OpenApiMode::IgnorePrivileges {
        allowed = VisibleObjects::Everything;
    }
    let (schema, public_url) = (doing.schema.to_owned(), doing.rest.inner.public_url.clone());
    // A document of thousands of tables takes its time, and must hold up nobody else
    let writing = tokio::task::spawn_blocking(move || {
        let subject = DocumentSource {
            cache: &cache,
            schema: &schema,
            comment: comment.as_deref(),
            allowed: &allowed,
            security: config.openapi_security,
            address: config.openapi_proxy_uri.as_deref().unwrap_or(&public_url),
            version: VERSION,
        };
        document(&subject).to_string()
    });
    let mut response = Response::new(Body::from(writing.await.map_err(|_| RestError::Internal)?));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, TYPE);
    response::tell_profile(headers, profile);
    response::tell_server(headers);
    Ok(response)
}

/// What the caller's role may use, asked in that role like any other read.
async fn ask(doing: &RequestContext<'_>) -> Result<SchemaVisibility, RestError> {
    let asked = doing.asked;
    let role = doing.snapshot.roles.get(&asked.identity.role);
    let setting = TransactionContext {
        config: &doing.snapshot.config,
        identity: &asked.identity,
        role,
        hoisted: &[],
        isolation: role.and_then(|role| role.isolation),
        read_only: true,
        schema: doing.schema,
        method: &asked.parts.method,
        path: asked.parts.uri.path(),
        headers: &asked.parts.headers,
        outside: asked.outside,
        authorization: asked.caller.authorization.as_ref(),
        time_zone: None,
    };
    let main = visibility_query(doing.schema);
    let mut lease = doing.lease().await?;
    let work = RequestStatements { main: &main, yields: StatementOutput::Envelope, then: None };
    let outcome = transaction::run(&mut lease, &setting, work, TransactionEnding::Commit).await;
    let outcome = outcome.map_err(|error| doing.refusal(&error))?;
    let row = outcome.main().first().ok_or(RestError::Internal)?;
    read_visibility(row.text(0), row.text(1), row.text(2)).ok_or(RestError::Internal)
}
