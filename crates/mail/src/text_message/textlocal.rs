//! Textlocal, "Send SMS": <https://api.textlocal.in/docs/sendsms>
//!
//! Responds with status 200 to everything; the body tells success from failure.

use serde::Deserialize;
use serde_json::Value;

use super::call::{GatewayAuthorization, GatewayClient};
use super::credential::Credential;
use super::error::TextError;
use super::message::OutgoingText;

/// An account of Textlocal.
#[derive(Debug, Clone)]
pub struct Textlocal {
    /// Its password.
    pub api_key: Credential,
    /// The registered sender name.
    pub sender: String,
}

#[derive(Deserialize)]
struct TextlocalResponse {
    status: String,
    #[serde(default)]
    messages: Vec<TextlocalMessage>,
}

#[derive(Deserialize)]
struct TextlocalMessage {
    id: Value,
}

impl Textlocal {
    pub(super) async fn send(&self, calls: &GatewayClient, text: &OutgoingText) -> Result<String, TextError> {
        let form = [
            ("apikey", self.api_key.expose()),
            ("sender", self.sender.as_str()),
            ("message", text.body.as_str()),
            ("numbers", text.to.as_str()),
        ];
        let reply = calls.post(&["send"], GatewayAuthorization::InForm, &form).await?;
        if !reply.is_success() {
            return Err(reply.failure(explanation));
        }
        let sent: TextlocalResponse = reply.read()?;
        if sent.status != "success" {
            return Err(reply.failure(explanation));
        }
        // Documented as text, and seen as a number too
        match sent.messages.into_iter().next().map(|message| message.id) {
            Some(Value::String(id)) => Ok(id),
            Some(Value::Number(id)) => Ok(id.to_string()),
            _ => Err(TextError::Malformed),
        }
    }
}

fn explanation(body: &Value) -> Option<String> {
    let errors = body.get("errors")?.as_array()?;
    let texts: Vec<&str> = errors.iter().filter_map(|error| error.get("message")?.as_str()).collect();
    Some(texts.join(", "))
}
