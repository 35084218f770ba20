//! Secrets that are kept encrypted in the configuration (`encrypted:...`, the dotenvx format).

use portico_tokens::Secret;

use crate::environment::Environment;

/// The private keys found in `DOTENV_PRIVATE_KEY` and `DOTENV_PRIVATE_KEY_*`.
pub(crate) struct DecryptionKeys {
    keys: Vec<Secret>,
}

/// Why a value could not be decrypted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum DecryptError {
    #[error("missing private key")]
    MissingKey,
    #[error("this build can not open encrypted values; give the value through env(NAME)")]
    Unsupported,
}

impl DecryptionKeys {
    pub fn from_environment(environment: &Environment) -> Self {
        let keys = environment
            .with_prefix("DOTENV_PRIVATE_KEY")
            .filter(|(name, _)| *name == "DOTENV_PRIVATE_KEY" || name.starts_with("DOTENV_PRIVATE_KEY_"))
            .flat_map(|(_, keys)| keys.split(','))
            .map(str::trim)
            .filter(|key| !key.is_empty())
            .map(Secret::new)
            .collect();
        Self { keys }
    }

    /// Opens a message (base64) with the first key that fits.
    pub fn decrypt(&self, _message: &str) -> Result<Secret, DecryptError> {
        if self.keys.is_empty() { Err(DecryptError::MissingKey) } else { Err(DecryptError::Unsupported) }
    }
}
