//! `GET /health` and `GET /settings`.

use axum::extract::State;
use serde_json::{Map, Value, json};

use crate::{Auth, AuthSettings};

/// The providers in `/settings`, in the order that clients expect.
const LISTED: &[&str] = &[
    "apple",
    "azure",
    "bitbucket",
    "discord",
    "facebook",
    "snapchat",
    "figma",
    "fly",
    "github",
    "gitlab",
    "google",
    "keycloak",
    "kakao",
    "linkedin",
    "linkedin_oidc",
    "notion",
    "spotify",
    "slack",
    "slack_oidc",
    "workos",
    "twitch",
    "twitter",
];

/// `GET /health`
pub async fn health() -> axum::Json<Value> {
    axum::Json(json!({
        "version": concat!("v", env!("CARGO_PKG_VERSION")),
        "name": "GoTrue",
        "description": "GoTrue is a user registration and authentication API",
    }))
}

/// `GET /settings`
pub async fn settings(State(auth): State<Auth>) -> axum::Json<Value> {
    axum::Json(public_settings(auth.settings()))
}

/// Returns what everyone may know of the settings, as `GET /settings` does.
#[must_use]
pub fn public_settings(settings: &AuthSettings) -> Value {
    let is_enabled = |name: &str| settings.external.get(name).is_some_and(|provider| provider.enabled);
    let mut external = Map::new();
    external.insert("anonymous_users".into(), settings.anonymous_users.into());
    for name in LISTED {
        external.insert((*name).into(), is_enabled(name).into());
    }
    external.insert("email".into(), settings.email.enabled.into());
    external.insert("phone".into(), settings.sms.enabled.into());
    external.insert("zoom".into(), is_enabled("zoom").into());
    json!({
        "external": external,
        "disable_signup": settings.disable_signup,
        "mailer_autoconfirm": settings.email.autoconfirm,
        "phone_autoconfirm": settings.sms.autoconfirm,
        "sms_provider": settings.sms.provider,
        "saml_enabled": false,
        "saml_private_key_next_configured": false,
        "passkeys_enabled": settings.passkeys.enabled,
    })
}
