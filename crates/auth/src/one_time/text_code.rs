//! Whether a code that somebody typed is the one that a text message brought.

use std::time::Duration;

use subtle::ConstantTimeEq as _;
use time::OffsetDateTime;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::model::User;
use crate::model::ids::PhoneNumber;
use crate::one_time::token::{self, Kind};

/// What a gateway that makes the codes itself says about one.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// The token that waited for its code when the gateway was asked.
    waiting: String,
    is_right: bool,
}

/// Whether the gateway makes the codes of this number, so that it must be asked.
pub(crate) fn is_made_by_gateway(auth: &Auth, phone: &PhoneNumber, code: &str, now: OffsetDateTime) -> bool {
    // The future is not run
    let asks = auth.texts().is_some_and(|texts| texts.check(phone.as_str(), code).is_some());
    asks && test_otp(auth, phone, now).is_none()
}

/// Asks the gateway, where it makes the codes and something waits for one. Not while a transaction is open: a gateway may
/// be slow.
///
/// # Errors
/// 422 `sms_send_failed` when the gateway gave no verdict.
pub(crate) async fn ask_gateway(
    auth: &Auth,
    waiting: &str,
    phone: &PhoneNumber,
    code: &str,
    now: OffsetDateTime,
) -> Result<Option<Verdict>, AuthError> {
    if waiting.is_empty() || test_otp(auth, phone, now).is_some() {
        return Ok(None);
    }
    let Some(verdict) = auth.texts().and_then(|texts| texts.check(phone.as_str(), code)) else {
        return Ok(None);
    };
    let is_right = in_time(auth.settings().http_timeout, verdict)
        .await
        .map_err(|detail| AuthError::from(ContractError::TextCodeNotChecked { detail }))?;
    Ok(Some(Verdict { waiting: waiting.to_owned(), is_right }))
}

/// A gateway's answer, unless it takes too long.
pub(crate) async fn in_time<T>(limit: Duration, answer: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let answer = tokio::time::timeout(limit, answer).await;
    answer.unwrap_or_else(|_| Err("the provider did not answer in time".to_owned()))
}

/// Whether a code is the one that proves that `phone` is the user's: the fixed one of a test number, or the one that was
/// sent and has not been used. The gateway decides where it makes the codes, and then also how long they live: `verdict`.
pub(crate) fn is_right_code(
    auth: &Auth,
    user: &User,
    kind: Kind,
    phone: &PhoneNumber,
    code: &str,
    verdict: Option<&Verdict>,
    now: OffsetDateTime,
) -> bool {
    let (stored, is_fresh) = (kind.stored(user), kind.is_fresh(user, auth.settings().sms.otp_expiry, now));
    if let Some(expected) = test_otp(auth, phone, now) {
        // A nonce must have been asked for; to sign in, the fixed code is enough
        let is_right: bool = expected.as_bytes().ct_eq(code.as_bytes()).into();
        return is_right && (kind != Kind::Reauthentication || is_fresh);
    }
    if stored.is_empty() {
        return false;
    }
    match verdict {
        // Another message was sent, or the code was used, while the gateway was asked
        Some(verdict) => verdict.is_right && verdict.waiting == stored,
        None if is_made_by_gateway(auth, phone, code, now) => false,
        None => is_fresh && token::code_matches(stored, phone.as_str(), code),
    }
}

/// Returns true if a code for this number tells for which account it was sent: neither the fixed one of a test number nor
/// one that the gateway makes does.
pub(crate) fn names_account(auth: &Auth, phone: &PhoneNumber, code: &str, now: OffsetDateTime) -> bool {
    test_otp(auth, phone, now).is_none() && !is_made_by_gateway(auth, phone, code, now)
}

/// The fixed code of a number that an application tests with.
pub(crate) fn test_otp<'a>(auth: &'a Auth, phone: &PhoneNumber, now: OffsetDateTime) -> Option<&'a str> {
    let sms = &auth.settings().sms;
    if sms.test_otps_valid_until.is_some_and(|until| now > until) {
        return None;
    }
    sms.test_otps.get(phone.as_str()).map(String::as_str).filter(|code| !code.is_empty())
}
