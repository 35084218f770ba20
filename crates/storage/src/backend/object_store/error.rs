//! The errors of a store.

use crate::backend::model::BackendError;

/// The reason why a store did not do what was requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum StoreError {
    #[error("the object store answered {status} {code}")]
    Refused { status: u16, code: String },
    #[error("the object store could not be reached: {0}")]
    Unreachable(String),
    #[error("the object store sent an answer that is not of its protocol")]
    Malformed,
    /// The platform does not give out the key of the role.
    #[error("the key of the role for the object store could not be fetched: {0}")]
    NoKey(String),
}

impl StoreError {
    /// Returns true for the code of an error.
    pub fn is(&self, wanted: &str) -> bool {
        matches!(self, Self::Refused { code, .. } if code == wanted)
    }

    /// Returns true if the store may take the key of the request for expired: the response to HEAD
    /// has no document that says why.
    pub fn may_be_expired_key(&self) -> bool {
        match self {
            Self::Refused { status: 400 | 403, code } => matches!(code.as_str(), "ExpiredToken" | ""),
            _ => false,
        }
    }

    /// Returns true if the object does not exist, although its bucket does.
    pub fn is_missing(&self) -> bool {
        // The response to HEAD has no document
        matches!(self, Self::Refused { status: 404, code } if matches!(code.as_str(), "NoSuchKey" | ""))
    }

    /// Returns true for an error that another attempt may not have.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::NoKey(_) => true,
            Self::Refused { status: 429 | 500 | 502 | 503 | 504, .. } => true,
            Self::Refused { code, .. } => {
                matches!(code.as_str(), "InternalError" | "RequestTimeout" | "ServiceUnavailable" | "SlowDown")
            }
            Self::Malformed => false,
        }
    }
}

impl From<StoreError> for BackendError {
    fn from(error: StoreError) -> Self {
        match &error {
            error if error.is_missing() => Self::NotFound,
            StoreError::Refused { status: 416, .. } => Self::Range,
            StoreError::Refused { code, .. } if code == "EntityTooLarge" => Self::TooLarge,
            StoreError::Refused { status: 507, .. } => Self::Full,
            StoreError::Refused { code, .. } if matches!(code.as_str(), "QuotaExceeded" | "XMinioStorageFull") => {
                Self::Full
            }
            _ => Self::Io(std::io::Error::other(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_store_is_one_of_the_backend() {
        let refused = |status, code: &str| BackendError::from(StoreError::Refused { status, code: code.into() });
        assert!(matches!(refused(404, "NoSuchKey"), BackendError::NotFound));
        // The operator's mistake, not a lost object
        assert!(matches!(refused(404, "NoSuchBucket"), BackendError::Io(_)));
        assert!(matches!(refused(416, "InvalidRange"), BackendError::Range));
        assert!(matches!(refused(507, "XMinioStorageFull"), BackendError::Full));
        assert!(matches!(refused(403, "AccessDenied"), BackendError::Io(_)));
    }
}
