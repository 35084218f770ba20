//! The reasons for which a gateway does not take a message.

use super::credential::Credential;

/// Longest explanation of a gateway that is passed on, in characters.
pub(super) const MAX_DETAIL: usize = 300;

/// The reason why a message was not taken, or a code not checked. The texts are for the person who
/// asked: no credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The gateway's own explanation.
    #[error("{0}")]
    Refused(String),
    /// A response without explanation.
    #[error("the provider answered with status {0}")]
    Status(u16),
    /// No connection, or it broke.
    #[error("the provider could not be reached")]
    Unreachable,
    /// The timeout is over.
    #[error("the provider did not answer in time")]
    TimedOut,
    /// A response of more than 64 KiB.
    #[error("the provider's answer is too large")]
    TooLarge,
    /// Not the JSON that its documentation promises.
    #[error("the provider's answer could not be understood")]
    Malformed,
}

impl TextError {
    /// Makes the error of a rejection, with the gateway's explanation in one line of bounded
    /// length.
    pub(super) fn refused(explanation: &str) -> Self {
        let line: String = explanation.split_whitespace().collect::<Vec<_>>().join(" ");
        Self::Refused(line.chars().filter(|character| !character.is_control()).take(MAX_DETAIL).collect())
    }

    pub(super) fn without(self, credential: &Credential) -> Self {
        match self {
            Self::Refused(text) if !credential.expose().is_empty() => {
                Self::Refused(text.replace(credential.expose(), "***"))
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanations_are_one_bounded_line_without_credentials() {
        let error = TextError::refused(&format!("Wrong\r\nkey\u{7} s3cret {}", "x".repeat(1000)));
        let TextError::Refused(text) = error.without(&Credential::new("s3cret")) else { panic!("refused") };
        assert!(text.starts_with("Wrong key *** xxx"), "{text}");
        assert!(text.chars().count() <= MAX_DETAIL);
        assert_eq!(format!("{:?}", Credential::new("s3cret")), "***");
    }
}
