//! The accounts with a pending change to a number, and the one among them that a typed code belongs
//! to.
//!
//! Several accounts may request one number, and each gets a code of its own. Our own codes are
//! matched with the token of each account. The fixed code of a test number, and a code that the
//! gateway makes, prove only that the number was reached, not for which account: then the access
//! token of the request names the account, and without one the account must be the only one with
//! that pending change. The order of the requests never chooses an account.

use portico_base::hash;
use time::Duration;

use crate::error::AuthError;
use crate::model::User;
use crate::one_time::text_code::{self, TypedCode};
use crate::one_time::token::{self, TokenKind};
use crate::operation::AccountOperation;
use crate::sql::one_time_tokens::PendingPhoneChanges;
use crate::sql::{one_time_tokens, users};

/// The longest life of a code that a gateway makes. Older requests are not pending any more.
const LONGEST_LIFE: Duration = Duration::DAY;

/// Locks and returns the account that a code for a change of number belongs to. Returns `None` when
/// there is no such account, or more than one could be meant. The caller checks the code, with
/// [`text_code::is_right_code`].
pub(crate) async fn lock_account(op: AccountOperation<'_>, typed: TypedCode<'_>) -> Result<Option<User>, AuthError> {
    let AccountOperation { auth, request, tx } = op;
    let (phone, kind) = (typed.phone, TokenKind::PhoneChange);
    let identifies_account = text_code::identifies_account(auth, typed, auth.now());
    let life = match identifies_account {
        true => auth.settings().sms.otp_expiry.try_into().unwrap_or(LONGEST_LIFE),
        false => LONGEST_LIFE,
    };
    let filter = PendingPhoneChanges {
        phone: phone.as_str(),
        aud: &request.aud,
        since: auth.now() - life,
        // A person who is signed in proves a number for their own account
        only: request.subject,
    };
    let mut pending = one_time_tokens::pending_phone_changes(tx, &filter).await?;
    if identifies_account {
        pending.retain(|hash| token::code_matches(hash, phone.as_str(), typed.code));
    }
    let [hash] = pending.as_slice() else {
        if !pending.is_empty() {
            let number = hash::sha256_hex(phone.as_str().as_bytes());
            tracing::info!(
                number = &number[..8],
                accounts = pending.len(),
                "a code was rejected: several accounts have a pending change to the number"
            );
        }
        return Ok(None);
    };
    let user = users::lock_by_token(tx, hash, &[kind.as_str()]).await?;
    Ok(user.filter(|user| user.aud == request.aud && !user.is_sso_user && user.phone_change == phone.as_str()))
}
