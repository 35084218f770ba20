//! The reasons why the provider cannot start.

use std::path::PathBuf;

/// The reason why the provider cannot start.
#[derive(Debug, thiserror::Error)]
pub enum IdentityProviderError {
    /// The issuer is no URL of its own.
    #[error("the issuer {0:?} is not an http or https URL without query and fragment")]
    Issuer(String),
    /// The file of accounts cannot be read.
    #[error("the accounts in {} cannot be read: {reason}. Mend the file or delete it", path.display())]
    Accounts {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}
