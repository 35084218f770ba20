//! `POST /resend` (auth-core 6.4): a message once more, with a new token.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::json;

use crate::Auth;
use crate::account::phone;
use crate::error::{AuthError, ContractError};
use crate::http::extract::{Json, RequestInfo};
use crate::messages::mailer;
use crate::messages::text::ReservedText;
use crate::model::ids::{EmailAddress, PhoneNumber};
use crate::oauth::pkce::Challenge;
use crate::one_time::mail;
use crate::one_time::token::Kind;
use crate::protection::audit::{self, Action, AuditEvent, provider_trait};
use crate::protection::captcha::{self, Security};
use crate::protection::limits::Limiter;
use crate::protection::uniform_timing::with_uniform_timing;
use crate::sql::{Tx, users};

/// The body of `POST /resend`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resend {
    r#type: String,
    email: String,
    phone: String,
    code_challenge: Option<String>,
    code_challenge_method: Option<String>,
    gotrue_meta_security: Security,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Message {
    SignUp,
    EmailChange,
    Sms,
    PhoneChange,
}

/// `POST /resend`: the same answer whether there was anything to send.
pub async fn resend(
    State(auth): State<Auth>,
    request: RequestInfo,
    Json(body): Json<Resend>,
) -> Result<Response, AuthError> {
    captcha::check(&auth, &body.gotrue_meta_security, &request).await?;
    auth.limits().check(Limiter::Resend, &request)?;
    let message = match body.r#type.as_str() {
        "signup" => Message::SignUp,
        "email_change" => Message::EmailChange,
        "sms" => Message::Sms,
        "phone_change" => Message::PhoneChange,
        _ => {
            return Err(ContractError::ResendTypeUnknown.into());
        }
    };
    if message == Message::SignUp && body.email.is_empty() {
        return Err(ContractError::ResendTypeNeedsEmail.into());
    }
    if message == Message::Sms && body.phone.is_empty() {
        return Err(ContractError::ResendTypeNeedsPhone.into());
    }
    if !body.email.is_empty() && !body.phone.is_empty() {
        return Err(ContractError::ResendNeedsOneContact.into());
    }
    if body.email.is_empty() && body.phone.is_empty() {
        return Err(ContractError::ResendNeedsContact.into());
    }
    // A change is confirmed at this address too, where both are asked. The new one's domain was checked when it was named; who
    // has no account is told the same
    let gets_mail = match message {
        Message::SignUp => true,
        Message::EmailChange => auth.settings().email.secure_change,
        Message::Sms | Message::PhoneChange => false,
    };
    if gets_mail && let Ok(email) = EmailAddress::parse(&body.email) {
        mailer::check_domain(&auth, &email).await?;
    }
    let reserved = with_uniform_timing(send(&auth, &request, message, &body)).await?;
    let answer = match reserved {
        Some(reserved) => reserved.deliver(&auth).await?,
        None => json!({}),
    };
    Ok(axum::Json(answer).into_response())
}

/// Promises the mail, or reserves the text message.
async fn send(
    auth: &Auth,
    request: &RequestInfo,
    message: Message,
    body: &Resend,
) -> Result<Option<ReservedText>, AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    let user = if body.phone.is_empty() {
        if !auth.settings().email.enabled {
            return Err(ContractError::EmailLoginsDisabled.into());
        }
        let email = EmailAddress::parse(&body.email)?;
        let user = users::lock_by_email(&tx, &email, &request.aud).await?;
        // An account that waits for nothing is answered as slowly, and as often, as one that does
        let waits = user.as_ref().is_some_and(|user| match message {
            Message::EmailChange => !user.email_change.is_empty(),
            _ => !user.is_email_confirmed(),
        });
        if !waits {
            let kind = if message == Message::EmailChange { Kind::EmailChangeNew } else { Kind::Confirmation };
            mail::pretend(auth, &tx, kind, &email, request).await?;
        }
        user
    } else {
        if !auth.settings().sms.enabled {
            return Err(ContractError::PhoneLoginsDisabled.into());
        }
        let phone = PhoneNumber::parse(&body.phone)?;
        users::lock_by_phone(&tx, &phone, &request.aud).await?
    };
    let challenge = Challenge::from_request(body.code_challenge.as_deref(), body.code_challenge_method.as_deref())?;
    let reserved = match (message, user) {
        (Message::SignUp, Some(user)) if !user.is_email_confirmed() => {
            let action = Action::UserConfirmationRequested;
            audit::record(auth, &tx, AuditEvent::new(&user, action).with_traits(provider_trait("email")), request.now)
                .await?;
            mail::send_confirmation(auth, &tx, &user, challenge.as_ref(), request).await?;
            None
        }
        (Message::EmailChange, Some(user)) if !user.email_change.is_empty() => {
            let new = EmailAddress::parse(&user.email_change)?;
            mail::send_email_change(auth, &tx, &user, &new, challenge.as_ref(), request).await?;
            None
        }
        (Message::Sms, Some(user)) if !user.is_phone_confirmed() => {
            Some(phone::send_confirmation(auth, &tx, &user, "sms", request).await?)
        }
        (Message::PhoneChange, Some(user)) if !user.phone_change.is_empty() => {
            let new = PhoneNumber::parse(&user.phone_change)?;
            Some(phone::send_phone_change(auth, &tx, &user, &new, "sms", request).await?)
        }
        _ => None,
    };
    tx.commit().await?;
    Ok(reserved)
}
