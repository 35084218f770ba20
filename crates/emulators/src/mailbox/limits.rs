//! The limits of the mailbox.

/// The limits of the mailbox.
#[derive(Debug, Clone, Copy)]
pub struct MailboxLimits {
    /// Emails; also the most text messages.
    pub messages: usize,
    /// Bytes of all emails together.
    pub bytes: usize,
    /// Bytes of one email; a larger one is refused.
    pub message_bytes: usize,
}

impl Default for MailboxLimits {
    fn default() -> Self {
        Self { messages: 1_000, bytes: 64 << 20, message_bytes: 20 << 20 }
    }
}
