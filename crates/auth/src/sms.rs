//! Accounts with a phone number (auth-core 16): codes by text message.
//!
//! How a message travels is not known here: a [`TextTransport`] takes it, a gateway of the operator's or the development
//! inbox. It is sent before the transaction commits, so a number that can not be reached leaves nothing behind.

use axum::response::{IntoResponse as _, Response};
use futures_util::future::BoxFuture;
use http::StatusCode;
use portico_mail::{MailKind, Template, Variables};
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;
use time::OffsetDateTime;

use crate::Auth;
use crate::audit::{self, Action, Traits, provider_trait};
use crate::error::{AuthError, ErrorCode, SqlResultExt as _};
use crate::extract::RequestInfo;
use crate::ids::{PhoneNumber, UserId};
use crate::mailer;
use crate::metadata;
use crate::model::{JsonObject, User};
use crate::one_time_token::{self, Kind, OneTimeToken};
use crate::pkce::Challenge;
use crate::session::{self, Method};
use crate::signup::{blank, provider_metadata};
use crate::sql::users::NewUser;
use crate::sql::{Tx, identities, one_time_tokens, users};

/// A text message.
#[derive(Debug, Clone)]
pub struct TextMessage {
    /// Digits without the plus sign.
    pub to: String,
    /// What it says.
    pub body: String,
    /// The code in it, for gateways with templates of their own.
    pub code: String,
    /// `sms` or `whatsapp`.
    pub channel: String,
}

/// Something that takes text messages.
pub trait TextTransport: Send + Sync {
    /// Hands the message over. Returns the gateway's id of it, which may be empty.
    ///
    /// # Errors
    /// What the gateway said, for the caller: no secrets.
    fn send(&self, message: TextMessage) -> BoxFuture<'_, Result<String, String>>;

    /// Whether the `whatsapp` channel works.
    fn speaks_whatsapp(&self) -> bool {
        false
    }

    /// Whether a code is the one that was sent to a number, where the gateway makes the codes itself. `None`: it does
    /// not, and the code is the one of the [`TextMessage`].
    ///
    /// # Errors
    /// What the gateway said instead of a verdict, for the caller: no secrets.
    fn check<'a>(&'a self, _to: &'a str, _code: &'a str) -> Option<BoxFuture<'a, Result<bool, String>>> {
        None
    }
}

const BAD_CHANNEL: &str = "Invalid channel, supported values are 'sms' or 'whatsapp'. 'whatsapp' is only supported if \
     Twilio or Twilio Verify is used as the provider.";

/// Whether messages can travel this way. Empty is `sms`.
///
/// # Errors
/// 400 `validation_failed`.
pub(crate) fn check_channel(auth: &Auth, channel: &str) -> Result<(), AuthError> {
    let works = match channel {
        "" | "sms" => true,
        "whatsapp" => auth.texts().is_some_and(|texts| texts.speaks_whatsapp()),
        _ => false,
    };
    if works { Ok(()) } else { Err(AuthError::validation(BAD_CHANNEL)) }
}

/// Whether a code is the one that proves that `phone` is the user's: the fixed one of a test number, or the one that was
/// sent and has not been used. The gateway decides where it makes the codes, and then also how long they live.
///
/// # Errors
/// 422 `sms_send_failed` when the gateway gave no verdict.
pub(crate) async fn is_right_code(
    auth: &Auth,
    user: &User,
    kind: Kind,
    phone: &PhoneNumber,
    code: &str,
    now: OffsetDateTime,
) -> Result<bool, AuthError> {
    let settings = auth.settings();
    let (stored, is_fresh) = (kind.stored(user), kind.is_fresh(user, settings.sms.otp_expiry, now));
    if test_otp(auth, phone, now).is_some() {
        // A nonce must have been asked for; to sign in, the fixed code is enough
        return Ok(is_test_otp(auth, phone, code, now) && (kind != Kind::Reauthentication || is_fresh));
    }
    if stored.is_empty() {
        return Ok(false);
    }
    let Some(verdict) = auth.texts().and_then(|texts| texts.check(phone.as_str(), code)) else {
        return Ok(is_fresh && one_time_token::code_matches(stored, phone.as_str(), code));
    };
    let verdict = tokio::time::timeout(settings.http_timeout, verdict).await;
    verdict.unwrap_or_else(|_| Err("the provider did not answer in time".to_owned())).map_err(|detail| {
        AuthError::refuse(ErrorCode::SmsSendFailed, format!("Error checking OTP with provider: {detail}"))
    })
}

/// Whether a code is the fixed one of a number that an application tests with.
fn is_test_otp(auth: &Auth, phone: &PhoneNumber, code: &str, now: OffsetDateTime) -> bool {
    test_otp(auth, phone, now).is_some_and(|expected| bool::from(expected.as_bytes().ct_eq(code.as_bytes())))
}

