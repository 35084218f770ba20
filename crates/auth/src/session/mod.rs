//! Sessions: their issue, the claims of their access tokens, and their life.
//!
//! Every sign-in makes a new session with its own family of refresh tokens. An access token is
//! valid until it expires, whatever happens to its session; this service itself looks the session
//! up for each request.

mod access_token;
pub(crate) mod assurance;
mod authentication_method;
pub(crate) mod clean_up;
pub(crate) mod elevation;
pub(crate) mod eviction;
pub(crate) mod grants;
pub(crate) mod lifetime;
pub(crate) mod logout;
pub(crate) mod refresh;
pub(crate) mod refresh_queue;
pub mod refresh_token;
mod response;

pub use authentication_method::AuthenticationMethod;
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
