//! Delivery of text messages by the configured gateway or to the development mailbox.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use portico_auth::{AuthSettings, TextMessage, TextTransport};
use portico_base::Secret;
use portico_emulators::Mailbox;
use portico_mail::text_message::{
    Credential, MessageBird, OutgoingText, TextChannel, TextGateway, TextGatewaySettings, TextProvider, Textlocal,
    Twilio, TwilioVerify, Vonage,
};
use portico_project::SmsProvider;
use portico_project::portico_toml::TextSettings;

/// The provider that the mailbox shows for a captured message.
const CAPTURED_BY: &str = "development";

/// Returns the name of a provider in the configuration and in `/settings`.
#[must_use]
pub fn name(provider: &SmsProvider) -> &'static str {
    match provider {
        SmsProvider::Twilio { .. } => "twilio",
        SmsProvider::TwilioVerify { .. } => "twilio_verify",
        SmsProvider::Messagebird { .. } => "messagebird",
        SmsProvider::Textlocal { .. } => "textlocal",
        SmsProvider::Vonage { .. } => "vonage",
    }
}

/// Returns a transport to the configured gateway. `development` allows a stand-in on this machine
/// that speaks plain http.
///
/// # Errors
/// When its address is unusable.
pub fn gateway(
    provider: &SmsProvider,
    further: &TextSettings,
    auth: &AuthSettings,
    development: bool,
) -> anyhow::Result<Arc<dyn TextTransport>> {
    let gateway = TextGateway::new(TextGatewaySettings {
        base_url: further.gateway_url.clone(),
        timeout: timeout(auth),
        allow_insecure_loopback: development,
        ..TextGatewaySettings::new(text_provider(provider, further))
    })
    .context("[texts] gateway_url in supabase/portico.toml")?;
    Ok(Arc::new(SmsGateway(gateway)))
}

/// Returns a transport to the development mailbox, where developers and tests read the codes.
#[must_use]
pub fn inbox(mailbox: Mailbox) -> Arc<dyn TextTransport> {
    Arc::new(Inbox(mailbox))
}

/// Turns sign-in by phone off, since no gateway is configured.
pub fn none(auth: &mut AuthSettings) {
    if auth.sms.enabled {
        tracing::warn!("no SMS provider is enabled, so sign-in by phone is off");
        auth.sms.enabled = false;
    }
}

/// Returns the timeout of a gateway, which is shorter than that of the request, so that a slow
/// gateway is distinguished from a slow server.
fn timeout(auth: &AuthSettings) -> Duration {
    let request = auth.max_request_duration;
    if request.is_zero() { auth.http_timeout } else { auth.http_timeout.min(request * 4 / 5) }
}

fn text_provider(provider: &SmsProvider, further: &TextSettings) -> TextProvider {
    match provider.clone() {
        SmsProvider::Twilio { account_sid, message_service_sid, auth_token } => TextProvider::Twilio(Twilio {
            account_sid,
            auth_token: credential(&auth_token),
            sender: message_service_sid,
            content_sid: further.twilio_content_sid.clone(),
        }),
        SmsProvider::TwilioVerify { account_sid, message_service_sid, auth_token } => {
            let auth_token = credential(&auth_token);
            TextProvider::TwilioVerify(TwilioVerify { account_sid, auth_token, service_sid: message_service_sid })
        }
        SmsProvider::Messagebird { originator, access_key } => {
            TextProvider::MessageBird(MessageBird { access_key: credential(&access_key), originator })
        }
        SmsProvider::Textlocal { sender, api_key } => {
            TextProvider::Textlocal(Textlocal { api_key: credential(&api_key), sender })
        }
        SmsProvider::Vonage { from, api_key, api_secret } => {
            TextProvider::Vonage(Vonage { api_key, api_secret: credential(&api_secret), from })
        }
    }
}

fn credential(secret: &Secret) -> Credential {
    Credential::new(secret.expose())
}

struct SmsGateway(TextGateway);

impl TextTransport for SmsGateway {
    fn send(&self, message: TextMessage) -> BoxFuture<'_, Result<String, String>> {
        async move {
            let TextMessage { to, body, code, channel } = message;
            let channel = if channel == "whatsapp" { TextChannel::WhatsApp } else { TextChannel::Sms };
            let sent = self.0.send(&OutgoingText { to, body, code, channel }).await;
            sent.map_err(|error| self.report_failure("send", &error))
        }
        .boxed()
    }

    fn speaks_whatsapp(&self) -> bool {
        self.0.speaks_whatsapp()
    }

    fn check<'a>(&'a self, to: &'a str, code: &'a str) -> Option<BoxFuture<'a, Result<bool, String>>> {
        if !self.0.checks_codes() {
            return None;
        }
        let outcome = async move {
            // A gateway that checks codes decides on every code
            let outcome = self.0.check(to, code).await.unwrap_or(Ok(false));
            outcome.map_err(|error| self.report_failure("check", &error))
        };
        Some(outcome.boxed())
    }
}

impl SmsGateway {
    /// Logs a failure: wrong credentials and empty accounts affect all users, so the operator has
    /// to know.
    fn report_failure(&self, action: &str, failure: &portico_mail::text_message::TextError) -> String {
        let detail = failure.to_string();
        // Phone numbers are personal data, and gateways repeat them in errors
        let error: String = detail.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
        tracing::warn!(provider = self.0.name(), action, error = %error, "a call of the text message gateway failed");
        detail
    }
}

struct Inbox(Mailbox);

impl TextTransport for Inbox {
    fn send(&self, message: TextMessage) -> BoxFuture<'_, Result<String, String>> {
        let captured = self.0.capture_text(&message.to, &message.body, CAPTURED_BY);
        let id = captured.id.clone();
        async move { Ok(id) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_by_phone_is_off_without_a_gateway() {
        let mut auth = AuthSettings::default();
        auth.sms.enabled = true;
        none(&mut auth);
        assert!(!auth.sms.enabled);
    }

    #[test]
    fn a_gateway_times_out_before_the_request_does() {
        let mut auth = AuthSettings::default();
        assert!(timeout(&auth) < auth.max_request_duration);
        auth.max_request_duration = Duration::ZERO;
        assert_eq!(timeout(&auth), auth.http_timeout);
    }

    #[test]
    fn only_development_allows_plain_http() {
        let provider = SmsProvider::Textlocal { sender: "PORTIC".into(), api_key: "key".into() };
        let auth = AuthSettings::default();
        let at = |url: &str| TextSettings { gateway_url: Some(url.to_owned()), twilio_content_sid: None };
        let usable = |url: &str, development| gateway(&provider, &at(url), &auth, development).is_ok();
        assert!(usable("http://127.0.0.1:9", true));
        assert!(!usable("http://127.0.0.1:9", false));
        assert!(!usable("http://texts.portico.test", true));
        assert!(usable("https://texts.portico.test/eu", false));
        assert!(!usable("https://texts.portico.test/?eu", false));
    }
}
