//! Text messages: the gateways that carry them, each called as its public documentation says.
//!
//! A [`TextGateway`] is one configured gateway. It makes one call per message, never follows a
//! redirect, gives up after its timeout and reads 64 KiB of a response at most. What a gateway says
//! about a failure is kept for the person who asked, shortened and without our credentials
//! ([`TextError`]).
//!
//! This module must not know: whose number it is, whether a code is right (except where the gateway
//! itself decides that, [`TextGateway::check`]), or the limits of requests.

mod call;
mod credential;
mod error;
mod message;
mod messagebird;
mod textlocal;
mod twilio;
mod twilio_verify;
mod vonage;

use std::time::Duration;

use url::{Host, Url};

use call::GatewayClient;
pub use credential::Credential;
pub use error::TextError;
pub use message::{OutgoingText, TextChannel};
pub use messagebird::MessageBird;
pub use textlocal::Textlocal;
pub use twilio::Twilio;
pub use twilio_verify::TwilioVerify;
pub use vonage::Vonage;

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

    /// Returns true if [`TextChannel::WhatsApp`] is supported.
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

    /// Returns true if the gateway makes the codes, so that only [`TextGateway::check`] can verify
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
