//! `/passkeys`: users list, rename and delete their passkeys.

use axum::Json as JsonResponse;
use axum::extract::{Path, State};
use http::StatusCode;
use portico_mail::MailKind;
use serde::Deserialize;

use super::{PasskeysEnabled, check_assurance, lock_owner};
use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::hooks;
use crate::http::extract::{Json, RequestInfo, SignedIn};
use crate::model::Passkey;
use crate::model::ids::PasskeyId;
use crate::operation::AccountOperation;
use crate::protection::audit::Action;
use crate::sql::{Tx, webauthn_credentials};

/// Longest name, in bytes.
const MAX_NAME_BYTES: usize = 120;

/// `GET /passkeys`
pub(crate) async fn list(
    State(auth): State<Auth>,
    _: PasskeysEnabled,
    signed_in: SignedIn,
) -> Result<JsonResponse<Vec<Passkey>>, AuthError> {
    let client = auth.database().client().await?;
    Ok(JsonResponse(webauthn_credentials::of_user(&client, signed_in.user.id).await?))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NewName {
    friendly_name: String,
}

/// `PATCH /passkeys/{id}`
pub(crate) async fn rename(
    State(auth): State<Auth>,
    _: PasskeysEnabled,
    request: RequestInfo,
    signed_in: SignedIn,
    Path(id): Path<String>,
    Json(body): Json<NewName>,
) -> Result<JsonResponse<Passkey>, AuthError> {
    let id = PasskeyId::parse(&id).ok_or(ContractError::PasskeyUnknown)?;
    let name = &body.friendly_name;
    if name.is_empty() {
        return Err(ContractError::PasskeyNameMissing.into());
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(ContractError::PasskeyNameTooLong.into());
    }
    let tx = Tx::begin(auth.database()).await?;
    let renamed = webauthn_credentials::rename(&tx, id, signed_in.user.id, name, request.now).await?;
    let passkey = renamed.ok_or(ContractError::PasskeyUnknown)?;
    let op = AccountOperation::new(&auth, &request, &tx);
    op.record_with_ip(&signed_in.user, Action::PasskeyUpdated, super::traits(&passkey)).await?;
    tx.commit().await?;
    Ok(JsonResponse(passkey))
}

/// `DELETE /passkeys/{id}`
pub(crate) async fn delete(
    State(auth): State<Auth>,
    _: PasskeysEnabled,
    request: RequestInfo,
    signed_in: SignedIn,
    Path(id): Path<String>,
) -> Result<StatusCode, AuthError> {
    check_assurance(&signed_in)?;
    let id = PasskeyId::parse(&id).ok_or(ContractError::PasskeyUnknown)?;
    let deleted = hooks::complete(auth.hooks(), &request, || async {
        let tx = Tx::begin(auth.database()).await?;
        let user = lock_owner(&tx, &signed_in).await?;
        let deleted = webauthn_credentials::delete(&tx, id, user.id).await?;
        let passkey = deleted.ok_or(ContractError::PasskeyUnknown)?;
        let op = AccountOperation::new(&auth, &request, &tx);
        op.record_with_ip(&user, Action::PasskeyDeleted, super::traits(&passkey)).await?;
        super::notify(op, &user, MailKind::PasskeyRemoved, &passkey).await?;
        tx.commit().await
    });
    deleted.await?;
    Ok(StatusCode::NO_CONTENT)
}
