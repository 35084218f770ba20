//! Text messages: the gateways that carry them, each called as its public documentation says.
//!
//! A [`TextGateway`] is one configured gateway. It makes one call per message, never follows a
//! redirect, gives up after its timeout and reads 64 KiB of an answer at most. What a gateway says
//! about a failure is kept for the person who asked, shortened and without our credentials
//! ([`TextError`]).
//!
//! This module must not know: whose number it is, whether a code is right (except where the gateway
//! itself decides that, [`TextGateway::check`]), or the limits of requests.

mod call;
mod messagebird;
mod textlocal;
mod twilio;
mod twilio_verify;
mod vonage;

use std::fmt;
use std::time::Duration;

use url::{Host, Url};

use call::GatewayClient;
pub use messagebird::MessageBird;
pub use textlocal::Textlocal;
pub use twilio::Twilio;
pub use twilio_verify::TwilioVerify;
pub use vonage::Vonage;

/// Longest explanation of a gateway that is passed on, in characters.
const MAX_DETAIL: usize = 300;

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

/// A gateway's password. It is never shown.
#[derive(Clone)]
pub struct Credential(String);

impl Credential {
    /// Keeps `text` from being shown.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// The gateway and its credentials.
#[derive(Debug, Clone)]
pub enum TextProvider {
    /// Twilio's programmable messaging.
    Twilio(Twilio),
    /// Twilio Verify, which makes and checks the codes itself.
    TwilioVerify(TwilioVerify),
    /// MessageBird
    MessageBird(MessageBird),
    /// Textlocal
    Textlocal(Textlocal),
    /// Vonage, formerly Nexmo.
    Vonage(Vonage),
}

impl TextProvider {
    /// Returns the name in configuration and in `/settings`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Twilio(_) => "twilio",
            Self::TwilioVerify(_) => "twilio_verify",
            Self::MessageBird(_) => "messagebird",
            Self::Textlocal(_) => "textlocal",
            Self::Vonage(_) => "vonage",
        }
    }

    /// Returns the public address of its API.
    fn address(&self) -> &'static str {
        match self {
            Self::Twilio(_) => "https://api.twilio.com",
            Self::TwilioVerify(_) => "https://verify.twilio.com",
            Self::MessageBird(_) => "https://rest.messagebird.com",
            Self::Textlocal(_) => "https://api.textlocal.in",
            Self::Vonage(_) => "https://rest.nexmo.com",
        }
    }

    fn credential(&self) -> &Credential {
        match self {
            Self::Twilio(twilio) => &twilio.auth_token,
            Self::TwilioVerify(verify) => &verify.auth_token,
            Self::MessageBird(messagebird) => &messagebird.access_key,
            Self::Textlocal(textlocal) => &textlocal.api_key,
            Self::Vonage(vonage) => &vonage.api_secret,
        }
    }
}

/// Everything about a gateway that an operator can choose.
#[derive(Debug, Clone)]
pub struct TextGatewaySettings {
    /// The gateway and its credentials.
    pub provider: TextProvider,
    /// Another address of its API than the public one: of a region, or of a stand-in.
    pub base_url: Option<String>,
    /// The time limit of one call.
    pub timeout: Duration,
    /// Permit plain HTTP to this machine in `base_url`. For development and tests.
    pub allow_insecure_loopback: bool,
}

impl TextGatewaySettings {
    /// Makes the provider at its public address.
    #[must_use]
    pub fn new(provider: TextProvider) -> Self {
        Self { provider, base_url: None, timeout: Duration::from_secs(10), allow_insecure_loopback: false }
    }
}

/// The address of a gateway cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextGatewayError {
    /// Not an address at all, or one with parts that make no sense here.
    #[error("the address of the text message gateway must be a URL without user name, query and fragment")]
    Address,
    /// Credentials would travel where others can read them.
    #[error("the address of the text message gateway must begin with https://")]
    Insecure,
}

