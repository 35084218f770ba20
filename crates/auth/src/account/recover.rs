//! `POST /recover`: a link to set a new password.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::json;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::hooks;
use crate::http::extract::{Json, RequestInfo};
use crate::model::ids::EmailAddress;
use crate::oauth::pkce::Challenge;
use crate::one_time::message::{self, RecoveryMail};
use crate::one_time::token::TokenKind;
use crate::operation::AccountOperation;
use crate::protection::captcha::{self, Security};
use crate::protection::limits::Limiter;
use crate::protection::uniform_timing::with_uniform_timing;
use crate::sql::{Tx, users};

/// The body of `POST /recover`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Recover {
    email: String,
    code_challenge: Option<String>,
    code_challenge_method: Option<String>,
    gotrue_meta_security: Security,
}

/// `POST /recover`. The response is the same for a known and an unknown address.
pub async fn recover(
    State(auth): State<Auth>,
    request: RequestInfo,
    Json(body): Json<Recover>,
) -> Result<Response, AuthError> {
    captcha::check(auth.captcha(), &body.gotrue_meta_security, &request).await?;
    auth.limits().check(Limiter::Recover, &request)?;
    if !auth.settings().email.enabled {
        return Err(ContractError::EmailLoginsDisabled.into());
    }
    if body.email.is_empty() {
        return Err(ContractError::RecoveryNeedsEmail.into());
    }
    let challenge = Challenge::from_request(body.code_challenge.as_deref(), body.code_challenge_method.as_deref())?;
    let email = EmailAddress::parse(&body.email)?;
    auth.recipients().check_domain(&email).await?;
    let sent = hooks::complete(auth.hooks(), &request, || send(&auth, &request, &email, challenge.as_ref()));
    with_uniform_timing(sent).await?;
    Ok(axum::Json(json!({})).into_response())
}

async fn send(
    auth: &Auth,
    request: &RequestInfo,
    email: &EmailAddress,
    challenge: Option<&Challenge>,
) -> Result<(), AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(auth, request, &tx);
    match users::lock_by_email(&tx, email, &request.aud).await? {
        Some(user) => message::send_recovery(op, &user, RecoveryMail::Password, challenge).await?,
        None => message::enqueue_decoy(op, TokenKind::Recovery, email).await?,
    }
    tx.commit().await
}
