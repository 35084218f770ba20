//! `POST /factors/{id}/verify`: proves a second factor, and raises the session to `aal2`.

use axum::extract::{FromRequest as _, Request, State};
use portico_mail::MailKind;
use serde::Deserialize;
use uuid::Uuid;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::factors::open_challenge::{check_unused, find_challenge};
use crate::factors::webauthn::{self, KeyProof, KeyProofBody};
use crate::factors::{FactorType, OwnFactor, check_may_add, notify, phone, totp};
use crate::hooks::{self, FactorAttempt, HookDecision};
use crate::http::extract::{Json, RequestInfo};
use crate::model::User;
use crate::model::ids::FactorChallengeId;
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, FailedLogin, Traits};
use crate::protection::limits::Limiter;
use crate::session::TokenResponse;
use crate::session::elevation::{self, ProvedFactor};
use crate::session::eviction;
use crate::sql::mfa_challenges::FactorChallenge;
use crate::sql::{Tx, mfa_challenges, mfa_factors, recovery_codes, sessions, users};

/// The body of the request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FactorVerifyBody {
    challenge_id: Uuid,
    code: String,
    webauthn: Option<KeyProofBody>,
}

/// A proof that was compared and is not used up yet.
#[derive(Clone)]
enum FactorProof {
    /// The time step of a code of an authenticator app.
    Totp(totp::MatchedCode),
    /// The code of a text message.
    Phone,
    /// The response of a security key.
    Key(KeyProof),
}

/// `POST /factors/{id}/verify`
pub(crate) async fn verify(
    State(auth): State<Auth>,
    own: OwnFactor,
    request: RequestInfo,
    raw: Request,
) -> Result<TokenResponse, AuthError> {
    auth.limits().check(Limiter::FactorVerify, &request)?;
    let Json(body) = Json::<FactorVerifyBody>::from_request(raw, &auth).await?;
    if own.kind != FactorType::Webauthn && body.code.is_empty() {
        return Err(ContractError::FactorCodeEmpty.into());
    }
    own.kind.check_verify(&auth.settings().factors)?;
    if own.kind == FactorType::Webauthn {
        return verify_key(&auth, &own, &request, FactorChallengeId(body.challenge_id), body.webauthn).await;
    }
    if !own.factor.is_verified() {
        check_may_add(&own.owner.user, own.owner.session.is_aal2())?;
    }
    let challenge = find_challenge(&auth, &own, &request, FactorChallengeId(body.challenge_id)).await?;
    let attempt = attempt(&auth, &own, &request, &challenge, &body.code);
    auth.guesses().factor_code(own.owner.user.id, &request, attempt).await
}

/// Verifies the response of an authenticator, and raises the session.
///
/// # Errors
/// 400 for a malformed body, 422 for a challenge or a response that is not right.
async fn verify_key(
    auth: &Auth,
    own: &OwnFactor,
    request: &RequestInfo,
    id: FactorChallengeId,
    body: Option<KeyProofBody>,
) -> Result<TokenResponse, AuthError> {
    let response = body.ok_or(ContractError::KeyProofMissing)?.parse()?;
    if !own.factor.is_verified() {
        check_may_add(&own.owner.user, own.owner.session.is_aal2())?;
    }
    let challenge = find_challenge(auth, own, request, id).await?;
    match webauthn::compare(auth, own, &challenge, &response).await? {
        Ok(proof) => {
            let run = || complete(auth, own, request, challenge.id, FactorProof::Key(proof.clone()));
            hooks::complete(auth.hooks(), request, run).await
        }
        Err(error) => {
            tracing::info!(error = %error, "the response of a security key was rejected");
            let error = AuthError::from(ContractError::KeyResponseRejected);
            let login = FailedLogin { user: Some(&own.owner.user), provider: own.kind.as_str(), error: &error };
            auth.audit_log().record_failed_login(auth.database(), auth.limits(), &login, request).await;
            Err(error)
        }
    }
}

/// Compares a code and uses it up.
async fn attempt(
    auth: &Auth,
    own: &OwnFactor,
    request: &RequestInfo,
    challenge: &FactorChallenge,
    code: &str,
) -> Result<TokenResponse, AuthError> {
    let (proof, wrong) = match own.kind {
        FactorType::Totp => {
            (totp::compare(auth, &own.factor, code).await?.map(FactorProof::Totp), ContractError::TotpCodeWrong)
        }
        _ => (
            phone::is_right_code(auth, &own.factor, challenge, code).await?.then_some(FactorProof::Phone),
            ContractError::PhoneFactorCodeWrong,
        ),
    };
    Box::pin(call_hook(auth, own, request, proof.is_some())).await?;
    let completed = match proof {
        Some(proof) => {
            let run = || complete(auth, own, request, challenge.id, proof.clone());
            hooks::complete(auth.hooks(), request, run).await
        }
        None => Err(wrong.clone().into()),
    };
    if let Err(AuthError::Contract(error)) = &completed
        && *error == wrong
    {
        let failed = AuthError::from(wrong);
        let login = FailedLogin { user: Some(&own.owner.user), provider: own.kind.as_str(), error: &failed };
        auth.audit_log().record_failed_login(auth.database(), auth.limits(), &login, request).await;
    }
    completed
}

