//! The confirmation and the change of a contact of an account.

use portico_mail::{MailKind, Variables};

use crate::account::unconfirmed_email;
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::messages::mailer;
use crate::model::contact::{Contact, ContactKind};
use crate::model::ids::EmailAddress;
use crate::model::{JsonObject, User};
use crate::one_time::message::{self, MessageDelivery, MessageOptions};
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, Traits};
use crate::settings::AuthSettings;
use crate::sql::{identities, users};

const FAILED: ContractError = ContractError::UpdatingUserFailed;

/// The settings that both kinds of contact have.
pub(crate) struct ContactSettings {
    /// Accounts may have such a contact.
    pub(crate) is_enabled: bool,
    /// A contact counts as confirmed when it is stored.
    pub(crate) autoconfirm: bool,
}

impl ContactSettings {
    pub(crate) fn of(settings: &AuthSettings, kind: ContactKind) -> Self {
        match kind {
            ContactKind::Email => Self { is_enabled: settings.email.enabled, autoconfirm: settings.email.autoconfirm },
            ContactKind::Phone => Self { is_enabled: settings.sms.enabled, autoconfirm: settings.sms.autoconfirm },
        }
    }
}

/// Locks and returns the account that has a contact. In the default linking domain, an address is
/// also that of the account whose identity a provider vouches for.
pub(crate) async fn lock_owner(op: AccountOperation<'_>, contact: &Contact) -> Result<Option<User>, AuthError> {
    let aud = &op.request.aud;
    Ok(match contact {
        Contact::Email(email) => {
            let others = op.auth.providers_of_other_domains();
            users::lock_owner_of_email(op.tx, email, aud, &others, None).await?
        }
        Contact::Phone(phone) => users::lock_by_phone(op.tx, phone, aud).await?,
    })
}

/// Checks that no other account than `user` has a contact.
///
/// # Errors
/// 422 `email_exists`, `phone_exists`.
pub(crate) async fn check_free(op: AccountOperation<'_>, user: &User, contact: &Contact) -> Result<(), AuthError> {
    match contact {
        Contact::Email(email) => {
            let others = op.auth.providers_of_other_domains();
            match users::lock_owner_of_email(op.tx, email, &user.aud, &others, Some(user.id)).await? {
                Some(_) => Err(ContractError::EmailTaken.into()),
                None => Ok(()),
            }
        }
        Contact::Phone(phone) => match users::by_phone(op.tx, phone, &user.aud).await? {
            Some(owner) if owner.id != user.id => Err(ContractError::PhoneTaken.into()),
            _ => Ok(()),
        },
    }
}

/// Marks the contact of an account as confirmed, and the identities that carry it.
pub(crate) async fn confirm(op: AccountOperation<'_>, user: &User, kind: ContactKind) -> Result<(), AuthError> {
    match kind {
        ContactKind::Email => {
            let (confirmed, verified) = tokio::join!(biased;
                users::confirm_email(op.tx, user.id, op.now()),
                identities::verify_email(op.tx, user.id, &user.email, op.now()),
            );
            confirmed.context(FAILED)?;
            Ok(verified?)
        }
        ContactKind::Phone => users::confirm_phone(op.tx, user.id, op.now()).await.context(FAILED),
    }
}

/// Begins a change to a new contact: sends its confirmation, or applies the change where the
/// contact needs none.
pub(crate) async fn begin_change(
    op: AccountOperation<'_>,
    user: &User,
    new: &Contact,
    options: MessageOptions<'_>,
) -> Result<MessageDelivery, AuthError> {
    let autoconfirm = ContactSettings::of(op.auth.settings(), new.kind()).autoconfirm;
    // A confirmed address is defended by its confirmation email. An anonymous account has none.
    let applies = match new {
        Contact::Email(_) => autoconfirm && user.is_anonymous,
        Contact::Phone(_) => autoconfirm,
    };
    if !applies {
        return message::send_change(op, user, new, options).await;
    }
    if let Contact::Email(email) = new {
        take_address(op, user, email).await?;
        op.record(user, Action::UserModified, Traits::new()).await?;
    }
    apply_change(op, user, new).await?;
    users::refresh_providers(op.tx, user.id, op.now()).await.context(FAILED)?;
    Ok(MessageDelivery::Complete)
}

/// Applies the pending change to a contact that was confirmed. [`take_address`] comes before, for
/// an address.
pub(crate) async fn apply_change(op: AccountOperation<'_>, user: &User, new: &Contact) -> Result<(), AuthError> {
    let kind = new.kind();
    let mut data = JsonObject::from_iter([
        ("sub".to_owned(), user.id.to_string().into()),
        (kind.provider().to_owned(), new.as_str().into()),
        (format!("{}_verified", kind.provider()), true.into()),
    ]);
    if kind == ContactKind::Email {
        data.insert("phone_verified".into(), false.into());
    }
    let (applied, identity) = tokio::join!(biased;
        store_changed(op, user, new),
        op.upsert_contact_identity(user.id, kind.provider(), &data),
    );
    applied?;
    identity?;
    notify_of_change(op, user, new).await
}

/// Stores a confirmed new contact.
///
/// # Errors
/// 422 `email_exists`, `phone_exists`.
pub(crate) async fn store_changed(op: AccountOperation<'_>, user: &User, new: &Contact) -> Result<(), AuthError> {
    match new {
        Contact::Email(email) => users::apply_email_change(op.tx, user.id, email, op.now())
            .await
            .on_constraint("users_email_partial_key", ContractError::EmailTaken)
            .context(FAILED),
        Contact::Phone(phone) => users::apply_phone_change(op.tx, user.id, phone, op.now())
            .await
            .on_constraint("users_phone_key", ContractError::PhoneTaken)
            .context(FAILED),
    }
}

/// Notifies the account of a changed contact, at its address before the change.
async fn notify_of_change(op: AccountOperation<'_>, user: &User, new: &Contact) -> Result<(), AuthError> {
    if user.email.is_empty() {
        return Ok(());
    }
    let known = mailer::variables(op.auth, user);
    let (kind, variables) = match new {
        Contact::Email(email) => (
            MailKind::EmailChanged,
            Variables { email: email.to_string(), old_email: Some(user.email.clone()), ..known },
        ),
        Contact::Phone(phone) => (
            MailKind::PhoneChanged,
            Variables { phone: Some(phone.to_string()), old_phone: Some(user.phone.clone()), ..known },
        ),
    };
    message::notify(op, user, kind, &variables).await
}

/// Takes an address that `user` has proved from the accounts that merely claim it.
///
/// # Errors
/// 422 `email_exists` when another account has proved it too.
pub(crate) async fn take_address(op: AccountOperation<'_>, user: &User, new: &EmailAddress) -> Result<(), AuthError> {
    if user.is_sso_user {
        return Ok(());
    }
    unconfirmed_email::withdraw_from_others(op.tx, new.as_str(), &user.aud, Some(user.id), op.now()).await?;
    check_free(op, user, &Contact::Email(new.clone())).await
}
