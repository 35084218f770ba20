//! The reasons for which a password is too weak.

use serde_json::Value;

/// A reason for which a password is too weak, in the order in which reasons are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeakPasswordReason {
    /// Too short.
    Length,
    /// A required class of characters is missing.
    Characters,
    /// Known from a breach.
    Pwned,
}

impl WeakPasswordReason {
    /// Returns the reason as clients compare it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Characters => "characters",
            Self::Pwned => "pwned",
        }
    }
}

/// A password that breaks the rules of this project: all reasons, and a text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeakPassword {
    /// The reasons in the order length, characters, pwned; never empty.
    pub reasons: Vec<WeakPasswordReason>,
    /// The texts of the reasons, joined.
    pub message: String,
}

impl WeakPassword {
    /// Returns the reasons as JSON: `["length", ...]`.
    pub fn reasons_json(&self) -> Value {
        self.reasons.iter().map(|reason| reason.as_str()).collect()
    }
}
