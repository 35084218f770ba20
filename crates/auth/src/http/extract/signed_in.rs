//! The caller: a verified bearer token, and the signed-in user.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use portico_tokens::{Caller, Claims, TokenError, bearer};

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::model::User;
use crate::model::ids::{SessionId, UserId};
use crate::sql::users::{self, SessionSummary};

/// The claims of a verified bearer token of any subject.
#[derive(Debug, Clone)]
pub struct Bearer(pub Arc<Claims>);

impl FromRequestParts<Auth> for Bearer {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        if let Some(caller) = parts.extensions.get::<Caller>() {
            if let Some(error) = &caller.rejected {
                return Err(bad_token(error));
            }
            if let Some(claims) = &caller.token {
                return Ok(Self(claims.clone()));
            }
        }
        let token = bearer_token(&parts.headers).ok_or(ContractError::BearerMissing)?;
        auth.keys().verify(token, auth.now()).map(Self).map_err(|error| bad_token(&error))
    }
}

/// Returns the token of an `Authorization: Bearer` header.
pub fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()))
}

fn bad_token(error: &TokenError) -> AuthError {
    ContractError::InvalidJwt { detail: error.to_string() }.into()
}

/// The signed-in user, whose token, account and session were checked.
#[derive(Debug, Clone)]
pub struct SignedIn {
    /// With identities and factors.
    pub user: User,
    /// `None`: the token belongs to no session.
    pub session: Option<SessionSummary>,
    /// The claims of the token.
    pub claims: Arc<Claims>,
}

impl SignedIn {
    /// Checks a verified token against the database, in one round trip.
    ///
    /// # Errors
    /// 403 for a token, account or session that is not valid, in this order.
    pub async fn check(auth: &Auth, claims: Arc<Claims>) -> Result<Self, AuthError> {
        let subject = claims.subject().filter(|sub| !sub.is_empty()).ok_or(ContractError::SubjectMissing)?;
        let user_id = UserId::parse(subject).ok_or(ContractError::SubjectNotUuid)?;
        let session_claim = claims.session_id().filter(|id| !id.is_empty());
        let session_id = session_claim.map(SessionId::parse);
        let client = auth.database().client().await?;
        let lookup = session_id.flatten().filter(|id| !id.0.is_nil());
        let found = users::signed_in(&client, user_id, lookup).await?;
        drop(client);
        let Some((user, session)) = found else {
            return Err(ContractError::SubjectGone.into());
        };
        if session_id == Some(None) {
            return Err(ContractError::SessionClaimNotUuid.into());
        }
        if lookup.is_some() && session.is_none() {
            return Err(ContractError::SessionOfTokenGone.into());
        }
        if user.is_banned(auth.now()) {
            return Err(ContractError::Banned.into());
        }
        Ok(Self { user, session, claims })
    }

    /// Returns the session of the token.
    pub fn session_id(&self) -> Option<SessionId> {
        self.session.as_ref().map(|session| session.id)
    }

    /// Returns the assurance level that the session had when the request arrived.
    pub fn aal(&self) -> Option<&str> {
        self.session.as_ref().map(|session| session.aal.as_str())
    }
}

impl FromRequestParts<Auth> for SignedIn {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        let Bearer(claims) = Bearer::from_request_parts(parts, auth).await?;
        Self::check(auth, claims).await
    }
}
