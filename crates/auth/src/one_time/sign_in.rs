//! `POST /otp` and `POST /magiclink` (auth-core 6.1, 6.2): sign-in by a code or a link.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::json;

use crate::Auth;
use crate::account::phone;
use crate::account::sign_up::{self, Applicant};
use crate::error::{AuthError, ContractError};
use crate::http::extract::{Json, RequestInfo};
use crate::messages::mailer;
use crate::model::JsonObject;
use crate::model::ids::{EmailAddress, PhoneNumber};
use crate::model::metadata;
use crate::oauth::pkce::Challenge;
use crate::one_time::mail::{self, Recovery};
use crate::protection::captcha::{self, Security};
use crate::protection::limits::Limiter;
use crate::protection::uniform_timing::with_uniform_timing;
use crate::sql::{Tx, users};

/// The body of `POST /otp` and `POST /magiclink`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Otp {
    email: String,
    phone: String,
    create_user: Option<bool>,
    data: JsonObject,
    channel: String,
    code_challenge: Option<String>,
    code_challenge_method: Option<String>,
    gotrue_meta_security: Security,
}

/// `POST /otp`
pub async fn otp(State(auth): State<Auth>, request: RequestInfo, Json(body): Json<Otp>) -> Result<Response, AuthError> {
    captcha::check(&auth, &body.gotrue_meta_security, &request).await?;
    auth.limits().check(Limiter::Otp, &request)?;
    if !body.email.is_empty() && !body.phone.is_empty() {
        return Err(ContractError::OtpNeedsOneContact.into());
    }
    if !body.email.is_empty() && !body.channel.is_empty() {
        return Err(ContractError::ChannelNeedsPhone.into());
    }
    Challenge::from_request(body.code_challenge.as_deref(), body.code_challenge_method.as_deref())?;
    if body.create_user == Some(false) && !is_known(&auth, &request, &body).await? {
        return Err(nobody_new());
    }
    if !body.phone.is_empty() {
        metadata::check_size(&body.data)?;
        let may_create = body.create_user.unwrap_or(true);
        return phone::sign_in(&auth, &request, &body.phone, body.data, &body.channel, may_create).await;
    }
    send_link(&auth, &request, body).await
}

/// Whether the address or number has an account. One that is none has no account.
async fn is_known(auth: &Auth, request: &RequestInfo, body: &Otp) -> Result<bool, AuthError> {
    let client = auth.database().auth().await?;
    let user = if body.phone.is_empty() {
        let Ok(email) = EmailAddress::parse(&body.email) else { return Ok(false) };
        users::by_email(&client, &email, &request.aud).await?
    } else {
        let Ok(phone) = PhoneNumber::parse(&body.phone) else { return Ok(false) };
        users::by_phone(&client, &phone, &request.aud).await?
    };
    Ok(user.is_some())
}

fn nobody_new() -> AuthError {
    AuthError::from(ContractError::OtpSignUpsDisabled)
}

/// `POST /magiclink`: anybody may be new; the field that says otherwise belongs to `/otp` (auth-core 6.2).
pub async fn magic_link(
    State(auth): State<Auth>,
    request: RequestInfo,
    Json(mut body): Json<Otp>,
) -> Result<Response, AuthError> {
    body.create_user = None;
    captcha::check(&auth, &body.gotrue_meta_security, &request).await?;
    auth.limits().check(Limiter::MagicLink, &request)?;
    if body.email.is_empty() {
        return Err(ContractError::MagicLinkNeedsEmail.into());
    }
    send_link(&auth, &request, body).await
}

async fn send_link(auth: &Auth, request: &RequestInfo, body: Otp) -> Result<Response, AuthError> {
    let settings = auth.settings();
    let challenge = Challenge::from_request(body.code_challenge.as_deref(), body.code_challenge_method.as_deref())?;
    let may_create = body.create_user.unwrap_or(true);
    if body.email.is_empty() {
        return Err(ContractError::OtpNeedsContact.into());
    }
    if !settings.email.enabled {
        return Err(ContractError::MagicLinkEmailLoginsDisabled.into());
    }
    if !settings.email.magic_link_enabled {
        return Err(ContractError::MagicLinksDisabled.into());
    }
    let email = EmailAddress::parse(&body.email)?;
    metadata::check_size(&body.data)?;
    mailer::check_domain(auth, &email).await?;

    // No password: a new account belongs to whoever reads the mail, and to nobody who chose a password earlier
    let applicant = Applicant { email, password: None, hash: String::new(), data: body.data, challenge };
    with_uniform_timing(send_link_to(auth, request, &applicant, may_create)).await?;
    Ok(axum::Json(json!({})).into_response())
}

async fn send_link_to(
    auth: &Auth,
    request: &RequestInfo,
    applicant: &Applicant<'_>,
    may_create: bool,
) -> Result<(), AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    match users::lock_by_email(&tx, &applicant.email, &request.aud).await? {
        Some(user) if user.is_email_confirmed() => {
            let challenge = applicant.challenge.as_ref();
            mail::send_recovery(auth, &tx, &user, Recovery::MagicLink, challenge, request).await?;
            tx.commit().await
        }
        None if !may_create => Err(nobody_new()),
        _ if auth.settings().disable_signup => Err(ContractError::SignUpsDisabled.into()),
        _ => {
            drop(tx);
            sign_up::register_for_link(auth, request, applicant).await
        }
    }
}
