//! Phones as second factors: codes in text messages.

use std::time::Duration;

use portico_base::hash;
use portico_mail::Template;
use serde::Deserialize;
use serde_json::{Map, json};
use time::OffsetDateTime;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::factors::OwnFactor;
use crate::factors::draft::{EnrollBody, FactorDraft};
use crate::hooks::{self, HookCall};
use crate::http::extract::RequestInfo;
use crate::messages::text_transport::{TextMessage, within};
use crate::model::ids::PhoneNumber;
use crate::model::{Factor, User};
use crate::one_time::text_code::{TypedCode, is_made_by_gateway};
use crate::one_time::text_message::check_channel;
use crate::one_time::token::{OneTimeToken, code_matches};
use crate::sql::attempts::{self, ChargedLimit, MessagePause};
use crate::sql::mfa_challenges::FactorChallenge;
use crate::sql::{Tx, mfa_factors};

/// The messages that an account may send at once. A person has few phones, but a session can enrol
/// any number, and each has a pause of its own.
const ACCOUNT_MESSAGES: u32 = 10;

/// The time in which an account may send [`ACCOUNT_MESSAGES`] again.
const ACCOUNT_PERIOD: Duration = Duration::from_secs(3600);

/// Reads the number of a new factor.
pub(super) fn draft(user: &User, body: &EnrollBody) -> Result<FactorDraft, AuthError> {
    if body.phone.is_empty() {
        return Err(ContractError::FactorPhoneMissing.into());
    }
    let phone = PhoneNumber::parse(&body.phone)?.to_string();
    if user.factors.iter().any(|factor| factor.is_verified() && factor.phone == phone) {
        return Err(ContractError::FactorPhoneVerified.into());
    }
    let response = Map::from_iter([("phone".to_owned(), json!(body.phone))]);
    Ok(FactorDraft { secret: None, phone: Some(phone), response })
}

/// The body of a challenge.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PhoneChallengeBody {
    channel: String,
}

/// Sends a code to the number of a factor. Returns its hash.
///
/// The time of the message is recorded before it is sent: so concurrent requests send one, and no
/// connection waits for the gateway.
///
/// # Errors
/// 400 for a channel that does not work, 429 when it is too soon, 500 when the message cannot be
/// sent.
pub(super) async fn send(
    auth: &Auth,
    own: &OwnFactor,
    request: &RequestInfo,
    body: PhoneChallengeBody,
) -> Result<String, AuthError> {
    check_channel(auth, &body.channel)?;
    let settings = &auth.settings().factors.phone;
    let phone = PhoneNumber::parse(&own.factor.phone)?;
    let now = auth.now();
    let reserved = reserve(auth, own, &phone, now).await?;
    let token = match auth.settings().sms.test_code(phone.as_str(), now) {
        Some(code) => return Ok(OneTimeToken::of_code(phone.as_str(), code).hash),
        None => OneTimeToken::generate(phone.as_str(), settings.otp_length, false),
    };
    let call = hooks::text_message_call(auth, request, &own.owner.user, (phone.as_str(), &token.code), Some("mfa"));
    let text = Template::parse(&settings.template)
        .and_then(|template| template.render(&json!({"Code": token.code})))
        .unwrap_or_else(|_| format!("Your code is {}", token.code));
    let channel = if body.channel.is_empty() { "sms".to_owned() } else { body.channel };
    let message = TextMessage { to: phone.to_string(), body: text, code: token.code, channel };
    let delivered = match &call {
        Some(call) => deliver_by_hook(auth, call).await,
        None => deliver(auth, message).await,
    };
    if let Err(error) = delivered {
        undo(auth, &own.factor, &reserved).await;
        return Err(error);
    }
    Ok(token.hash)
}

/// A message whose time is recorded.
struct ReservedMessage {
    pause: MessagePause,
    /// The limit of the account, unless the number is a test number, which is sent nothing.
    charged: Option<ChargedLimit>,
    /// The time of the factor's challenge before it.
    challenged_before: Option<OffsetDateTime>,
}

