//! The points at which hooks are called, with their inputs and outputs. The emails are in `emails`.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{HookCall, claims};
use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::RequestInfo;
use crate::model::ids::UserId;
use crate::model::{JsonObject, User};
use crate::operation::AccountOperation;
use crate::settings::HookPoint;
use crate::sql::users::NewUser;
use crate::sql::{identities, mfa_factors};

/// The claims that change with each run of a transaction, or that nothing may trust.
const CHANGING_CLAIMS: [&str; 3] = ["iat", "exp", "user_metadata"];

fn members<const N: usize>(members: [(&str, Value); N]) -> JsonObject {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the claims of an access token after the hook has changed them.
///
/// # Errors
/// Those of the hook; 500 for claims that clients could not use.
pub(crate) async fn custom_access_token(
    op: AccountOperation<'_>,
    user: UserId,
    own: JsonObject,
    authentication_method: &str,
) -> Result<JsonObject, AuthError> {
    if !op.auth.hooks().has(HookPoint::CustomAccessToken) {
        return Ok(own);
    }
    let mut question = own.clone();
    question.retain(|name, _| !CHANGING_CLAIMS.contains(&name.as_str()));
    let input = members([
        ("user_id", user.to_string().into()),
        ("claims", own.into()),
        ("authentication_method", authentication_method.into()),
    ]);
    let call = HookCall::new(op.request.ip, HookPoint::CustomAccessToken, input).asking(question.into());
    let output = op.auth.hooks().call_within(op, call).await?;
    replaced_claims(output).inspect_err(|_| op.request.hooks.note_failure(HookPoint::CustomAccessToken))
}

/// Returns the claims of an output.
fn replaced_claims(mut output: JsonObject) -> Result<JsonObject, AuthError> {
    let claims = match output.shift_remove("claims") {
        Some(Value::Object(claims)) => claims,
        None | Some(Value::Null) => return Err(ContractError::HookClaimsMissing.into()),
        Some(_) => return Err(ContractError::HookOutputNotJson.into()),
    };
    claims::check(&claims).map_err(|violations| ContractError::HookClaimsInvalid { violations })?;
    Ok(claims)
}

/// Asks the hook whether an account may be created, and notes the account for the hook afterwards.
/// Part of every transaction that inserts an account, except on behalf of an administrator.
///
/// # Errors
/// Those of the hook.
pub(crate) async fn before_user_created(op: AccountOperation<'_>, new: &NewUser<'_>) -> Result<(), AuthError> {
    op.request.hooks.note_created(new.id);
    if !op.auth.hooks().has(HookPoint::BeforeUserCreated) {
        return Ok(());
    }
    let user = User {
        id: new.id,
        email: new.email.to_owned(),
        phone: new.phone.to_owned(),
        app_metadata: new.app_metadata.clone(),
        user_metadata: new.user_metadata.clone(),
        is_sso_user: new.is_sso_user,
        is_anonymous: new.is_anonymous,
        ..User::without_facts(new.aud, op.now())
    };
    let call = HookCall::new(op.request.ip, HookPoint::BeforeUserCreated, members([("user", json!(user))]));
    op.auth.hooks().call_within(op, call).await.map(drop)
}

/// The decision of a hook about an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HookDecision {
    /// The attempt is judged as without a hook.
    Continue,
    /// The attempt is rejected, also a right one.
    Reject {
        /// The hook's text, if it gives one.
        message: Option<String>,
        /// The sessions of the account end.
        logs_out: bool,
    },
}

impl HookDecision {
    fn of(output: &JsonObject) -> Self {
        if output.get("decision").and_then(Value::as_str) != Some("reject") {
            return Self::Continue;
        }
        let message = output.get("message").and_then(Value::as_str).filter(|message| !message.is_empty());
        let logs_out = output.get("should_logout_user").and_then(Value::as_bool).unwrap_or_default();
        Self::Reject { message: message.map(str::to_owned), logs_out }
    }
}

/// Asks the hook about an attempt at the password of an account. The caller holds no connection.
///
/// # Errors
/// Those of the hook.
pub(crate) async fn password_verification_attempt(
    auth: &Auth,
    request: &RequestInfo,
    user: UserId,
    valid: bool,
) -> Result<HookDecision, AuthError> {
    let point = HookPoint::PasswordVerificationAttempt;
    if !auth.hooks().has(point) {
        return Ok(HookDecision::Continue);
    }
    let input = members([("user_id", user.to_string().into()), ("valid", valid.into())]);
    Ok(HookDecision::of(&auth.hooks().call(&HookCall::new(request.ip, point, input)).await?))
}

/// An attempt at a second factor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FactorAttempt<'a> {
    pub(crate) user: UserId,
    pub(crate) factor: uuid::Uuid,
    /// `totp` or `phone`.
    pub(crate) factor_type: &'a str,
    pub(crate) valid: bool,
}

/// Asks the hook about an attempt at a second factor. The caller holds no connection.
///
/// # Errors
/// Those of the hook.
pub(crate) async fn mfa_verification_attempt(
    auth: &Auth,
    request: &RequestInfo,
    attempt: FactorAttempt<'_>,
) -> Result<HookDecision, AuthError> {
    let point = HookPoint::MfaVerificationAttempt;
    if !auth.hooks().has(point) {
        return Ok(HookDecision::Continue);
    }
    let input = members([
        ("user_id", attempt.user.to_string().into()),
        ("factor_id", attempt.factor.to_string().into()),
        ("factor_type", attempt.factor_type.into()),
        ("valid", attempt.valid.into()),
    ]);
    Ok(HookDecision::of(&auth.hooks().call(&HookCall::new(request.ip, point, input)).await?))
}

/// Returns a user as hooks see it: with identities and factors, which not every operation has
/// loaded. As it is, if there is no hook for the point.
///
/// # Errors
/// Those of the database.
pub(crate) async fn complete_user<'a>(
    op: AccountOperation<'_>,
    user: &'a User,
    point: HookPoint,
) -> Result<Cow<'a, User>, AuthError> {
    if !user.identities.is_empty() || !op.auth.hooks().has(point) {
        return Ok(Cow::Borrowed(user));
    }
    let identities = identities::of_user(op.tx, user.id).await?;
    let factors = mfa_factors::of_user(op.tx, user.id).await?;
    Ok(Cow::Owned(User { identities, factors, ..user.clone() }))
}

/// Returns the call that sends a code to a number, if a hook does that. `sms_type` is `mfa` for
/// second factors.
pub(crate) fn text_message_call(
    auth: &Auth,
    request: &RequestInfo,
    user: &User,
    (phone, code): (&str, &str),
    sms_type: Option<&str>,
) -> Option<HookCall> {
    if !auth.hooks().has(HookPoint::SendSms) {
        return None;
    }
    let mut sms = members([("otp", code.into()), ("phone", phone.into())]);
    if let Some(sms_type) = sms_type {
        sms.insert("sms_type".into(), sms_type.into());
    }
    let input = members([("user", json!(user)), ("sms", sms.into())]);
    Some(HookCall::new(request.ip, HookPoint::SendSms, input))
}
