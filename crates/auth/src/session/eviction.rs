//! The end of sessions of a user together with what they began.
//!
//! A person who ends other sessions may have seen a stranger in one of them. A change of the
//! address or number that the stranger requested there, and would confirm now, must not survive. A
//! link of an identity ends with its session by itself, see
//! [`crate::oauth::flow::manual_linking::check_session`].

use time::OffsetDateTime;

use crate::error::AuthError;
use crate::model::User;
use crate::model::ids::{SessionId, UserId};
use crate::sql::{Tx, refresh_tokens, sessions, users};

/// Ends all sessions of a user, and the changes of contacts that wait for their confirmation.
///
/// # Errors
/// Those of the database.
pub(crate) async fn end_all(tx: &Tx, user: UserId, now: OffsetDateTime) -> Result<(), AuthError> {
    // The lock comes first, as in `end_others`
    if let Some(locked) = users::lock_by_id(tx, user).await? {
        withdraw_changes(tx, &locked, now).await?;
    }
    Ok(sessions::delete_all(tx, user).await?)
}

/// Ends the sessions of a user besides `keep`, and the changes of contacts that wait for their
/// confirmation. Where there is no other session, changes stay: only `keep` can have begun them.
///
/// # Errors
/// Those of the database.
pub(crate) async fn end_others(tx: &Tx, user: UserId, keep: SessionId, now: OffsetDateTime) -> Result<(), AuthError> {
    // The lock comes first: a request that holds it may be about to begin a change
    let Some(locked) = users::lock_by_id(tx, user).await? else { return Ok(()) };
    match sessions::delete_others(tx, user, keep).await? {
        0 => Ok(()),
        _ => withdraw_changes(tx, &locked, now).await,
    }
}

/// Ends one session of a user that is not the caller's, and the changes of contacts that wait for
/// their confirmation. Returns false if there was no such session.
///
/// # Errors
/// Those of the database.
pub(crate) async fn end_one(tx: &Tx, user: UserId, id: SessionId, now: OffsetDateTime) -> Result<bool, AuthError> {
    let Some(locked) = users::lock_by_id(tx, user).await? else { return Ok(false) };
    if !sessions::delete_of_user(tx, id, user).await? {
        return Ok(false);
    }
    withdraw_changes(tx, &locked, now).await?;
    Ok(true)
}

/// Revokes the refresh tokens of a session of a user, and withdraws the changes of contacts that
/// wait for their confirmation. The session's access token stays valid until it expires.
///
/// # Errors
/// Those of the database.
pub(crate) async fn revoke_tokens(tx: &Tx, user: UserId, id: SessionId, now: OffsetDateTime) -> Result<(), AuthError> {
    if let Some(locked) = users::lock_by_id(tx, user).await? {
        withdraw_changes(tx, &locked, now).await?;
    }
    Ok(refresh_tokens::revoke_family(tx, id, now).await?)
}

/// Withdraws the changes of address and number of `user`, who is locked, that wait for their
/// confirmation. Those of an anonymous account stay: it may have no other way in.
///
/// # Errors
/// Those of the database.
pub(crate) async fn withdraw_changes(tx: &Tx, user: &User, now: OffsetDateTime) -> Result<(), AuthError> {
    match user.is_anonymous {
        true => Ok(()),
        false => Ok(users::withdraw_changes(tx, user.id, now).await?),
    }
}
