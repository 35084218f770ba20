//! The states of a signing key.

use serde::Serialize;

/// The state of a signing key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// It verifies and is published, and has never signed.
    Standby,
    /// It signs.
    InUse,
    /// It has signed, and verifies.
    PreviouslyUsed,
    /// Its tokens are invalid.
    Revoked,
    /// A configured key that verifies.
    VerifyOnly,
}

impl KeyState {
    /// Parses the value of the column.
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "standby" => Self::Standby,
            "in_use" => Self::InUse,
            "previously_used" => Self::PreviouslyUsed,
            // A value that is not known must not make a token valid
            _ => Self::Revoked,
        }
    }
}
