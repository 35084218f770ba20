//! The methods of the protocol.

use std::time::{Duration, UNIX_EPOCH};

use axum::body::Body;
use axum::response::Response;
use http::uri::Authority;
use http::{HeaderValue, Method, StatusCode, header};

use super::headers::TusHeaders;
use super::id::ResumableId;
use super::metadata::UploadMetadata;
use super::response::{
    self, TUS_COMPLETE, TusError, UPLOAD_DEFER_LENGTH, UPLOAD_EXPIRES, UPLOAD_LENGTH, UPLOAD_METADATA, UPLOAD_OFFSET,
};
use super::session::{LockedUpload, UploadAccess, UploadState, new_version, parsed};
use super::target::ResumableTarget;
use crate::error::StorageError;
use crate::http::call::StorageCall;
use crate::name::{ObjectKey, ObjectPath, check_bucket_name};
use crate::object::upload::UploadAuthority;
use crate::sign::{self, UrlScope};
use crate::unfinished::UploadRecord;

/// The longest name of an object, in characters, as in paths.
const MAX_NAME: usize = 2500;

/// The last second that a date of HTTP can have, since 1970.
const LAST_HTTP_DATE: u64 = 253_402_300_799;

/// The value of `storage.operation` for a request, and for one with a signed URL.
struct OperationName(&'static str, &'static str);

const CREATE: OperationName = OperationName("storage.tus.upload.create", "storage.tus.upload.create_signed");
const PATCH: OperationName = OperationName("storage.tus.upload.part", "storage.tus.upload.part_signed");
const DELETE: OperationName = OperationName("storage.tus.upload.delete", "storage.tus.upload.delete_signed");

/// Responds to a request below `/upload/resumable`. Errors become responses.
pub(crate) async fn respond(call: &StorageCall<'_>, target: ResumableTarget, body: Body) -> Response {
    let method = method(call);
    if method == Method::OPTIONS {
        return response::options(call.service().settings.file_size_limit);
    }
    let resumable = ResumableCall { call, is_signed: target.is_signed };
    let outcome = match (method, target.id) {
        (Method::POST, None) => resumable.create(body).await,
        (Method::HEAD, Some(id)) => resumable.describe(&id).await,
        (Method::PATCH, Some(id)) => resumable.extend(&id, body).await,
        (Method::DELETE, Some(id)) => resumable.terminate(&id).await,
        _ => Err(TusError::NoRoute),
    };
    outcome.unwrap_or_else(TusError::into_response)
}

/// Returns the method: clients that cannot send every method name it in a header of `POST`.
fn method(call: &StorageCall<'_>) -> Method {
    let method = &call.parts().method;
    let replaced = (*method == Method::POST).then(|| call.header("x-http-method-override")).flatten();
    replaced.and_then(|name| name.to_ascii_uppercase().parse().ok()).unwrap_or_else(|| method.clone())
}

/// A request of the protocol.
struct ResumableCall<'a> {
    call: &'a StorageCall<'a>,
    is_signed: bool,
}

