//! The delivery of emails.

use futures_util::future::BoxFuture;

use crate::Email;

/// Something that takes emails: a mail server, or the mailbox of a development server.
pub trait Transport: Send + Sync {
    /// Hands the email over. Success means that the other side has taken it upon itself to deliver
    /// it.
    ///
    /// # Errors
    ///
    /// [`SendError`], which is temporary if another attempt can succeed.
    fn send(&self, email: Email) -> BoxFuture<'_, Result<(), SendError>>;
}

/// The reason for which an email was not accepted. The texts name the reason and never the
/// recipient.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The server could not be reached, was busy or refused our login: the same email may be taken
    /// later.
    #[error("the mail server did not take the email for now: {0}")]
    Temporary(String),
    /// The server will never take this email.
    #[error("the mail server rejected the email: {0}")]
    Permanent(String),
}

impl SendError {
    /// Returns true if a retry can succeed.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Temporary(_))
    }
}

/// The transport of a server without a mail server: discards every email.
#[derive(Debug, Clone, Copy, Default)]
pub struct Discard;

impl Transport for Discard {
    fn send(&self, _email: Email) -> BoxFuture<'_, Result<(), SendError>> {
        Box::pin(async { Ok(()) })
    }
}