/// The reason why a message was not taken, or a code not checked. The texts are for the person who
/// asked: no credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The gateway's own explanation.
    #[error("{0}")]
    Refused(String),
    /// An answer without explanation.
    #[error("the provider answered with status {0}")]
    Status(u16),
    /// No connection, or it broke.
    #[error("the provider could not be reached")]
    Unreachable,
    /// The timeout is over.
    #[error("the provider did not answer in time")]
    TimedOut,
    /// An answer of more than 64 KiB.
    #[error("the provider's answer is too large")]
    TooLarge,
    /// Not the JSON that its documentation promises.
    #[error("the provider's answer could not be understood")]
    Malformed,
}

impl TextError {
    /// Makes the error of a rejection, with the gateway's explanation in one line of bounded
    /// length.
    fn refused(explanation: &str) -> Self {
        let line: String = explanation.split_whitespace().collect::<Vec<_>>().join(" ");
        Self::Refused(line.chars().filter(|character| !character.is_control()).take(MAX_DETAIL).collect())
    }

    fn without(self, credential: &Credential) -> Self {
        match self {
            Self::Refused(text) if !credential.expose().is_empty() => {
                Self::Refused(text.replace(credential.expose(), "***"))
            }
            other => other,
        }
    }
}

/// A configured gateway.
pub struct TextGateway {
    provider: TextProvider,
    calls: GatewayClient,
}

impl TextGateway {
    /// Makes a gateway. It calls nothing before the first message.
    ///
    /// # Errors
    /// When [`TextGatewaySettings::base_url`] cannot be used.
    pub fn new(settings: TextGatewaySettings) -> Result<Self, TextGatewayError> {
        let TextGatewaySettings { provider, base_url, timeout, allow_insecure_loopback } = settings;
        let base = base_url.as_deref().unwrap_or(provider.address());
        let base = Url::parse(base).map_err(|_| TextGatewayError::Address)?;
        let is_plain = base.username().is_empty()
            && base.password().is_none()
            && base.query().is_none()
            && base.fragment().is_none()
            && base.has_host();
        if !is_plain {
            return Err(TextGatewayError::Address);
        }
        let is_local = match base.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
            None => false,
        };
        match base.scheme() {
            "https" => {}
            "http" if is_local && allow_insecure_loopback => {}
            _ => return Err(TextGatewayError::Insecure),
        }
        Ok(Self { provider, calls: GatewayClient::new(base, is_local, timeout) })
    }

    /// Returns the provider's name in configuration and in `/settings`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.provider.name()
    }

    /// Returns whether [`TextChannel::WhatsApp`] is supported.
    #[must_use]
    pub fn speaks_whatsapp(&self) -> bool {
        matches!(self.provider, TextProvider::Twilio(_) | TextProvider::TwilioVerify(_))
    }

    /// Hands a message over, and returns the gateway's id of it. Success means that the gateway has
    /// taken it upon itself to deliver it.
    ///
    /// # Errors
    /// [`TextError`]; the message may be tried again.
    pub async fn send(&self, text: &OutgoingText) -> Result<String, TextError> {
        if text.channel == TextChannel::WhatsApp && !self.speaks_whatsapp() {
            return Err(TextError::Refused("the provider has no WhatsApp".to_owned()));
        }
        let calls = &self.calls;
        match &self.provider {
            TextProvider::Twilio(twilio) => twilio.send(calls, text).await,
            TextProvider::TwilioVerify(verify) => verify.send(calls, text).await,
            TextProvider::MessageBird(messagebird) => messagebird.send(calls, text).await,
            TextProvider::Textlocal(textlocal) => textlocal.send(calls, text).await,
            TextProvider::Vonage(vonage) => vonage.send(calls, text).await,
        }
        .map_err(|error| error.without(self.provider.credential()))
    }

    /// Returns whether the gateway makes the codes, so that only [`TextGateway::check`] can verify
    /// one.
    #[must_use]
    pub fn checks_codes(&self) -> bool {
        matches!(self.provider, TextProvider::TwilioVerify(_))
    }

    /// Returns whether a code is the one that the gateway sent to a number. `None`: this gateway
    /// does not make codes.
    ///
    /// # Errors
    /// [`TextError`], when the gateway gave no verdict.
    pub async fn check(&self, to: &str, code: &str) -> Option<Result<bool, TextError>> {
        let TextProvider::TwilioVerify(verify) = &self.provider else { return None };
        Some(verify.check(&self.calls, to, code).await.map_err(|error| error.without(&verify.auth_token)))
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
