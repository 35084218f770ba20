//! `POST /admin/users`

use axum::extract::State;
use serde_json::{Value, json};
use uuid::Uuid;

use super::attributes::Attributes;
use crate::Auth;
use crate::admin::administrator::Administrator;
use crate::admin::ban::Ban;
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::http::extract::{Json, RequestInfo};
use crate::model::ids::{EmailAddress, PhoneNumber, UserId};
use crate::model::metadata;
use crate::model::{JsonObject, User};
use crate::operation::AccountOperation;
use crate::password::{self, MAX_BYTES};
use crate::protection::audit::Action;
use crate::sql::users::NewUser;
use crate::sql::{Tx, users};

const FAILED: ContractError = ContractError::CreatingUserFailed;

/// An account to create, with checked values.
pub(crate) struct NewAccount {
    pub(crate) id: UserId,
    pub(crate) aud: String,
    pub(crate) role: String,
    pub(crate) email: Option<EmailAddress>,
    pub(crate) phone: Option<PhoneNumber>,
    /// The hash of the password; may be of another server. Empty: there is none.
    pub(crate) hash: String,
    pub(crate) confirms_email: bool,
    pub(crate) confirms_phone: bool,
    pub(crate) user_metadata: JsonObject,
    /// Merged over the providers.
    pub(crate) app_metadata: JsonObject,
    pub(crate) ban: Option<Ban>,
}

/// `POST /admin/users`
pub(crate) async fn create(
    State(auth): State<Auth>,
    administrator: Administrator,
    request: RequestInfo,
    Json(body): Json<Attributes>,
) -> Result<axum::Json<User>, AuthError> {
    let account = check(&auth, &request, body).await?;
    let actor = administrator.actor(&request.aud, request.now);
    let tx = Tx::begin(auth.database()).await?;
    let user = insert(AccountOperation::new(&auth, &request, &tx), &actor, &account).await?;
    tx.commit().await?;
    Ok(axum::Json(user))
}

/// Checks the attributes in the order of the contract, and computes the hash.
async fn check(auth: &Auth, request: &RequestInfo, body: Attributes) -> Result<NewAccount, AuthError> {
    if body.email.is_empty() && body.phone.is_empty() {
        return Err(ContractError::CreationNeedsContact.into());
    }
    let aud = if body.aud.is_empty() { &request.aud } else { &body.aud };
    if aud.len() > 255 {
        return Err(ContractError::AudienceTooLong.into());
    }
    let email = body.email()?;
    if let Some(email) = &email {
        check_email_free(auth, email, aud).await?;
    }
    let phone = body.phone()?;
    if let Some(phone) = &phone {
        let client = auth.database().client().await?;
        if users::by_phone(&client, phone, aud).await?.is_some() {
            return Err(ContractError::PhoneTakenByAnother.into());
        }
    }
    if body.password.is_some() && !body.password_hash.is_empty() {
        return Err(ContractError::PasswordAndHash.into());
    }
    let password = body.password.as_deref().filter(|password| !password.is_empty());
    if password.is_some_and(|password| password.len() > MAX_BYTES) {
        return Err(ContractError::PasswordExceedsBcrypt.into());
    }
    if !body.password_hash.is_empty() && !password::is_known_form(&body.password_hash) {
        return Err(ContractError::CreatingUserRejected.into());
    }
    let id = match body.id.as_str() {
        "" => UserId::random(),
        id => match Uuid::try_parse(id) {
            Err(_) => return Err(ContractError::NewIdNotUuid.into()),
            Ok(id) if id.is_nil() => return Err(ContractError::NewIdNil.into()),
            Ok(id) => UserId(id),
        },
    };
    let ban = body.ban()?;
    let role = body.role(auth)?.to_owned();
    body.check_sizes()?;
    let aud = aud.clone();
    // Before the transaction: it holds a connection
    let hash = match password {
        _ if !body.password_hash.is_empty() => body.password_hash,
        Some(password) => auth.passwords().hash(password).await?,
        None => String::new(),
    };
    Ok(NewAccount {
        id,
        aud,
        role,
        email,
        phone,
        hash,
        confirms_email: body.email_confirm,
        confirms_phone: body.phone_confirm,
        user_metadata: body.user_metadata.unwrap_or_default(),
        app_metadata: body.app_metadata.unwrap_or_default(),
        ban,
    })
}

