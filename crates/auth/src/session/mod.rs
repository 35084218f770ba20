//! Sessions: their issue, the claims of their access tokens, and their life.
//!
//! Every sign-in makes a new session with its own family of refresh tokens. An access token is valid until it expires,
//! whatever happens to its session; this service itself looks the session up for each request.

pub(crate) mod clean_up;
pub(crate) mod grants;
pub(crate) mod logout;
pub(crate) mod refresh;
pub(crate) mod refresh_queue;
pub mod refresh_token;

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use time::OffsetDateTime;

use crate::Auth;
use crate::error::{AuthError, ContractError, WeakPassword};
use crate::http::extract::RequestInfo;
use crate::model::ids::SessionId;
use crate::model::{JsonObject, User};
use crate::operation::Operation;
use crate::protection::attempts;
use crate::session::refresh_token::{RefreshToken, SessionKey};
use crate::settings::SessionSettings;
use crate::sql::sessions::{self, Amr, NewSession, Session};
use crate::sql::{Tx, refresh_tokens};

/// The authentication method of a sign-in: the first entry of `amr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Password.
    Password,
    /// A code or a link, without a code exchange.
    Otp,
    /// An identity provider.
    OAuth,
    /// A sign-in link, after a code exchange.
    MagicLink,
    /// A recovery link, after a code exchange.
    Recovery,
    /// An invitation, after a code exchange.
    Invite,
    /// Confirmation of a new account, after a code exchange.
    EmailSignup,
    /// Confirmation of another address, after a code exchange.
    EmailChange,
    /// Without a contact or an identity.
    Anonymous,
}

impl Method {
    const ALL: [Self; 9] = [
        Self::Password,
        Self::Otp,
        Self::OAuth,
        Self::MagicLink,
        Self::Recovery,
        Self::Invite,
        Self::EmailSignup,
        Self::EmailChange,
        Self::Anonymous,
    ];

    /// Returns the name in the claim and the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Otp => "otp",
            Self::OAuth => "oauth",
            Self::MagicLink => "magiclink",
            Self::Recovery => "recovery",
            Self::Invite => "invite",
            Self::EmailSignup => "email/signup",
            Self::EmailChange => "email_change",
            Self::Anonymous => "anonymous",
        }
    }

    /// Returns the method with that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }
}

/// The response to a sign-in or a refresh.
#[derive(Debug, Clone, Serialize)]
pub struct TokenResponse {
    access_token: String,
    token_type: &'static str,
    expires_in: i64,
    expires_at: i64,
    refresh_token: String,
    user: User,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_refresh_token: Option<String>,
    /// The outer option omits the field; the inner one is `null` for a password that is strong enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    weak_password: Option<Option<WeakPasswordNotice>>,
    #[serde(skip)]
    session: SessionId,
    #[serde(skip)]
    headers: HeaderMap,
}

#[derive(Debug, Clone, Serialize)]
struct WeakPasswordNotice {
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

