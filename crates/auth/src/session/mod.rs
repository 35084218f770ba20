//! Sessions: their issue, the claims of their access tokens, and their life.
//!
//! Every sign-in makes a new session with its own family of refresh tokens. An access token is
//! valid until it expires, whatever happens to its session; this service itself looks the session
//! up for each request.

mod access_token;
pub(crate) mod clean_up;
pub(crate) mod elevation;
pub(crate) mod grants;
pub(crate) mod lifetime;
pub(crate) mod logout;
pub(crate) mod refresh;
pub(crate) mod refresh_queue;
pub mod refresh_token;
mod response;

pub use response::TokenResponse;

use http::HeaderMap;
use time::OffsetDateTime;

use crate::error::AuthError;
use crate::http::extract::RequestInfo;
use crate::model::User;
use crate::model::ids::SessionId;
use crate::operation::AccountOperation;
use crate::session::access_token::{AccessToken, access_token};
use crate::session::refresh_token::{RefreshToken, SessionKey};
use crate::sql::refresh_tokens;
use crate::sql::sessions::{self, Amr, NewSession, Session};

/// An authentication method of a session: an entry of `amr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthenticationMethod {
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
    /// A second factor: an authenticator app.
    Totp,
    /// A second factor: a code in a text message.
    MfaPhone,
    /// A second factor: a security key.
    MfaWebauthn,
    /// A recovery code in the place of a second factor.
    MfaRecoveryCode,
    /// A passkey.
    Passkey,
    /// The wallet of a blockchain.
    Web3,
}

impl AuthenticationMethod {
    const ALL: [Self; 15] = [
        Self::Password,
        Self::Otp,
        Self::OAuth,
        Self::MagicLink,
        Self::Recovery,
        Self::Invite,
        Self::EmailSignup,
        Self::EmailChange,
        Self::Anonymous,
        Self::Totp,
        Self::MfaPhone,
        Self::MfaWebauthn,
        Self::MfaRecoveryCode,
        Self::Passkey,
        Self::Web3,
    ];

    /// The names of the methods that raise a session to `aal2`.
    pub const SECOND_FACTORS: [&str; 4] =
        [Self::Totp.as_str(), Self::MfaPhone.as_str(), Self::MfaWebauthn.as_str(), Self::MfaRecoveryCode.as_str()];

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
            Self::Totp => "totp",
            Self::MfaPhone => "mfa/phone",
            Self::MfaWebauthn => "mfa/webauthn",
            Self::MfaRecoveryCode => "mfa/recovery_code",
            Self::Passkey => "passkey",
            Self::Web3 => "web3",
        }
    }

    /// Returns the method with that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }
}

/// Signs `user` in: makes a session, its first refresh token and an access token. Part of the
/// caller's transaction.
///
/// The identities and factors of `user` must be loaded: they are in the response. The caller has
/// checked that the person may sign in.
///
/// # Errors
/// Those of the database.
pub(crate) async fn issue(
    op: AccountOperation<'_>,
    user: &User,
    method: AuthenticationMethod,
) -> Result<TokenResponse, AuthError> {
    let AccountOperation { auth, request, tx } = op;
    let settings = auth.settings();
    let now = request.now;
    let id = SessionId(request.hooks.uuid("session"));
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
        auth.guesses().remember_network(tx, user, request),
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
    let mut response = respond(op, &session, user, refresh_token, method.as_str(), now).await?;
    if key.is_some() {
        response.set_header("sb-auth-refresh-token-counter", "0");
    }
    Ok(response)
}

/// Returns the response for a session and a refresh token of it, before the transaction is
/// committed: a hook may reject it. `authentication_method` is what the hook sees.
///
/// # Errors
/// Those of the hook.
pub(crate) async fn respond(
    op: AccountOperation<'_>,
    session: &Session,
    user: User,
    refresh_token: String,
    authentication_method: &str,
    now: OffsetDateTime,
) -> Result<TokenResponse, AuthError> {
    let AccessToken { text, expires_at } = access_token(op, session, &user, authentication_method, now).await?;
    let mut response = TokenResponse {
        access_token: text,
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

/// Returns the user agent of a request, if it has one.
pub(crate) fn user_agent(request: &RequestInfo) -> Option<&str> {
    Some(request.user_agent.as_str()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_round_trip() {
        for method in AuthenticationMethod::ALL {
            assert_eq!(AuthenticationMethod::parse(method.as_str()), Some(method));
        }
        assert_eq!(AuthenticationMethod::parse("telepathy"), None);
    }
}