/// Checks that no account has an address, as its own or by an identity.
pub(crate) async fn check_email_free(auth: &Auth, email: &EmailAddress, aud: &str) -> Result<(), AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    let owner = users::lock_owner_of_email(&tx, email, aud, &auth.providers_of_other_domains(), None).await?;
    tx.rollback().await;
    if owner.is_some() { Err(ContractError::EmailTaken.into()) } else { Ok(()) }
}

/// Inserts an account with its identities. No message is sent.
///
/// # Errors
/// 422 `email_exists` and `phone_exists` when another request created the account meanwhile.
pub(crate) async fn insert(op: AccountOperation<'_>, actor: &User, account: &NewAccount) -> Result<User, AuthError> {
    let (tx, now, id) = (op.tx, op.now(), account.id);
    let email = account.email.as_ref().map_or("", |email| email.as_str());
    let phone = account.phone.as_ref().map_or("", |phone| phone.as_str());
    let contacts: Vec<(&str, &str)> =
        [("email", email), ("phone", phone)].into_iter().filter(|(_, contact)| !contact.is_empty()).collect();
    let providers: Vec<&str> = contacts.iter().map(|(provider, _)| *provider).collect();
    let app_metadata = JsonObject::from_iter([
        ("provider".to_owned(), providers.first().copied().into()),
        ("providers".to_owned(), json!(providers)),
    ]);
    let new = NewUser {
        id,
        aud: &account.aud,
        email,
        phone,
        encrypted_password: &op.auth.columns().encrypt(id.0, &account.hash),
        app_metadata: app_metadata.clone(),
        user_metadata: account.user_metadata.clone(),
        is_sso_user: false,
        is_anonymous: false,
    };
    users::insert(tx, &new, now)
        .await
        .on_constraint("users_email_partial_key", ContractError::EmailTaken)
        .on_constraint("users_phone_key", ContractError::PhoneTakenByAnother)
        .context(FAILED)?;
    for (provider, contact) in &contacts {
        let claims = contact_claims(id, provider, contact);
        op.insert_identity(id, provider, &id.to_string(), &claims).await.context(FAILED)?;
    }
    let named = User { id, email: email.to_owned(), phone: phone.to_owned(), ..User::without_facts(&account.aud, now) };
    let mut traits = crate::admin::account_traits(&named);
    traits.insert("provider".into(), providers.first().copied().into());
    op.record(actor, Action::UserSignedUp, traits).await.context(FAILED)?;
    users::set_role(tx, id, &account.role, now).await.context(FAILED)?;
    if !account.app_metadata.is_empty() {
        let merged = metadata::merge(&app_metadata, account.app_metadata.clone());
        users::set_app_metadata(tx, id, &merged, now).await.context(FAILED)?;
    }
    if account.confirms_email && !email.is_empty() {
        users::confirm_email(tx, id, now).await.context(FAILED)?;
    }
    if account.confirms_phone && !phone.is_empty() {
        users::confirm_phone(tx, id, now).await.context(FAILED)?;
    }
    if let Some(ban) = account.ban {
        users::set_banned_until(tx, id, ban.until(now), now).await.context(FAILED)?;
    }
    let user = users::complete(tx, id).await.context(FAILED)?;
    user.ok_or_else(|| AuthError::internal(anyhow::anyhow!("a trigger removed the new user")))
}

/// Returns the claims of the identity of a contact that an administrator gave.
fn contact_claims(id: UserId, provider: &str, contact: &str) -> JsonObject {
    JsonObject::from_iter([
        ("sub".to_owned(), id.to_string().into()),
        (provider.to_owned(), contact.into()),
        ("email_verified".to_owned(), Value::Bool(false)),
        ("phone_verified".to_owned(), Value::Bool(false)),
    ])
}
