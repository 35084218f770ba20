//! `/admin/users/{user_id}/passkeys`: administrators list and delete the passkeys of a user, also
//! while passkeys are disabled.

use axum::Json as JsonResponse;
use axum::extract::{Path, State};
use http::StatusCode;
use portico_mail::MailKind;

use crate::Auth;
use crate::admin::administrator::Administrator;
use crate::error::{AuthError, ContractError};
use crate::hooks;
use crate::http::extract::RequestInfo;
use crate::model::Passkey;
use crate::model::ids::{PasskeyId, UserId};
use crate::operation::AccountOperation;
use crate::protection::audit::Action;
use crate::sql::{Tx, users, webauthn_credentials};

/// `GET /admin/users/{user_id}/passkeys`
pub(crate) async fn list(
    State(auth): State<Auth>,
    _: Administrator,
    Path(user_id): Path<String>,
) -> Result<JsonResponse<Vec<Passkey>>, AuthError> {
    let user_id = UserId::parse(&user_id).ok_or(ContractError::UserIdNotUuid)?;
    let client = auth.database().client().await?;
    users::by_id(&client, user_id).await?.ok_or(ContractError::UserUnknown)?;
    Ok(JsonResponse(webauthn_credentials::of_user(&client, user_id).await?))
}

/// `DELETE /admin/users/{user_id}/passkeys/{id}`
pub(crate) async fn delete(
    State(auth): State<Auth>,
    administrator: Administrator,
    request: RequestInfo,
    Path((user_id, id)): Path<(String, String)>,
) -> Result<StatusCode, AuthError> {
    let user_id = UserId::parse(&user_id).ok_or(ContractError::UserIdNotUuid)?;
    let deleted = hooks::complete(auth.hooks(), &request, || async {
        let tx = Tx::begin(auth.database()).await?;
        let owner = users::by_id(&tx, user_id).await?.ok_or(ContractError::UserUnknown)?;
        let id = PasskeyId::parse(&id).ok_or(ContractError::PasskeyUnknown)?;
        let passkey = webauthn_credentials::delete(&tx, id, user_id).await?.ok_or(ContractError::PasskeyUnknown)?;
        let op = AccountOperation::new(&auth, &request, &tx);
        let mut traits = super::traits(&passkey);
        traits.insert("user_id".to_owned(), user_id.to_string().into());
        let actor = administrator.actor(&request.aud, request.now);
        op.record_with_ip(&actor, Action::PasskeyDeleted, traits).await?;
        super::notify(op, &owner, MailKind::PasskeyRemoved, &passkey).await?;
        tx.commit().await
    });
    deleted.await?;
    Ok(StatusCode::NO_CONTENT)
}
