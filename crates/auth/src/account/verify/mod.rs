//! `GET` and `POST /verify`: a code or a link proves that a message was received.
//!
//! The row of the user is locked before the token is compared, so a token works once even when it
//! is sent twice at the same time.

mod link;
mod lookup;
mod redeem;
mod verify_type;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::hooks;
use crate::http::extract::{Json, RequestInfo};
use crate::model::contact::{Contact, ContactKind};
use crate::operation::AccountOperation;
use crate::protection::audit::FailedLogin;
use crate::protection::limits::Limiter;
use crate::session::{self, AuthenticationMethod};
use crate::sql::{Tx, users};

pub use link::follow;
use lookup::FoundToken;
use redeem::{RedeemedToken, redeem};
use verify_type::VerifyType;

const FIRST_OF_TWO: &str = "Confirmation link accepted. Please proceed to confirm link sent to the other email";

/// The body of `POST /verify`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Verify {
    r#type: String,
    token: String,
    token_hash: String,
    email: String,
    phone: String,
    redirect_to: String,
}

/// `POST /verify`
pub async fn verify(
    State(auth): State<Auth>,
    request: RequestInfo,
    Json(body): Json<Verify>,
) -> Result<Response, AuthError> {
    auth.limits().check(Limiter::Verify, &request)?;
    if body.r#type.is_empty() {
        return Err(ContractError::VerifyTypeMissing.into());
    }
    if body.token.is_empty() == body.token_hash.is_empty() {
        return Err(ContractError::VerifyNeedsOneToken.into());
    }
    let verify_type = VerifyType::parse(&body.r#type);
    if !body.token.is_empty() {
        return verify_typed(&auth, verify_type, &body, &request).await;
    }
    if !(body.email.is_empty() && body.phone.is_empty() && body.redirect_to.is_empty()) {
        return Err(ContractError::VerifyHashStandsAlone.into());
    }
    let verify_type = verify_type
        .filter(|verify_type| verify_type.contact() == ContactKind::Email)
        .ok_or(ContractError::VerifyTypeInvalid)?;
    let verified = hooks::complete(auth.hooks(), &request, || async {
        let tx = Tx::begin(auth.database()).await?;
        let op = AccountOperation::new(&auth, &request, &tx);
        let found = lookup::by_hash(op, verify_type, &body.token_hash).await?;
        let response = complete(op, found, verify_type).await?;
        tx.commit().await?;
        Ok(response)
    });
    verified.await
}

/// Redeems a token that was found, and signs the person in. The caller commits.
async fn complete(op: AccountOperation<'_>, found: FoundToken, verify_type: VerifyType) -> Result<Response, AuthError> {
    Ok(match redeem(op, found, verify_type).await? {
        RedeemedToken::Verified(user) => session::issue(op, &user, AuthenticationMethod::Otp).await?.into_response(),
        RedeemedToken::FirstOfTwo => axum::Json(json!({"code": "200", "msg": FIRST_OF_TWO})).into_response(),
    })
}

/// Verifies a code that was typed for a contact. The attempt is counted: unlike the token of a
/// link, a code can be guessed.
async fn verify_typed(
    auth: &Auth,
    verify_type: Option<VerifyType>,
    body: &Verify,
    request: &RequestInfo,
) -> Result<Response, AuthError> {
    if body.email.is_empty() == body.phone.is_empty() {
        return Err(ContractError::VerifyNeedsOneContact.into());
    }
    let contact = match body.phone.is_empty() {
        true => Contact::parse(ContactKind::Email, &body.email).map_err(|_| ContractError::VerifyEmailMalformed)?,
        false => Contact::parse(ContactKind::Phone, &body.phone)?,
    };
    // Clients expect an expired code for an unknown type as well
    let verify_type =
        verify_type.filter(|verify_type| verify_type.contact() == contact.kind()).ok_or(ContractError::CodeExpired)?;
    let attempt = async {
        // Before the transaction that redeems the code: a gateway may be slow
        let verdict = lookup::check_at_gateway(auth, request, verify_type, &contact, &body.token).await?;
        let verified = hooks::complete(auth.hooks(), request, || async {
            let tx = Tx::begin(auth.database()).await?;
            let op = AccountOperation::new(auth, request, &tx);
            let found = lookup::by_code(op, verify_type, &contact, &body.token, verdict.as_ref()).await?;
            let response = complete(op, found, verify_type).await?;
            tx.commit().await?;
            Ok(response)
        });
        verified.await
    };
    let verified = auth.guesses().code(contact.as_str(), request, attempt).await;
    if let Err(error) = &verified {
        record_failure(auth, &contact, error, request).await;
    }
    verified
}

/// Writes an audit entry for a rejected code. The account is looked up again: the transaction that
/// rejected the code is gone.
async fn record_failure(auth: &Auth, contact: &Contact, error: &AuthError, request: &RequestInfo) {
    // Where a limit rejected it, nothing was compared
    if !error.status().is_client_error() || error.status() == StatusCode::TOO_MANY_REQUESTS {
        return;
    }
    let user = async {
        let client = auth.database().client().await?;
        Ok::<_, AuthError>(users::by_contact(&client, contact, &request.aud).await?)
    };
    // When the look-up fails, the entry does not name the account
    let user = user.await.unwrap_or_default();
    let provider = contact.kind().provider();
    auth.audit_log()
        .record_failed_login(
            auth.database(),
            auth.limits(),
            &FailedLogin { user: user.as_ref(), provider, error },
            request,
        )
        .await;
}
