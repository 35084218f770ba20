//! HTTP: requests to operations, results to responses.

mod address;
mod bucket;
mod deliver;
mod fields;
mod object;
mod render;
mod shallow_json;
mod sign;
mod upload;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::header::{self, Entry};
use http::{Method, StatusCode};
use http_body::Body as _;
use portico_base::{ForwardedHeaders, LoggedRoute};
use serde_json::json;

use self::address::RestAddress;
use self::fields::JsonFields;
use crate::error::{Result, StorageError};
use crate::http::call::StorageCall;
use crate::http::response::{empty, json_response, message, text};
use crate::operation::{Actor, Operation, SqlStep};
use crate::service::StorageService;
use crate::{resumable, s3, sql};

/// Responds to a request. Errors become responses.
pub(crate) async fn respond(
    service: &Arc<StorageService>,
    request: Request,
    forwarded: ForwardedHeaders<'_>,
) -> Response {
    let (parts, body) = request.into_parts();
    if s3::serves(parts.uri.path()) {
        return match &service.settings.s3 {
            Some(settings) => Box::pin(s3::respond(service, settings, (&parts, body), forwarded)).await,
            None => s3::switched_off(&parts),
        };
    }
    let call = StorageCall { service, parts: &parts, forwarded };
    let address = RestAddress::parse(&parts.method, parts.uri.path());
    let route = LoggedRoute(address.as_ref().ok().and_then(Option::as_ref).map_or("", RestAddress::pattern));
    let outcome = call.respond(address, body).await;
    let mut response = outcome.unwrap_or_else(StorageError::into_response);
    response.extensions_mut().insert(route);
    if parts.method == Method::HEAD {
        let body = std::mem::take(response.body_mut());
        // The length that GET has, which is unknown behind this
        if let (Some(length @ 1..), Entry::Vacant(none)) =
            (body.size_hint().exact(), response.headers_mut().entry(header::CONTENT_LENGTH))
        {
            none.insert(length.into());
        }
    }
    response
}

impl StorageCall<'_> {
    async fn respond(&self, address: Result<Option<RestAddress>>, body: Body) -> Result<Response> {
        let no_route = || StorageError::NoRoute(format!("{}:{}", self.parts.method, self.parts.uri.path()));
        match address?.ok_or_else(no_route)? {
            RestAddress::Status => Ok(empty(StatusCode::OK)),
            RestAddress::Version => Ok(text(concat!("portico-", env!("CARGO_PKG_VERSION")))),
            RestAddress::Health => self.health().await,
            RestAddress::Purge => self.purge(),
            RestAddress::Iceberg => {
                self.require_service_role()?;
                Err(StorageError::FeatureNotEnabled("iceberg"))
            }
            // On the heap, or the memory of every upload would have room for them
            RestAddress::Resumable(target) => Ok(Box::pin(resumable::respond(self, target, body)).await),
            RestAddress::Bucket(address) => self.bucket(address, body).await,
            RestAddress::Object(address) => self.object(address, body).await,
            RestAddress::Render(address) => Box::pin(self.render(address)).await,
        }
    }

    /// Reads a JSON body.
    async fn fields(&self, operation: &Operation, body: Body) -> Result<JsonFields> {
        JsonFields::of_body(operation, &self.parts.headers, body).await
    }

    async fn health(&self) -> Result<Response> {
        let operation = self.operation("storage.health")?;
        let ping = SqlStep { text: sql::PING, values: &[] };
        let pinged = operation.read(Actor::Service, ping, portico_database::wire::RowSeparators::default()).await;
        Ok(json_response(&json!({ "healthy": pinged.is_ok() })))
    }

    /// Responds to a request to purge a cache. There is none in front.
    fn purge(&self) -> Result<Response> {
        self.require_service_role()?;
        Ok(message("success"))
    }
}