impl ResumableCall<'_> {
    /// Checks the token before anything else, as far as it does not name the object.
    fn authenticate(&self) -> Result<(), TusError> {
        if self.is_signed {
            return self.call.header("x-signature").map(drop).ok_or(TusError::SignatureRequired);
        }
        match self.call.identity() {
            Ok(_) => Ok(()),
            // The client learns the same about a missing token as about a broken one
            Err(StorageError::Schema(_)) => {
                Err(TusError::Unauthenticated(StorageError::AccessDenied("Invalid Compact JWS".into())))
            }
            Err(error) => Err(TusError::Unauthenticated(error)),
        }
    }

    /// Returns the rights of the request to an object.
    fn access(&self, target: &ObjectPath, name: &OperationName) -> Result<UploadAccess, TusError> {
        if !self.is_signed {
            let operation = self.call.operation(name.0)?;
            return Ok(UploadAccess { operation, authority: UploadAuthority::Caller, upsert: self.call.upserts() });
        }
        let token = self.call.header("x-signature").ok_or(TusError::SignatureRequired)?;
        let token = sign::verify(self.call.service(), token, target, UrlScope::Upload)?;
        let operation = self.call.open_operation(name.1);
        Ok(UploadAccess { operation, authority: UploadAuthority::SignedUrl(token.owner), upsert: token.upsert })
    }

    /// Creates an upload, and receives the bytes that the request has already.
    async fn create(&self, body: Body) -> Result<Response, TusError> {
        self.authenticate()?;
        let headers = TusHeaders::parse(&Method::POST, &self.call.parts().headers)?;
        if headers.length.is_some() == headers.defers_length {
            return Err(TusError::LengthRequired);
        }
        let metadata = headers.metadata.ok_or(TusError::MetadataRequired)?.with_cache_control();
        let target = named_object(&metadata)?;
        let id = ResumableId { target, version: new_version() };
        let access = self.access(&id.target, &CREATE)?;
        let permit = access.permit(&id, &metadata, headers.length).await?;
        let limit = headers.length.unwrap_or(permit.size_limit());
        if headers.has_bytes && headers.body_length.is_some_and(|length| length > limit) {
            return Err(TusError::SizeExceeded);
        }
        let record = access.create(&id, &metadata, headers.length).await?;
        let mut response = response::success(StatusCode::CREATED);
        let is_empty = headers.length == Some(0);
        let state = if headers.has_bytes || is_empty {
            let body = if headers.has_bytes { body } else { Body::empty() };
            let (lock, record) = access.take_over(&id).await?;
            let upload = LockedUpload { lock, record, length: headers.length };
            match access.extend(&id, permit, upload, body).await {
                Ok(state) => state,
                Err(error) => {
                    // The client does not know the id
                    access.remove(&id).await?;
                    return Err(error);
                }
            }
        } else {
            UploadState { record, offset: 0 }
        };
        let location = HeaderValue::try_from(self.location(&id)).map_err(|_| StorageError::Internal)?;
        response.headers_mut().insert(header::LOCATION, location);
        add_progress(&mut response, &state, headers.has_bytes);
        Ok(response)
    }

    /// Finds an upload that was created, and the rights of the request to its object.
    async fn find(
        &self,
        id: &str,
        name: &OperationName,
    ) -> Result<(ResumableId, UploadAccess, UploadRecord), TusError> {
        let id = ResumableId::parse(id).ok_or(TusError::InvalidId)?;
        let access = self.access(&id.target, name)?;
        let record = access.find(&id).await?;
        Ok((id, access, record))
    }

    /// Describes an upload. Needs the permission to continue it.
    async fn describe(&self, id: &str) -> Result<Response, TusError> {
        self.authenticate()?;
        TusHeaders::parse(&Method::HEAD, &self.call.parts().headers)?;
        let (id, access, record) = self.find(id, &PATCH).await?;
        match access.permit(&id, &parsed(&record)?, record.length).await {
            // The policies have allowed the row: a finished upload can be described
            Ok(_) | Err(StorageError::Exists(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let (_lock, record) = access.take_over(&id).await?;
        let mut response = response::success(StatusCode::OK);
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(UPLOAD_OFFSET, HeaderValue::from(record.progress.offset));
        match record.visible_length() {
            Some(length) => headers.insert(UPLOAD_LENGTH, HeaderValue::from(length)),
            None => headers.insert(UPLOAD_DEFER_LENGTH, HeaderValue::from_static("1")),
        };
        let metadata = HeaderValue::try_from(&record.metadata).map_err(|_| StorageError::Internal)?;
        headers.insert(UPLOAD_METADATA, metadata);
        add_expiry(&mut response, &record);
        Ok(response)
    }

    /// Receives bytes of an upload.
    async fn extend(&self, id: &str, body: Body) -> Result<Response, TusError> {
        self.authenticate()?;
        let headers = TusHeaders::parse(&Method::PATCH, &self.call.parts().headers)?;
        let offset = headers.offset.ok_or(TusError::OffsetRequired)?;
        if !headers.has_bytes {
            return Err(TusError::ContentTypeRequired);
        }
        let (id, access, record) = self.find(id, &PATCH).await?;
        let length = record.visible_length().or(headers.length).or(record.length);
        let permit = access.permit(&id, &parsed(&record)?, length).await?;
        let (lock, record) = access.take_over(&id).await?;
        if record.progress.offset != offset {
            return Err(TusError::OffsetConflict);
        }
        let is_known = record.visible_length().is_some();
        // It is said once, and not less than what is there
        if headers.length.is_some_and(|length| is_known || length < offset) {
            return Err(TusError::LengthRequired);
        }
        if record.is_finished {
            return Ok(progress_response(&UploadState { offset, record }));
        }
        let length = headers.length.or(record.length);
        let limit = length.unwrap_or(permit.size_limit());
        if headers.body_length.is_some_and(|bytes| offset.saturating_add(bytes) > limit) {
            return Err(TusError::SizeExceeded);
        }
        let upload = LockedUpload { lock, record, length };
        let state = access.extend(&id, permit, upload, body).await?;
        Ok(progress_response(&state))
    }

    /// Deletes an unfinished upload.
    async fn terminate(&self, id: &str) -> Result<Response, TusError> {
        self.authenticate()?;
        TusHeaders::parse(&Method::DELETE, &self.call.parts().headers)?;
        let (id, access, record) = self.find(id, &DELETE).await?;
        access.permit(&id, &parsed(&record)?, record.length).await?;
        let (_lock, record) = access.take_over(&id).await?;
        if record.is_finished {
            return Err(TusError::AlreadyComplete);
        }
        access.remove(&id).await?;
        Ok(response::success(StatusCode::NO_CONTENT))
    }

    /// Returns the URL of an upload as the client reaches it; without a host of the request the
    /// path alone.
    fn location(&self, id: &ResumableId) -> String {
        let headers = self.call.forwarded_headers();
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_https = self.call.service().settings.https || text("x-forwarded-proto").eq_ignore_ascii_case("https");
        let scheme = if is_https { "https" } else { "http" };
        let host: Option<Authority> =
            text("x-forwarded-host").split(',').next().and_then(|host| host.trim().parse().ok());
        let origin = host.map(|host| {
            // A proxy that ends TLS may name the port behind it
            let port = text("x-forwarded-port");
            let is_unusual = !matches!(port, "80" | "443") && port.parse::<u16>().is_ok();
            let port = if host.port().is_none() && is_unusual { format!(":{port}") } else { String::new() };
            format!("{scheme}://{host}{port}")
        });
        let signed = if self.is_signed { "/sign" } else { "" };
        let prefix = text("x-forwarded-prefix");
        format!("{}{prefix}/upload/resumable{signed}/{}", origin.unwrap_or_default(), id.encode())
    }
}

/// Returns the object that an upload is for.
fn named_object(metadata: &UploadMetadata) -> Result<ObjectPath, TusError> {
    let value = |key: &str| metadata.text(key).filter(|text| !text.is_empty());
    let (Some(bucket), Some(name)) = (value("bucketName"), value("objectName")) else {
        return Err(TusError::MetadataRequired);
    };
    check_bucket_name(bucket)?;
    ObjectKey::parse(name)?;
    if name.chars().count() > MAX_NAME {
        return Err(TusError::Storage(StorageError::InvalidKey(name.to_owned())));
    }
    Ok(ObjectPath { bucket: bucket.to_owned(), name: name.to_owned() })
}

/// Returns the response to a request with bytes.
fn progress_response(state: &UploadState) -> Response {
    let mut response = response::success(StatusCode::NO_CONTENT);
    add_progress(&mut response, state, true);
    response
}

fn add_progress(response: &mut Response, state: &UploadState, has_bytes: bool) {
    let headers = response.headers_mut();
    if has_bytes {
        headers.insert(UPLOAD_OFFSET, HeaderValue::from(state.offset));
    }
    if state.record.is_finished {
        headers.insert(TUS_COMPLETE, HeaderValue::from_static("1"));
    }
    add_expiry(response, &state.record);
}

/// Adds the time at which an unfinished upload expires.
fn add_expiry(response: &mut Response, record: &UploadRecord) {
    let expires = u64::try_from(record.expires).ok().filter(|seconds| *seconds <= LAST_HTTP_DATE);
    let time = expires.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    let value = time.and_then(|time| HeaderValue::try_from(httpdate::fmt_http_date(time)).ok());
    if let Some(value) = value.filter(|_| !record.is_finished) {
        response.headers_mut().insert(UPLOAD_EXPIRES, value);
    }
}
