//! Addresses that an account names and has not proved.
//!
//! An account may claim an address: by a sign-up that was not confirmed, or by an identity whose
//! provider does not vouch for it. A claim gives no right to the address. It keeps no other account
//! from it, no token carries it, and the person who proves the address gets nothing that the
//! claimant put beside it.

use time::OffsetDateTime;

use crate::Auth;
use crate::error::AuthError;
use crate::model::ids::{EmailAddress, UserId};
use crate::model::{Identity, User};
use crate::one_time::message;
use crate::operation::AccountOperation;
use crate::sql::{Tx, identities, mfa_factors, recovery_codes, sessions, users, webauthn_credentials};

/// Returns true if an account other than `except` has proved `email`. Nothing is written.
pub(crate) async fn is_proved_elsewhere(
    auth: &Auth,
    tx: &Tx,
    email: &str,
    aud: &str,
    except: Option<UserId>,
) -> Result<bool, AuthError> {
    let others = auth.providers_of_other_domains();
    Ok(users::is_address_proved(tx, email, aud, except, &others).await?)
}

/// Takes `email` from an account of the default linking domain that merely claims it, so that the
/// account that has proved the address can have it.
pub(crate) async fn withdraw_from_others(
    tx: &Tx,
    email: &str,
    aud: &str,
    except: Option<UserId>,
    now: OffsetDateTime,
) -> Result<(), AuthError> {
    let claimant = users::lock_by_email(tx, &EmailAddress::from_stored(email), aud).await?;
    match claimant.filter(|claimant| !claimant.is_email_confirmed() && Some(claimant.id) != except) {
        Some(claimant) => withdraw(tx, &claimant, now).await,
        None => Ok(()),
    }
}

/// Takes the unproved address from an account, with the identity that stands for it and every
/// message that is on its way. The account keeps its number, its data and its other identities.
pub(crate) async fn withdraw(tx: &Tx, claimant: &User, now: OffsetDateTime) -> Result<(), AuthError> {
    for identity in identities::of_user(tx, claimant.id).await? {
        if identity.provider == "email" {
            identities::delete(tx, identity.id, claimant.id).await?;
        }
    }
    users::promote_email(tx, claimant.id, "", false, now).await?;
    Ok(users::refresh_providers(tx, claimant.id, now).await?)
}

/// Stores the address of a provider that does not vouch for it as a pending change of `user`, who
/// has no address, and sends the email whose link proves it.
///
/// # Errors
/// 429 when it is too soon, 400 when the address may not get email.
pub(crate) async fn await_proof(op: AccountOperation<'_>, user: &User, email: &str) -> Result<(), AuthError> {
    message::send_claim_confirmation(op, user, &EmailAddress::from_stored(email)).await
}

/// Returns true if `user`, who has no address, claims the pending one by the identity of a
/// provider.
pub(crate) async fn is_claimed_by_identity(tx: &Tx, user: &User) -> Result<bool, AuthError> {
    if !user.email.is_empty() {
        return Ok(false);
    }
    let is_claim = |identity: &Identity| {
        identity.email == user.email_change && !matches!(identity.provider.as_str(), "email" | "phone")
    };
    Ok(identities::of_user(tx, user.id).await?.iter().any(is_claim))
}

/// Removes sessions, number, second factors, passkeys and, unless `keep_password`, the password of
/// an account whose address was proved just now: the person who proved it need not be the one who
/// put them there.
pub(crate) async fn clear_access(op: AccountOperation<'_>, user: &User, keep_password: bool) -> Result<(), AuthError> {
    let (tx, now) = (op.tx, op.now());
    remove_sessions_and_factors(tx, user.id).await?;
    if !user.phone.is_empty() {
        identities::delete_phone(tx, user.id).await?;
        users::clear_phone(tx, user.id, now).await?;
    }
    if !keep_password {
        users::set_password(tx, user.id, "", now).await?;
    }
    Ok(())
}

/// Removes everything but passwords and identities that could open the account, or close it to its
/// owner.
pub(crate) async fn remove_sessions_and_factors(tx: &Tx, user: UserId) -> Result<(), AuthError> {
    let (sessions, factors, codes, passkeys) = tokio::join!(biased;
        sessions::delete_all(tx, user),
        mfa_factors::delete_all(tx, user),
        recovery_codes::delete(tx, user),
        webauthn_credentials::delete_all(tx, user),
    );
    sessions?;
    factors?;
    codes?;
    passkeys?;
    Ok(())
}
