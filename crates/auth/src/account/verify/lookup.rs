//! The search for the token that a code or a link stands for.

use super::verify_type::VerifyType;
use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::RequestInfo;
use crate::model::User;
use crate::model::contact::Contact;
use crate::model::ids::EmailAddress;
use crate::one_time::pending_phone_change;
use crate::one_time::text_code::{self, GatewayVerdict, TypedCode};
use crate::one_time::token::{self, TokenKind};
use crate::operation::AccountOperation;
use crate::sql::{Tx, one_time_tokens, users};

/// A valid token, with its locked user, who may use it.
pub(super) struct FoundToken {
    pub(super) user: User,
    pub(super) kind: TokenKind,
}

/// Finds the token of a link.
pub(super) async fn by_hash(
    op: AccountOperation<'_>,
    verify_type: VerifyType,
    hash: &str,
) -> Result<FoundToken, AuthError> {
    let kinds = verify_type.kinds();
    let labels: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    let user = users::lock_by_token(op.tx, hash, &labels).await?.ok_or(ContractError::LinkExpired)?;
    let kind = kinds
        .iter()
        .copied()
        .find(|kind| token::hash_matches(kind.stored(&user), hash))
        .filter(|kind| verify_type.admits(*kind, &user))
        .filter(|kind| kind.is_fresh(&user, op.auth.settings().email.otp_expiry, op.auth.now()))
        .ok_or(ContractError::LinkExpired)?;
    check_not_banned(op, &user)?;
    Ok(FoundToken { user, kind })
}

/// Finds the token of a code that was typed for a contact. `verdict` is that of the gateway, where
/// it makes the codes.
pub(super) async fn by_code(
    op: AccountOperation<'_>,
    verify_type: VerifyType,
    contact: &Contact,
    code: &str,
    verdict: Option<&GatewayVerdict>,
) -> Result<FoundToken, AuthError> {
    let found = match contact {
        Contact::Email(email) => by_emailed_code(op, verify_type, email, code).await?,
        Contact::Phone(phone) => {
            let typed = TypedCode { phone, code };
            let found = lock_by_phone(op, verify_type, typed).await?;
            Some(found)
                .filter(|FoundToken { user, kind }| text_code::is_right_code(op.auth, user, *kind, typed, verdict))
        }
    };
    let found = found.ok_or(ContractError::CodeExpired)?;
    check_not_banned(op, &found.user)?;
    Ok(found)
}

async fn by_emailed_code(
    op: AccountOperation<'_>,
    verify_type: VerifyType,
    email: &EmailAddress,
    code: &str,
) -> Result<Option<FoundToken>, AuthError> {
    let with_kind = |user: User| {
        let life = op.auth.settings().email.otp_expiry;
        let mut kinds = verify_type.kinds().iter().copied();
        let kind = kinds.find(|kind| {
            token::code_matches(kind.stored(&user), email.as_str(), code)
                && verify_type.admits(*kind, &user)
                && kind.is_fresh(&user, life, op.auth.now())
        });
        kind.map(|kind| FoundToken { user, kind })
    };
    let owner = users::lock_by_email(op.tx, email, &op.request.aud).await?;
    let found = owner.and_then(with_kind);
    if found.is_some() || !verify_type.kinds().contains(&TokenKind::EmailChangeNew) {
        return Ok(found);
    }
    // Several accounts may request an address, even one that another account has: each has its own
    // code
    Ok(lock_by_sent_code(op, TokenKind::EmailChangeNew, email.as_str(), code).await?.and_then(with_kind))
}

/// Locks and returns the user for whom a code was sent to an address.
async fn lock_by_sent_code(
    op: AccountOperation<'_>,
    kind: TokenKind,
    address: &str,
    code: &str,
) -> Result<Option<User>, AuthError> {
    let sent = one_time_tokens::sent_to(op.tx, address, kind.as_str()).await?;
    let Some(hash) = sent.iter().find(|hash| token::code_matches(hash, address, code)) else {
        return Ok(None);
    };
    let user = users::lock_by_token(op.tx, hash, &[kind.as_str()]).await?;
    Ok(user.filter(|user| user.aud == op.request.aud && !user.is_sso_user))
}

/// Returns the verdict of the gateway about a code, where it makes the codes itself.
pub(super) async fn check_at_gateway(
    auth: &Auth,
    request: &RequestInfo,
    verify_type: VerifyType,
    contact: &Contact,
    code: &str,
) -> Result<Option<GatewayVerdict>, AuthError> {
    let Contact::Phone(phone) = contact else { return Ok(None) };
    let typed = TypedCode { phone, code };
    if !text_code::is_made_by_gateway(auth, typed, request.now) {
        return Ok(None);
    }
    let tx = Tx::begin(auth.database()).await?;
    let FoundToken { user, kind } =
        lock_by_phone(AccountOperation::new(auth, request, &tx), verify_type, typed).await?;
    tx.rollback().await;
    text_code::check_at_gateway(auth, kind.stored(&user), typed, request.now).await
}

/// Locks the account that may prove a number, and returns it with the kind of token that does so.
async fn lock_by_phone(
    op: AccountOperation<'_>,
    verify_type: VerifyType,
    typed: TypedCode<'_>,
) -> Result<FoundToken, AuthError> {
    let (user, kind) = match verify_type {
        VerifyType::PhoneChange => (pending_phone_change::lock_account(op, typed).await?, TokenKind::PhoneChange),
        _ => (users::lock_by_phone(op.tx, typed.phone, &op.request.aud).await?, TokenKind::Confirmation),
    };
    Ok(FoundToken { user: user.ok_or(ContractError::CodeExpired)?, kind })
}

fn check_not_banned(op: AccountOperation<'_>, user: &User) -> Result<(), AuthError> {
    if user.is_banned(op.now()) { Err(ContractError::Banned.into()) } else { Ok(()) }
}