fn test_otp<'a>(auth: &'a Auth, phone: &PhoneNumber, now: OffsetDateTime) -> Option<&'a str> {
    let sms = &auth.settings().sms;
    if sms.test_otps_valid_until.is_some_and(|until| now > until) {
        return None;
    }
    sms.test_otps.get(phone.as_str()).map(String::as_str).filter(|code| !code.is_empty())
}

/// Sends a code of a kind, and stores it. Returns the answer of the request.
async fn send(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    kind: Kind,
    phone: &PhoneNumber,
    channel: &str,
    request: &RequestInfo,
) -> Result<Value, AuthError> {
    let settings = &auth.settings().sms;
    if let Some(wait) = kind.wait(user, settings.max_frequency, request.now) {
        return Err(AuthError::too_early(ErrorCode::OverSmsSendRateLimit, wait));
    }
    check_channel(auth, channel)?;
    let token = OneTimeToken::generate(phone.as_str(), settings.otp_length, false);
    let is_test = test_otp(auth, phone, request.now).is_some();
    if !is_test && !settings.autoconfirm {
        auth.limits().take_text(request.now)?;
    }
    match kind {
        Kind::PhoneChange => users::set_phone_change(tx, user.id, phone, &token.hash, request.now).await,
        Kind::Reauthentication => users::set_reauthentication(tx, user.id, &token.hash, request.now).await,
        _ => users::set_confirmation(tx, user.id, &token.hash, request.now).await,
    }
    .context("Database error updating user")?;
    one_time_tokens::put(tx, user.id, kind.as_str(), &token.hash, phone.as_str(), request.now).await?;
    if is_test {
        return Ok(json!({"message_id": "test-otp"}));
    }
    let what = match kind {
        Kind::PhoneChange => "phone_change",
        Kind::Reauthentication => "reauthentication",
        _ => "confirmation",
    };
    let texts = auth
        .texts()
        .ok_or_else(|| AuthError::internal_with("Unable to get SMS provider", anyhow::anyhow!("no SMS provider")))?;
    let body = Template::parse(&settings.template)
        .and_then(|template| template.render(&json!({"Code": token.code})))
        .unwrap_or_else(|_| format!("Your code is {}", token.code));
    let channel = if channel.is_empty() { "sms" } else { channel };
    let message = TextMessage { to: phone.to_string(), body, code: token.code.clone(), channel: channel.to_owned() };
    let sent = tokio::time::timeout(auth.settings().http_timeout, texts.send(message)).await;
    let id = sent.unwrap_or_else(|_| Err("the provider did not answer in time".to_owned())).map_err(|detail| {
        AuthError::refuse(ErrorCode::SmsSendFailed, format!("Error sending {what} OTP to provider: {detail}"))
    })?;
    Ok(if id.is_empty() { json!({}) } else { json!({"message_id": id}) })
}

/// A code that confirms the number of an account, or signs in.
pub(crate) async fn send_confirmation(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    channel: &str,
    request: &RequestInfo,
) -> Result<Value, AuthError> {
    let phone = PhoneNumber::parse(&user.phone)?;
    send(auth, tx, user, Kind::Confirmation, &phone, channel, request).await
}

/// A code that confirms another number.
pub(crate) async fn send_phone_change(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    new: &PhoneNumber,
    channel: &str,
    request: &RequestInfo,
) -> Result<Value, AuthError> {
    send(auth, tx, user, Kind::PhoneChange, new, channel, request).await
}