/// Asks the hook about an attempt. No connection is held.
///
/// # Errors
/// 403 `mfa_verification_rejected` when the hook rejects it; all sessions of the account end.
async fn call_hook(auth: &Auth, own: &OwnFactor, request: &RequestInfo, valid: bool) -> Result<(), AuthError> {
    const REJECTED: &str = "Further MFA verification attempts will be rejected.";
    let user = own.owner.user.id;
    let attempt = FactorAttempt { user, factor: own.factor.id.0, factor_type: own.kind.as_str(), valid };
    match hooks::mfa_verification_attempt(auth, request, attempt).await? {
        HookDecision::Continue => Ok(()),
        HookDecision::Reject { message, .. } => {
            let tx = Tx::begin(auth.database()).await?;
            eviction::end_all(&tx, user, request.now).await?;
            tx.commit().await?;
            let message = message.unwrap_or_else(|| REJECTED.to_owned());
            let rejected = AuthError::from(ContractError::FactorRejectedByHook { message });
            let login = FailedLogin { user: Some(&own.owner.user), provider: own.kind.as_str(), error: &rejected };
            auth.audit_log().record_failed_login(auth.database(), auth.limits(), &login, request).await;
            Err(rejected)
        }
    }
}

/// Uses up a proof: marks the factor as verified and raises the session, in one transaction.
///
/// # Errors
/// Those of the checks before, if something changed meanwhile.
async fn complete(
    auth: &Auth,
    own: &OwnFactor,
    request: &RequestInfo,
    challenge: FactorChallengeId,
    proof: FactorProof,
) -> Result<TokenResponse, AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(auth, request, &tx);
    let session = own.owner.session.id;
    let user = users::lock_complete(&tx, own.owner.user.id).await?.ok_or(ContractError::SubjectGone)?;
    let aal = sessions::lock_aal(&tx, session, user.id).await?.ok_or(ContractError::SessionOfTokenGone)?;
    let current = user.factors.iter().find(|factor| factor.id == own.factor.id);
    let was_verified = current.ok_or(ContractError::FactorUnknown)?.is_verified();
    if !was_verified {
        check_may_add(&user, aal == "aal2")?;
    }
    let locked = mfa_challenges::lock(&tx, challenge, own.factor.id).await?;
    check_unused(&locked.ok_or(ContractError::FactorChallengeUnknown)?, request)?;
    if let FactorProof::Key(proof) = &proof {
        webauthn::use_up(op, own, was_verified, proof).await?;
        mfa_challenges::delete(&tx, challenge).await?;
    } else {
        mfa_challenges::set_verified(&tx, challenge, op.now()).await?;
    }
    if let FactorProof::Totp(code) = proof {
        totp::use_up(op, own.factor.id, code).await?;
    }
    op.record_with_ip(&user, Action::VerificationAttempted, traits(own, challenge)).await?;
    if !was_verified {
        add(op, &user, own).await?;
    }
    mfa_factors::delete_other_unverified(&tx, user.id, own.factor.id, own.kind.as_str()).await?;
    auth.guesses().remember_factor_network(op, user.id).await?;
    let proved = ProvedFactor { method: own.kind.method(), factor: Some(own.factor.id) };
    let response = elevation::elevate(op, &user, session, proved).await?;
    tx.commit().await?;
    Ok(response)
}

/// Marks a factor as verified.
async fn add(op: AccountOperation<'_>, user: &User, own: &OwnFactor) -> Result<(), AuthError> {
    mfa_factors::set_verified(op.tx, own.factor.id, op.now()).await?;
    if !user.has_verified_factor() {
        // Codes of factors that were deleted without this service must not open the account again
        recovery_codes::delete(op.tx, user.id).await?;
        // The sessions that end now may have begun them
        eviction::withdraw_changes(op.tx, user, op.now()).await?;
    }
    notify(op, user, MailKind::MfaFactorEnrolled, own.kind).await
}

fn traits(own: &OwnFactor, challenge: FactorChallengeId) -> Traits {
    Traits::from_iter([
        ("factor_id".to_owned(), own.factor.id.to_string().into()),
        ("challenge_id".to_owned(), challenge.to_string().into()),
        ("factor_type".to_owned(), own.kind.as_str().into()),
    ])
}
