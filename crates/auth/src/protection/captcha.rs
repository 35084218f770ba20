//! Captchas: the proof that a person sends a request.

use http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;

use crate::error::{AuthError, ContractError};
use crate::http_client::{HttpClient, UrlTrust};
use crate::model::RequestInfo;
use crate::settings::{AuthSettings, CaptchaProvider, CaptchaSettings};

/// The field of a body that contains the token of a solved captcha.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Security {
    captcha_token: Option<String>,
}

/// Verifies tokens with the captcha service.
pub(crate) struct Captcha {
    settings: CaptchaSettings,
    client: HttpClient,
}

impl Captcha {
    pub(crate) fn new(settings: &AuthSettings) -> Option<Self> {
        let captcha = settings.captcha.clone()?;
        let client = HttpClient::new(captcha.timeout, settings.allow_insecure_loopback_providers);
        Some(Self { settings: captcha, client })
    }

    async fn verify(&self, token: Option<&str>, request: &RequestInfo) -> Result<(), AuthError> {
        let refuse = |reason: &str| ContractError::CaptchaRejected { reason: reason.to_owned() };
        let token = token.map(str::trim).filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| refuse("no captcha_token found"))?;
        let url = self.settings.verify_url.as_deref().unwrap_or(match self.settings.provider {
            CaptchaProvider::HCaptcha => "https://hcaptcha.com/siteverify",
            CaptchaProvider::Turnstile => "https://challenges.cloudflare.com/turnstile/v0/siteverify",
        });
        let ip = request.ip.map(|ip| ip.to_string()).unwrap_or_default();
        let mut form = vec![("secret", self.settings.secret.expose()), ("response", token)];
        if !ip.is_empty() {
            form.push(("remoteip", &ip));
        }
        let failed = |error| AuthError::failed(ContractError::CaptchaUnavailable, anyhow::Error::new(error));
        let response =
            self.client.post_form(UrlTrust::Configured, url, HeaderMap::new(), &form).await.map_err(failed)?;
        let response = response.json().map_err(failed)?;
        if response["success"] == Value::Bool(true) {
            return Ok(());
        }
        let codes: Vec<&str> =
            response["error-codes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        Err(refuse(&codes.join(", ")).into())
    }
}

/// Checks the captcha of a request. Requests of the operator need none; without `captcha`, captchas
/// are disabled.
///
/// # Errors
/// 400 `captcha_failed`, 500 when the provider does not respond.
pub(crate) async fn check(
    captcha: Option<&Captcha>,
    security: &Security,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    match captcha {
        Some(captcha) if !request.is_operator => captcha.verify(security.captcha_token.as_deref(), request).await,
        _ => Ok(()),
    }
}
