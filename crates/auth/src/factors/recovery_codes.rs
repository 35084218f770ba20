//! Recovery codes: ten codes that each replace a second factor once, for a person who has lost
//! theirs. The reference has none.
//!
//! They belong to an account with a verified factor, and are deleted with the last one. A code has
//! 80 random bits, so that its unsalted hash cannot be reversed; the hash includes the account.
//! Wrong codes count together with those of the factors.

use axum::extract::{FromRequest as _, Request, State};
use data_encoding::BASE32_NOPAD;
use portico_base::{hash, random};
use portico_mail::{MailKind, Variables};
use serde::Deserialize;
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::factors::FactorOwner;
use crate::hooks;
use crate::http::extract::{Json, RequestInfo};
use crate::messages::mailer;
use crate::model::ids::UserId;
use crate::model::{Timestamp, User};
use crate::one_time::message;
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, FailedLogin, Traits};
use crate::protection::limits::Limiter;
use crate::session::elevation::{self, ProvedFactor};
use crate::session::{AuthenticationMethod, TokenResponse};
use crate::sql::{Tx, recovery_codes, sessions, users};

/// The number of codes of an account.
const COUNT: usize = 10;
/// The random bytes of a code: 16 characters in Base32.
const CODE_BYTES: usize = 10;
/// The characters of a code between two hyphens.
const GROUP: usize = 4;

/// Makes a code as the person sees it: `abcd-efgh-ijkl-mnop`.
fn new_code() -> String {
    let text = BASE32_NOPAD.encode(&random::bytes::<CODE_BYTES>()).to_lowercase();
    let groups: Vec<&str> =
        (0..text.len()).step_by(GROUP).map(|start| &text[start..text.len().min(start + GROUP)]).collect();
    groups.join("-")
}

/// Returns the hash of a code as a person types it: letter case, hyphens and spaces do not matter.
/// `None`: it does not have the form of a code.
fn hash_of(user: UserId, code: &str) -> Option<[u8; 32]> {
    let typed: String = code.chars().filter(|c| *c != '-' && !c.is_whitespace()).take(64).collect();
    let bytes = BASE32_NOPAD.decode(typed.to_ascii_uppercase().as_bytes()).ok()?;
    let code: [u8; CODE_BYTES] = bytes.try_into().ok()?;
    Some(hash::sha256(&[user.0.as_bytes().as_slice(), &code].concat()))
}

/// Returns true if a typed code is among the unused ones. Takes the same time whichever it is.
fn matching(hashes: &[Vec<u8>], typed: &[u8]) -> bool {
    hashes.iter().fold(subtle::Choice::from(0), |found, hash| found | hash.as_slice().ct_eq(typed)).into()
}

/// `POST /factors/recovery-codes`: makes new codes, which replace the earlier ones.
pub(crate) async fn create(
    State(auth): State<Auth>,
    owner: FactorOwner,
    request: RequestInfo,
) -> Result<axum::Json<Value>, AuthError> {
    let codes: Vec<String> = (0..COUNT).map(|_| new_code()).collect();
    let hashes: Vec<Vec<u8>> =
        codes.iter().filter_map(|code| hash_of(owner.user.id, code)).map(|hash| hash.to_vec()).collect();
    hooks::complete(auth.hooks(), &request, || replace(&auth, &owner, &request, &hashes)).await?;
    Ok(axum::Json(json!({ "codes": codes })))
}

/// Stores the hashes of new codes in place of the earlier ones, in one transaction.
async fn replace(auth: &Auth, owner: &FactorOwner, request: &RequestInfo, hashes: &[Vec<u8>]) -> Result<(), AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(auth, request, &tx);
    let user = users::lock_complete(&tx, owner.user.id).await?.ok_or(ContractError::SubjectGone)?;
    let aal = sessions::lock_aal(&tx, owner.session.id, user.id).await?.ok_or(ContractError::SessionOfTokenGone)?;
    if !user.has_verified_factor() {
        return Err(ContractError::RecoveryCodesNeedFactor.into());
    }
    if aal != "aal2" {
        return Err(ContractError::RecoveryCodesNeedAal2.into());
    }
    recovery_codes::replace(&tx, user.id, hashes, op.now()).await?;
    op.record_with_ip(&user, Action::RecoveryCodesCreated, Traits::new()).await?;
    message::notify(op, &user, MailKind::RecoveryCodesCreated, &mailer::variables(op.auth, &user)).await?;
    tx.commit().await
}

