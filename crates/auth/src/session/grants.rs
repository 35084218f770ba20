//! `POST /token`: the grants that end in a session.

use axum::extract::{FromRequest as _, Request, State};
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use serde::Deserialize;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::hooks::{self, HookDecision};
use crate::http::extract::{Query, RequestInfo, TokenBody};
use crate::model::User;
use crate::model::ids::{EmailAddress, PhoneNumber};
use crate::oauth;
use crate::operation::AccountOperation;
use crate::password::stored_password;
use crate::protection::audit::{self, Action, FailedLogin, Traits};
use crate::protection::captcha;
use crate::protection::limits::Limiter;
use crate::session::eviction;
use crate::session::refresh;
use crate::session::{self, AuthenticationMethod, TokenResponse};
use crate::sql::{Tx, flow_state, users};
use crate::web3;

/// `POST /token?grant_type=`. A form may name the grant in its body.
pub(crate) async fn token(
    State(auth): State<Auth>,
    request: RequestInfo,
    query: Query,
    headers: HeaderMap,
    raw: Request,
) -> Result<Response, AuthError> {
    let is_web3 = query.get("grant_type") == Some("web3");
    auth.limits().check(if is_web3 { Limiter::Web3 } else { Limiter::Token }, &request)?;
    let body = TokenBody::from_request(raw, &auth).await?;
    match query.get("grant_type").or(body.grant()).unwrap_or_default() {
        "password" => password(&auth, &request, body.parse()?).await.map(IntoResponse::into_response),
        "refresh_token" => refresh::grant(&auth, &request, body.parse()?).await,
        "pkce" => pkce(&auth, &request, body.parse()?).await.map(IntoResponse::into_response),
        "id_token" => oauth::flow::id_token_grant::grant(&auth, &request, &headers, body.parse()?)
            .await
            .map(IntoResponse::into_response),
        "web3" => web3::grant(&auth, &request, &body).await.map(IntoResponse::into_response),
        _ => Err(ContractError::UnsupportedGrantType.into()),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PasswordBody {
    email: String,
    phone: String,
    password: String,
    gotrue_meta_security: captcha::Security,
}

async fn password(auth: &Auth, request: &RequestInfo, body: PasswordBody) -> Result<TokenResponse, AuthError> {
    captcha::check(auth.captcha(), &body.gotrue_meta_security, request).await?;
    let settings = auth.settings();
    let by_email = match (body.email.trim().is_empty(), body.phone.trim().is_empty()) {
        (false, false) => {
            return Err(ContractError::LoginNeedsOneContact.into());
        }
        (true, true) => return Err(ContractError::LoginNeedsContact.into()),
        (false, true) => true,
        (true, false) => false,
    };
    if by_email && !settings.email.enabled {
        return Err(ContractError::EmailPasswordLoginsDisabled.into());
    }
    if !by_email && !settings.sms.enabled {
        return Err(ContractError::PhonePasswordLoginsDisabled.into());
    }
    let account = if by_email {
        body.email.trim().to_lowercase()
    } else {
        PhoneNumber::parse(&body.phone).map_or_else(|_| body.phone.clone(), |phone| phone.to_string())
    };
    auth.guesses().password(&account, request, sign_in(auth, request, by_email, &body)).await
}

/// Compares the password and signs the person in.
async fn sign_in(
    auth: &Auth,
    request: &RequestInfo,
    by_email: bool,
    body: &PasswordBody,
) -> Result<TokenResponse, AuthError> {
    let user = find(auth, request, by_email, body).await?;
    let provider = if by_email { "email" } else { "phone" };
    let refuse = async |user: Option<&User>, error: AuthError| {
        auth.audit_log()
            .record_failed_login(
                auth.database(),
                auth.limits(),
                &FailedLogin { user, provider, error: &error },
                request,
            )
            .await;
        error
    };
    if user.as_ref().is_some_and(|user| user.is_banned(auth.now())) {
        let banned = AuthError::from(ContractError::BannedAtLogin);
        return Err(refuse(user.as_ref(), banned).await);
    }
    // Also computed for an unknown account, so that the time of the response does not show who has
    // one
    let stored = user.as_ref().and_then(|user| stored_password(auth.columns(), user));
    let hash = stored.as_ref().map(|stored| stored.text.as_str());
    let comparison = auth.passwords().compare(&body.password, hash).await?;
    if let Some(known) = user.as_ref().filter(|user| user.has_password()) {
        Box::pin(call_hook(auth, request, known, comparison.matches)).await?;
    }
    let known = match user {
        Some(user) if comparison.matches => user,
        user => return Err(refuse(user.as_ref(), AuthError::from(ContractError::InvalidLogin)).await),
    };
    // Only a hint: a failure to compute it does not prevent the sign-in
    let weak = auth.passwords().weakness(&body.password).await.unwrap_or_else(|error| {
        tracing::warn!(error = %error, "the strength of a password could not be determined");
        None
    });
    let rehashed = match comparison.needs_rehash {
        true => Some(auth.passwords().hash(&body.password).await?),
        false => stored.filter(|stored| stored.is_outdated).map(|stored| stored.text),
    };

    let response = hooks::complete(auth.hooks(), request, || async {
        let tx = Tx::begin(auth.database()).await?;
        let op = AccountOperation::new(auth, request, &tx);
        // Again, since the account may have changed while the hash was computed
        let user = users::lock_complete(&tx, known.id)
            .await?
            .filter(|user| user.encrypted_password == known.encrypted_password && !user.is_banned(request.now))
            .ok_or(ContractError::InvalidLogin)?;
        if by_email && !user.is_email_confirmed() {
            return Err(ContractError::UnconfirmedEmail.into());
        }
        if !by_email && !user.is_phone_confirmed() {
            return Err(ContractError::UnconfirmedPhone.into());
        }
        if let Some(hash) = &rehashed {
            let sealed = auth.columns().encrypt(user.id.0, hash);
            users::rehash_password(&tx, user.id, &user.encrypted_password, &sealed).await?;
        }
        op.record(&user, Action::Login, audit::provider_trait(provider)).await?;
        let response = session::issue(op, &user, AuthenticationMethod::Password).await?;
        tx.commit().await?;
        Ok(response)
    });
    Ok(response.await?.with_password_strength(weak.as_ref()))
}

/// Asks the hook about an attempt at the password of `user`.
///
/// # Errors
/// 400 `invalid_credentials` when the hook rejects it; it may end all sessions of the account.
async fn call_hook(auth: &Auth, request: &RequestInfo, user: &User, valid: bool) -> Result<(), AuthError> {
    const REJECTED: &str = "Further password verification attempts will be rejected.";
    match hooks::password_verification_attempt(auth, request, user.id, valid).await? {
        HookDecision::Continue => Ok(()),
        HookDecision::Reject { message, logs_out } => {
            if logs_out {
                let tx = Tx::begin(auth.database()).await?;
                eviction::end_all(&tx, user.id, request.now).await?;
                tx.commit().await?;
            }
            let message = message.unwrap_or_else(|| REJECTED.to_owned());
            let rejected = AuthError::from(ContractError::PasswordRejectedByHook { message });
            let provider = if user.email.is_empty() { "phone" } else { "email" };
            let login = FailedLogin { user: Some(user), provider, error: &rejected };
            auth.audit_log().record_failed_login(auth.database(), auth.limits(), &login, request).await;
            Err(rejected)
        }
    }
}

/// Returns the account of a contact. Malformed contacts are not rejected: they have no account.
async fn find(
    auth: &Auth,
    request: &RequestInfo,
    by_email: bool,
    body: &PasswordBody,
) -> Result<Option<User>, AuthError> {
    let client = auth.database().client().await?;
    let user = if by_email {
        let email = EmailAddress::from_stored(&body.email.trim().to_lowercase());
        users::by_email(&client, &email, &request.aud).await?
    } else {
        match PhoneNumber::parse(&body.phone) {
            Ok(phone) => users::by_phone(&client, &phone, &request.aud).await?,
            Err(_) => None,
        }
    };
    Ok(user)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PkceBody {
    auth_code: String,
    code_verifier: String,
}

/// Exchanges the code that a redirect brought for a session.
async fn pkce(auth: &Auth, request: &RequestInfo, body: PkceBody) -> Result<TokenResponse, AuthError> {
    if body.auth_code.is_empty() || body.code_verifier.is_empty() {
        return Err(ContractError::ExchangeIncomplete.into());
    }
    oauth::flow::manual_linking::look_up_pending_domain(auth, &body.auth_code).await?;
    let run = || hooks::complete(auth.hooks(), request, || exchange(auth, request, &body));
    let mut exchanged = run().await;
    for _ in 1..oauth::MAX_RACE_ATTEMPTS {
        if !exchanged.as_ref().is_err_and(oauth::is_lost_race) {
            break;
        }
        exchanged = run().await;
    }
    exchanged
}

async fn exchange(auth: &Auth, request: &RequestInfo, body: &PkceBody) -> Result<TokenResponse, AuthError> {
    let not_found = || AuthError::from(ContractError::FlowNotFound);
    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(auth, request, &tx);
    let flow = flow_state::lock_by_code(&tx, &body.auth_code)
        .await?
        // A code that was not issued yet is not valid
        .filter(|flow| flow.auth_code_issued_at.is_some())
        .ok_or_else(not_found)?;
    let (Some(user_id), Some(challenge)) = (flow.user_id, &flow.challenge) else {
        return Err(not_found());
    };
    if flow.is_expired(auth.now(), auth.settings().flow_state_expiry) {
        return Err(ContractError::FlowExpired.into());
    }
    if !challenge.is_met_by(&body.code_verifier) {
        return Err(ContractError::CodeVerifierMismatch.into());
    }
    let mut user = users::lock_complete(&tx, user_id).await?.ok_or_else(not_found)?;
    if user.is_banned(request.now) {
        return Err(ContractError::Banned.into());
    }
    if flow.linking_target_id == Some(user_id) {
        match oauth::flow::manual_linking::complete_pending_link(op, user, &flow).await? {
            oauth::SignInOutcome::SignedIn(linked) => user = *linked,
            oauth::SignInOutcome::AwaitsConfirmation { error, .. } => {
                // The code was used: an email continues the flow
                flow_state::delete(&tx, flow.id).await?;
                tx.commit().await?;
                return Err(error);
            }
        }
    }
    let method = AuthenticationMethod::parse(&flow.authentication_method).unwrap_or(AuthenticationMethod::Otp);
    let traits = Traits::from_iter([("provider_type".to_owned(), flow.provider_type.as_str().into())]);
    op.record(&user, Action::Login, traits).await?;
    let response = session::issue(op, &user, method).await?;
    flow_state::delete(&tx, flow.id).await?;
    tx.commit().await?;
    Ok(response.with_provider_tokens(flow.provider_access_token, flow.provider_refresh_token))
}
