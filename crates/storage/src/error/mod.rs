//! The errors of the service: one table of statuses, codes and texts.
//!
//! The logical status is in the body, as a string. The HTTP status of nearly every error is 400:
//! clients depend on both.

mod s3;

pub(crate) use self::s3::S3Error;

use std::borrow::Cow;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use portico_database::wire::{PostgresError, ReadError, WireError};
use portico_images::RenderError;
use serde_json::json;

/// The result of an operation.
pub(crate) type Result<T> = std::result::Result<T, StorageError>;

/// The reason why a request failed, as its client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StorageError {
    NoSuchBucket,
    NoSuchKey,
    /// The row exists, and its content does not.
    ContentLost,
    /// A row refers to a bucket that does not exist.
    NoSuchParent,
    InvalidBucketName,
    InvalidKey(String),
    InvalidMimeType(String),
    /// The header `Content-Type` is malformed.
    InvalidContentType,
    InvalidRange,
    /// The text names what is too large.
    TooLarge(&'static str),
    Exists(ExistingResource),
    BucketNotEmpty,
    TooManyObjects,
    Referenced,
    /// Multipart uploads to the bucket are in progress.
    UploadsPending,
    Locked,
    LockTimeout,
    AccessDenied(String),
    /// The route is only for the service role. The only denial whose HTTP status is 403.
    ServiceRoleOnly(&'static str),
    InvalidJwt(&'static str),
    InvalidSignature(&'static str),
    InvalidParameter(String),
    /// A field of the request does not match the schema of its route.
    Schema(String),
    /// The body cannot be parsed.
    Body(String),
    /// Other invalid requests.
    InvalidRequest(String),
    InvalidRobotsTag(String),
    FeatureNotEnabled(&'static str),
    DatabaseTimeout,
    DatabaseReadOnly,
    TransactionAborted,
    InvalidObjectDefinition,
    SchemaMismatch(String),
    Database(String),
    TooManyConnections,
    TooManyUploads,
    /// The requester has as many unfinished uploads as it may have.
    TooManyUnfinished,
    Internal,
    /// The client closed the connection before the end of its upload.
    Aborted,
    /// The client sent nothing for too long.
    Stalled,
    /// The request arrives too slowly.
    TooSlow,
    DiskFull,
    /// An image could not be rendered.
    Render(RenderError),
    /// There is no such route: method and path.
    NoRoute(String),
    /// An error that only the S3 protocol has.
    S3(S3Error),
}

/// The kind of a resource that exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExistingResource {
    Bucket,
    Key,
    Resource,
}

/// The form of an error in a response.
struct ErrorResponse {
    /// The HTTP status.
    http: u16,
    /// The logical status.
    status: u16,
    code: &'static str,
    /// The legacy text; empty: the code.
    error: &'static str,
    message: Cow<'static, str>,
}

impl StorageError {
    /// Returns the text for people.
    pub fn message(&self) -> Cow<'static, str> {
        self.response().message
    }

    /// Returns the status that protocols other than REST respond with.
    pub fn status(&self) -> u16 {
        self.response().status
    }

    /// Returns the logical status and the code, for protocols whose HTTP status is the logical one.
    pub fn status_and_code(&self) -> (u16, &'static str) {
        let ErrorResponse { status, code, .. } = self.response();
        (status, code)
    }

    fn response(&self) -> ErrorResponse {
        let of = |status: u16, code: &'static str, error: &'static str, message: Cow<'static, str>| ErrorResponse {
            http: 400,
            status,
            code,
            error,
            message,
        };
        let plain = |status, code, error, message: &'static str| of(status, code, error, message.into());
        let with_status = |response: ErrorResponse| ErrorResponse { http: response.status, ..response };
        match self {
            Self::NoSuchBucket => plain(404, "NoSuchBucket", "Bucket not found", "Bucket not found"),
            Self::NoSuchKey => plain(404, "NoSuchKey", "not_found", "Object not found"),
            Self::ContentLost => plain(404, "NoSuchKey", "Not found", "The resource was not found"),
            Self::NoSuchParent => plain(404, "InvalidRequest", "", "The related resource does not exist"),
            Self::InvalidBucketName => plain(400, "InvalidBucketName", "Invalid Input", "Bucket name invalid"),
            Self::InvalidKey(key) => of(400, "InvalidKey", "", format!("Invalid key: {key}").into()),
            Self::InvalidMimeType(kind) => {
                of(415, "InvalidMimeType", "invalid_mime_type", format!("mime type {kind} is not supported").into())
            }
            Self::InvalidContentType => {
                plain(415, "InvalidMimeType", "invalid_mime_type", "Invalid Content-Type header")
            }
            Self::InvalidRange => with_status(plain(416, "InvalidRange", "invalid_range", "invalid range provided")),
            Self::TooLarge(what) => of(
                413,
                "EntityTooLarge",
                "Payload too large",
                format!("The {what} exceeded the maximum allowed size").into(),
            ),
            Self::Exists(existing) => {
                let code = match existing {
                    ExistingResource::Bucket => "BucketAlreadyExists",
                    ExistingResource::Key => "KeyAlreadyExists",
                    ExistingResource::Resource => "ResourceAlreadyExists",
                };
                plain(409, code, "Duplicate", "The resource already exists")
            }
            Self::BucketNotEmpty => plain(409, "ResourceNotEmpty", "", "The bucket you tried to delete is not empty"),
            Self::TooManyObjects => {
                plain(409, "InvalidRequest", "", "Unable to empty the bucket because it contains too many objects")
            }
            Self::Referenced => plain(
                409,
                "ResourceReferenced",
                "",
                "The resource could not be updated or removed due to a foreign key constraint",
            ),
            Self::UploadsPending => plain(
                409,
                "ResourceReferenced",
                "",
                "The bucket could not be updated because it is referenced by a pending multipart upload.",
            ),
            Self::Locked => plain(423, "ResourceLocked", "", "The resource is locked"),
            Self::LockTimeout => plain(503, "LockTimeout", "acquiring_lock_timeout", "acquiring lock timeout"),
            Self::AccessDenied(message) => of(403, "AccessDenied", "Unauthorized", message.clone().into()),
            Self::ServiceRoleOnly(message) => with_status(plain(403, "AccessDenied", "Unauthorized", message)),
            Self::InvalidJwt(message) => plain(400, "InvalidJWT", "", message),
            Self::InvalidSignature(message) => plain(400, "InvalidSignature", "", message),
            Self::InvalidParameter(text) => of(400, "InvalidParameter", "", text.clone().into()),
            Self::Schema(message) => of(400, "InvalidRequest", "Error", message.clone().into()),
            Self::Body(message) => of(400, "InvalidRequest", "FastifyError", message.clone().into()),
            Self::InvalidRequest(message) => of(400, "InvalidRequest", "", message.clone().into()),
            Self::InvalidRobotsTag(message) => of(
                400,
                "InvalidRequest",
                "invalid_x_robots_tag",
                format!("Invalid X-Robots-Tag header: {message}").into(),
            ),
            Self::FeatureNotEnabled(feature) => with_http(
                403,
                of(
                    409,
                    "FeatureNotEnabled",
                    "",
                    format!("The feature {feature} is not enabled for this resource").into(),
                ),
            ),
            Self::DatabaseTimeout => {
                with_status(plain(544, "DatabaseTimeout", "", "The connection to the database timed out"))
            }
            Self::DatabaseReadOnly => plain(
                503,
                "DatabaseReadOnly",
                "",
                "The database is currently in read-only mode. Please try again later.",
            ),
            Self::TransactionAborted => {
                plain(500, "DatabaseTransactionAborted", "", "The database transaction was aborted")
            }
            Self::InvalidObjectDefinition => {
                plain(503, "DatabaseInvalidObjectDefinition", "", "The database schema is invalid or incompatible.")
            }
            Self::SchemaMismatch(message) => of(503, "DatabaseSchemaMismatch", "", message.clone().into()),
            Self::Database(code) => of(500, "DatabaseError", "", format!("database error, code: {code}").into()),
            Self::TooManyConnections => with_status(plain(
                429,
                "SlowDown",
                "too_many_connections",
                "Too many connections issued to the database",
            )),
            Self::TooManyUploads => {
                with_status(plain(429, "SlowDown", "Too Many Requests", "Too many uploads at the same time"))
            }
            Self::TooManyUnfinished => with_status(plain(
                429,
                "SlowDown",
                "Too Many Requests",
                "Too many unfinished uploads: complete or abort some of them first",
            )),
            Self::Internal => with_status(plain(500, "InternalError", "Internal", "Internal Server Error")),
            Self::Aborted => with_status(plain(500, "Aborted", "", "Upload was aborted")),
            Self::Stalled => with_status(plain(408, "RequestTimeout", "", "The upload sent nothing for too long")),
            Self::TooSlow => with_status(plain(408, "RequestTimeout", "", "The request arrived too slowly")),
            Self::DiskFull => {
                with_status(plain(507, "InsufficientStorage", "", "There is no space left for the object"))
            }
            Self::Render(error) => {
                let response = of(error.status(), "InvalidRequest", "", error.to_string().into());
                if error.status() < 500 {
                    response
                } else {
                    with_status(ErrorResponse { code: "InternalError", ..response })
                }
            }
            Self::S3(error) => of(error.status, error.code, "", error.message.clone()),
            Self::NoRoute(route) => {
                with_http(404, of(404, "InvalidRequest", "Not Found", format!("Route {route} not found").into()))
            }
        }
    }

    /// Returns the response of a REST route.
    pub fn into_response(self) -> Response {
        let ErrorResponse { http, status, code, error, message } = self.response();
        let error = if error.is_empty() { code } else { error };
        let body = match self {
            // 404s outside of the services' own prefixes have another form
            Self::NoRoute(ref route) if !has_own_not_found(route) => {
                json!({ "message": message, "error": error, "statusCode": status })
            }
            _ => json!({ "statusCode": status.to_string(), "error": error, "message": message, "code": code }),
        };
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = StatusCode::from_u16(http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        if self == Self::ContentLost {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        if matches!(self, Self::Aborted | Self::Stalled | Self::TooSlow) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

fn with_http(http: u16, response: ErrorResponse) -> ErrorResponse {
    ErrorResponse { http, ..response }
}

/// Returns true if the route (`GET:/object/x`) is below a prefix whose 404 has a code.
fn has_own_not_found(route: &str) -> bool {
    let path = route.split_once(':').map_or("", |(_, path)| path);
    let first = path.trim_start_matches('/').split(['/', '?']).next().unwrap_or_default();
    matches!(first, "bucket" | "object" | "render" | "cdn" | "vector")
}

/// The texts of PostgreSQL and of connection poolers that mean that no connection is left.
const TOO_MANY_CONNECTIONS: [&str; 4] = [
    "sorry, too many clients already",
    "remaining connection slots are reserved",
    "no more connections allowed",
    "Max client connections reached",
];

impl From<S3Error> for StorageError {
    fn from(error: S3Error) -> Self {
        Self::S3(error)
    }
}

impl From<RenderError> for StorageError {
    fn from(error: RenderError) -> Self {
        Self::Render(error)
    }
}

impl From<ReadError> for StorageError {
    fn from(error: ReadError) -> Self {
        WireError::from(error).into()
    }
}

impl From<WireError> for StorageError {
    fn from(error: WireError) -> Self {
        let text = error.to_string();
        if TOO_MANY_CONNECTIONS.iter().any(|each| text.contains(each)) {
            return Self::TooManyConnections;
        }
        match error {
            WireError::Postgres(error) => of_postgres(&error),
            WireError::Busy(_) | WireError::Unreachable { .. } => Self::DatabaseTimeout,
            // Only a value of the request can be that long or contain a zero byte
            WireError::TooLarge(_) => Self::TooLarge("request"),
            WireError::ZeroByte => Self::InvalidParameter("invalid byte sequence".into()),
            WireError::Lost(_) | WireError::Closed | WireError::Protocol(_) | WireError::Refused(_) => {
                tracing::error!(error = %text, "the storage service cannot use the database");
                Self::Internal
            }
        }
    }
}

fn of_postgres(error: &PostgresError) -> StorageError {
    match error.code.as_str() {
        "42501" if error.message.contains("row-level security") => {
            StorageError::AccessDenied("new row violates row-level security policy".into())
        }
        "42501" => StorageError::AccessDenied(error.message.clone()),
        "23505" => StorageError::Exists(ExistingResource::Resource),
        "23503" if error.message.starts_with("insert or update") => StorageError::NoSuchParent,
        "23503" => StorageError::Referenced,
        "55P03" => StorageError::Locked,
        // A value of the request that PostgreSQL cannot store
        "22P02" | "22021" | "22P05" => StorageError::InvalidParameter(error.message.clone()),
        "57014" => StorageError::DatabaseTimeout,
        "25006" => StorageError::DatabaseReadOnly,
        "25P02" => StorageError::TransactionAborted,
        "42P17" => StorageError::InvalidObjectDefinition,
        "42703" | "42P01" => StorageError::SchemaMismatch(match &error.context {
            Some(context) => format!("There is a database schema mismatch in a trigger or RLS policy: {context}"),
            None => "The database schema is out of sync. Please run migrations or contact support.".into(),
        }),
        code => {
            tracing::debug!(error = %error, "a statement of the storage service failed");
            StorageError::Database(code.to_owned())
        }
    }
}

impl StorageError {
    /// Names the kind of resource that exists already.
    pub fn naming(self, existing: ExistingResource) -> Self {
        if matches!(self, Self::Exists(_)) { Self::Exists(existing) } else { self }
    }
}
