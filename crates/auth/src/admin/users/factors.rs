//! `/admin/users/{user_id}/factors`: the second factors of an account.

use axum::extract::{Path, State};
use portico_mail::MailKind;
use serde::Deserialize;

use super::NamedUser;
use crate::Auth;
use crate::admin::administrator::Administrator;
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::factors::enroll::MAX_NAME;
use crate::factors::{FactorType, notify, unenroll};
use crate::hooks;
use crate::http::extract::{Json, RequestInfo};
use crate::model::ids::{FactorId, PhoneNumber};
use crate::model::{Factor, User};
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, Traits};
use crate::sql::{Tx, mfa_factors, users};

/// `GET /admin/users/{user_id}/factors`
pub(crate) async fn list(_: Administrator, NamedUser(user): NamedUser) -> axum::Json<Vec<Factor>> {
    axum::Json(user.factors)
}

/// `DELETE /admin/users/{user_id}/factors/{factor_id}`: removes a factor that its owner has lost.
pub(crate) async fn delete(
    State(auth): State<Auth>,
    _: Administrator,
    request: RequestInfo,
    NamedUser(user): NamedUser,
    Path((_, id)): Path<(String, String)>,
) -> Result<axum::Json<Factor>, AuthError> {
    let id = FactorId::parse(&id).ok_or(ContractError::FactorIdNotUuid)?;
    let deleted = hooks::complete(auth.hooks(), &request, || async {
        let tx = Tx::begin(auth.database()).await?;
        let op = AccountOperation::new(&auth, &request, &tx);
        let user = users::lock_complete(&tx, user.id).await?.ok_or(ContractError::UserUnknown)?;
        let factor = of_user(&user, id)?;
        unenroll::remove(op, &user, &factor).await?;
        op.record_with_ip(&user, Action::FactorDeleted, traits(&user, &factor)).await?;
        if let Some(kind) = FactorType::parse(&factor.factor_type).filter(|_| factor.is_verified()) {
            notify(op, &user, MailKind::MfaFactorUnenrolled, kind).await?;
        }
        tx.commit().await?;
        Ok(factor)
    });
    Ok(axum::Json(deleted.await?))
}

/// The body of a change of a factor.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FactorChange {
    friendly_name: String,
    phone: String,
}

/// `PUT /admin/users/{user_id}/factors/{factor_id}`
pub(crate) async fn put(
    State(auth): State<Auth>,
    _: Administrator,
    request: RequestInfo,
    NamedUser(user): NamedUser,
    Path((_, id)): Path<(String, String)>,
    Json(body): Json<FactorChange>,
) -> Result<axum::Json<Factor>, AuthError> {
    let id = FactorId::parse(&id).ok_or(ContractError::FactorIdNotUuid)?;
    let phones = of_user(&user, id)?.factor_type == FactorType::Phone.as_str();
    if body.friendly_name.chars().count() > MAX_NAME {
        return Err(ContractError::FactorNameTooLong.into());
    }
    let phone = match body.phone.as_str() {
        "" => None,
        _ if !phones => None,
        phone => Some(PhoneNumber::parse(phone)?),
    };
    let name = Some(body.friendly_name.as_str()).filter(|name| !name.is_empty());
    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(&auth, &request, &tx);
    let user = users::lock_complete(&tx, user.id).await?.ok_or(ContractError::UserUnknown)?;
    of_user(&user, id)?;
    mfa_factors::change(&tx, id, name, phone.as_ref(), request.now).await.on_constraint(
        "mfa_factors_user_friendly_name_unique",
        ContractError::FactorNameTaken { name: body.friendly_name.clone() },
    )?;
    let user = users::complete(&tx, user.id).await?.ok_or(ContractError::UserUnknown)?;
    let factor = of_user(&user, id)?;
    op.record_with_ip(&user, Action::FactorUpdated, traits(&user, &factor)).await?;
    tx.commit().await?;
    Ok(axum::Json(factor))
}

fn of_user(user: &User, id: FactorId) -> Result<Factor, AuthError> {
    let found = user.factors.iter().find(|factor| factor.id == id);
    found.cloned().ok_or_else(|| ContractError::FactorUnknown.into())
}

fn traits(user: &User, factor: &Factor) -> Traits {
    Traits::from_iter([
        ("user_id".to_owned(), user.id.to_string().into()),
        ("factor_id".to_owned(), factor.id.to_string().into()),
        ("factor_type".to_owned(), factor.factor_type.as_str().into()),
    ])
}
