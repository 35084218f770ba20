//! The caller of the routes of administrators.

use axum::extract::FromRequestParts;
use http::request::Parts;
use portico_tokens::{Caller, Claims};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::{Bearer, RequestInfo};
use crate::model::User;
use crate::model::ids::{SessionId, UserId};
use crate::session::lifetime::check_alive;
use crate::sql::{sessions, users};

/// A caller whose token or API key has one of the administrators' roles.
///
/// A handler that takes this runs for no other caller. The token needs no subject; where it names a
/// session, that session is valid and its account is not banned.
#[derive(Debug, Clone)]
pub(crate) struct Administrator {
    role: String,
}

impl Administrator {
    /// Returns the actor of audit entries: no account, named by the role.
    pub(crate) fn actor(&self, aud: &str, now: OffsetDateTime) -> User {
        User { id: UserId(Uuid::nil()), email: self.role.clone(), ..User::without_facts(aud, now) }
    }
}

impl FromRequestParts<Auth> for Administrator {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        let caller = parts.extensions.get::<Caller>().cloned().unwrap_or_else(Caller::anonymous);
        let is_listed = |role: &str| auth.settings().jwt.admin_roles.iter().any(|listed| listed == role);
        if caller.rejected.is_none() && caller.token.is_none() && caller.api_key.is_some() {
            let role = caller.role();
            return if is_listed(role) {
                Ok(Self { role: role.to_owned() })
            } else {
                Err(ContractError::AdministratorRequired.into())
            };
        }
        let Bearer(claims) = Bearer::from_request_parts(parts, auth).await?;
        let role = claims.role().unwrap_or_default();
        if !is_listed(role) {
            return Err(ContractError::AdministratorRequired.into());
        }
        let now = RequestInfo::from_request_parts(parts, auth).await?.now;
        check_session(auth, &claims, now).await?;
        Ok(Self { role: role.to_owned() })
    }
}

/// Checks the session that a token names: an account may have an administrator's role.
async fn check_session(auth: &Auth, claims: &Claims, now: OffsetDateTime) -> Result<(), AuthError> {
    let Some(claim) = claims.session_id().filter(|id| !id.is_empty()) else { return Ok(()) };
    let id = SessionId::parse(claim).ok_or(ContractError::SessionClaimNotUuid)?;
    if id.0.is_nil() {
        return Ok(());
    }
    let client = auth.database().client().await?;
    let session = sessions::by_id(&client, id).await?.ok_or(ContractError::SessionOfTokenGone)?;
    let user = users::complete(&client, session.user_id).await?.ok_or(ContractError::SessionOfTokenGone)?;
    drop(client);
    if user.is_banned(now) {
        return Err(ContractError::Banned.into());
    }
    check_alive(&auth.settings().sessions, &session, &user, now)
        .map_err(|_| ContractError::SessionOfAdministratorEnded.into())
}
