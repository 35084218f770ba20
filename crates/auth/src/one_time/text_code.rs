//! Checks codes that were typed for a phone number.

use subtle::ConstantTimeEq as _;
use time::OffsetDateTime;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::messages::text_transport::within;
use crate::model::User;
use crate::model::ids::PhoneNumber;
use crate::one_time::token::{self, TokenKind};
use crate::settings::HookPoint;

/// A code that was typed for a phone number.
#[derive(Clone, Copy)]
pub(crate) struct TypedCode<'a> {
    pub(crate) phone: &'a PhoneNumber,
    pub(crate) code: &'a str,
}

/// The verdict of a gateway that makes the codes itself.
#[derive(Debug)]
pub(crate) struct GatewayVerdict {
    /// The token that was pending when the gateway was asked.
    pending: String,
    is_right: bool,
}

/// Returns true if the gateway makes the codes of this number, so that it must be asked.
pub(crate) fn is_made_by_gateway(auth: &Auth, typed: TypedCode<'_>, now: OffsetDateTime) -> bool {
    // With a hook, the codes are those of this server. The future is not polled
    let asks = !auth.hooks().has(HookPoint::SendSms)
        && auth.text_transport().is_some_and(|texts| texts.check(typed.phone.as_str(), typed.code).is_some());
    asks && auth.settings().sms.test_code(typed.phone.as_str(), now).is_none()
}

/// Asks the gateway, where it makes the codes and a token is pending. Not while a transaction is
/// open: a gateway may be slow.
///
/// # Errors
/// 422 `sms_send_failed` when the gateway gave no verdict.
pub(crate) async fn check_at_gateway(
    auth: &Auth,
    pending: &str,
    typed: TypedCode<'_>,
    now: OffsetDateTime,
) -> Result<Option<GatewayVerdict>, AuthError> {
    if pending.is_empty()
        || auth.hooks().has(HookPoint::SendSms)
        || auth.settings().sms.test_code(typed.phone.as_str(), now).is_some()
    {
        return Ok(None);
    }
    let Some(verdict) = auth.text_transport().and_then(|texts| texts.check(typed.phone.as_str(), typed.code)) else {
        return Ok(None);
    };
    let is_right = within(auth.settings().http_timeout, verdict)
        .await
        .map_err(|detail| ContractError::TextCodeNotChecked { detail })?;
    Ok(Some(GatewayVerdict { pending: pending.to_owned(), is_right }))
}

/// Returns true if a code proves that the number is the user's: it is the fixed one of a test
/// number, or the one that was sent and has not been used. Where the gateway makes the codes, its
/// `verdict` decides, also about their life. The time is read now: the gateway may have taken long.
pub(crate) fn is_right_code(
    auth: &Auth,
    user: &User,
    kind: TokenKind,
    typed: TypedCode<'_>,
    verdict: Option<&GatewayVerdict>,
) -> bool {
    let now = auth.now();
    let (stored, is_fresh) = (kind.stored(user), kind.is_fresh(user, auth.settings().sms.otp_expiry, now));
    if let Some(expected) = auth.settings().sms.test_code(typed.phone.as_str(), now) {
        // A nonce must have been requested; to sign in, the fixed code is enough
        let is_right: bool = expected.as_bytes().ct_eq(typed.code.as_bytes()).into();
        return is_right && (kind != TokenKind::Reauthentication || is_fresh);
    }
    if stored.is_empty() {
        return false;
    }
    match verdict {
        // The tokens differ when another message was sent, or the code was used, meanwhile
        Some(verdict) => verdict.is_right && verdict.pending == stored,
        None if is_made_by_gateway(auth, typed, now) => false,
        None => is_fresh && token::code_matches(stored, typed.phone.as_str(), typed.code),
    }
}

/// Returns true if a code identifies the account for which it was sent. Neither the fixed code of a
/// test number nor one that the gateway makes does.
pub(crate) fn identifies_account(auth: &Auth, typed: TypedCode<'_>, now: OffsetDateTime) -> bool {
    auth.settings().sms.test_code(typed.phone.as_str(), now).is_none() && !is_made_by_gateway(auth, typed, now)
}
