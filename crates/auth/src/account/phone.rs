//! Accounts with a phone number (auth-core 16): codes by text message.
//!
//! How a message travels is not known here: a [`TextTransport`] takes it, a gateway of the operator's or the development
//! inbox. Every function that begins with `send` only reserves the message: the caller commits, and delivers it then.

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use portico_mail::{MailKind, Variables};
use serde_json::{Value, json};

use crate::Auth;
use crate::account::sign_up::{blank, provider_metadata};
use crate::error::{AuthError, ContractError, ErrorCode, SqlResultExt as _};
use crate::http::extract::RequestInfo;
use crate::messages::mailer;
use crate::messages::text::{CodeMessage, ReservedText, check_channel, reserve};
use crate::model::ids::{PhoneNumber, UserId};
use crate::model::metadata;
use crate::model::{JsonObject, User};
use crate::oauth::pkce::Challenge;
use crate::one_time::token::Kind;
use crate::protection::attempts;
use crate::protection::audit::{self, Action, AuditEvent, Traits, provider_trait};
use crate::session::{self, Method};
use crate::sql::users::NewUser;
use crate::sql::{Tx, identities, users};

/// A code that confirms the number of an account, or signs in.
pub(crate) async fn send_confirmation(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    channel: &str,
    request: &RequestInfo,
) -> Result<ReservedText, AuthError> {
    let phone = PhoneNumber::parse(&user.phone)?;
    reserve(auth, tx, CodeMessage { user, kind: Kind::Confirmation, phone: &phone, channel }, request).await
}

/// A code that confirms another number.
pub(crate) async fn send_phone_change(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    new: &PhoneNumber,
    channel: &str,
    request: &RequestInfo,
) -> Result<ReservedText, AuthError> {
    reserve(auth, tx, CodeMessage { user, kind: Kind::PhoneChange, phone: new, channel }, request).await
}

/// The nonce of a password change.
pub(crate) async fn send_reauthentication(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    request: &RequestInfo,
) -> Result<ReservedText, AuthError> {
    let phone = PhoneNumber::parse(&user.phone)?;
    audit::record(auth, tx, AuditEvent::new(user, Action::UserReauthenticateRequested), request.now).await?;
    reserve(auth, tx, CodeMessage { user, kind: Kind::Reauthentication, phone: &phone, channel: "sms" }, request).await
}

/// `POST /signup` with a phone number.
pub(crate) async fn sign_up(
    auth: &Auth,
    request: &RequestInfo,
    phone: &str,
    password: &str,
    data: JsonObject,
    channel: &str,
    challenge: Option<Challenge>,
) -> Result<Response, AuthError> {
    let settings = &auth.settings().sms;
    check_channel(auth, channel)?;
    if challenge.is_some() {
        return Err(ContractError::PhoneSignUpWithPkce.into());
    }
    if !settings.enabled {
        return Err(ContractError::PhoneSignUpsDisabled.into());
    }
    let phone = PhoneNumber::parse(phone)?;
    let hash = auth.passwords().hash(password).await?;
    let applicant = Applicant { phone: &phone, password, hash: &hash, data: &data, channel };
    let registration = register(auth, request, &applicant);
    // As at the sign-up with an address: a guess at the password of an account that is there already
    if settings.autoconfirm {
        attempts::password(auth, phone.as_str(), request, registration).await
    } else {
        registration.await
    }
}

async fn register(auth: &Auth, request: &RequestInfo, applicant: &Applicant<'_>) -> Result<Response, AuthError> {
    for _ in 0..ATTEMPTS {
        if let Some(response) = try_sign_up(auth, request, applicant).await? {
            return Ok(response);
        }
    }
    // Usually the number is taken in another audience, which is for nobody to know
    if auth.settings().sms.autoconfirm {
        return Err(ContractError::UserExists.into());
    }
    Ok(axum::Json(stranger(request, applicant.phone, applicant.data.clone())).into_response())
}

/// How often a sign-up is tried when somebody else made the account at the same moment: the next time it is there.
const ATTEMPTS: usize = 3;

/// Someone who signs up with a number and a password.
struct Applicant<'a> {
    phone: &'a PhoneNumber,
    password: &'a str,
    hash: &'a str,
    data: &'a JsonObject,
    channel: &'a str,
}

