//! Vonage, "Send an SMS": <https://developer.vonage.com/en/api/sms>
//!
//! Responds with status 200 to everything; the status of the message tells success (`0`) from
//! failure.

use serde::Deserialize;
use serde_json::Value;

use super::call::{GatewayAuthorization, GatewayClient};
use super::credential::Credential;
use super::error::TextError;
use super::message::OutgoingText;

/// The characters of the GSM alphabet (3GPP 23.038) and of its extension. A text with others needs
/// the type `unicode`.
const GSM: &str = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿\
     abcdefghijklmnopqrstuvwxyzäöñüà^{}\\[~]|€";

/// An account of Vonage.
#[derive(Debug, Clone)]
pub struct Vonage {
    /// The account.
    pub api_key: String,
    /// Its password.
    pub api_secret: Credential,
    /// Sender: a number or a name.
    pub from: String,
}

#[derive(Deserialize)]
struct VonageResponse {
    messages: Vec<VonageMessage>,
}

#[derive(Deserialize)]
struct VonageMessage {
    status: String,
    #[serde(rename = "message-id", default)]
    id: String,
    #[serde(rename = "error-text", default)]
    error: String,
}

impl Vonage {
    pub(super) async fn send(&self, calls: &GatewayClient, text: &OutgoingText) -> Result<String, TextError> {
        let mut form = vec![
            ("api_key", self.api_key.as_str()),
            ("api_secret", self.api_secret.expose()),
            ("from", self.from.as_str()),
            ("to", text.to.as_str()),
            ("text", text.body.as_str()),
        ];
        if !is_gsm(&text.body) {
            form.push(("type", "unicode"));
        }
        let reply = calls.post(&["sms", "json"], GatewayAuthorization::InForm, &form).await?;
        if !reply.is_success() {
            return Err(reply.failure(explanation));
        }
        let parts = reply.read::<VonageResponse>()?.messages;
        // A long text is several messages, and half of one is none
        if let Some(failed) = parts.iter().find(|part| part.status != "0") {
            let code = format!("error {}", failed.status);
            return Err(TextError::refused(if failed.error.is_empty() { &code } else { &failed.error }));
        }
        parts.into_iter().next().map(|part| part.id).ok_or(TextError::Malformed)
    }
}

fn is_gsm(text: &str) -> bool {
    text.chars().all(|character| GSM.contains(character))
}

/// Gateways before the service respond in the form of RFC 7807, or in the service's own.
fn explanation(body: &Value) -> Option<String> {
    let own = || body.get("messages")?.get(0)?.get("error-text");
    let text =
        own().or_else(|| body.get("detail")).or_else(|| body.get("title")).or_else(|| body.get("error_title"))?;
    text.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_alphabets_are_announced() {
        for (text, expected) in [
            ("Your code is 123456", true),
            ("Ihr Schlüssel für [Portico]: 123456 €", true),
            ("Ваш код 123456", false),
            ("コード 123456", false),
            ("Your code ✅ 123456", false),
        ] {
            assert_eq!(is_gsm(text), expected, "{text}");
        }
    }
}
