//! The S3 protocol: signed requests to the operations of buckets and objects.
//!
//! A request is signed with an access key, which has the rights of the service, or carries the
//! token of a user, whose policies decide then. Each operation calls the same functions as its
//! counterpart in `routes`: nothing here decides about permission, limits or versions.

mod address;
mod bucket;
mod call;
mod chunked;
mod error;
mod form;
mod list;
mod multipart;
mod object;
mod payload;
mod query;
mod signature;
#[cfg(test)]
mod signature_properties;
mod xml;

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::{Method, StatusCode};
use portico_base::{ForwardedHeaders, LoggedRoute};

use self::address::S3Address;
use self::call::{S3Call, S3Request};
use self::error::error_response;
use self::query::S3Query;
use crate::error::{Result, S3Error, StorageError};
use crate::service::StorageService;
use crate::settings::S3Settings;

/// The path of the protocol within the service.
const PREFIX: &str = "/s3";

/// Returns true for the paths of the protocol.
pub(crate) fn serves(path: &str) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Responds to a request. Errors become responses.
pub(crate) async fn respond(
    service: &Arc<StorageService>,
    settings: &S3Settings,
    (parts, body): (&Parts, Body),
    forwarded: ForwardedHeaders<'_>,
) -> Response {
    let headers = forwarded.added_to(&parts.headers);
    let is_head = parts.method == Method::HEAD;
    let path = parts.uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let address = S3Address::parse(path);
    let route = LoggedRoute(address.as_ref().map_or(PREFIX, S3Address::pattern));
    let outcome = async {
        let address = address?;
        let query = S3Query::parse(parts.uri.query().unwrap_or_default())?;
        let request = S3Request { service, settings, parts, headers, query };
        if let Some((bucket, content_type)) = request.form_of(&address) {
            return request.post_form(bucket, content_type, body).await;
        }
        request.verified()?.respond(address, body).await
    };
    let mut response = outcome.await.unwrap_or_else(|error| {
        let resource = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
        error_response(&error, resource.trim_start_matches('/'), is_head)
    });
    response.extensions_mut().insert(route);
    if is_head {
        *response.body_mut() = Body::empty();
    }
    response
}

/// Responds to a request while the protocol is turned off.
pub(crate) fn switched_off(parts: &Parts) -> Response {
    let is_head = parts.method == Method::HEAD;
    let mut response = error_response(&StorageError::FeatureNotEnabled("s3"), "", is_head);
    *response.status_mut() = StatusCode::FORBIDDEN;
    response.extensions_mut().insert(LoggedRoute(PREFIX));
    response
}

impl S3Call<'_> {
    async fn respond(&self, address: S3Address, body: Body) -> Result<Response> {
        let method = &self.request.parts.method;
        match address {
            S3Address::Service if *method == Method::GET => self.list_buckets().await,
            S3Address::Service => Err(S3Error::METHOD_NOT_ALLOWED.into()),
            S3Address::Bucket(bucket) => match *method {
                Method::GET => self.get_bucket(bucket).await,
                Method::HEAD => self.head_bucket(&bucket).await,
                Method::PUT => self.create_bucket(bucket, body).await,
                Method::DELETE => self.delete_bucket(&bucket).await,
                Method::POST => self.delete_objects(&bucket, body).await,
                _ => Err(S3Error::METHOD_NOT_ALLOWED.into()),
            },
            S3Address::Object(path) => match *method {
                Method::GET if self.has("uploadId") => self.list_parts(path).await,
                Method::GET if self.has("tagging") => self.get_tagging(&path).await,
                Method::GET | Method::HEAD => self.get_object(path).await,
                Method::PUT if self.has("uploadId") => self.upload_part(path, body).await,
                Method::PUT if self.header("x-amz-copy-source").is_some() => self.copy_object(path).await,
                Method::PUT => self.put_object(path, body).await,
                Method::POST if self.has("uploads") => self.begin_multipart(path).await,
                Method::POST => self.complete_multipart(path, body).await,
                Method::DELETE if self.has("uploadId") => self.abort_multipart(path).await,
                Method::DELETE => self.delete_object(&path).await,
                _ => Err(S3Error::METHOD_NOT_ALLOWED.into()),
            },
        }
    }
}