/// `None`: somebody else made the account at the same time.
async fn try_sign_up(
    auth: &Auth,
    request: &RequestInfo,
    applicant: &Applicant<'_>,
) -> Result<Option<Response>, AuthError> {
    let Applicant { phone, password, hash, data, channel } = *applicant;
    let autoconfirm = auth.settings().sms.autoconfirm;
    let tx = Tx::begin(auth.database()).await?;
    let (user, is_new) = match users::lock_by_phone(&tx, phone, &request.aud).await? {
        None => match insert(auth, &tx, request, phone, hash, data.clone()).await {
            Ok(user) => (user, true),
            Err(error) if error.code() == ErrorCode::PhoneExists => return Ok(None),
            Err(error) => return Err(error),
        },
        Some(user) if user.is_phone_confirmed() => {
            if autoconfirm {
                return Err(ContractError::UserExists.into());
            }
            let traits = provider_trait("phone");
            audit::record(
                auth,
                &tx,
                AuditEvent::new(&user, Action::UserRepeatedSignUp).with_traits(traits),
                request.now,
            )
            .await?;
            tx.commit().await?;
            return Ok(Some(axum::Json(stranger(request, phone, data.clone())).into_response()));
        }
        Some(user) => {
            if autoconfirm {
                if !auth.is_password_of(&user, password).await? {
                    return Err(ContractError::UserExists.into());
                }
            } else {
                // What is chosen now belongs to the code that is sent now
                let data = metadata::of_contact(data.clone(), user.id, None);
                let hash = auth.columns().encrypt(user.id.0, hash);
                users::replace_credentials(&tx, user.id, &hash, &data, request.now).await?;
            }
            (user, false)
        }
    };
    if autoconfirm {
        let mut traits = provider_trait("phone");
        traits.insert("channel".into(), if channel.is_empty() { "sms" } else { channel }.into());
        audit::record(auth, &tx, AuditEvent::new(&user, Action::UserSignedUp).with_traits(traits), request.now).await?;
        users::confirm_phone(&tx, user.id, request.now).await.context(ContractError::UpdatingUserFailed)?;
        let mut user = users::complete(&tx, user.id).await?.ok_or(ContractError::SubjectGone)?;
        // Wire contract (4.2): this answer does not have it
        user.confirmed_at = None;
        let tokens = session::issue(auth, &tx, &user, Method::Password, request).await?;
        tx.commit().await?;
        return Ok(Some(tokens.into_response()));
    }
    let action = Action::UserConfirmationRequested;
    audit::record(auth, &tx, AuditEvent::new(&user, action).with_traits(provider_trait("phone")), request.now).await?;
    let reserved = send_confirmation(auth, &tx, &user, channel, request).await?;
    let user = users::complete(&tx, user.id).await?.ok_or(ContractError::SubjectGone)?;
    tx.commit().await?;
    if is_new { reserved.of_new_account() } else { reserved }.deliver(auth).await?;
    Ok(Some(axum::Json(user).into_response()))
}

/// Wire contract (4.3): an account that looks new and does not exist, for a number that has one.
fn stranger(request: &RequestInfo, phone: &PhoneNumber, data: JsonObject) -> User {
    User {
        phone: phone.to_string(),
        app_metadata: provider_metadata("phone"),
        user_metadata: data,
        confirmation_sent_at: Some(request.now),
        ..blank(request)
    }
}

async fn insert(
    auth: &Auth,
    tx: &Tx,
    request: &RequestInfo,
    phone: &PhoneNumber,
    hash: &str,
    data: JsonObject,
) -> Result<User, AuthError> {
    const FAILED: ContractError = ContractError::SavingUserFailed;
    let (id, now) = (UserId::random(), request.now);
    let password = auth.columns().encrypt(id.0, hash);
    let full = metadata::of_contact(data.clone(), id, None);
    let new = NewUser {
        id,
        aud: &request.aud,
        email: "",
        phone: phone.as_str(),
        encrypted_password: &password,
        app_metadata: provider_metadata("phone"),
        user_metadata: data,
        is_sso_user: false,
        is_anonymous: false,
    };
    let mut claims = full.clone();
    claims.insert("phone".into(), phone.as_str().into());
    // The person may write any address into `data`, and that of an identity is read as a claim to it
    claims.shift_remove("email");
    let provider_id = id.to_string();
    let (inserted, role, identity, metadata, user) = tokio::join!(biased;
        users::insert(tx, &new, now),
        users::set_role(tx, id, &auth.settings().jwt.default_role, now),
        identities::insert(tx, id, "phone", &provider_id, &claims, now),
        users::set_user_metadata(tx, id, &full, now),
        users::complete(tx, id),
    );
    inserted.on_constraint("users_phone_key", ContractError::PhoneTaken).context(FAILED)?;
    role.context(FAILED)?;
    identity.context(FAILED)?;
    metadata.context(FAILED)?;
    user.context(FAILED)?.ok_or_else(|| AuthError::internal(anyhow::anyhow!("a trigger removed the new user")))
}

