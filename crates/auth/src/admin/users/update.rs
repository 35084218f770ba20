//! `PUT /admin/users/{user_id}`

use axum::extract::State;

use super::NamedUser;
use super::attributes::Attributes;
use crate::Auth;
use crate::account::password_change;
use crate::admin::administrator::Administrator;
use crate::admin::ban::Ban;
use crate::admin::record;
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::http::extract::{Json, RequestInfo};
use crate::model::contact::{Contact, ContactKind};
use crate::model::ids::UserId;
use crate::model::metadata;
use crate::model::{JsonObject, User};
use crate::one_time::token::TokenKind;
use crate::operation::AccountOperation;
use crate::protection::audit::Action;
use crate::sql::{Tx, one_time_tokens, sessions, users};

/// The changes of an account, with checked values.
#[derive(Default)]
pub(crate) struct AccountChanges {
    pub(crate) role: Option<String>,
    /// The new contacts.
    pub(crate) contacts: Vec<Contact>,
    /// The stored form of the new password.
    pub(crate) password: Option<String>,
    pub(crate) confirms_email: bool,
    pub(crate) confirms_phone: bool,
    pub(crate) user_metadata: Option<JsonObject>,
    pub(crate) app_metadata: Option<JsonObject>,
    pub(crate) ban: Option<Ban>,
}

/// `PUT /admin/users/{user_id}`
pub(crate) async fn put(
    State(auth): State<Auth>,
    administrator: Administrator,
    request: RequestInfo,
    NamedUser(user): NamedUser,
    Json(body): Json<Attributes>,
) -> Result<axum::Json<User>, AuthError> {
    let changes = check(&auth, user.id, body).await?;
    let actor = administrator.actor(&request.aud, request.now);
    let tx = Tx::begin(auth.database()).await?;
    let user = apply(AccountOperation::new(&auth, &request, &tx), &actor, user.id, changes).await?;
    tx.commit().await?;
    Ok(axum::Json(user))
}

async fn check(auth: &Auth, id: UserId, body: Attributes) -> Result<AccountChanges, AuthError> {
    let (email, phone, ban) = (body.email()?, body.phone()?, body.ban()?);
    let role = if body.role.is_empty() { None } else { Some(body.role(auth)?.to_owned()) };
    body.check_sizes()?;
    let password = match &body.password {
        Some(password) => {
            auth.passwords().check_strength(password).await?;
            let hash = auth.passwords().hash(password).await?;
            Some(auth.columns().encrypt(id.0, &hash))
        }
        None => None,
    };
    Ok(AccountChanges {
        role,
        contacts: [email.map(Contact::Email), phone.map(Contact::Phone)].into_iter().flatten().collect(),
        password,
        confirms_email: body.email_confirm,
        confirms_phone: body.phone_confirm,
        user_metadata: body.user_metadata,
        app_metadata: body.app_metadata,
        ban,
    })
}

/// Changes an account without the confirmation of its owner, and returns it.
///
/// # Errors
/// 404 when the account is gone; 500 for an error of the database, which includes a contact of
/// another account.
pub(crate) async fn apply(
    op: AccountOperation<'_>,
    actor: &User,
    id: UserId,
    changes: AccountChanges,
) -> Result<User, AuthError> {
    const FAILED: ContractError = ContractError::AdministratorUpdateFailed;
    let user = users::lock_complete(op.tx, id).await?.ok_or(ContractError::UserUnknown)?;
    change(op, &user, changes).await.context(FAILED)?;
    let (audit, updated) = tokio::join!(biased;
        record(op, actor, Action::UserModified, &user),
        users::complete(op.tx, id),
    );
    audit.context(FAILED)?;
    updated.context(FAILED)?.ok_or_else(|| AuthError::internal(anyhow::anyhow!("a trigger removed the user")))
}

async fn change(op: AccountOperation<'_>, user: &User, changes: AccountChanges) -> Result<(), AuthError> {
    let (tx, now, id) = (op.tx, op.now(), user.id);
    if let Some(role) = &changes.role {
        users::set_role(tx, id, role, now).await?;
    }
    if let Some(stored) = &changes.password {
        set_password(op, user, stored).await?;
    }
    for contact in &changes.contacts {
        let is_verified = match contact.kind() {
            ContactKind::Email => changes.confirms_email,
            ContactKind::Phone => changes.confirms_phone,
        };
        set_contact(op, user, contact, is_verified).await?;
    }
    let has = |kind: ContactKind| {
        !kind.stored(user).is_empty() || changes.contacts.iter().any(|contact| contact.kind() == kind)
    };
    if changes.confirms_email && has(ContactKind::Email) {
        users::confirm_email(tx, id, now).await?;
        one_time_tokens::delete_kind(tx, id, TokenKind::Confirmation.as_str()).await?;
    }
    if changes.confirms_phone && has(ContactKind::Phone) {
        users::confirm_phone(tx, id, now).await?;
        one_time_tokens::delete_kind(tx, id, TokenKind::Confirmation.as_str()).await?;
    }
    if let Some(changes) = changes.user_metadata {
        // The confirmation of the address may have changed it just now
        let current = users::by_id(tx, id).await?.map(|user| user.user_metadata).unwrap_or_default();
        let merged = metadata::merge(&current, changes);
        metadata::check_size(&merged)?;
        users::set_user_metadata(tx, id, &merged, now).await?;
    }
    if let Some(changes) = changes.app_metadata {
        let current = users::by_id(tx, id).await?.map(|user| user.app_metadata).unwrap_or_default();
        let merged = metadata::merge(&current, changes);
        metadata::check_size(&merged)?;
        users::set_app_metadata(tx, id, &merged, now).await?;
    }
    if let Some(ban) = changes.ban {
        users::set_banned_until(tx, id, ban.until(now), now).await?;
    }
    Ok(())
}

/// Stores a password, and ends all sessions and every message that is on its way.
async fn set_password(op: AccountOperation<'_>, user: &User, stored: &str) -> Result<(), AuthError> {
    let (password, tokens, sessions) = tokio::join!(biased;
        users::set_password(op.tx, user.id, stored, op.now()),
        one_time_tokens::delete_all(op.tx, user.id),
        sessions::delete_all(op.tx, user.id),
    );
    password?;
    tokens?;
    sessions?;
    password_change::create_email_identity(op, user).await
}

/// Stores a contact with its identity. Messages to the contact before are invalid then.
async fn set_contact(op: AccountOperation<'_>, user: &User, new: &Contact, is_verified: bool) -> Result<(), AuthError> {
    let kind = new.kind();
    if kind.stored(user) != new.as_str() {
        match new {
            Contact::Email(email) => users::replace_email(op.tx, user.id, email, op.now()).await?,
            Contact::Phone(phone) => users::replace_phone(op.tx, user.id, phone, op.now()).await?,
        }
    }
    let claims = JsonObject::from_iter([
        ("sub".to_owned(), user.id.to_string().into()),
        (kind.provider().to_owned(), new.as_str().into()),
        (format!("{}_verified", kind.provider()), is_verified.into()),
    ]);
    op.upsert_contact_identity(user.id, kind.provider(), &claims).await?;
    Ok(users::refresh_providers(op.tx, user.id, op.now()).await?)
}
