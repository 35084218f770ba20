//! `POST /resend`: the confirmation of a contact or of its change once more, with a new token.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::hooks;
use crate::http::extract::{Json, RequestInfo};
use crate::model::contact::{Contact, ContactKind};
use crate::model::ids::EmailAddress;
use crate::oauth::pkce::Challenge;
use crate::one_time::message::{self, MessageDelivery, MessageOptions};
use crate::one_time::token::TokenKind;
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, provider_trait};
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

/// The message to send again: the confirmation of a contact of this kind, or of its change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ResentMessage {
    Confirmation(ContactKind),
    Change(ContactKind),
}

impl ResentMessage {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "signup" => Self::Confirmation(ContactKind::Email),
            "email_change" => Self::Change(ContactKind::Email),
            "sms" => Self::Confirmation(ContactKind::Phone),
            "phone_change" => Self::Change(ContactKind::Phone),
            _ => return None,
        })
    }
}

/// `POST /resend`. The response does not show whether there was a message to send.
pub async fn resend(
    State(auth): State<Auth>,
    request: RequestInfo,
    Json(body): Json<Resend>,
) -> Result<Response, AuthError> {
    captcha::check(auth.captcha(), &body.gotrue_meta_security, &request).await?;
    auth.limits().check(Limiter::Resend, &request)?;
    let resent = ResentMessage::parse(&body.r#type).ok_or(ContractError::ResendTypeUnknown)?;
    if resent == ResentMessage::Confirmation(ContactKind::Email) && body.email.is_empty() {
        return Err(ContractError::ResendTypeNeedsEmail.into());
    }
    if resent == ResentMessage::Confirmation(ContactKind::Phone) && body.phone.is_empty() {
        return Err(ContractError::ResendTypeNeedsPhone.into());
    }
    if !body.email.is_empty() && !body.phone.is_empty() {
        return Err(ContractError::ResendNeedsOneContact.into());
    }
    if body.email.is_empty() && body.phone.is_empty() {
        return Err(ContractError::ResendNeedsContact.into());
    }
    // The current address gets an email of a change only where both addresses confirm it. The
    // domain of the new one was checked when the change began. Addresses without an account are
    // checked alike.
    let gets_mail = match resent {
        ResentMessage::Confirmation(kind) => kind == ContactKind::Email,
        ResentMessage::Change(kind) => kind == ContactKind::Email && auth.settings().email.secure_change,
    };
    if gets_mail && let Ok(email) = EmailAddress::parse(&body.email) {
        auth.recipients().check_domain(&email).await?;
    }
    let sent = hooks::complete(auth.hooks(), &request, || send(&auth, &request, resent, &body));
    let delivery = with_uniform_timing(sent).await?;
    Ok(axum::Json(delivery.deliver(&auth).await?).into_response())
}

/// Writes the email, or reserves the text message.
async fn send(
    auth: &Auth,
    request: &RequestInfo,
    resent: ResentMessage,
    body: &Resend,
) -> Result<MessageDelivery, AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(auth, request, &tx);
    let contact = if body.phone.is_empty() {
        if !auth.settings().email.enabled {
            return Err(ContractError::EmailLoginsDisabled.into());
        }
        Contact::parse(ContactKind::Email, &body.email)?
    } else {
        if !auth.settings().sms.enabled {
            return Err(ContractError::PhoneLoginsDisabled.into());
        }
        Contact::parse(ContactKind::Phone, &body.phone)?
    };
    let user = users::lock_by_contact(&tx, &contact, &request.aud).await?;
    if let Contact::Email(email) = &contact {
        // An account without a pending confirmation gets its response as slowly, and as often, as
        // one with one
        let is_change = resent == ResentMessage::Change(ContactKind::Email);
        let is_pending = user.as_ref().is_some_and(|user| match is_change {
            true => !user.email_change.is_empty(),
            false => !user.is_email_confirmed(),
        });
        if !is_pending {
            let kind = if is_change { TokenKind::EmailChangeNew } else { TokenKind::Confirmation };
            message::enqueue_decoy(op, kind, email).await?;
        }
    }
    let challenge = Challenge::from_request(body.code_challenge.as_deref(), body.code_challenge_method.as_deref())?;
    let options = MessageOptions { challenge: challenge.as_ref(), channel: "sms" };
    let delivery = match (resent, user) {
        (ResentMessage::Confirmation(kind), Some(user)) if !kind.is_confirmed(&user) => {
            if kind == ContactKind::Email {
                op.record(&user, Action::UserConfirmationRequested, provider_trait("email")).await?;
            }
            message::send_confirmation(op, &user, kind, options).await?
        }
        (ResentMessage::Change(kind), Some(user)) if !kind.pending_change(&user).is_empty() => {
            let new = Contact::parse(kind, kind.pending_change(&user))?;
            message::send_change(op, &user, &new, options).await?
        }
        _ => MessageDelivery::Complete,
    };
    tx.commit().await?;
    Ok(delivery)
}
