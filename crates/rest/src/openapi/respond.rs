//! Requests for the OpenAPI document.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use portico_tokens::{ApiRole, Caller};
use serde_json::json;

use super::document::{DocumentSource, document};
use super::privileges::{SchemaVisibility, VisibleObjects, read_visibility, visibility_query};
use crate::config::OpenApiMode;
use crate::error::RestError;
use crate::execute::RequestContext;
use crate::execute::transaction::{self, RequestStatements, TransactionEnding};
use crate::request::media::MediaType;
use crate::response::{self, VERSION};
use crate::sql::StatementOutput;

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/openapi+json; charset=utf-8");

/// Returns true if the caller has the secret key. The key decides; the token, if the request has no
/// key.
pub(crate) fn has_secret_key(caller: &Caller) -> bool {
    match caller.api_key {
        Some(role) => role == ApiRole::ServiceRole,
        None => caller.is_service_role(),
    }
}

/// Makes the response for callers without the secret key, where the document requires it. The body
/// is that of the hosted service's gateway.
pub(crate) fn forbidden() -> Response {
    let body = json!({
        "message": "Access to schema is forbidden",
        "hint": "Accessing the schema via the Data API is only allowed using a secret API key.",
    });
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    response
}

/// Responds to a request for the document with the objects that the role of the request may use.
///
/// # Errors
/// PGRST107 if the client does not accept the document; errors of PostgreSQL.
pub(crate) async fn respond(context: &RequestContext<'_>) -> Result<Response, RestError> {
    let request = context.request;
    let is_acceptable =
        |accepted: &MediaType| matches!(accepted, MediaType::OpenApi | MediaType::Json | MediaType::Any);
    if !request.accepted.iter().any(is_acceptable) {
        let types = request.accepted.iter().map(|accepted| accepted.text().into_owned()).collect();
        return Err(RestError::Unacceptable(types));
    }
    let cache = context.snapshot.cache.clone().ok_or(RestError::NoSchemaCache)?;
    let config = Arc::clone(&context.snapshot.config);
    let SchemaVisibility { visible, comment } = visibility(context).await?;
    let visible =
        if config.openapi_mode == OpenApiMode::IgnorePrivileges { VisibleObjects::Everything } else { visible };
    let (schema, public_url) = (request.head.schema.to_owned(), context.service.public_url.clone());
    // Writing a document of thousands of tables here would delay the other requests of this worker
    let writing = portico_base::spawn_blocking(move || {
        let source = DocumentSource {
            cache: &cache,
            schema: &schema,
            comment: comment.as_deref(),
            visible: &visible,
            security: config.openapi_security,
            address: config.openapi_proxy_uri.as_deref().unwrap_or(&public_url),
            version: VERSION,
        };
        document(&source).to_string()
    });
    let mut response = Response::new(Body::from(writing.await.map_err(|_| RestError::Internal)?));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, CONTENT_TYPE);
    response::set_content_profile(headers, request.head.profile);
    response::set_server(headers);
    Ok(response)
}

/// Reads the objects that the role of the request may use, in that role.
async fn visibility(context: &RequestContext<'_>) -> Result<SchemaVisibility, RestError> {
    let transaction = context.read_only_transaction();
    let main = visibility_query(context.request.head.schema);
    let mut connection = context.checkout().await?;
    let statements = RequestStatements { main: &main, output: StatementOutput::Envelope, then: None };
    let results = transaction::run(&mut connection, &transaction, statements, TransactionEnding::Commit).await;
    let results = results.map_err(|error| context.error(&error))?;
    let row = results.main().first().ok_or(RestError::Internal)?;
    read_visibility(row.text(0), row.text(1), row.text(2)).ok_or(RestError::Internal)
}