/// The nonce of a password change.
pub(crate) async fn send_reauthentication(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    request: &RequestInfo,
) -> Result<Value, AuthError> {
    let phone = PhoneNumber::parse(&user.phone)?;
    audit::record(auth, tx, user, Action::UserReauthenticateRequested, Traits::new(), None, request.now).await?;
    send(auth, tx, user, Kind::Reauthentication, &phone, "sms", request).await
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
        return Err(AuthError::validation("PKCE not supported for phone signups"));
    }
    if !settings.enabled {
        return Err(AuthError::refuse(ErrorCode::PhoneProviderDisabled, "Phone signups are disabled"));
    }
    let phone = PhoneNumber::parse(phone)?;
    let hash = auth.passwords().hash(password).await?;
    let tx = Tx::begin(auth.database()).await?;
    let user = match users::lock_by_phone(&tx, &phone, &request.aud).await? {
        None => match insert(auth, &tx, request, &phone, &hash, data.clone()).await {
            // Usually the number is taken in another audience, which is for nobody to know
            Err(error) if error.code() == ErrorCode::PhoneExists && !settings.autoconfirm => {
                return Ok(axum::Json(stranger(request, &phone, data)).into_response());
            }
            inserted => inserted?,
        },
        Some(user) if user.is_phone_confirmed() => {
            if settings.autoconfirm {
                return Err(AuthError::user_already_exists());
            }
            let traits = provider_trait("phone");
            audit::record(auth, &tx, &user, Action::UserRepeatedSignUp, traits, None, request.now).await?;
            tx.commit().await?;
            return Ok(axum::Json(stranger(request, &phone, data)).into_response());
        }
        Some(user) => {
            if settings.autoconfirm {
                if !auth.is_password_of(&user, password).await? {
                    return Err(AuthError::user_already_exists());
                }
            } else {
                // What is chosen now belongs to the code that is sent now
                let data = metadata::of_contact(data, user.id, None);
                let hash = auth.columns().seal(user.id.0, &hash);
                users::replace_credentials(&tx, user.id, &hash, &data, request.now).await?;
            }
            user
        }
    };
    if settings.autoconfirm {
        let mut traits = provider_trait("phone");
        traits.insert("channel".into(), if channel.is_empty() { "sms" } else { channel }.into());
        audit::record(auth, &tx, &user, Action::UserSignedUp, traits, None, request.now).await?;
        users::confirm_phone(&tx, user.id, request.now).await.context("Database error updating user")?;
        let mut user = users::complete(&tx, user.id).await?.ok_or_else(AuthError::user_gone)?;
        // Wire contract (4.2): this answer does not have it
        user.confirmed_at = None;
        let tokens = session::issue(auth, &tx, &user, Method::Password, request).await?;
        tx.commit().await?;
        return Ok(tokens.into_response());
    }
    let action = Action::UserConfirmationRequested;
    audit::record(auth, &tx, &user, action, provider_trait("phone"), None, request.now).await?;
    send_confirmation(auth, &tx, &user, channel, request).await?;
    let user = users::complete(&tx, user.id).await?.ok_or_else(AuthError::user_gone)?;
    tx.commit().await?;
    Ok(axum::Json(user).into_response())
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
    const FAILED: &str = "Database error saving new user";
    let (id, now) = (UserId::random(), request.now);
    let password = auth.columns().seal(id.0, hash);
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
    let provider_id = id.to_string();
    let (inserted, role, identity, metadata, user) = tokio::join!(biased;
        users::insert(tx, &new, now),
        users::set_role(tx, id, &auth.settings().jwt.default_role, now),
        identities::insert(tx, id, "phone", &provider_id, &claims, now),
        users::set_user_metadata(tx, id, &full, now),
        users::complete(tx, id),
    );
    inserted.on_constraint("users_phone_key", AuthError::phone_exists).context(FAILED)?;
    role.context(FAILED)?;
    identity.context(FAILED)?;
    metadata.context(FAILED)?;
    user.context(FAILED)?.ok_or_else(|| AuthError::internal(anyhow::anyhow!("a trigger removed the new user")))
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
    let unknown = || AuthError::refuse(ErrorCode::OtpDisabled, "Signups not allowed for otp");
    let settings = auth.settings();
    if !settings.sms.enabled {
        return Err(AuthError::refuse(ErrorCode::PhoneProviderDisabled, "Unsupported phone provider"));
    }
    let phone = match PhoneNumber::parse(phone) {
        Ok(phone) => phone,
        Err(error) => return Err(if may_create { error } else { unknown() }),
    };
    check_channel(auth, channel)?;
    let tx = Tx::begin(auth.database()).await?;
    let answer = match users::lock_by_phone(&tx, &phone, &request.aud).await? {
        Some(user) if user.is_phone_confirmed() => {
            let traits = Traits::from_iter([("channel".to_owned(), "sms".into())]);
            audit::record(auth, &tx, &user, Action::UserRecoveryRequested, traits, None, request.now).await?;
            send_confirmation(auth, &tx, &user, channel, request).await?
        }
        None if !may_create => return Err(unknown()),
        _ if settings.disable_signup => return Err(AuthError::signup_disabled()),
        existing => {
            let user = match existing {
                Some(user) => {
                    let data = metadata::of_contact(data, user.id, None);
                    users::replace_credentials(&tx, user.id, "", &data, request.now).await?;
                    user
                }
                None => match insert(auth, &tx, request, &phone, "", data).await {
                    // As at the sign-up
                    Err(error) if error.code() == ErrorCode::PhoneExists => {
                        return Ok((StatusCode::OK, axum::Json(json!({}))).into_response());
                    }
                    inserted => inserted?,
                },
            };
            send_confirmation(auth, &tx, &user, channel, request).await?;
            json!({})
        }
    };
    tx.commit().await?;
    Ok((StatusCode::OK, axum::Json(answer)).into_response())
}

/// `PUT /user` with another number (auth-core 7.4).
pub(crate) async fn begin_phone_change(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    new: &PhoneNumber,
    channel: &str,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    if auth.settings().sms.autoconfirm {
        let mut changed = user.clone();
        changed.phone_change = new.to_string();
        apply_phone_change(auth, tx, &changed, request).await?;
        return users::refresh_providers(tx, user.id, request.now).await.context("Database error updating user");
    }
    send_phone_change(auth, tx, user, new, channel, request).await.map(drop)
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
    applied.on_constraint("users_phone_key", AuthError::phone_exists).context("Database error updating user")?;
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
