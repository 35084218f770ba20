//! The errors of the wire contract: a table of statuses and codes, and one of texts. An error that
//! lacks a row in one of them does not compile.

use std::borrow::Cow;

use super::{ExistingResource, StorageError};

/// The statuses and the code of an error.
pub(super) struct ErrorContract {
    /// The HTTP status.
    pub http: u16,
    /// The logical status.
    pub status: u16,
    pub code: &'static str,
    /// The legacy text; empty: the code.
    pub error: &'static str,
}

/// Returns the contract of most errors, whose HTTP status is 400.
const fn logical(status: u16, code: &'static str, error: &'static str) -> ErrorContract {
    ErrorContract { http: 400, status, code, error }
}

/// Returns the contract of an error whose HTTP status is the logical one.
const fn actual(status: u16, code: &'static str, error: &'static str) -> ErrorContract {
    ErrorContract { http: status, status, code, error }
}

impl StorageError {
    /// Returns the statuses and the code.
    pub(super) fn contract(&self) -> ErrorContract {
        match self {
            Self::NoSuchBucket => logical(404, "NoSuchBucket", "Bucket not found"),
            Self::NoSuchKey => logical(404, "NoSuchKey", "not_found"),
            Self::ContentLost => logical(404, "NoSuchKey", "Not found"),
            Self::NoSuchParent => logical(404, "InvalidRequest", ""),
            Self::InvalidBucketName => logical(400, "InvalidBucketName", "Invalid Input"),
            Self::InvalidKey(_) => logical(400, "InvalidKey", ""),
            Self::InvalidMimeType(_) | Self::AnotherMimeType(_) | Self::InvalidContentType => {
                logical(415, "InvalidMimeType", "invalid_mime_type")
            }
            Self::InvalidRange => actual(416, "InvalidRange", "invalid_range"),
            Self::TooLarge(_) => logical(413, "EntityTooLarge", "Payload too large"),
            Self::Exists(ExistingResource::Bucket) => logical(409, "BucketAlreadyExists", "Duplicate"),
            Self::Exists(ExistingResource::Key) => logical(409, "KeyAlreadyExists", "Duplicate"),
            Self::Exists(ExistingResource::Resource) => logical(409, "ResourceAlreadyExists", "Duplicate"),
            Self::BucketNotEmpty => logical(409, "ResourceNotEmpty", ""),
            Self::TooManyObjects => logical(409, "InvalidRequest", ""),
            Self::Referenced | Self::UploadsPending => logical(409, "ResourceReferenced", ""),
            Self::Locked => logical(423, "ResourceLocked", ""),
            Self::LockTimeout => logical(503, "LockTimeout", "acquiring_lock_timeout"),
            Self::AccessDenied(_) => logical(403, "AccessDenied", "Unauthorized"),
            Self::ServiceRoleOnly(_) => actual(403, "AccessDenied", "Unauthorized"),
            Self::InvalidJwt(_) => logical(400, "InvalidJWT", ""),
            Self::InvalidSignature(_) => logical(400, "InvalidSignature", ""),
            Self::InvalidParameter(_) => logical(400, "InvalidParameter", ""),
            Self::Schema(_) => logical(400, "InvalidRequest", "Error"),
            Self::Body(_) => logical(400, "InvalidRequest", "FastifyError"),
            Self::InvalidRequest(_) => logical(400, "InvalidRequest", ""),
            Self::InvalidRobotsTag(_) => logical(400, "InvalidRequest", "invalid_x_robots_tag"),
            Self::FeatureNotEnabled(_) => ErrorContract { http: 403, ..logical(409, "FeatureNotEnabled", "") },
            Self::DatabaseTimeout => actual(544, "DatabaseTimeout", ""),
            Self::DatabaseReadOnly => logical(503, "DatabaseReadOnly", ""),
            Self::TransactionAborted => logical(500, "DatabaseTransactionAborted", ""),
            Self::InvalidObjectDefinition => logical(503, "DatabaseInvalidObjectDefinition", ""),
            Self::SchemaMismatch(_) => logical(503, "DatabaseSchemaMismatch", ""),
            Self::Database(_) => logical(500, "DatabaseError", ""),
            Self::TooManyConnections => actual(429, "SlowDown", "too_many_connections"),
            Self::TooManyUploads | Self::TooManyUnfinished => actual(429, "SlowDown", "Too Many Requests"),
            Self::Internal => actual(500, "InternalError", "Internal"),
            Self::Aborted => actual(500, "Aborted", ""),
            Self::Stalled | Self::TooSlow => actual(408, "RequestTimeout", ""),
            Self::DiskFull => actual(507, "InsufficientStorage", ""),
            Self::Render(error) if error.status() < 500 => logical(error.status(), "InvalidRequest", ""),
            Self::Render(error) => actual(error.status(), "InternalError", ""),
            Self::NoRoute(_) => actual(404, "InvalidRequest", "Not Found"),
            Self::S3(error) => logical(error.status, error.code, ""),
        }
    }

