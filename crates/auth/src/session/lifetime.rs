//! The policies that end sessions.

use time::OffsetDateTime;

use crate::error::{AuthError, ContractError};
use crate::model::User;
use crate::settings::SessionSettings;
use crate::sql::Tx;
use crate::sql::sessions::{self, Session};

/// Returns the end of a session whose user has a second factor and did not use it.
pub(super) fn end_of_low_aal(settings: &SessionSettings, session: &Session, user: &User) -> Option<OffsetDateTime> {
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

/// Checks that no other valid session of the same class was used later: then only that one
/// continues.
///
/// # Errors
/// 400 `session_expired`, or those of the database.
pub(super) async fn check_newest(
    settings: &SessionSettings,
    tx: &Tx,
    session: &Session,
    user: &User,
    now: OffsetDateTime,
) -> Result<(), AuthError> {
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