    pub(crate) fn set_header(&mut self, name: &'static str, value: &str) {
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

/// Signs `user` in: makes a session, its first refresh token and an access token. Part of the caller's
/// transaction.
///
/// The identities and factors of `user` must be loaded: they are in the response. The caller has checked that
/// the person may sign in.
///
/// # Errors
/// Those of the database.
pub(crate) async fn issue(op: Operation<'_>, user: &User, method: Method) -> Result<TokenResponse, AuthError> {
    let Operation { auth, request, tx } = op;
    let settings = auth.settings();
    let now = request.now;
    let id = SessionId::random();
    let key = (settings.refresh.algorithm_version == 2).then(SessionKey::generate);
    let key_column = key.as_ref().map(|key| auth.columns().encrypt(id.0, &key.to_column()));
    let refresh_token = match &key {
        Some(key) => key.token(id.0, 0),
        None => RefreshToken::new_stored(),
    };
    let new = NewSession {
        id,
        user_id: user.id,
        user_agent: user_agent(request),
        ip: request.ip,
        tag: settings.sessions.tags.first().map(String::as_str),
        hmac_key: key_column.as_deref(),
        method: method.as_str(),
    };
    // The rows arrive in this order: a token refers to its session
    let (session, token, network) = tokio::join!(biased;
        sessions::insert(tx, &new, now),
        async {
            if key.is_some() {
                Ok(())
            } else {
                refresh_tokens::insert(tx, &refresh_token, None, id, user.id, now).await
            }
        },
        attempts::remember_network(auth, tx, user, request),
    );
    session?;
    token?;
    network?;
    let mut user = user.clone();
    user.last_sign_in_at = Some(now);
    user.updated_at = Some(now);
    let session = Session {
        id,
        user_id: user.id,
        created_at: now,
        aal: "aal1".to_owned(),
        not_after: None,
        refreshed_at: None,
        token_touched: None,
        user_agent: None,
        ip: request.ip,
        tag: new.tag.map(str::to_owned),
        oauth_client_id: None,
        hmac_key: None,
        counter: 0,
        amr: vec![Amr { method: method.as_str().to_owned(), at: now }],
    };
    let mut response = respond(auth, &session, user, refresh_token, now)?;
    if key.is_some() {
        response.set_header("sb-auth-refresh-token-counter", "0");
    }
    Ok(response)
}

/// Returns the response for a session and a refresh token of it.
pub(crate) fn respond(
    auth: &Auth,
    session: &Session,
    user: User,
    refresh_token: String,
    now: OffsetDateTime,
) -> Result<TokenResponse, AuthError> {
    let (access_token, expires_at) = access_token(auth, session, &user, now)?;
    let mut response = TokenResponse {
        access_token,
        token_type: "bearer",
        expires_in: expires_at - now.unix_timestamp(),
        expires_at,
        user,
        provider_token: None,
        provider_refresh_token: None,
        weak_password: None,
        session: session.id,
        headers: HeaderMap::new(),
        refresh_token,
    };
    let ids = (response.user.id.to_string(), session.id.to_string());
    response.set_header("sb-auth-user-id", &ids.0);
    response.set_header("sb-auth-session-id", &ids.1);
    if let Ok(RefreshToken::Stored(token)) = RefreshToken::parse(&response.refresh_token) {
        response.set_header("sb-auth-refresh-token-prefix", &token[..5]);
    }
    Ok(response)
}

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

/// Returns an access token and the time at which it expires, in unix seconds.
fn access_token(auth: &Auth, session: &Session, user: &User, now: OffsetDateTime) -> Result<(String, i64), AuthError> {
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
        aal: &session.aal,
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

/// Returns the end of a session whose user has a second factor and did not use it.
fn end_of_low_aal(settings: &SessionSettings, session: &Session, user: &User) -> Option<OffsetDateTime> {
    let allowed = settings.allow_low_aal?;
    (session.aal == "aal1" && user.has_verified_factor()).then(|| session.created_at + allowed)
}

/// Checks that a session may be refreshed now.
///
/// # Errors
/// 400 `session_expired`, with a text for each policy.
pub(crate) fn check_alive(
    settings: &SessionSettings,
    session: &Session,
    user: &User,
    now: OffsetDateTime,
) -> Result<(), AuthError> {
    let timeboxed = settings.timebox.is_some_and(|timebox| now > session.created_at + timebox);
    if timeboxed || session.not_after.is_some_and(|end| now > end) {
        return Err(ContractError::SessionEnded.into());
    }
    if settings.inactivity_timeout.is_some_and(|timeout| now > session.last_used() + timeout) {
        return Err(ContractError::SessionInactive.into());
    }
    if end_of_low_aal(settings, session, user).is_some_and(|end| now > end) {
        return Err(ContractError::SessionLowAal.into());
    }
    Ok(())
}

/// Checks that no other valid session of the same class was used later: then only that one continues.
///
/// # Errors
/// 400 `session_expired`, or those of the database.
pub(crate) async fn check_newest(
    auth: &Auth,
    tx: &Tx,
    session: &Session,
    user: &User,
    now: OffsetDateTime,
) -> Result<(), AuthError> {
    let settings = &auth.settings().sessions;
    if !settings.single_per_user {
        return Ok(());
    }
    let class = class_of(settings, session);
    let all = sessions::of_user(tx, user.id).await?;
    let last_used = all.iter().find(|own| own.id == session.id).unwrap_or(session).last_used();
    let newer = all.iter().any(|other| {
        other.id != session.id
            && class_of(settings, other) == class
            && other.last_used() > last_used
            && check_alive(settings, other, user, now).is_ok()
    });
    if newer {
        return Err(ContractError::SessionReplaced.into());
    }
    Ok(())
}

/// Returns the class of a session among the configured ones. An unknown tag belongs to the first.
fn class_of<'a>(settings: &'a SessionSettings, session: &'a Session) -> Option<&'a str> {
    let own = session.tag.as_deref().filter(|tag| settings.tags.iter().any(|known| known == tag));
    own.or(settings.tags.first().map(String::as_str))
}

/// Returns the user agent of a request, if it has one.
pub(crate) fn user_agent(request: &RequestInfo) -> Option<&str> {
    Some(request.user_agent.as_str()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_round_trip() {
        for method in Method::ALL {
            assert_eq!(Method::parse(method.as_str()), Some(method));
        }
        assert_eq!(Method::parse("telepathy"), None);
    }
}
