//! The errors of the fuzzed modules.

#[path = "../../src/error/s3.rs"]
mod s3;

pub(crate) use self::s3::S3Error;

/// The result of a fuzzed function.
pub(crate) type Result<T> = std::result::Result<T, StorageError>;

/// The errors of the service, as far as the fuzzed modules return them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StorageError {
    InvalidRequest(String),
    TooLarge(&'static str),
    S3(S3Error),
}

impl From<S3Error> for StorageError {
    fn from(error: S3Error) -> Self {
        Self::S3(error)
    }
}