/// `GET /factors/recovery-codes`: the number of unused codes.
pub(crate) async fn count(State(auth): State<Auth>, owner: FactorOwner) -> Result<axum::Json<Value>, AuthError> {
    let client = auth.database().client().await?;
    let codes = recovery_codes::of_user(&client, owner.user.id).await?;
    drop(client);
    // Codes of factors that were deleted without this service do not work
    let codes = codes.filter(|_| owner.user.has_verified_factor());
    Ok(axum::Json(json!({
        "remaining": codes.as_ref().map_or(0, |codes| codes.hashes.len()),
        "created_at": codes.map(|codes| Timestamp(codes.created_at)),
    })))
}

/// The body of a proof.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RecoveryCodeBody {
    code: String,
}

/// `POST /factors/recovery-codes/verify`: uses a code up, and raises the session to `aal2`.
pub(crate) async fn verify(
    State(auth): State<Auth>,
    owner: FactorOwner,
    request: RequestInfo,
    raw: Request,
) -> Result<TokenResponse, AuthError> {
    auth.limits().check(Limiter::FactorVerify, &request)?;
    let Json(body) = Json::<RecoveryCodeBody>::from_request(raw, &auth).await?;
    if body.code.is_empty() {
        return Err(ContractError::FactorCodeEmpty.into());
    }
    if !owner.user.has_verified_factor() {
        return Err(ContractError::RecoveryCodesNeedFactor.into());
    }
    let attempt = async {
        let used = hooks::complete(auth.hooks(), &request, || use_up(&auth, &owner, &request, &body.code)).await;
        if let Err(error @ AuthError::Contract(ContractError::RecoveryCodeWrong)) = &used {
            let login = FailedLogin { user: Some(&owner.user), provider: "recovery_code", error };
            auth.audit_log().record_failed_login(auth.database(), auth.limits(), &login, &request).await;
        }
        used
    };
    auth.guesses().factor_code(owner.user.id, &request, attempt).await
}

/// Compares a code and uses it up, in one transaction.
async fn use_up(
    auth: &Auth,
    owner: &FactorOwner,
    request: &RequestInfo,
    code: &str,
) -> Result<TokenResponse, AuthError> {
    let wrong = ContractError::RecoveryCodeWrong;
    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(auth, request, &tx);
    let session = owner.session.id;
    let user = users::lock_complete(&tx, owner.user.id).await?.ok_or(ContractError::SubjectGone)?;
    sessions::lock_aal(&tx, session, user.id).await?.ok_or(ContractError::SessionOfTokenGone)?;
    if !user.has_verified_factor() {
        return Err(ContractError::RecoveryCodesNeedFactor.into());
    }
    let hashes = recovery_codes::of_user(&tx, user.id).await?.map(|codes| codes.hashes).unwrap_or_default();
    let typed = hash_of(user.id, code).filter(|typed| matching(&hashes, typed)).ok_or_else(|| wrong.clone())?;
    if !recovery_codes::remove(&tx, user.id, &typed).await? {
        return Err(wrong.into());
    }
    let remaining = hashes.len().saturating_sub(1);
    let traits = Traits::from_iter([("remaining".to_owned(), remaining.into())]);
    op.record_with_ip(&user, Action::RecoveryCodeUsed, traits).await?;
    notify(op, &user, remaining).await?;
    auth.guesses().remember_factor_network(op, user.id).await?;
    let proved = ProvedFactor { method: AuthenticationMethod::MfaRecoveryCode, factor: None };
    let response = elevation::elevate(op, &user, session, proved).await?;
    tx.commit().await?;
    Ok(response)
}

/// Notifies the account's owner of a used code, if such emails are enabled.
async fn notify(op: AccountOperation<'_>, user: &User, remaining: usize) -> Result<(), AuthError> {
    let variables = Variables { recovery_codes_left: Some(remaining.to_string()), ..mailer::variables(op.auth, user) };
    message::notify(op, user, MailKind::RecoveryCodeUsed, &variables).await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_code_has_four_groups_and_is_read_in_any_writing() {
        let user = UserId::random();
        let code = new_code();
        assert_eq!(code.split('-').map(str::len).collect::<Vec<_>>(), [4, 4, 4, 4]);
        let hash = hash_of(user, &code).unwrap();
        for written in [code.to_uppercase(), code.replace('-', ""), format!("  {} \n", code.replace('-', " "))] {
            assert_eq!(hash_of(user, &written), Some(hash), "{written}");
        }
        assert_ne!(hash_of(UserId::random(), &code), Some(hash), "the hash belongs to the account");
        for wrong in ["", "abcd", "abcd-efgh-ijkl-mno1", &format!("{code}-abcd"), "１２３４-５６７８-９０１２-３４５６"]
        {
            assert_eq!(hash_of(user, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn codes_differ() {
        let codes: std::collections::HashSet<String> = (0..100).map(|_| new_code()).collect();
        assert_eq!(codes.len(), 100);
    }

    proptest! {
        #[test]
        fn no_text_panics(code: String) {
            let _ = hash_of(UserId::random(), &code);
        }
    }
}
