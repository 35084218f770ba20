//! Text messages on their way out.

/// A text message on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingText {
    /// International number, digits without the plus sign.
    pub to: String,
    /// The text.
    pub body: String,
    /// The code in it, for gateways with templates of their own.
    pub code: String,
    /// The channel.
    pub channel: TextChannel,
}

/// The channel that carries a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextChannel {
    /// SMS
    Sms,
    /// WhatsApp
    WhatsApp,
}

impl TextChannel {
    /// Returns `sms` or `whatsapp`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sms => "sms",
            Self::WhatsApp => "whatsapp",
        }
    }
}
