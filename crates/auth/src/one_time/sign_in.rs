//! `POST /otp` and `POST /magiclink`: sign-in by a code or a link.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Auth;
use crate::account::registration::{self, Applicant};
use crate::error::{AuthError, ContractError};
use crate::hooks;
use crate::http::extract::{Json, RequestInfo};
use crate::model::contact::{Contact, ContactKind};
use crate::model::metadata;
use crate::model::{JsonObject, User};
use crate::oauth::pkce::Challenge;
use crate::one_time::message::{self, MessageDelivery, MessageOptions, RecoveryMail};
use crate::one_time::text_message::check_channel;
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, Traits};
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
    captcha::check(auth.captcha(), &body.gotrue_meta_security, &request).await?;
    auth.limits().check(Limiter::Otp, &request)?;
    if !body.email.is_empty() && !body.phone.is_empty() {
        return Err(ContractError::OtpNeedsOneContact.into());
    }
    if !body.email.is_empty() && !body.channel.is_empty() {
        return Err(ContractError::ChannelNeedsPhone.into());
    }
    Challenge::from_request(body.code_challenge.as_deref(), body.code_challenge_method.as_deref())?;
    if body.create_user == Some(false) && !is_known(&auth, &request, &body).await? {
        return Err(ContractError::OtpSignUpsDisabled.into());
    }
    if body.phone.is_empty() { send_link(&auth, &request, body).await } else { send_code(&auth, &request, body).await }
}

/// Returns true if the contact of a request has an account. A malformed one has none.
async fn is_known(auth: &Auth, request: &RequestInfo, body: &Otp) -> Result<bool, AuthError> {
    let contact = match body.phone.is_empty() {
        true => Contact::parse(ContactKind::Email, &body.email),
        false => Contact::parse(ContactKind::Phone, &body.phone),
    };
    let client = auth.database().client().await?;
    let Ok(contact) = contact else { return Ok(false) };
    Ok(users::by_contact(&client, &contact, &request.aud).await?.is_some())
}

/// `POST /magiclink`: as `POST /otp` for an address, except that the account may always be new. The
/// field `create_user` belongs to `/otp`.
pub async fn magic_link(
    State(auth): State<Auth>,
    request: RequestInfo,
    Json(mut body): Json<Otp>,
) -> Result<Response, AuthError> {
    body.create_user = None;
    captcha::check(auth.captcha(), &body.gotrue_meta_security, &request).await?;
    auth.limits().check(Limiter::MagicLink, &request)?;
    if body.email.is_empty() {
        return Err(ContractError::MagicLinkNeedsEmail.into());
    }
    send_link(&auth, &request, body).await
}

/// Sends a sign-in link to an address.
async fn send_link(auth: &Auth, request: &RequestInfo, body: Otp) -> Result<Response, AuthError> {
    let settings = auth.settings();
    let challenge = Challenge::from_request(body.code_challenge.as_deref(), body.code_challenge_method.as_deref())?;
    if body.email.is_empty() {
        return Err(ContractError::OtpNeedsContact.into());
    }
    if !settings.email.enabled {
        return Err(ContractError::MagicLinkEmailLoginsDisabled.into());
    }
    if !settings.email.magic_link_enabled {
        return Err(ContractError::MagicLinksDisabled.into());
    }
    let contact = Contact::parse(ContactKind::Email, &body.email)?;
    metadata::check_size(&body.data)?;
    if let Some(email) = contact.email() {
        auth.recipients().check_domain(email).await?;
    }
    let applicant = Applicant::without_password(contact, body.data, challenge, "");
    let response = with_uniform_timing(send(auth, request, &applicant, body.create_user.unwrap_or(true))).await?;
    Ok(axum::Json(response).into_response())
}

/// Sends a sign-in code to a phone number.
async fn send_code(auth: &Auth, request: &RequestInfo, body: Otp) -> Result<Response, AuthError> {
    let may_create = body.create_user.unwrap_or(true);
    metadata::check_size(&body.data)?;
    if !auth.settings().sms.enabled {
        return Err(ContractError::PhoneOtpDisabled.into());
    }
    let contact = Contact::parse(ContactKind::Phone, &body.phone).map_err(|error| {
        // A malformed number has no account
        if may_create { error } else { ContractError::OtpSignUpsDisabled.into() }
    })?;
    check_channel(auth, &body.channel)?;
    let applicant = Applicant::without_password(contact, body.data, None, &body.channel);
    let response = send(auth, request, &applicant, may_create).await?;
    Ok(axum::Json(response).into_response())
}

/// Sends a message to sign in with, after a registration where there is no confirmed account.
/// Returns the body of the response.
async fn send(
    auth: &Auth,
    request: &RequestInfo,
    applicant: &Applicant<'_>,
    may_create: bool,
) -> Result<Value, AuthError> {
    for _ in 0..registration::ATTEMPTS {
        match hooks::complete(auth.hooks(), request, || try_send(auth, request, applicant, may_create)).await? {
            Sending::Sent(delivery) => {
                let response = delivery.deliver(auth).await?;
                return Ok(response);
            }
            Sending::SentToNew(delivery) => {
                delivery.deliver(auth).await?;
                return Ok(json!({}));
            }
            Sending::Unregistered => {
                registration::register_for_link(auth, request, applicant).await?;
                return Ok(json!({}));
            }
            Sending::LostRace => {}
        }
    }
    // Usually the contact is taken in another audience, which the response must not reveal
    Ok(json!({}))
}

/// The result of an attempt to send a message.
enum Sending {
    /// To a confirmed account.
    Sent(MessageDelivery),
    /// To an account that awaits its confirmation.
    SentToNew(MessageDelivery),
    /// The address has no confirmed account yet.
    Unregistered,
    /// Another request made the account at the same time.
    LostRace,
}

async fn try_send(
    auth: &Auth,
    request: &RequestInfo,
    applicant: &Applicant<'_>,
    may_create: bool,
) -> Result<Sending, AuthError> {
    let kind = applicant.contact.kind();
    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(auth, request, &tx);
    match users::lock_by_contact(&tx, &applicant.contact, &request.aud).await? {
        Some(user) if kind.is_confirmed(&user) => {
            let delivery = send_to_confirmed(op, &user, applicant).await?;
            tx.commit().await?;
            Ok(Sending::Sent(delivery))
        }
        None if !may_create => Err(ContractError::OtpSignUpsDisabled.into()),
        _ if auth.settings().disable_signup => Err(ContractError::SignUpsDisabled.into()),
        _ if kind == ContactKind::Email => Ok(Sending::Unregistered),
        existing => {
            let Some(delivery) = registration::register_for_code(op, applicant, existing).await? else {
                return Ok(Sending::LostRace);
            };
            tx.commit().await?;
            Ok(Sending::SentToNew(delivery))
        }
    }
}

async fn send_to_confirmed(
    op: AccountOperation<'_>,
    user: &User,
    applicant: &Applicant<'_>,
) -> Result<MessageDelivery, AuthError> {
    match applicant.contact.kind() {
        ContactKind::Email => {
            let challenge = applicant.challenge.as_ref();
            message::send_recovery(op, user, RecoveryMail::MagicLink, challenge).await?;
            Ok(MessageDelivery::Complete)
        }
        ContactKind::Phone => {
            let traits = Traits::from_iter([("channel".to_owned(), "sms".into())]);
            op.record(user, Action::UserRecoveryRequested, traits).await?;
            let options = MessageOptions { challenge: None, channel: applicant.channel };
            message::send_confirmation(op, user, ContactKind::Phone, options).await
        }
    }
}