/// Records the time of a message to the number of a factor.
///
/// The pause belongs to the account and the number, and not to the factor: a person can enrol the
/// same number again. All numbers of an account share a further limit.
async fn reserve(
    auth: &Auth,
    own: &OwnFactor,
    phone: &PhoneNumber,
    now: OffsetDateTime,
) -> Result<ReservedMessage, AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    let factor = mfa_factors::lock(&tx, own.factor.id).await?.ok_or(ContractError::FactorUnknown)?;
    let limited = format!("factor messages of {} to {phone}", own.owner.user.id);
    let pause = MessagePause {
        kind: "factor-messages",
        account: hash::sha256(limited.as_bytes()).to_vec(),
        start: now,
        end: now + auth.settings().factors.phone.max_frequency,
    };
    if let Some(wait) = attempts::start_pause(&tx, &pause).await? {
        return Err(AuthError::too_soon(wait, |seconds| ContractError::TextTooSoon { seconds }));
    }
    let is_sent = auth.settings().sms.test_code(phone.as_str(), now).is_none();
    let charged = is_sent.then(|| ChargedLimit {
        kind: "factor-messages-per-account",
        account: hash::sha256(format!("factor messages of {}", own.owner.user.id).as_bytes()).to_vec(),
        each: ACCOUNT_PERIOD / ACCOUNT_MESSAGES,
        size: ACCOUNT_MESSAGES,
    });
    if let Some(limit) = &charged
        && let Some(wait) = attempts::charge_message(&tx, limit, now).await?
    {
        return Err(AuthError::too_soon(wait, |seconds| ContractError::TextTooSoon { seconds }));
    }
    mfa_factors::set_challenged(&tx, factor.id, now).await?;
    tx.commit().await?;
    Ok(ReservedMessage { pause, charged, challenged_before: factor.last_challenged_at })
}

/// Has the hook send a message.
async fn deliver_by_hook(auth: &Auth, call: &HookCall) -> Result<(), AuthError> {
    auth.limits().take_text()?;
    match Box::pin(auth.hooks().call(call)).await {
        Ok(_) => Ok(()),
        // Clients know no other text here; the cause is in the log
        Err(_) => Err(ContractError::FactorTextHookFailed.into()),
    }
}

/// Hands a message to the gateway.
async fn deliver(auth: &Auth, message: TextMessage) -> Result<(), AuthError> {
    let Some(texts) = auth.text_transport() else {
        let missing = anyhow::anyhow!("no SMS provider");
        return Err(AuthError::failed(ContractError::FactorTextProviderMissing, missing));
    };
    auth.limits().take_text()?;
    let sent = within(auth.settings().http_timeout, texts.send(message)).await;
    sent.map(drop).map_err(|detail| AuthError::failed(ContractError::FactorTextFailed, anyhow::anyhow!(detail)))
}

/// Undoes [`reserve`]: the next message need not wait.
async fn undo(auth: &Auth, factor: &Factor, reserved: &ReservedMessage) {
    let ReservedMessage { pause, charged, challenged_before } = reserved;
    let undone = async {
        let tx = Tx::begin(auth.database()).await?;
        mfa_factors::undo_challenged(&tx, factor.id, pause.start, *challenged_before).await?;
        attempts::cancel_pause(&tx, pause).await?;
        attempts::give_back(&tx, charged.as_slice()).await?;
        tx.commit().await
    };
    if let Err(error) = undone.await {
        error.log();
    }
}

/// Returns true if a code is the one that was sent. Where the gateway makes the codes, it decides.
///
/// # Errors
/// 403 `otp_expired` for a code that the gateway rejects, 422 when it gives no verdict.
pub(super) async fn is_right_code(
    auth: &Auth,
    factor: &Factor,
    challenge: &FactorChallenge,
    code: &str,
) -> Result<bool, AuthError> {
    let phone = PhoneNumber::parse(&factor.phone)?;
    let typed = TypedCode { phone: &phone, code: code.trim() };
    if !is_made_by_gateway(auth, typed, auth.now()) {
        let stored = challenge.otp_code.as_deref().unwrap_or_default();
        return Ok(code_matches(stored, typed.phone.as_str(), typed.code));
    }
    let verdict = auth.text_transport().and_then(|texts| texts.check(typed.phone.as_str(), typed.code));
    let Some(verdict) = verdict else { return Ok(false) };
    let is_right = within(auth.settings().http_timeout, verdict)
        .await
        .map_err(|detail| ContractError::TextCodeNotChecked { detail })?;
    if is_right { Ok(true) } else { Err(ContractError::CodeExpired.into()) }
}
