//! A signed request: its caller, its parameters and its body.

use std::sync::Arc;

use aws_lc_rs::hmac;
use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use portico_base::{CappedPermit, Secret};

use super::address::S3Address;
use super::payload::{self, PayloadBody};
use super::query::S3Query;
use super::signature::{RequestSignature, SignatureForm, SignedRequest};
use crate::error::{Result, S3Error, StorageError};
use crate::http::body::UploadBody;
use crate::identity::CallerIdentity;
use crate::operation::{Operation, RequestDescription};
use crate::service::{MAX_XML, StorageService};
use crate::settings::S3Settings;

/// The parameters that clients add for their own logs.
const IGNORED_PARAMETERS: [&str; 1] = ["x-id"];

/// A request without its body, whose signature may not be verified yet.
pub(super) struct S3Request<'a> {
    pub service: &'a Arc<StorageService>,
    pub settings: &'a S3Settings,
    pub parts: &'a Parts,
    /// The headers, with those of the gateway.
    pub headers: HeaderMap,
    pub query: S3Query,
}

/// A request whose signature is verified.
pub(super) struct S3Call<'a> {
    pub request: &'a S3Request<'a>,
    pub identity: CallerIdentity,
    pub signature: RequestSignature,
    /// The key that the chunks of the body are signed with.
    pub key: hmac::Key,
}

impl<'a> S3Request<'a> {
    /// Returns the bucket and the content type of a request that uploads with a form.
    pub fn form_of<'b>(&'b self, address: &'b S3Address) -> Option<(&'b str, &'b str)> {
        let S3Address::Bucket(bucket) = address else { return None };
        let content_type = self.parts.headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        let is_form = self.parts.method == Method::POST && kind.eq_ignore_ascii_case("multipart/form-data");
        (is_form && self.query.pairs().next().is_none()).then_some((bucket, content_type))
    }

    /// Verifies the signature.
    pub fn verified(&'a self) -> Result<S3Call<'a>> {
        let signature = RequestSignature::read(&self.parts.headers, &self.query)?;
        signature.check_scope(None)?;
        let prefix = self.headers.get("x-forwarded-prefix").and_then(|prefix| prefix.to_str().ok());
        let path = [prefix.unwrap_or_default(), self.parts.uri.path()].concat();
        let hosts = self.hosts();
        let signed = SignedRequest {
            method: &self.parts.method,
            headers: &self.parts.headers,
            path: &path,
            query: &self.query,
            hosts: &hosts,
        };
        let scope = &signature.scope.access_key;
        let (identity, key) =
            self.authenticate(scope, signature.token.as_ref(), |secret| signature.verify(&signed, secret))?;
        signature.check_time(self.service.clock.now())?;
        Ok(S3Call { request: self, identity, signature, key })
    }

    /// Determines the caller: the service for an access key, a user for a session token. `verify`
    /// verifies the signature with a secret.
    pub fn authenticate<T>(
        &self,
        access_key: &str,
        token: Option<&Secret>,
        verify: impl Fn(&Secret) -> Result<T>,
    ) -> Result<(CallerIdentity, T)> {
        let StorageService { keys, login, clock, .. } = &**self.service;
        let (identity, verified) = match token {
            None => {
                let mut access_keys = self.settings.access_keys.iter();
                let key = access_keys.find(|key| key.id == access_key).ok_or(S3Error::INVALID_ACCESS_KEY)?;
                (CallerIdentity::service(keys), verify(&key.secret)?)
            }
            Some(token) => {
                // The secret of users is the key that every page has: the token proves who they are
                let api = &keys.now().api;
                let secrets = [api.anon_jwt(), api.publishable()].map(Secret::new);
                let verified =
                    secrets.iter().filter(|secret| !secret.is_empty()).find_map(|secret| verify(secret).ok());
                let identity = CallerIdentity::of_token(token.expose(), keys, login, clock.now());
                let identity = identity.map_err(|_| S3Error::WRONG_SESSION_TOKEN)?;
                (identity, verified.ok_or(S3Error::WRONG_SIGNATURE)?)
            }
        };
        let is_user = matches!(identity.role.as_str(), "anon" | "authenticated");
        if !is_user && !self.may_be_privileged() {
            return Err(S3Error::FOREIGN_PAGE.into());
        }
        Ok((identity, verified))
    }

    /// Returns true if the request comes from a page that may use the access keys.
    pub fn may_be_privileged(&self) -> bool {
        let Some(pages) = &self.settings.pages else { return true };
        let headers = &self.parts.headers;
        let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or("?"));
        let fetch_site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
        let host = headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
        pages.admits_request(origin, fetch_site, host.as_ref().map(Authority::host))
    }

    /// Returns the hosts that the client may have requested: as a proxy names them, with or without
    /// a port, and as they arrived.
    pub fn hosts(&self) -> Vec<String> {
        let text = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let mut hosts = Vec::new();
        if let Some(host) = text("x-forwarded-host") {
            hosts.push(host.to_owned());
            let port = Authority::try_from(host).ok().and_then(|authority| authority.port_u16());
            match (port, text("x-forwarded-port")) {
                (Some(80 | 443), _) => hosts.extend(host.rsplit_once(':').map(|(host, _)| host.to_owned())),
                (None, Some(port)) if !matches!(port, "80" | "443") => hosts.push(format!("{host}:{port}")),
                _ => {}
            }
        }
        hosts.extend(text("host").map(str::to_owned));
        hosts.dedup();
        hosts
    }

    /// Returns an operation of a caller.
    pub fn operation(&self, name: &'static str, identity: &CallerIdentity) -> Operation {
        let description = RequestDescription::new(&self.parts.method, self.parts.uri.path(), &self.headers, None);
        let description = description.with_client(&self.parts.extensions);
        Operation::new(self.service, name, Some(identity.clone()), description)
    }
}

