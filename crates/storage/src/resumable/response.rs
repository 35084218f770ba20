//! The responses of the protocol: errors as plain text with their real status, and the headers that
//! pages of other origins need.

use std::borrow::Cow;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::error::StorageError;

/// The only version of the protocol.
pub(super) const VERSION: &str = "1.0.0";
/// The extensions of the protocol.
const EXTENSIONS: &str = "creation,creation-with-upload,creation-defer-length,termination,expiration";
/// The request headers that pages may send.
const ALLOWED_HEADERS: &str = "Authorization, Content-Type, Location, Tus-Extension, Tus-Max-Size, Tus-Resumable, Tus-Version, \
     Upload-Concat, Upload-Defer-Length, Upload-Length, Upload-Metadata, Upload-Offset, X-HTTP-Method-Override, \
     X-Requested-With, X-Forwarded-Host, X-Forwarded-Proto, Forwarded, Authorization, X-Upsert, Upload-Expires, ApiKey, \
     x-signature, x-client-info, x-supabase-api-version";
/// The response headers that pages may read.
const EXPOSED_HEADERS: &str = "Authorization, Content-Type, Location, Tus-Extension, Tus-Max-Size, Tus-Resumable, Tus-Version, \
     Upload-Concat, Upload-Defer-Length, Upload-Length, Upload-Metadata, Upload-Offset, X-HTTP-Method-Override, \
     X-Requested-With, X-Forwarded-Host, X-Forwarded-Proto, Forwarded, Upload-Expires, Tus-Complete, sb-request-id, x-request-id";

pub(super) const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
pub(super) const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
pub(super) const UPLOAD_DEFER_LENGTH: HeaderName = HeaderName::from_static("upload-defer-length");
pub(super) const UPLOAD_METADATA: HeaderName = HeaderName::from_static("upload-metadata");
pub(super) const UPLOAD_EXPIRES: HeaderName = HeaderName::from_static("upload-expires");
pub(super) const TUS_COMPLETE: HeaderName = HeaderName::from_static("tus-complete");
const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const TUS_VERSION: HeaderName = HeaderName::from_static("tus-version");
const TUS_EXTENSION: HeaderName = HeaderName::from_static("tus-extension");
const TUS_MAX_SIZE: HeaderName = HeaderName::from_static("tus-max-size");

/// The reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TusError {
    /// The token is missing or not valid. The only error whose body is JSON.
    Unauthenticated(StorageError),
    VersionRequired,
    /// The name of the header, in lower case.
    InvalidHeader(&'static str),
    LengthRequired,
    MetadataRequired,
    SignatureRequired,
    InvalidId,
    OffsetRequired,
    ContentTypeRequired,
    /// There is no such upload, or it is one of another user.
    NoSuchUpload,
    Expired,
    OffsetConflict,
    /// The declared size is above the limit.
    TooLarge,
    /// The bytes are more than the size, or than the limit where the size is not known yet.
    SizeExceeded,
    AlreadyComplete,
    /// The requester has as many unfinished uploads as it may have.
    TooManyPending,
    Concatenation,
    /// A newer request works on the upload.
    TakenOver,
    NoRoute,
    Storage(StorageError),
}

impl From<StorageError> for TusError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::TooLarge("object") => Self::TooLarge,
            other => Self::Storage(other),
        }
    }
}

