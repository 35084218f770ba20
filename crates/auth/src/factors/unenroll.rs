//! `DELETE /factors/{id}`: removes a second factor.

use axum::extract::State;
use portico_mail::MailKind;
use serde_json::{Value, json};

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::factors::{FactorType, OwnFactor, notify};
use crate::hooks;
use crate::http::extract::RequestInfo;
use crate::model::{Factor, User};
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, Traits};
use crate::session::AuthenticationMethod;
use crate::sql::{Tx, mfa_factors, recovery_codes, sessions, users};

/// `DELETE /factors/{id}`
pub(crate) async fn unenroll(
    State(auth): State<Auth>,
    own: OwnFactor,
    request: RequestInfo,
) -> Result<axum::Json<Value>, AuthError> {
    hooks::complete(auth.hooks(), &request, || try_unenroll(&auth, &own, &request)).await?;
    Ok(axum::Json(json!({ "id": own.factor.id })))
}

async fn try_unenroll(auth: &Auth, own: &OwnFactor, request: &RequestInfo) -> Result<(), AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(auth, request, &tx);
    let session = own.owner.session.id;
    let user = users::lock_complete(&tx, own.owner.user.id).await?.ok_or(ContractError::SubjectGone)?;
    let aal = sessions::lock_aal(&tx, session, user.id).await?.ok_or(ContractError::SessionOfTokenGone)?;
    let factor = user.factors.iter().find(|factor| factor.id == own.factor.id);
    let factor = factor.ok_or(ContractError::FactorUnknown)?;
    if factor.is_verified() && aal != "aal2" {
        return Err(ContractError::UnenrollNeedsAal2.into());
    }
    remove(op, &user, factor).await?;
    let traits = Traits::from_iter([
        ("factor_id".to_owned(), factor.id.to_string().into()),
        ("factor_status".to_owned(), factor.status.as_str().into()),
        ("session_id".to_owned(), session.to_string().into()),
    ]);
    op.record_with_ip(&user, Action::FactorUnenrolled, traits).await?;
    if factor.is_verified() {
        notify(op, &user, MailKind::MfaFactorUnenrolled, own.kind).await?;
    }
    tx.commit().await
}

/// Deletes a factor of a locked user, and lowers the sessions that only it had raised. The last
/// verified factor takes the recovery codes with it, and every elevation.
///
/// # Errors
/// Those of the database.
pub(crate) async fn remove(op: AccountOperation<'_>, user: &User, factor: &Factor) -> Result<(), AuthError> {
    let (tx, now) = (op.tx, op.now());
    mfa_factors::delete(tx, factor.id).await?;
    if let Some(kind) = FactorType::parse(&factor.factor_type) {
        sessions::remove_factor(tx, user.id, factor.id, kind.method().as_str(), now).await?;
    }
    let was_last =
        factor.is_verified() && !user.factors.iter().any(|other| other.id != factor.id && other.is_verified());
    if was_last {
        recovery_codes::delete(tx, user.id).await?;
        sessions::remove_methods(tx, user.id, &AuthenticationMethod::SECOND_FACTORS).await?;
    }
    sessions::lower(tx, user.id, &AuthenticationMethod::SECOND_FACTORS, now).await?;
    Ok(())
}
