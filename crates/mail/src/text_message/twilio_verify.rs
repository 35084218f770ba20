//! Twilio Verify, version 2: <https://www.twilio.com/docs/verify/api>
//!
//! Twilio makes the code and its text, and tells later whether a code is the right one.

use serde::Deserialize;
use serde_json::Value;

use super::call::{GatewayAuthorization, GatewayClient, GatewayResponse};
use super::credential::Credential;
use super::error::TextError;
use super::message::OutgoingText;
use super::twilio::explanation;

/// "The requested resource was not found": nothing waits for a code, or it was used, or it is too
/// old.
const NOTHING_WAITS: i64 = 20404;
/// "Max check attempts reached": the code is dead.
const TOO_MANY_ATTEMPTS: i64 = 60202;

/// A verification service of Twilio.
#[derive(Debug, Clone)]
pub struct TwilioVerify {
    /// `AC...`
    pub account_sid: String,
    /// Its password.
    pub auth_token: Credential,
    /// The verification service (`VA...`).
    pub service_sid: String,
}

#[derive(Deserialize)]
struct Verification {
    sid: String,
}

#[derive(Deserialize)]
struct VerificationCheck {
    status: String,
}

impl TwilioVerify {
    pub(super) async fn send(&self, calls: &GatewayClient, text: &OutgoingText) -> Result<String, TextError> {
        let to = format!("+{}", text.to);
        let form = [("To", to.as_str()), ("Channel", text.channel.as_str())];
        let reply = self.post(calls, "Verifications", &form).await?;
        if !reply.is_success() {
            return Err(reply.failure(explanation));
        }
        Ok(reply.read::<Verification>()?.sid)
    }

    pub(super) async fn check(&self, calls: &GatewayClient, to: &str, code: &str) -> Result<bool, TextError> {
        if !(4..=10).contains(&code.len()) || !code.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(false);
        }
        let to = format!("+{to}");
        let reply = self.post(calls, "VerificationCheck", &[("To", to.as_str()), ("Code", code)]).await?;
        if reply.is_success() {
            return Ok(reply.read::<VerificationCheck>()?.status == "approved");
        }
        let reason = reply.read::<Value>().ok().and_then(|body| body.get("code")?.as_i64());
        match reason {
            Some(NOTHING_WAITS) if reply.is(404) => Ok(false),
            Some(TOO_MANY_ATTEMPTS) => Ok(false),
            _ => Err(reply.failure(explanation)),
        }
    }

    async fn post(
        &self,
        calls: &GatewayClient,
        resource: &str,
        form: &[(&str, &str)],
    ) -> Result<GatewayResponse, TextError> {
        let path = ["v2", "Services", self.service_sid.as_str(), resource];
        let authorisation = GatewayAuthorization::Basic { user: &self.account_sid, password: self.auth_token.expose() };
        calls.post(&path, authorisation, form).await
    }
}
