//! `GET /reauthenticate`: a nonce for the password change of a person who signed in long ago.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::{RequestInfo, SignedIn};
use crate::messages::mailer;
use crate::model::contact::ContactKind;
use crate::model::ids::EmailAddress;
use crate::one_time::message;
use crate::operation::Operation;
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
        mailer::check_domain(&auth, &email).await?;
    }
    let tx = Tx::begin(auth.database()).await?;
    let user = users::lock_complete(&tx, signed_in.user.id).await?.ok_or(ContractError::SubjectGone)?;
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
    let delivery = message::send_reauthentication(Operation::new(&auth, &request, &tx), &user, kind).await?;
    tx.commit().await?;
    Ok(axum::Json(delivery.deliver(&auth).await?).into_response())
}