impl S3Call<'_> {
    pub fn operation(&self, name: &'static str) -> Operation {
        self.request.operation(name, &self.identity)
    }

    pub fn service(&self) -> &Arc<StorageService> {
        self.request.service
    }

    pub fn headers(&self) -> &HeaderMap {
        &self.request.parts.headers
    }

    /// Returns true for a presigned URL, which a browser can open.
    pub fn is_presigned(&self) -> bool {
        matches!(self.signature.form, SignatureForm::Query { .. })
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        self.request.query.get(name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.request.query.has(name)
    }

    /// Returns a header. In a presigned URL, parameters stand for the headers that only S3 has.
    pub fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers().get(name).and_then(|value| value.to_str().ok());
        let is_moved = self.is_presigned() && name.starts_with("x-amz-");
        header.or_else(|| self.request.query.get_header(name).filter(|_| is_moved))
    }

    /// Checks that the query asks for nothing besides these parameters: an unknown one may
    /// name a subresource of the bucket or the object that is not implemented, and must not address
    /// the whole.
    pub fn allow_parameters(&self, allowed: &[&str]) -> Result<()> {
        let is_known = |name: &str| {
            let is_of_signature = name.get(..6).is_some_and(|begin| begin.eq_ignore_ascii_case("x-amz-"));
            is_of_signature || IGNORED_PARAMETERS.contains(&name) || allowed.contains(&name)
        };
        if self.request.query.pairs().all(|(name, _)| is_known(name)) {
            Ok(())
        } else {
            Err(S3Error::NOT_IMPLEMENTED.into())
        }
    }

    /// Returns a parameter that is a number, at most `most`.
    pub fn number(&self, name: &str, most: u64) -> Result<Option<u64>> {
        let Some(text) = self.query(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        let number = text.parse::<u64>().map_err(|_| S3Error::invalid_argument(name))?;
        Ok(Some(number.min(most)))
    }

    /// Returns the length of the content.
    pub fn content_length(&self) -> Result<Option<u64>> {
        payload::content_length(self.headers(), &self.signature)
    }

    /// Returns the content of the request.
    pub fn payload(&self, body: Body) -> Result<PayloadBody<UploadBody>> {
        let body = UploadBody::new(body, &self.service().settings);
        PayloadBody::new(body, self.headers(), &self.signature, self.key.clone())
    }

    /// Reads an XML body.
    pub async fn document(&self, operation: &Operation, body: Body) -> Result<XmlBody> {
        self.document_with(operation, body, self.headers()).await
    }

    /// Reads an XML body that these headers describe. Waits until there is memory for it.
    pub async fn document_with(&self, operation: &Operation, body: Body, headers: &HeaderMap) -> Result<XmlBody> {
        let settings = &self.service().settings;
        let length = payload::content_length(headers, &self.signature)?.unwrap_or(MAX_XML as u64);
        let length = usize::try_from(length).ok().filter(|length| *length <= MAX_XML);
        let length = length.ok_or(StorageError::TooLarge("request body"))?;
        let memory = operation.reserve_memory(length).await?;
        let body = UploadBody::new(body, settings);
        let reading = PayloadBody::new(body, headers, &self.signature, self.key.clone())?.collect(length);
        let bytes = tokio::time::timeout(settings.fields_timeout, reading).await;
        Ok(XmlBody { bytes: bytes.unwrap_or(Err(StorageError::TooSlow))?, _memory: memory })
    }
}

/// An XML body, and the memory that is reserved for it.
pub(super) struct XmlBody {
    pub bytes: Vec<u8>,
    _memory: CappedPermit,
}

/// Returns a response without a body.
pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Adds a header, if its value is possible.
pub(super) fn set(response: &mut Response, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
