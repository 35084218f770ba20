//! The effects of a code or link that was found to be right.
//!
//! One rule explains the others: the person who read the message owns the contact, and nothing
//! stays that another person put beside an address that was not proved.

use super::lookup::FoundToken;
use super::verify_type::VerifyType;
use crate::account::contact;
use crate::account::unconfirmed_email;
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::model::User;
use crate::model::contact::{Contact, ContactKind};
use crate::model::ids::{EmailAddress, UserId};
use crate::one_time::token::TokenKind;
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, Traits, provider_trait};
use crate::sql::{identities, one_time_tokens, sessions, users};

/// The result of a redeemed token.
pub(super) enum RedeemedToken {
    /// The person may be signed in. The user has identities and factors.
    Verified(Box<User>),
    /// One of two confirmations of a change of address.
    FirstOfTwo,
}

const FAILED: ContractError = ContractError::UpdatingUserFailed;

/// Redeems a token.
pub(super) async fn redeem(
    op: AccountOperation<'_>,
    found: FoundToken,
    verify_type: VerifyType,
) -> Result<RedeemedToken, AuthError> {
    let FoundToken { user, kind } = found;
    match kind {
        // The most frequent case takes one round trip
        TokenKind::Recovery if user.is_email_confirmed() => {
            let (signed_in, redeemed) = tokio::join!(biased; sign_in_again(op, &user), finish(op, user.id));
            signed_in.context(FAILED)?;
            return redeemed;
        }
        TokenKind::Confirmation if verify_type == VerifyType::Sms => confirm_phone(op, &user).await?,
        TokenKind::Confirmation => confirm_email(op, &user, verify_type).await.context(FAILED)?,
        TokenKind::Recovery => recover_unconfirmed(op, &user).await.context(FAILED)?,
        TokenKind::EmailChangeNew | TokenKind::EmailChangeCurrent => {
            if !change_email(op, &user, kind).await? {
                return Ok(RedeemedToken::FirstOfTwo);
            }
        }
        TokenKind::PhoneChange => change_phone(op, &user).await?,
        // No type verifies a nonce
        TokenKind::Reauthentication => return Err(ContractError::CodeExpired.into()),
    }
    finish(op, user.id).await
}

/// Deletes the tokens of the user, and reads the account anew: the end of every verification.
async fn finish(op: AccountOperation<'_>, user: UserId) -> Result<RedeemedToken, AuthError> {
    let (cleared, providers, user) = tokio::join!(biased;
        one_time_tokens::delete_all(op.tx, user),
        users::refresh_providers(op.tx, user, op.now()),
        users::complete(op.tx, user),
    );
    cleared?;
    providers.context(FAILED)?;
    let user = user?.ok_or_else(|| AuthError::internal(anyhow::anyhow!("the user is gone")))?;
    Ok(RedeemedToken::Verified(Box::new(user)))
}

fn main_provider(user: &User) -> &str {
    user.app_metadata.get("provider").and_then(|provider| provider.as_str()).unwrap_or("email")
}

async fn confirm_email(op: AccountOperation<'_>, user: &User, verify_type: VerifyType) -> Result<(), AuthError> {
    if !user.is_email_confirmed() {
        let signed_up_by_mail =
            identities::of_user(op.tx, user.id).await?.iter().any(|identity| identity.provider == "email");
        // The password was chosen by the sign-up that this email belongs to, if there was one
        unconfirmed_email::clear_access(op, user, signed_up_by_mail).await?;
        if signed_up_by_mail {
            // Identities of providers may be another person's, who must not get into an account
            // that the owner of the address confirmed
            identities::delete_unverified(op.tx, user.id, &user.email).await?;
        }
    } else if verify_type == VerifyType::Invite && !user.has_password() {
        sessions::delete_all(op.tx, user.id).await?;
    }
    let (audit, confirmed) = tokio::join!(biased;
        op.record(user, Action::UserSignedUp, provider_trait(main_provider(user))),
        contact::confirm(op, user, ContactKind::Email),
    );
    audit?;
    confirmed
}

async fn sign_in_again(op: AccountOperation<'_>, user: &User) -> Result<(), AuthError> {
    let (cleared, audit) = tokio::join!(biased;
        users::clear_recovery(op.tx, user.id, op.now()),
        op.record(user, Action::Login, provider_trait(main_provider(user))),
    );
    cleared?;
    Ok(audit?)
}

async fn recover_unconfirmed(op: AccountOperation<'_>, user: &User) -> Result<(), AuthError> {
    users::clear_recovery(op.tx, user.id, op.now()).await?;
    // The address was not proved before, so no password, session, number or identity of the account
    // counts
    unconfirmed_email::clear_access(op, user, false).await?;
    let (unverified, audit, confirmed) = tokio::join!(biased;
        identities::delete_unverified(op.tx, user.id, &user.email),
        op.record(user, Action::UserSignedUp, provider_trait(main_provider(user))),
        contact::confirm(op, user, ContactKind::Email),
    );
    unverified?;
    audit?;
    confirmed
}

/// Returns true if the change was applied; else it needs the other confirmation.
async fn change_email(op: AccountOperation<'_>, user: &User, kind: TokenKind) -> Result<bool, AuthError> {
    let settings = &op.auth.settings().email;
    let needs_two = !settings.autoconfirm && settings.secure_change && !user.email.is_empty();
    if needs_two && user.email_change_confirm_status == 0 {
        let hash = kind.stored(user);
        let (half, gone) = tokio::join!(biased;
            users::confirm_email_change_half(op.tx, user.id, hash, op.now()),
            one_time_tokens::delete_hash(op.tx, user.id, hash),
        );
        half.context(FAILED)?;
        gone?;
        return Ok(false);
    }
    let is_claim = unconfirmed_email::is_claimed_by_identity(op.tx, user).await?;
    let new = EmailAddress::parse(&user.email_change)?;
    contact::take_address(op, user, &new).await?;
    if is_claim {
        confirm_claim(op, user, new).await?;
    } else {
        op.record(user, Action::UserModified, Traits::new()).await?;
        contact::apply_change(op, user, &Contact::Email(new)).await?;
    }
    Ok(true)
}

/// Makes the address that an identity claimed the account's own. The identity stays, as the email
/// promised.
async fn confirm_claim(op: AccountOperation<'_>, user: &User, new: EmailAddress) -> Result<(), AuthError> {
    unconfirmed_email::clear_access(op, user, false).await?;
    let address = new.to_string();
    let new = Contact::Email(new);
    let (audit, applied, verified) = tokio::join!(biased;
        op.record(user, Action::UserSignedUp, provider_trait(main_provider(user))),
        contact::store_changed(op, user, &new),
        identities::verify_email(op.tx, user.id, &address, op.now()),
    );
    audit?;
    applied?;
    Ok(verified?)
}

async fn confirm_phone(op: AccountOperation<'_>, user: &User) -> Result<(), AuthError> {
    let (audit, confirmed) = tokio::join!(biased;
        op.record(user, Action::UserSignedUp, provider_trait("phone")),
        contact::confirm(op, user, ContactKind::Phone),
    );
    audit?;
    confirmed
}

async fn change_phone(op: AccountOperation<'_>, user: &User) -> Result<(), AuthError> {
    op.record(user, Action::UserModified, Traits::new()).await?;
    contact::apply_change(op, user, &Contact::parse(ContactKind::Phone, &user.phone_change)?).await
}
