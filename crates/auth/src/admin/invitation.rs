//! `POST /invite`: an account for a person who confirms it by an email.

use axum::extract::State;
use serde::Deserialize;
use serde_json::Value;

use super::record;
use crate::Auth;
use crate::account::unconfirmed_email;
use crate::admin::administrator::Administrator;
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::hooks;
use crate::http::extract::{Json, RequestInfo};
use crate::model::ids::{EmailAddress, UserId};
use crate::model::metadata;
use crate::model::{JsonObject, User};
use crate::one_time::message;
use crate::operation::AccountOperation;
use crate::protection::audit::Action;
use crate::sql::users::NewUser;
use crate::sql::{Tx, users};

/// The body of `POST /invite`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Invitation {
    email: String,
    data: Option<JsonObject>,
}

/// `POST /invite`
pub(crate) async fn invite(
    State(auth): State<Auth>,
    administrator: Administrator,
    request: RequestInfo,
    Json(body): Json<Invitation>,
) -> Result<axum::Json<User>, AuthError> {
    let email = EmailAddress::parse(&body.email)?;
    body.data.as_ref().map_or(Ok(()), metadata::check_size)?;
    auth.recipients().check_domain(&email).await?;
    let actor = administrator.actor(&request.aud, request.now);
    let invited = hooks::complete(auth.hooks(), &request, || async {
        let tx = Tx::begin(auth.database()).await?;
        let op = AccountOperation::new(&auth, &request, &tx);
        let user = admit(op, &email, body.data.clone()).await?;
        record(op, &actor, Action::UserInvited, &user).await?;
        message::send_invitation(op, &user).await?;
        let user = users::complete(&tx, user.id).await?.ok_or(ContractError::UserUnknown)?;
        tx.commit().await?;
        Ok(user)
    });
    Ok(axum::Json(invited.await?))
}

/// Returns the account of an invited address: a new one, or one whose address was not confirmed.
///
/// The person who follows the link becomes its owner. So nothing stays that another person put
/// there who only claimed the address; an earlier invitation is continued.
///
/// # Errors
/// 422 `email_exists` when the address is confirmed.
pub(crate) async fn admit(
    op: AccountOperation<'_>,
    email: &EmailAddress,
    data: Option<JsonObject>,
) -> Result<User, AuthError> {
    let existing = users::lock_by_email(op.tx, email, &op.request.aud).await?;
    let id = match existing {
        Some(user) if user.is_email_confirmed() => return Err(ContractError::EmailTaken.into()),
        Some(user) if user.is_phone_confirmed() => {
            // The account stays that of the number
            unconfirmed_email::withdraw(op.tx, &user, op.now()).await?;
            insert(op, email, data.unwrap_or_default(), "").await?
        }
        Some(user) => {
            let is_invited = user.invited_at.is_some() && !user.has_password();
            let kept = if is_invited { user.user_metadata } else { JsonObject::new() };
            users::start_over(op.tx, user.id, &data.unwrap_or(kept), op.now()).await?;
            user.id
        }
        None => insert(op, email, data.unwrap_or_default(), "").await?,
    };
    let user = users::complete(op.tx, id).await?;
    user.ok_or_else(|| AuthError::internal(anyhow::anyhow!("a trigger removed the new user")))
}

/// Inserts an account with an address that is not confirmed. `hash` is that of its password, or
/// empty.
///
/// # Errors
/// 422 `email_exists` when another request created the account meanwhile.
pub(crate) async fn insert(
    op: AccountOperation<'_>,
    email: &EmailAddress,
    data: JsonObject,
    hash: &str,
) -> Result<UserId, AuthError> {
    const FAILED: ContractError = ContractError::SavingUserFailed;
    let (tx, now, id) = (op.tx, op.now(), UserId(op.request.hooks.uuid("user")));
    let providers = JsonObject::from_iter([
        ("provider".to_owned(), "email".into()),
        ("providers".to_owned(), Value::from(vec!["email"])),
    ]);
    let new = NewUser {
        id,
        aud: &op.request.aud,
        email: email.as_str(),
        phone: "",
        encrypted_password: &op.auth.columns().encrypt(id.0, hash),
        app_metadata: providers,
        user_metadata: data,
        is_sso_user: false,
        is_anonymous: false,
    };
    Box::pin(hooks::before_user_created(op, &new)).await?;
    users::insert(tx, &new, now)
        .await
        .on_constraint("users_email_partial_key", ContractError::EmailTaken)
        .context(FAILED)?;
    users::set_role(tx, id, &op.auth.settings().jwt.default_role, now).await.context(FAILED)?;
    let claims = metadata::of_contact(JsonObject::new(), id, Some(email.as_str()));
    op.insert_identity(id, "email", &id.to_string(), &claims).await.context(FAILED)?;
    Ok(id)
}
