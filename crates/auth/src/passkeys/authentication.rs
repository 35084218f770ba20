//! `POST /passkeys/authentication/options` and `/verify`: a visitor signs in with a passkey. The
//! passkey names the account.

use std::sync::{Mutex, PoisonError};

use axum::Json as JsonResponse;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::PasskeysEnabled;
use super::ceremony::{self, CeremonyBody, CeremonyResponse, IssuedChallenge, PasskeyCeremony};
use super::registration::user_verification;
use crate::Auth;
use crate::error::{AuthError, ContractError, ErrorCode};
use crate::hooks;
use crate::http::extract::{Json, RequestInfo};
use crate::model::ids::UserId;
use crate::model::{Passkey, User};
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, FailedLogin};
use crate::protection::captcha;
use crate::protection::limits::Limiter;
use crate::session::{self, AuthenticationMethod, TokenResponse};
use crate::sql::{Tx, users, webauthn_credentials};
use crate::webauthn::{Assertion, AssertionResponse, CeremonyError, StoredCredential};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OptionsBody {
    gotrue_meta_security: captcha::Security,
}

/// `POST /passkeys/authentication/options`
pub(crate) async fn options(
    State(auth): State<Auth>,
    _: PasskeysEnabled,
    request: RequestInfo,
    Json(body): Json<OptionsBody>,
) -> Result<JsonResponse<Value>, AuthError> {
    auth.limits().check(Limiter::PasskeySignIn, &request)?;
    captcha::check(auth.captcha(), &body.gotrue_meta_security, &request).await?;
    let relying_party = auth.relying_party()?;
    let client = auth.database().client().await?;
    let lifetime = auth.settings().passkeys.challenge_expiry;
    let issued = IssuedChallenge::issue(&client, PasskeyCeremony::Authentication, request.now, lifetime).await?;
    Ok(JsonResponse(issued.response_body(json!({
        "challenge": issued.challenge,
        "timeout": issued.timeout,
        "rpId": relying_party.id,
        "userVerification": user_verification(&auth.settings().passkeys),
    }))))
}

/// `POST /passkeys/authentication/verify`
pub(crate) async fn verify(
    State(auth): State<Auth>,
    _: PasskeysEnabled,
    request: RequestInfo,
    Json(body): Json<CeremonyBody>,
) -> Result<TokenResponse, AuthError> {
    let response = body.parse()?;
    let claimed = Mutex::new(None);
    let outcome = hooks::complete(auth.hooks(), &request, || async {
        let mut named = None;
        let tx = Tx::begin(auth.database()).await?;
        let outcome = sign_in(AccountOperation::new(&auth, &request, &tx), response.clone(), &mut named).await;
        *claimed.lock().unwrap_or_else(PoisonError::into_inner) = named;
        ceremony::conclude(tx, &request, outcome).await
    })
    .await;
    let claimed = claimed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = &outcome
        && matches!(error.code(), ErrorCode::WebauthnVerificationFailed | ErrorCode::UserBanned)
    {
        let login = FailedLogin { user: claimed.as_ref(), provider: "passkey", error };
        auth.audit_log().record_failed_login(auth.database(), auth.limits(), &login, &request).await;
    }
    outcome
}

/// Verifies the response and issues a session. `claimed` becomes the account that the response
/// names, as soon as it is known.
async fn sign_in(
    op: AccountOperation<'_>,
    response: CeremonyResponse,
    claimed: &mut Option<User>,
) -> Result<TokenResponse, AuthError> {
    let AccountOperation { auth, tx, .. } = op;
    let relying_party = auth.relying_party()?;
    let ceremony = PasskeyCeremony::Authentication;
    let (challenge, response) = response.take_challenge::<AssertionResponse>(tx, ceremony, op.now()).await?;
    let owner = response.user_handle().and_then(|handle| std::str::from_utf8(handle).ok()).and_then(UserId::parse);
    let unknown = || ceremony::reject(CeremonyError::UnknownCredential);
    let owner = owner.ok_or_else(unknown)?;
    let user = claimed.insert(users::lock_complete(tx, owner).await?.ok_or_else(unknown)?);
    let found = webauthn_credentials::lock_by_credential(tx, response.credential_id(), user.id).await?;
    let passkey = found.ok_or_else(unknown)?;
    let stored = StoredCredential {
        id: &passkey.credential_id,
        public_key: &passkey.public_key,
        is_backup_eligible: passkey.is_backup_eligible,
    };
    let assertion = relying_party.verify_assertion(&challenge, &response, &stored).map_err(ceremony::reject)?;
    if auth.settings().passkeys.require_user_verification && !assertion.is_user_verified {
        return Err(ceremony::reject(CeremonyError::UserVerification));
    }
    check_may_sign_in(user, op)?;
    let mut traits = super::traits(&passkey);
    if has_counter_gone_back(&passkey, &assertion) {
        // Password managers copy passkeys on purpose, and some authenticators reset their counter,
        // so it does not prevent the sign-in
        let (stored, reported) = (passkey.sign_count, assertion.sign_count);
        tracing::warn!(user.id = %user.id, passkey.id = %passkey.id, stored, reported, "the counter of a passkey went back");
        traits.insert("counter_went_back".to_owned(), true.into());
    }
    webauthn_credentials::record_use(tx, passkey.id, &assertion, op.now()).await?;
    op.record(user, Action::Login, traits).await?;
    session::issue(op, user, AuthenticationMethod::Passkey).await
}

/// Checks that the owner of a proved passkey may sign in.
fn check_may_sign_in(user: &User, op: AccountOperation<'_>) -> Result<(), AuthError> {
    if !user.email.is_empty() && !user.is_email_confirmed() {
        return Err(ContractError::UnconfirmedEmailAtPasskey.into());
    }
    if !user.phone.is_empty() && !user.is_phone_confirmed() {
        return Err(ContractError::UnconfirmedPhoneAtPasskey.into());
    }
    match user.is_banned(op.now()) {
        true => Err(ContractError::Banned.into()),
        false => Ok(()),
    }
}

/// Returns true if an authenticator with a counter reports one that it has reported before.
fn has_counter_gone_back(passkey: &Passkey, assertion: &Assertion) -> bool {
    let reported = i64::from(assertion.sign_count);
    (reported > 0 || passkey.sign_count > 0) && reported <= passkey.sign_count
}
