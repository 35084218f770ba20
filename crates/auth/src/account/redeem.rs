//! What a code or link does once it was found to be right (auth-core 6.6, "Effects").
//!
//! The rule behind the rules: whoever read the message owns the address or number, and nothing that somebody else put
//! beside an address that nobody had proved stays.

use portico_mail::{MailKind, Variables};
use time::OffsetDateTime;

use crate::Auth;
use crate::account::phone;
use crate::account::unconfirmed_email;
use crate::account::verify::{Found, VerifyType};
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::http::extract::RequestInfo;
use crate::messages::mailer;
use crate::model::ids::{EmailAddress, UserId};
use crate::model::{JsonObject, User};
use crate::one_time::token::Kind;
use crate::protection::audit::{self, Action, AuditEvent, provider_trait};
use crate::sql::{Tx, identities, one_time_tokens, sessions, users};

/// What a token did.
pub(crate) enum Outcome {
    /// The person may be signed in; identities and factors are loaded.
    Verified(Box<User>),
    /// One of two confirmations of a change of address.
    FirstOfTwo,
}

/// Does what the token is for (auth-core 6.6, "Effects").
pub(crate) async fn redeem(
    auth: &Auth,
    tx: &Tx,
    found: Found,
    verify_type: VerifyType,
    request: &RequestInfo,
) -> Result<Outcome, AuthError> {
    let Found { user, kind } = found;
    match kind {
        // What most people do all the time goes in one round trip
        Kind::Recovery if user.is_email_confirmed() => {
            let (signed_in, outcome) = tokio::join!(biased;
                sign_in_again(auth, tx, &user, request),
                verified(tx, user.id, request),
            );
            signed_in.context(FAILED)?;
            return outcome;
        }
        Kind::Confirmation if verify_type == VerifyType::Sms => confirm_phone(auth, tx, &user, request).await?,
        Kind::Confirmation => confirm_email(auth, tx, &user, verify_type, request).await.context(FAILED)?,
        Kind::Recovery => recover_unconfirmed(auth, tx, &user, request).await.context(FAILED)?,
        Kind::EmailChangeNew | Kind::EmailChangeCurrent => {
            if !change_email(auth, tx, &user, kind, request).await? {
                return Ok(Outcome::FirstOfTwo);
            }
        }
        Kind::PhoneChange => change_phone(auth, tx, &user, request).await?,
        // No type verifies a nonce
        Kind::Reauthentication => return Err(ContractError::CodeExpired.into()),
    }
    verified(tx, user.id, request).await
}

const FAILED: ContractError = ContractError::UpdatingUserFailed;

/// The end of every verification.
async fn verified(tx: &Tx, user: UserId, request: &RequestInfo) -> Result<Outcome, AuthError> {
    let (cleared, providers, user) = tokio::join!(biased;
        one_time_tokens::delete_all(tx, user),
        users::refresh_providers(tx, user, request.now),
        users::complete(tx, user),
    );
    cleared?;
    providers.context(FAILED)?;
    let user = user?.ok_or_else(|| AuthError::internal(anyhow::anyhow!("the user is gone")))?;
    Ok(Outcome::Verified(Box::new(user)))
}

fn main_provider(user: &User) -> &str {
    user.app_metadata.get("provider").and_then(|provider| provider.as_str()).unwrap_or("email")
}

async fn confirm_email(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    verify_type: VerifyType,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    let now = request.now;
    if !user.is_email_confirmed() {
        let signed_up_by_mail =
            identities::of_user(tx, user.id).await?.iter().any(|identity| identity.provider == "email");
        // The password was chosen by the sign-up that this mail belongs to, if there was one
        unconfirmed_email::clear_access(tx, user, signed_up_by_mail, now).await?;
        if signed_up_by_mail {
            // Identities of providers may be another person's, who must not get into an account that
            // the owner of the address confirmed
            identities::delete_unverified(tx, user.id, &user.email).await?;
        }
    } else if verify_type == VerifyType::Invite && !user.has_password() {
        sessions::delete_all(tx, user.id).await?;
    }
    let (audit, confirmed, verified) = tokio::join!(biased;
        audit::record(auth, tx, AuditEvent::new(user, Action::UserSignedUp).with_traits(provider_trait(main_provider(user))), now),
        users::confirm_email(tx, user.id, now),
        identities::verify_email(tx, user.id, &user.email, now),
    );
    audit?;
    confirmed?;
    verified?;
    Ok(())
}

async fn sign_in_again(auth: &Auth, tx: &Tx, user: &User, request: &RequestInfo) -> Result<(), AuthError> {
    let now = request.now;
    let (cleared, audit) = tokio::join!(biased;
        users::clear_recovery(tx, user.id, now),
        audit::record(auth, tx, AuditEvent::new(user, Action::Login).with_traits(provider_trait(main_provider(user))), now),
    );
    cleared?;
    Ok(audit?)
}

