//! MessageBird, "Send a message": <https://developers.messagebird.com/api/sms-messaging/>

use serde::Deserialize;
use serde_json::Value;

use super::call::{GatewayAuthorization, GatewayClient};
use super::credential::Credential;
use super::error::TextError;
use super::message::OutgoingText;

/// An account of MessageBird.
#[derive(Debug, Clone)]
pub struct MessageBird {
    /// Its password.
    pub access_key: Credential,
    /// Sender: a number, or a name of up to eleven characters.
    pub originator: String,
}

#[derive(Deserialize)]
struct MessageBirdMessage {
    id: String,
    recipients: MessageBirdRecipients,
}

#[derive(Deserialize)]
struct MessageBirdRecipients {
    #[serde(rename = "totalSentCount")]
    sent: u64,
}

impl MessageBird {
    pub(super) async fn send(&self, calls: &GatewayClient, text: &OutgoingText) -> Result<String, TextError> {
        let form = [
            ("originator", self.originator.as_str()),
            ("recipients", text.to.as_str()),
            ("body", text.body.as_str()),
            ("type", "sms"),
            // Plain or Unicode, as the text needs
            ("datacoding", "auto"),
        ];
        let authorisation = GatewayAuthorization::Header { scheme: "AccessKey", key: self.access_key.expose() };
        let reply = calls.post(&["messages"], authorisation, &form).await?;
        if !reply.is_success() {
            return Err(reply.failure(explanation));
        }
        let created: MessageBirdMessage = reply.read()?;
        if created.recipients.sent == 0 {
            return Err(TextError::refused("the message was sent to no recipient"));
        }
        Ok(created.id)
    }
}

fn explanation(body: &Value) -> Option<String> {
    let errors = body.get("errors")?.as_array()?;
    let texts: Vec<&str> = errors.iter().filter_map(|error| error.get("description")?.as_str()).collect();
    Some(texts.join(", "))
}
