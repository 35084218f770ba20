//! Twilio, "Create a Message": <https://www.twilio.com/docs/messaging/api/message-resource>

use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{GatewayAuthorization, GatewayClient};
use super::credential::Credential;
use super::error::TextError;
use super::message::{OutgoingText, TextChannel};

/// An account of Twilio.
#[derive(Debug, Clone)]
pub struct Twilio {
    /// `AC...`
    pub account_sid: String,
    /// Its password.
    pub auth_token: Credential,
    /// A messaging service (`MG...`), a number, or a name as sender.
    pub sender: String,
    /// Approved template (`HX...`) of WhatsApp messages, whose first variable is the code. Without
    /// one the plain text is sent, which WhatsApp delivers only within a conversation.
    pub content_sid: Option<String>,
}

#[derive(Deserialize)]
struct TwilioMessage {
    sid: String,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    error_message: Option<String>,
}

impl Twilio {
    pub(super) async fn send(&self, calls: &GatewayClient, text: &OutgoingText) -> Result<String, TextError> {
        let (to, from) = match text.channel {
            TextChannel::Sms => (format!("+{}", text.to), self.sender.clone()),
            TextChannel::WhatsApp => (format!("whatsapp:+{}", text.to), whatsapp_sender(&self.sender)),
        };
        let variables = json!({ "1": text.code }).to_string();
        let mut form = vec![("To", to.as_str()), ("From", from.as_str())];
        match &self.content_sid {
            Some(template) if text.channel == TextChannel::WhatsApp => {
                form.extend([("ContentSid", template.as_str()), ("ContentVariables", variables.as_str())]);
            }
            _ => form.push(("Body", text.body.as_str())),
        }
        let path = ["2010-04-01", "Accounts", self.account_sid.as_str(), "Messages.json"];
        let authorisation = GatewayAuthorization::Basic { user: &self.account_sid, password: self.auth_token.expose() };
        let reply = calls.post(&path, authorisation, &form).await?;
        if !reply.is_success() {
            return Err(reply.failure(explanation));
        }
        let created: TwilioMessage = reply.read()?;
        match created.status.as_deref() {
            Some("failed" | "undelivered" | "canceled") => Err(TextError::refused(
                created.error_message.as_deref().unwrap_or("the message could not be delivered"),
            )),
            _ => Ok(created.sid),
        }
    }
}

/// Returns the number in the form that a channel needs: one of WhatsApp is marked, and a messaging
/// service knows its own senders.
fn whatsapp_sender(sender: &str) -> String {
    let digits = sender.strip_prefix('+').unwrap_or(sender);
    let is_number = digits.len() >= 7 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { format!("whatsapp:+{digits}") } else { sender.to_owned() }
}

/// Returns Twilio's explanation of a failure, which all its APIs give in the same form.
pub(super) fn explanation(body: &Value) -> Option<String> {
    let message = body.get("message")?.as_str()?;
    Some(match body.get("more_info").and_then(Value::as_str) {
        Some(more) => format!("{message} More information: {more}"),
        None => message.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_are_marked() {
        for (sender, expected) in [
            ("+15550001111", "whatsapp:+15550001111"),
            ("15550001111", "whatsapp:+15550001111"),
            ("whatsapp:+15550001111", "whatsapp:+15550001111"),
            ("MG0123456789", "MG0123456789"),
            ("12345", "12345"),
        ] {
            assert_eq!(whatsapp_sender(sender), expected);
        }
    }
}