async fn recover_unconfirmed(auth: &Auth, tx: &Tx, user: &User, request: &RequestInfo) -> Result<(), AuthError> {
    let now = request.now;
    users::clear_recovery(tx, user.id, now).await?;
    // The address was not proved before, so no password, session, number or identity of the account counts
    unconfirmed_email::clear_access(tx, user, false, now).await?;
    let (unverified, audit, confirmed, verified) = tokio::join!(biased;
        identities::delete_unverified(tx, user.id, &user.email),
        audit::record(auth, tx, AuditEvent::new(user, Action::UserSignedUp).with_traits(provider_trait(main_provider(user))), now),
        users::confirm_email(tx, user.id, now),
        identities::verify_email(tx, user.id, &user.email, now),
    );
    unverified?;
    audit?;
    confirmed?;
    verified?;
    Ok(())
}

/// Whether the change was applied; else it waits for the other confirmation.
async fn change_email(auth: &Auth, tx: &Tx, user: &User, kind: Kind, request: &RequestInfo) -> Result<bool, AuthError> {
    let email = &auth.settings().email;
    let now = request.now;
    let needs_two = !email.autoconfirm && email.secure_change && !user.email.is_empty();
    if needs_two && user.email_change_confirm_status == 0 {
        let hash = kind.stored(user);
        let (half, gone) = tokio::join!(biased;
            users::confirm_email_change_half(tx, user.id, hash, now),
            one_time_tokens::delete_hash(tx, user.id, hash),
        );
        half.context(FAILED)?;
        gone?;
        return Ok(false);
    }
    if unconfirmed_email::is_claimed_by_identity(tx, user).await? {
        confirm_claim(auth, tx, user, request).await?;
    } else {
        apply_email_change(auth, tx, user, request).await?;
    }
    Ok(true)
}

/// Makes sure that no other account has the address that `user` has proved.
///
/// # Errors
/// 422 `email_exists` when another account has proved it too.
async fn take_address(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    new: &EmailAddress,
    now: OffsetDateTime,
) -> Result<(), AuthError> {
    if user.is_sso_user {
        return Ok(());
    }
    unconfirmed_email::withdraw_from_others(tx, new.as_str(), &user.aud, Some(user.id), now).await?;
    let others = auth.providers_of_other_domains();
    match users::lock_owner_of_email(tx, new, &user.aud, &others, Some(user.id)).await? {
        Some(_) => Err(ContractError::EmailTaken.into()),
        None => Ok(()),
    }
}

/// The pending address becomes the user's (auth-core 7.3, "When applied").
pub(crate) async fn apply_email_change(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    let now = request.now;
    let new = EmailAddress::parse(&user.email_change)?;
    take_address(auth, tx, user, &new, now).await?;
    let data = JsonObject::from_iter([
        ("sub".to_owned(), user.id.to_string().into()),
        ("email".to_owned(), new.as_str().into()),
        ("email_verified".to_owned(), true.into()),
        ("phone_verified".to_owned(), false.into()),
    ]);
    let (audit, applied, identity) = tokio::join!(biased;
        audit::record(auth, tx, AuditEvent::new(user, Action::UserModified), now),
        users::apply_email_change(tx, user.id, &new, now),
        identities::upsert_contact(tx, user.id, "email", &data, now),
    );
    audit?;
    applied.on_constraint("users_email_partial_key", ContractError::EmailTaken).context(FAILED)?;
    identity?;
    if !user.email.is_empty() {
        let variables =
            Variables { email: new.to_string(), old_email: Some(user.email.clone()), ..mailer::variables(auth, user) };
        mailer::notify(auth, tx, MailKind::EmailChanged, &user.email, &variables).await?;
    }
    Ok(())
}

/// The address that an identity claimed is the account's from now on. The identity stays, as the
/// mail promised.
async fn confirm_claim(auth: &Auth, tx: &Tx, user: &User, request: &RequestInfo) -> Result<(), AuthError> {
    let now = request.now;
    let new = EmailAddress::parse(&user.email_change)?;
    take_address(auth, tx, user, &new, now).await?;
    unconfirmed_email::clear_access(tx, user, false, now).await?;
    let (audit, applied, verified) = tokio::join!(biased;
        audit::record(auth, tx, AuditEvent::new(user, Action::UserSignedUp).with_traits(provider_trait(main_provider(user))), now),
        users::apply_email_change(tx, user.id, &new, now),
        identities::verify_email(tx, user.id, new.as_str(), now),
    );
    audit?;
    applied.on_constraint("users_email_partial_key", ContractError::EmailTaken).context(FAILED)?;
    Ok(verified?)
}

async fn confirm_phone(auth: &Auth, tx: &Tx, user: &User, request: &RequestInfo) -> Result<(), AuthError> {
    let (audit, confirmed) = tokio::join!(biased;
        audit::record(auth, tx, AuditEvent::new(user, Action::UserSignedUp).with_traits(provider_trait("phone")), request.now),
        users::confirm_phone(tx, user.id, request.now),
    );
    audit?;
    confirmed.context(FAILED)
}

async fn change_phone(auth: &Auth, tx: &Tx, user: &User, request: &RequestInfo) -> Result<(), AuthError> {
    audit::record(auth, tx, AuditEvent::new(user, Action::UserModified), request.now).await?;
    phone::apply_phone_change(auth, tx, user, request).await
}
