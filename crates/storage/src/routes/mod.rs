//! HTTP: requests to operations, results to responses.

pub(crate) mod address;
pub(crate) mod body;
mod bucket;
pub(crate) mod deliver;
mod fields;
pub(crate) mod form;
mod object;
mod render;
mod sign;
pub(crate) mod upload;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use portico_tokens::Caller;
use serde_json::{Value, json};

use self::address::Address;
use self::fields::Fields;
use crate::error::{Result, StorageError};
use crate::identity::Identity;
use crate::operation::{Actor, Operation, RequestDescription, Step};
use crate::sql;
use crate::storage::Service;
use crate::{resumable, s3};

/// Adds the headers of the gateway to those that SQL sees.
pub(crate) type ForwardedHeaders<'a> = &'a (dyn Fn(&mut HeaderMap) + Send + Sync);

/// A request without its body.
pub(crate) struct Call<'a> {
    service: &'a Arc<Service>,
    parts: &'a Parts,
    forwarded: ForwardedHeaders<'a>,
}

/// Answers a request. Errors become responses.
pub(crate) async fn answer(service: &Arc<Service>, request: Request, forwarded: ForwardedHeaders<'_>) -> Response {
    let (parts, body) = request.into_parts();
    if let Some(settings) = service.settings.s3.as_ref().filter(|_| s3::serves(parts.uri.path())) {
        return s3::answer(service, settings, (&parts, body), forwarded).await;
    }
    let call = Call { service, parts: &parts, forwarded };
    let outcome = call.answer(body).await;
    let mut response = outcome.unwrap_or_else(StorageError::into_response);
    if parts.method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    response
}

impl Call<'_> {
    async fn answer(&self, body: Body) -> Result<Response> {
        let (method, path) = (&self.parts.method, self.parts.uri.path());
        let no_route = || StorageError::NoRoute(format!("{method}:{path}"));
        match Address::parse(method, path)?.ok_or_else(no_route)? {
            Address::Status => Ok(empty(StatusCode::OK)),
            Address::Version => Ok(text(concat!("portico-", env!("CARGO_PKG_VERSION")))),
            Address::Health => self.health().await,
            Address::Purge => self.purge(),
            Address::SwitchedOff(feature) => Err(StorageError::FeatureNotEnabled(feature)),
            Address::Resumable(target) => Ok(resumable::answer(self, target, body).await),
            Address::Bucket(address) => self.bucket(address, body).await,
            Address::Object(address) => self.object(address, body).await,
            Address::Render(address) => self.render(address).await,
        }
    }

    /// Returns the identity of the caller.
    pub(crate) fn identity(&self) -> Result<Identity> {
        let anonymous = Caller::anonymous();
        let caller = self.parts.extensions.get::<Caller>().unwrap_or(&anonymous);
        let Service { keys, login, clock, .. } = &**self.service;
        Identity::of(caller, &self.parts.headers, keys, login, clock.now())
    }

    /// Returns the shared state of the service.
    pub(crate) fn service(&self) -> &Arc<Service> {
        self.service
    }

    /// Returns the method and the headers as the client has sent them.
    pub(crate) fn parts(&self) -> &Parts {
        self.parts
    }

    /// Returns the headers of the request with those of the gateway.
    pub(crate) fn forwarded_headers(&self) -> HeaderMap {
        let mut headers = self.parts.headers.clone();
        (self.forwarded)(&mut headers);
        headers
    }

    fn description(&self) -> RequestDescription {
        let headers = self.forwarded_headers();
        let caller = self.parts.extensions.get::<Caller>();
        let authorization = caller.and_then(|caller| caller.authorization.as_ref());
        let description = RequestDescription::new(&self.parts.method, self.parts.uri.path(), &headers, authorization);
        description.with_client(&self.parts.extensions)
    }

    /// Returns an operation of a caller with a valid token.
    pub(crate) fn operation(&self, name: &'static str) -> Result<Operation> {
        Ok(Operation::new(self.service, name, Some(self.identity()?), self.description()))
    }

    /// Returns an operation of a caller whose token is missing or may be invalid.
    fn tolerant_operation(&self, name: &'static str) -> Operation {
        Operation::new(self.service, name, self.identity().ok(), self.description())
    }

    /// Returns an operation that looks at no token.
    pub(crate) fn open_operation(&self, name: &'static str) -> Operation {
        Operation::new(self.service, name, None, self.description())
    }

    /// Checks that the caller has the rights of the service.
    fn require_service_role(&self) -> Result<()> {
        match self.identity() {
            Ok(identity) if identity.is_service_role() => Ok(()),
            Ok(_) => Err(StorageError::ServiceRoleOnly("Access denied: Invalid role")),
            Err(_) => Err(StorageError::ServiceRoleOnly("Access denied: JWT is not authenticated")),
        }
    }

    /// Returns the first value of a query parameter.
    fn query(&self, name: &str) -> Option<String> {
        let query = self.parts.uri.query()?;
        form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }

    /// Returns a header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Reads a JSON body.
    async fn fields(&self, body: Body) -> Result<Fields> {
        Fields::of_body(&self.parts.headers, body, self.service.settings.fields_timeout).await
    }

    async fn health(&self) -> Result<Response> {
        let operation = self.operation("storage.health")?;
        let ping = Step { text: sql::PING, values: &[] };
        let answer = operation.read(Actor::Service, ping, portico_database::wire::RowSeparators::default()).await;
        Ok(json_response(&json!({ "healthy": answer.is_ok() })))
    }

    /// There is no cache in front that could be purged.
    fn purge(&self) -> Result<Response> {
        self.require_service_role()?;
        Ok(message("success"))
    }
}

/// Returns a response without a body.
fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn text(text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Returns a response with JSON that is already text.
fn json_bytes(json: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Body::from(json.into()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    response
}

fn json_response(json: &Value) -> Response {
    json_bytes(json.to_string())
}

fn message(text: &str) -> Response {
    json_response(&json!({ "message": text }))
}
