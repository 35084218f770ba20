//! The errors of the service. `contract` has their statuses, codes and texts, `render` makes
//! responses of them.

mod contract;
mod render;
mod s3;

pub(crate) use self::s3::S3Error;

use portico_database::wire::{PostgresError, ReadError, WireError};
use portico_images::RenderError;

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
