//! Access tokens and their claims.

use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;

use crate::error::AuthError;
use crate::hooks::custom_access_token;
use crate::model::{JsonObject, User};
use crate::operation::AccountOperation;
use crate::session::authentication_method::AuthenticationMethod;
use crate::session::lifetime::end_of_low_aal;
use crate::settings::HookPoint;
use crate::sql::sessions::Session;

#[derive(Serialize)]
struct AccessClaims<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    iss: &'a str,
    sub: String,
    aud: &'a str,
    exp: i64,
    iat: i64,
    email: &'a str,
    phone: &'a str,
    app_metadata: &'a JsonObject,
    user_metadata: &'a JsonObject,
    role: &'a str,
    aal: &'a str,
    amr: Vec<AmrClaim<'a>>,
    session_id: String,
    is_anonymous: bool,
}

#[derive(Serialize)]
struct AmrClaim<'a> {
    method: &'a str,
    timestamp: i64,
}

/// Returns the assurance level of a session by its methods, which are in the token as well.
fn assurance_level(session: &Session) -> &'static str {
    let is_second = |method: &str| AuthenticationMethod::SECOND_FACTORS.contains(&method);
    if session.amr.iter().any(|amr| is_second(&amr.method)) { "aal2" } else { "aal1" }
}

/// An access token.
pub(super) struct AccessToken {
    pub(super) text: String,
    /// The time at which it expires without a hook, in unix seconds.
    pub(super) expires_at: i64,
}

/// Makes an access token, whose claims the hook may replace.
///
/// # Errors
/// Those of the hook.
pub(super) async fn access_token(
    op: AccountOperation<'_>,
    session: &Session,
    user: &User,
    authentication_method: &str,
    now: OffsetDateTime,
) -> Result<AccessToken, AuthError> {
    let auth = op.auth;
    let settings = auth.settings();
    let mut expires = now + settings.jwt.expiry;
    if let Some(end) = end_of_low_aal(&settings.sessions, session, user) {
        // Not in the past: the session was found valid a moment ago
        expires = expires.min(end).max(now + time::Duration::SECOND);
    }
    let claims = AccessClaims {
        iss: &settings.jwt.issuer,
        sub: user.id.to_string(),
        aud: &user.aud,
        exp: expires.unix_timestamp(),
        iat: now.unix_timestamp(),
        // Policies trust these two
        email: user.proved_email(),
        phone: user.proved_phone(),
        app_metadata: &user.app_metadata,
        user_metadata: &user.user_metadata,
        role: &user.role,
        aal: assurance_level(session),
        amr: session
            .amr
            .iter()
            .map(|amr| AmrClaim { method: &amr.method, timestamp: amr.at.unix_timestamp() })
            .collect(),
        session_id: session.id.to_string(),
        is_anonymous: user.is_anonymous,
    };
    let expires_at = claims.exp;
    let signed = match auth.hooks().has(HookPoint::CustomAccessToken) {
        false => auth.keys().sign(&claims),
        true => {
            let own = match serde_json::to_value(&claims).map_err(AuthError::internal)? {
                Value::Object(own) => own,
                _ => JsonObject::new(),
            };
            auth.keys().sign(&Box::pin(custom_access_token(op, user.id, own, authentication_method)).await?)
        }
    };
    Ok(AccessToken { text: signed.map_err(AuthError::internal)?, expires_at })
}