    /// Returns the text for people.
    pub fn message(&self) -> Cow<'static, str> {
        let fixed = match self {
            Self::NoSuchBucket => "Bucket not found",
            Self::NoSuchKey => "Object not found",
            Self::ContentLost => "The resource was not found",
            Self::NoSuchParent => "The related resource does not exist",
            Self::InvalidBucketName => "Bucket name invalid",
            Self::InvalidKey(key) => return format!("Invalid key: {key}").into(),
            Self::InvalidMimeType(kind) => return format!("mime type {kind} is not supported").into(),
            Self::AnotherMimeType(kind) => return format!("the content does not begin as {kind} does").into(),
            Self::InvalidContentType => "Invalid Content-Type header",
            Self::InvalidRange => "invalid range provided",
            Self::TooLarge(what) => return format!("The {what} exceeded the maximum allowed size").into(),
            Self::Exists(_) => "The resource already exists",
            Self::BucketNotEmpty => "The bucket you tried to delete is not empty",
            Self::TooManyObjects => "Unable to empty the bucket because it contains too many objects",
            Self::Referenced => "The resource could not be updated or removed due to a foreign key constraint",
            Self::UploadsPending => {
                "The bucket could not be updated because it is referenced by a pending multipart upload."
            }
            Self::Locked => "The resource is locked",
            Self::LockTimeout => "acquiring lock timeout",
            Self::ServiceRoleOnly(text) | Self::InvalidJwt(text) | Self::InvalidSignature(text) => *text,
            Self::AccessDenied(text)
            | Self::InvalidParameter(text)
            | Self::Schema(text)
            | Self::Body(text)
            | Self::InvalidRequest(text)
            | Self::SchemaMismatch(text) => return text.clone().into(),
            Self::InvalidRobotsTag(text) => return format!("Invalid X-Robots-Tag header: {text}").into(),
            Self::FeatureNotEnabled(feature) => {
                return format!("The feature {feature} is not enabled for this resource").into();
            }
            Self::DatabaseTimeout => "The connection to the database timed out",
            Self::DatabaseReadOnly => "The database is currently in read-only mode. Please try again later.",
            Self::TransactionAborted => "The database transaction was aborted",
            Self::InvalidObjectDefinition => "The database schema is invalid or incompatible.",
            Self::Database(code) => return format!("database error, code: {code}").into(),
            Self::TooManyConnections => "Too many connections issued to the database",
            Self::TooManyUploads => "Too many uploads at the same time",
            Self::TooManyUnfinished => "Too many unfinished uploads: complete or abort some of them first",
            Self::Internal => "Internal Server Error",
            Self::Aborted => "Upload was aborted",
            Self::Stalled => "The upload sent nothing for too long",
            Self::TooSlow => "The request arrived too slowly",
            Self::DiskFull => "There is no space left for the object",
            Self::Render(error) => return error.to_string().into(),
            Self::NoRoute(route) => return format!("Route {route} not found").into(),
            Self::S3(error) => return error.message.clone(),
        };
        fixed.into()
    }
}
