//! `GET /reauthenticate`: a nonce for the password change of a person who signed in long ago.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::hooks;
use crate::http::extract::{RequestInfo, SignedIn};
use crate::model::contact::ContactKind;
use crate::model::ids::{EmailAddress, UserId};
use crate::one_time::message::{self, MessageDelivery};
use crate::operation::AccountOperation;
use crate::sql::{Tx, users};

/// `GET /reauthenticate`
pub async fn reauthenticate(
    State(auth): State<Auth>,
    request: RequestInfo,
    signed_in: SignedIn,
) -> Result<Response, AuthError> {
    if signed_in.user.is_email_confirmed()
        && let Ok(email) = EmailAddress::parse(&signed_in.user.email)
    {
        auth.recipients().check_domain(&email).await?;
    }
    let sent = hooks::complete(auth.hooks(), &request, || send(&auth, &request, signed_in.user.id));
    Ok(axum::Json(sent.await?.deliver(&auth).await?).into_response())
}

async fn send(auth: &Auth, request: &RequestInfo, user: UserId) -> Result<MessageDelivery, AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    let user = users::lock_complete(&tx, user).await?.ok_or(ContractError::SubjectGone)?;
    let kind = match (user.email.is_empty(), user.phone.is_empty()) {
        (false, _) => ContactKind::Email,
        (true, false) => ContactKind::Phone,
        (true, true) => return Err(ContractError::ReauthenticationNeedsContact.into()),
    };
    if !kind.is_confirmed(&user) {
        return Err(match kind {
            ContactKind::Email => ContractError::ReauthenticationNeedsConfirmedEmail.into(),
            ContactKind::Phone => ContractError::ReauthenticationNeedsConfirmedPhone.into(),
        });
    }
    let delivery = message::send_reauthentication(AccountOperation::new(auth, request, &tx), &user, kind).await?;
    tx.commit().await?;
    Ok(delivery)
}