fn unknown_number() -> AuthError {
    AuthError::from(ContractError::OtpSignUpsDisabled)
}

/// `POST /otp` with a phone number.
pub(crate) async fn sign_in(
    auth: &Auth,
    request: &RequestInfo,
    phone: &str,
    data: JsonObject,
    channel: &str,
    may_create: bool,
) -> Result<Response, AuthError> {
    if !auth.settings().sms.enabled {
        return Err(ContractError::PhoneOtpDisabled.into());
    }
    let phone = match PhoneNumber::parse(phone) {
        Ok(phone) => phone,
        Err(error) => return Err(if may_create { error } else { unknown_number() }),
    };
    check_channel(auth, channel)?;
    for _ in 0..ATTEMPTS {
        if let Some(answer) = try_sign_in(auth, request, &phone, &data, channel, may_create).await? {
            return Ok((StatusCode::OK, axum::Json(answer)).into_response());
        }
    }
    // As at the sign-up
    Ok((StatusCode::OK, axum::Json(json!({}))).into_response())
}

/// `None`: somebody else made the account at the same time.
async fn try_sign_in(
    auth: &Auth,
    request: &RequestInfo,
    phone: &PhoneNumber,
    data: &JsonObject,
    channel: &str,
    may_create: bool,
) -> Result<Option<Value>, AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    match users::lock_by_phone(&tx, phone, &request.aud).await? {
        Some(user) if user.is_phone_confirmed() => {
            let traits = Traits::from_iter([("channel".to_owned(), "sms".into())]);
            audit::record(
                auth,
                &tx,
                AuditEvent::new(&user, Action::UserRecoveryRequested).with_traits(traits),
                request.now,
            )
            .await?;
            let reserved = send_confirmation(auth, &tx, &user, channel, request).await?;
            tx.commit().await?;
            reserved.deliver(auth).await.map(Some)
        }
        None if !may_create => Err(unknown_number()),
        _ if auth.settings().disable_signup => Err(ContractError::SignUpsDisabled.into()),
        Some(user) => {
            let data = metadata::of_contact(data.clone(), user.id, None);
            users::replace_credentials(&tx, user.id, "", &data, request.now).await?;
            let reserved = send_confirmation(auth, &tx, &user, channel, request).await?;
            tx.commit().await?;
            reserved.deliver(auth).await?;
            Ok(Some(json!({})))
        }
        None => {
            let user = match insert(auth, &tx, request, phone, "", data.clone()).await {
                Err(error) if error.code() == ErrorCode::PhoneExists => return Ok(None),
                inserted => inserted?,
            };
            let reserved = send_confirmation(auth, &tx, &user, channel, request).await?.of_new_account();
            tx.commit().await?;
            reserved.deliver(auth).await?;
            Ok(Some(json!({})))
        }
    }
}

/// `PUT /user` with another number (auth-core 7.4). `None`: the number is changed at once.
pub(crate) async fn begin_phone_change(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    new: &PhoneNumber,
    channel: &str,
    request: &RequestInfo,
) -> Result<Option<ReservedText>, AuthError> {
    if auth.settings().sms.autoconfirm {
        let mut changed = user.clone();
        changed.phone_change = new.to_string();
        apply_phone_change(auth, tx, &changed, request).await?;
        users::refresh_providers(tx, user.id, request.now).await.context(ContractError::UpdatingUserFailed)?;
        return Ok(None);
    }
    send_phone_change(auth, tx, user, new, channel, request).await.map(Some)
}

/// The pending number becomes the user's.
pub(crate) async fn apply_phone_change(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    let new = PhoneNumber::parse(&user.phone_change)?;
    let data = JsonObject::from_iter([
        ("sub".to_owned(), user.id.to_string().into()),
        ("phone".to_owned(), new.as_str().into()),
        ("phone_verified".to_owned(), true.into()),
    ]);
    let (applied, identity) = tokio::join!(biased;
        users::apply_phone_change(tx, user.id, &new, request.now),
        identities::upsert_contact(tx, user.id, "phone", &data, request.now),
    );
    applied.on_constraint("users_phone_key", ContractError::PhoneTaken).context(ContractError::UpdatingUserFailed)?;
    identity?;
    if !user.email.is_empty() {
        let variables = Variables {
            phone: Some(new.to_string()),
            old_phone: Some(user.phone.clone()),
            ..mailer::variables(auth, user)
        };
        mailer::notify(auth, tx, MailKind::PhoneChanged, &user.email, &variables).await?;
    }
    Ok(())
}