impl TusError {
    /// Returns status and text.
    fn response(&self) -> (u16, Cow<'static, str>) {
        let of = |status: u16, text: &'static str| (status, Cow::Borrowed(text));
        match self {
            Self::Unauthenticated(error) | Self::Storage(error) => (error.status(), error.message()),
            Self::VersionRequired => of(412, "Tus-Resumable Required\n"),
            Self::InvalidHeader(name) => (400, format!("Invalid {name}\n").into()),
            Self::LengthRequired => of(400, "Upload-Length or Upload-Defer-Length header required\n"),
            Self::MetadataRequired => of(400, "Metadata header is required"),
            Self::SignatureRequired => of(400, "Missing x-signature header"),
            Self::InvalidId => of(400, "Invalid upload id"),
            Self::OffsetRequired => of(403, "Upload-Offset header required\n"),
            Self::ContentTypeRequired => of(403, "Content-Type header required\n"),
            Self::NoSuchUpload => of(404, "The file for this url was not found\n"),
            Self::Expired => of(410, "The file for this url no longer exists\n"),
            Self::OffsetConflict => of(409, "Upload-Offset conflict\n"),
            Self::TooLarge => of(413, "Maximum size exceeded\n"),
            Self::SizeExceeded => of(413, "upload's size exceeded\n"),
            Self::AlreadyComplete => of(400, "Cannot terminate an already completed upload"),
            Self::TooManyPending => of(429, "Too many unfinished uploads: finish or terminate some of them first\n"),
            Self::Concatenation => of(501, "Concatenation is not supported: turn parallel uploads off\n"),
            Self::TakenOver => of(423, "A newer request works on this upload\n"),
            Self::NoRoute => of(404, "Not found\n"),
        }
    }

    /// Returns true if the rest of the request is not read.
    fn ends_connection(&self) -> bool {
        let has_failed = |error: &StorageError| {
            matches!(error, StorageError::Aborted | StorageError::Stalled | StorageError::TooSlow)
        };
        match self {
            Self::OffsetConflict | Self::TakenOver | Self::SizeExceeded => true,
            Self::Storage(error) => has_failed(error),
            _ => false,
        }
    }

    /// Returns the response.
    pub fn into_response(self) -> Response {
        if let Self::Unauthenticated(error) = self {
            let mut response = error.into_response();
            add_common(response.headers_mut());
            return response;
        }
        let (status, text) = self.response();
        let mut response = Response::new(Body::from(text.into_owned()));
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        // The text may repeat a name that the client has chosen
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if self == Self::VersionRequired {
            headers.insert(TUS_VERSION, HeaderValue::from_static(VERSION));
        }
        if self.ends_connection() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        add_common(headers);
        response
    }
}

/// Returns a response without a body.
pub(super) fn success(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    add_common(response.headers_mut());
    response
}

/// Returns the response to `OPTIONS`: the abilities of the server, and the rules for pages.
pub(super) fn options(max_size: u64) -> Response {
    let mut response = success(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(TUS_VERSION, HeaderValue::from_static(VERSION));
    headers.insert(TUS_EXTENSION, HeaderValue::from_static(EXTENSIONS));
    headers.insert(TUS_MAX_SIZE, HeaderValue::from(max_size));
    let methods = HeaderValue::from_static("POST, HEAD, PATCH, OPTIONS, DELETE");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED_HEADERS));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    response
}

/// Adds the headers that every response has.
fn add_common(headers: &mut HeaderMap) {
    headers.insert(TUS_RESUMABLE, HeaderValue::from_static(VERSION));
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_service_have_their_real_status_and_text() {
        for (error, status, text) in [
            (StorageError::LockTimeout, 503, "acquiring lock timeout"),
            (StorageError::NoSuchBucket, 404, "Bucket not found"),
            (StorageError::InvalidKey("~".into()), 400, "Invalid key: ~"),
            (StorageError::TooLarge("object"), 413, "Maximum size exceeded\n"),
            (StorageError::DatabaseTimeout, 544, "The connection to the database timed out"),
            (StorageError::DiskFull, 507, "There is no space left for the object"),
            (StorageError::Internal, 500, "Internal Server Error"),
        ] {
            let (seen, message) = TusError::from(error).response();
            assert_eq!((seen, &*message), (status, text));
        }
    }

    #[test]
    fn a_connection_whose_body_is_not_read_is_closed() {
        let closes = |error: TusError| error.into_response().headers().contains_key(header::CONNECTION);
        for error in [
            TusError::OffsetConflict,
            TusError::TakenOver,
            TusError::SizeExceeded,
            TusError::Storage(StorageError::Stalled),
        ] {
            assert!(closes(error.clone()), "{error:?}");
        }
        assert!(!closes(TusError::NoSuchUpload) && !closes(TusError::Storage(StorageError::NoSuchBucket)));
    }
}
