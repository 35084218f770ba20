//! `POST /otp` and `POST /magiclink` (auth-core 6.1, 6.2): sign-in by a code or a link.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use crate::Auth;
use crate::captcha::{self, Security};
use crate::error::{AuthError, ErrorCode};
use crate::extract::{Json, RequestInfo};
use crate::ids::EmailAddress;
use crate::limits::Limiter;
use crate::metadata;
use crate::model::JsonObject;
use crate::one_time_mail::{self, Recovery};
use crate::pkce::Challenge;
use crate::signup::{self, Applicant};
use crate::sms;
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
        return Err(AuthError::validation("Only an email address or phone number should be provided"));
    }
    if !body.email.is_empty() && !body.channel.is_empty() {
        return Err(AuthError::validation("Channel should only be specified with Phone OTP"));
    }
    Challenge::from_request(body.code_challenge.as_deref(), body.code_challenge_method.as_deref())?;
    if !body.phone.is_empty() {
        metadata::check_size(&body.data)?;
        let may_create = body.create_user.unwrap_or(true);
        return sms::sign_in(&auth, &request, &body.phone, body.data, &body.channel, may_create).await;
    }
    send_link(&auth, &request, body).await
}

/// `POST /magiclink`
pub async fn magic_link(
    State(auth): State<Auth>,
    request: RequestInfo,
    Json(body): Json<Otp>,
) -> Result<Response, AuthError> {
    captcha::check(&auth, &body.gotrue_meta_security, &request).await?;
    auth.limits().check(Limiter::MagicLink, &request)?;
    if body.email.is_empty() {
        return Err(AuthError::refuse_with(
            StatusCode::UNPROCESSABLE_ENTITY,
            ErrorCode::ValidationFailed,
            "Password recovery requires an email",
        ));
    }
    send_link(&auth, &request, body).await
}

async fn send_link(auth: &Auth, request: &RequestInfo, body: Otp) -> Result<Response, AuthError> {
    let settings = auth.settings();
    let challenge = Challenge::from_request(body.code_challenge.as_deref(), body.code_challenge_method.as_deref())?;
    let may_create = body.create_user.unwrap_or(true);
    let unknown = || AuthError::refuse(ErrorCode::OtpDisabled, "Signups not allowed for otp");
    if body.email.is_empty() {
        return Err(if may_create { AuthError::validation("One of email or phone must be set") } else { unknown() });
    }
    let disabled = |text: &'static str| {
        AuthError::refuse_with(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::EmailProviderDisabled, text)
    };
    if !settings.email.enabled {
        return Err(disabled("Email logins are disabled"));
    }
    if !settings.email.magic_link_enabled {
        return Err(disabled("Login with magic link is disabled"));
    }
    let email = match EmailAddress::parse(&body.email) {
        Ok(email) => email,
        Err(error) => return Err(if may_create { error } else { unknown() }),
    };
    metadata::check_size(&body.data)?;

    let tx = Tx::begin(auth.database()).await?;
    match users::lock_by_email(&tx, &email, &request.aud).await? {
        Some(user) if user.is_email_confirmed() => {
            one_time_mail::send_recovery(auth, &tx, &user, Recovery::MagicLink, challenge.as_ref(), request).await?;
            tx.commit().await?;
        }
        None if !may_create => return Err(unknown()),
        _ if settings.disable_signup => return Err(AuthError::signup_disabled()),
        _ => {
            drop(tx);
            // No password: the account belongs to whoever reads the mail, and to nobody who chose a password earlier
            let applicant = Applicant { email, password: None, hash: String::new(), data: body.data, challenge };
            signup::register_for_link(auth, request, &applicant).await?;
        }
    }
    Ok(axum::Json(json!({})).into_response())
}
