//! `GET /reauthenticate` (auth-core 6.7): a nonce for the password change of someone who signed in long ago.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use crate::Auth;
use crate::account::phone;
use crate::error::{AuthError, ContractError};
use crate::http::extract::{RequestInfo, SignedIn};
use crate::messages::mailer;
use crate::model::ids::EmailAddress;
use crate::one_time::mail;
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
    if user.email.is_empty() && user.phone.is_empty() {
        return Err(ContractError::ReauthenticationNeedsContact.into());
    }
    let reserved = if !user.email.is_empty() {
        if !user.is_email_confirmed() {
            return Err(ContractError::ReauthenticationNeedsConfirmedEmail.into());
        }
        mail::send_reauthentication(&auth, &tx, &user, &request).await?;
        None
    } else {
        if !user.is_phone_confirmed() {
            return Err(ContractError::ReauthenticationNeedsConfirmedPhone.into());
        }
        Some(phone::send_reauthentication(&auth, &tx, &user, &request).await?)
    };
    tx.commit().await?;
    let answer = match reserved {
        Some(reserved) => reserved.deliver(&auth).await?,
        None => json!({}),
    };
    Ok(axum::Json(answer).into_response())
}
