//! The elevation of a session to `aal2` by a second factor.

use crate::error::{AuthError, ContractError};
use crate::model::User;
use crate::model::ids::{FactorId, SessionId};
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, Traits};
use crate::session::refresh::session_key;
use crate::session::refresh_token::RefreshToken;
use crate::session::{self, AuthenticationMethod, TokenResponse};
use crate::sql::sessions::{self, Session};
use crate::sql::{refresh_tokens, users};

/// A second factor that was proved in a session.
pub(crate) struct ProvedFactor {
    pub(crate) method: AuthenticationMethod,
    /// `None` for a recovery code.
    pub(crate) factor: Option<FactorId>,
}

/// Raises a locked session to `aal2`, replaces its refresh token and ends the other sessions of
/// the user that are below `aal2`. Returns the response with new tokens and the account as it is
/// now. Part of the caller's transaction, which has locked `user` and the session.
///
/// # Errors
/// Those of the database.
pub(crate) async fn elevate(
    op: AccountOperation<'_>,
    user: &User,
    id: SessionId,
    proved: ProvedFactor,
) -> Result<TokenResponse, AuthError> {
    sessions::raise(op.tx, (id, user.id), proved.method.as_str(), proved.factor, op.now()).await?;
    let (session, user) = tokio::join!(biased; sessions::by_id(op.tx, id), users::complete(op.tx, user.id));
    let session = session?.ok_or(ContractError::SessionOfTokenGone)?;
    let user = user?.ok_or(ContractError::SubjectGone)?;
    if session.hmac_key.is_some() {
        return next_counted(op, &session, user, proved.method).await;
    }
    let next = RefreshToken::new_stored();
    let parent = refresh_tokens::revoke_oldest(op.tx, id, op.now()).await?;
    let (inserted, audited) = tokio::join!(biased;
        refresh_tokens::insert(op.tx, &next, parent.as_deref(), id, user.id, op.now()),
        op.record(&user, Action::TokenRevoked, Traits::new()),
    );
    inserted?;
    audited?;
    session::respond(op, &session, user, next, proved.method.as_str(), op.now()).await
}

/// Moves the counter on by two: the token before is not accepted any more, as it would be after a
/// refresh whose response was lost.
async fn next_counted(
    op: AccountOperation<'_>,
    session: &Session,
    user: User,
    method: AuthenticationMethod,
) -> Result<TokenResponse, AuthError> {
    let unusable = || AuthError::internal(anyhow::anyhow!("the key of the session's refresh tokens is not usable"));
    let (key, _) = session_key(op.auth.columns(), session).ok_or_else(unusable)?;
    let counter = session.counter.checked_add(2).ok_or_else(unusable)?;
    sessions::set_counter(op.tx, session.id, counter).await?;
    let next = key.token(session.id.0, counter);
    let mut response = session::respond(op, session, user, next, method.as_str(), op.now()).await?;
    response.set_header("sb-auth-refresh-token-counter", &counter.to_string());
    Ok(response)
}
