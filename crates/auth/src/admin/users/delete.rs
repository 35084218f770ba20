//! `DELETE /admin/users/{user_id}`
//!
//! A soft deletion keeps the row and its id, so that rows of the application that refer to it stay,
//! and replaces everything that identifies the person.

use axum::Json;
use axum::extract::{Request, State};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::NamedUser;
use crate::Auth;
use crate::admin::administrator::Administrator;
use crate::admin::record;
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::http::extract::{RequestInfo, parse_json, read_body};
use crate::model::User;
use crate::model::ids::UserId;
use crate::operation::AccountOperation;
use crate::protection::audit::Action;
use crate::sql::users::ObfuscatedContacts;
use crate::sql::{Tx, identities, users};

/// The width of the column `phone`.
const PHONE_CHARACTERS: usize = 15;

/// The body of the request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Deletion {
    should_soft_delete: bool,
}

/// `DELETE /admin/users/{user_id}`
pub(crate) async fn delete(
    State(auth): State<Auth>,
    administrator: Administrator,
    info: RequestInfo,
    NamedUser(user): NamedUser,
    request: Request,
) -> Result<Json<Value>, AuthError> {
    let body = read_body(request).await?;
    let deletion: Deletion = if body.is_empty() { Deletion::default() } else { parse_json(&body)? };
    let actor = administrator.actor(&info.aud, info.now);
    let tx = Tx::begin(auth.database()).await?;
    apply(AccountOperation::new(&auth, &info, &tx), &actor, user.id, deletion.should_soft_delete).await?;
    tx.commit().await?;
    auth.announce_deletion(user.id);
    Ok(Json(json!({})))
}

/// Deletes an account.
///
/// # Errors
/// 404 when it is gone; 500 when a row of the application keeps it.
pub(crate) async fn apply(op: AccountOperation<'_>, actor: &User, id: UserId, softly: bool) -> Result<(), AuthError> {
    const FAILED: ContractError = ContractError::DeletingUserFailed;
    let user = users::lock_by_id(op.tx, id).await?.ok_or(ContractError::UserUnknown)?;
    record(op, actor, Action::UserDeleted, &user).await.context(FAILED)?;
    if !softly {
        return users::delete(op.tx, id).await.context(FAILED);
    }
    // A second soft deletion would replace the replacements
    if user.deleted_at.is_none() {
        soft_delete(op, &user).await.context(FAILED)?;
    }
    Ok(())
}

async fn soft_delete(op: AccountOperation<'_>, user: &User) -> Result<(), AuthError> {
    let hidden = |text: &str| obfuscate(user.id, text);
    let hidden_phone = |text: &str| hidden(text).chars().take(PHONE_CHARACTERS).collect::<String>();
    let obfuscated = ObfuscatedContacts {
        email: hidden(&user.email),
        phone: hidden_phone(&user.phone),
        email_change: hidden(&user.email_change),
        phone_change: hidden_phone(&user.phone_change),
    };
    users::soft_delete(op.tx, user.id, &obfuscated, op.now()).await?;
    for identity in identities::of_user(op.tx, user.id).await? {
        let provider_id = hidden(&format!("{}:{}", identity.provider, identity.provider_id));
        identities::obfuscate(op.tx, identity.id, &provider_id, op.now()).await?;
    }
    Ok(())
}

/// Returns the replacement of a value of a deleted account.
fn obfuscate(id: UserId, text: &str) -> String {
    URL_SAFE_NO_PAD.encode(portico_base::hash::sha256(format!("{id}{text}").as_bytes()))
}
