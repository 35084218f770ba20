//! The assurance level that a change of an account's sign-in methods needs.
//!
//! A person who has a second factor must have proved it in the session of the request. A request is
//! checked when it arrives, and again in the transaction that makes the change: meanwhile a factor
//! may have been verified elsewhere, or the session may have ended.

use crate::error::{AuthError, ContractError};
use crate::model::User;
use crate::model::ids::{SessionId, UserId};
use crate::sql::{Tx, sessions};

/// Checks that `user` has no second factor, or has proved it in a session of this level. `None`:
/// the token belongs to no session.
///
/// # Errors
/// 401 `insufficient_aal`.
pub(crate) fn check(user: &User, aal: Option<&str>) -> Result<(), AuthError> {
    match user.has_verified_factor() && aal != Some("aal2") {
        true => Err(ContractError::InsufficientAssurance.into()),
        false => Ok(()),
    }
}

/// Locks the session of a request until the transaction ends, and returns its level. The user must
/// be locked already: all transactions lock in this order.
///
/// # Errors
/// 403 `session_not_found` when the session has ended.
pub(crate) async fn lock(tx: &Tx, user: UserId, session: Option<SessionId>) -> Result<Option<String>, AuthError> {
    let Some(session) = session else { return Ok(None) };
    let aal = sessions::lock_aal(tx, session, user).await?;
    Ok(Some(aal.ok_or(ContractError::SessionOfTokenGone)?))
}

/// Locks the session of a request, and repeats [`check`] for `user`, who is locked.
///
/// # Errors
/// As [`lock`] and [`check`].
pub(crate) async fn lock_and_check(tx: &Tx, user: &User, session: Option<SessionId>) -> Result<(), AuthError> {
    let aal = lock(tx, user.id, session).await?;
    check(user, aal.as_deref())
}
