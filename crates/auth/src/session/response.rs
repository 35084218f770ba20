//! The response to a sign-in or a refresh.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;

use crate::error::WeakPassword;
use crate::model::User;
use crate::model::ids::SessionId;

/// The response to a sign-in or a refresh.
#[derive(Debug, Clone, Serialize)]
pub struct TokenResponse {
    pub(super) access_token: String,
    pub(super) token_type: &'static str,
    pub(super) expires_in: i64,
    pub(super) expires_at: i64,
    pub(super) refresh_token: String,
    pub(super) user: User,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) provider_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) provider_refresh_token: Option<String>,
    /// The outer option omits the field; the inner one is `null` for a password that is strong
    /// enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) weak_password: Option<Option<WeakPasswordNotice>>,
    #[serde(skip)]
    pub(super) session: SessionId,
    #[serde(skip)]
    pub(super) headers: HeaderMap,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct WeakPasswordNotice {
    message: String,
    reasons: serde_json::Value,
}

impl TokenResponse {
    /// Adds the tokens of the provider, for the app. Empty texts count as none.
    #[must_use]
    pub fn with_provider_tokens(mut self, access: Option<String>, refresh: Option<String>) -> Self {
        self.provider_token = access.filter(|token| !token.is_empty());
        self.provider_refresh_token = refresh.filter(|token| !token.is_empty());
        self
    }

    /// Adds whether the password is too weak by the present rules; for the password grant only.
    #[must_use]
    pub fn with_password_strength(mut self, weak: Option<&WeakPassword>) -> Self {
        self.weak_password =
            Some(weak.map(|weak| WeakPasswordNotice { message: weak.message.clone(), reasons: weak.reasons_json() }));
        self
    }

    /// Returns the session that was issued or refreshed.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the user in the response.
    #[must_use]
    pub fn user(&self) -> &User {
        &self.user
    }

    /// Returns the fields that a redirect carries in its fragment, sorted by name.
    #[must_use]
    pub fn fragment(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("access_token", self.access_token.clone()),
            ("expires_at", self.expires_at.to_string()),
            ("expires_in", self.expires_in.to_string()),
        ];
        fields.extend(self.provider_refresh_token.iter().map(|token| ("provider_refresh_token", token.clone())));
        fields.extend(self.provider_token.iter().map(|token| ("provider_token", token.clone())));
        fields.extend([
            ("refresh_token", self.refresh_token.clone()),
            ("sb", String::new()),
            ("token_type", self.token_type.to_owned()),
        ]);
        fields
    }

    pub(super) fn set_header(&mut self, name: &'static str, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
    }
}

impl IntoResponse for TokenResponse {
    fn into_response(self) -> Response {
        let headers = self.headers.clone();
        // Tokens must not stay in caches (RFC 6749, 5.1)
        let caching = [(http::header::CACHE_CONTROL, "no-store")];
        (headers, caching, axum::Json(self)).into_response()
    }
}
