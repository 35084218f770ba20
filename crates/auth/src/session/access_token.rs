//! Access tokens and their claims.

use serde::Serialize;
use time::OffsetDateTime;

use crate::Auth;
use crate::error::AuthError;
use crate::model::{JsonObject, User};
use crate::session::AuthenticationMethod;
use crate::session::lifetime::end_of_low_aal;
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

/// Returns an access token and the time at which it expires, in unix seconds.
pub(super) fn access_token(
    auth: &Auth,
    session: &Session,
    user: &User,
    now: OffsetDateTime,
) -> Result<(String, i64), AuthError> {
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
    let token = auth.keys().sign(&claims).map_err(AuthError::internal)?;
    Ok((token, claims.exp))
}
