//! The accounts that wait for the code of a number, and the one among them that a typed code belongs to.
//!
//! Several accounts may ask for one number, and each gets a code of its own. Our own codes are matched with what was sent
//! for each account. The fixed code of a test number, and a code that the gateway makes, say only that the number was
//! reached, not for which account: then the access token of the request says it, and without one the account must be the
//! only one that waits. No account is ever chosen by the order in which they asked.

use portico_base::hash;
use time::Duration;

use crate::Auth;
use crate::error::AuthError;
use crate::http::extract::RequestInfo;
use crate::model::User;
use crate::model::ids::PhoneNumber;
use crate::one_time::text_code;
use crate::one_time::token::{self, Kind};
use crate::sql::one_time_tokens::WaitingAccounts;
use crate::sql::{Tx, one_time_tokens, users};

/// The longest life of a code that a gateway makes. An account that asked earlier does not wait any more.
const LONGEST_LIFE: Duration = Duration::DAY;

/// The account that a code for a change to `phone` belongs to; locked. `None`: there is none, or more than one could be
/// meant. Whether the code is right is for the caller to find out, with [`code::is_right_code`].
pub(crate) async fn lock_account(
    auth: &Auth,
    tx: &Tx,
    phone: &PhoneNumber,
    code: &str,
    request: &RequestInfo,
) -> Result<Option<User>, AuthError> {
    let kind = Kind::PhoneChange;
    let names_account = text_code::names_account(auth, phone, code, auth.now());
    let life =
        if names_account { auth.settings().sms.otp_expiry.try_into().unwrap_or(LONGEST_LIFE) } else { LONGEST_LIFE };
    let filter = WaitingAccounts {
        phone: phone.as_str(),
        aud: &request.aud,
        since: auth.now() - life,
        // A person who is signed in proves a number for their own account
        only: request.subject,
    };
    let mut waiting = one_time_tokens::waiting_for(tx, &filter).await?;
    if names_account {
        waiting.retain(|hash| token::code_matches(hash, phone.as_str(), code));
    }
    let [hash] = waiting.as_slice() else {
        if !waiting.is_empty() {
            let number = hash::sha256_hex(phone.as_str().as_bytes());
            tracing::info!(
                number = &number[..8],
                accounts = waiting.len(),
                "A code does not say which of the accounts that wait for a number it belongs to"
            );
        }
        return Ok(None);
    };
    let user = users::lock_by_token(tx, hash, &[kind.as_str()]).await?;
    Ok(user.filter(|user| user.aud == request.aud && !user.is_sso_user && user.phone_change == phone.as_str()))
}
