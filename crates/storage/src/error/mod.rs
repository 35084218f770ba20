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
    /// The content does not begin as files of this type do.
    AnotherMimeType(String),
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
    let of_database = |outcome: StorageError| {
        // The response says less, and what failed is a policy or a trigger of the project mostly
        tracing::warn!(error = %error, "a statement of the storage service failed");
        outcome
    };
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
        "57014" => of_database(StorageError::DatabaseTimeout),
        "25006" => of_database(StorageError::DatabaseReadOnly),
        "25P02" => of_database(StorageError::TransactionAborted),
        "42P17" => of_database(StorageError::InvalidObjectDefinition),
        "42703" | "42P01" => of_database(StorageError::SchemaMismatch(match &error.context {
            Some(context) => format!("There is a database schema mismatch in a trigger or RLS policy: {context}"),
            None => "The database schema is out of sync. Please run migrations or contact support.".into(),
        })),
        code => of_database(StorageError::Database(code.to_owned())),
    }
}

impl StorageError {
    /// Names the kind of resource that exists already.
    pub fn naming(self, existing: ExistingResource) -> Self {
        if matches!(self, Self::Exists(_)) { Self::Exists(existing) } else { self }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;
    use serde_json::Value;

    use super::*;

    /// Returns the HTTP status and the fields of the response to an error of PostgreSQL.
    fn response_to(code: &str, message: &str, context: Option<&str>) -> String {
        let (code, message, context) = (code.to_owned(), message.to_owned(), context.map(str::to_owned));
        let error = PostgresError { code, message, context, ..PostgresError::default() };
        let response = StorageError::from(WireError::Postgres(Box::new(error))).into_response();
        let status = response.status().as_u16();
        let body = response.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        format!("{status} {} {} {}: {}", text("statusCode"), text("code"), text("error"), text("message"))
    }

    #[test]
    fn errors_of_postgresql_have_the_responses_of_the_contract() {
        for (code, message, response) in [
            ("42501", "permission denied", "400 403 AccessDenied Unauthorized: permission denied"),
            (
                "42501",
                "new row violates row-level security policy for table \"objects\"",
                "400 403 AccessDenied Unauthorized: new row violates row-level security policy",
            ),
            ("23505", "duplicate key", "400 409 ResourceAlreadyExists Duplicate: The resource already exists"),
            (
                "23503",
                "insert or update on table",
                "400 404 InvalidRequest InvalidRequest: The related resource does not exist",
            ),
            (
                "23503",
                "update or delete on table",
                "400 409 ResourceReferenced ResourceReferenced: \
                 The resource could not be updated or removed due to a foreign key constraint",
            ),
            ("55P03", "lock timeout", "400 423 ResourceLocked ResourceLocked: The resource is locked"),
            ("22P02", "invalid input", "400 400 InvalidParameter InvalidParameter: invalid input"),
            (
                "57014",
                "statement timeout",
                "544 544 DatabaseTimeout DatabaseTimeout: The connection to the database timed out",
            ),
            (
                "25006",
                "read-only transaction",
                "400 503 DatabaseReadOnly DatabaseReadOnly: \
                 The database is currently in read-only mode. Please try again later.",
            ),
            (
                "25P02",
                "aborted",
                "400 500 DatabaseTransactionAborted DatabaseTransactionAborted: The database transaction was aborted",
            ),
            (
                "42P17",
                "infinite recursion",
                "400 503 DatabaseInvalidObjectDefinition DatabaseInvalidObjectDefinition: \
                 The database schema is invalid or incompatible.",
            ),
            (
                "42P01",
                "no table",
                "400 503 DatabaseSchemaMismatch DatabaseSchemaMismatch: \
                 The database schema is out of sync. Please run migrations or contact support.",
            ),
            ("XX000", "internal", "400 500 DatabaseError DatabaseError: database error, code: XX000"),
            (
                "53300",
                "sorry, too many clients already",
                "429 429 SlowDown too_many_connections: Too many connections issued to the database",
            ),
        ] {
            assert_eq!(response_to(code, message, None), response);
        }
        assert_eq!(
            response_to("42703", "no column", Some("SQL function \"mine\"")),
            "400 503 DatabaseSchemaMismatch DatabaseSchemaMismatch: \
             There is a database schema mismatch in a trigger or RLS policy: SQL function \"mine\"",
        );
    }
}
