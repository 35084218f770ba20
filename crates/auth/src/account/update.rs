//! `GET` and `PUT /user` (auth-core 7): what people see of their account, and what they may change.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use portico_mail::MailKind;
use serde::Deserialize;
use time::Duration;

use crate::Auth;
use crate::account::phone;
use crate::account::redeem;
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::http::extract::{Json, RequestInfo, SignedIn};
use crate::messages::mailer;
use crate::messages::text;
use crate::model::ids::{EmailAddress, PhoneNumber};
use crate::model::metadata;
use crate::model::{JsonObject, User};
use crate::oauth::pkce::Challenge;
use crate::one_time::mail;
use crate::one_time::text_code;
use crate::one_time::token::{self, Kind};
use crate::protection::attempts;
use crate::protection::audit::{self, Action, AuditEvent};
use crate::protection::limits::Limiter;
use crate::sql::{Tx, identities, one_time_tokens, sessions, users};

const FAILED: ContractError = ContractError::UpdatingUserFailed;

/// `GET /user`
pub async fn get(request: RequestInfo, signed_in: SignedIn) -> Result<Response, AuthError> {
    // Without a word from the request, its audience is that of the token (auth-core 1.2)
    if request.names_aud && signed_in.claims.audience().is_some_and(|aud| aud != request.aud) {
        return Err(ContractError::AudienceMismatch.into());
    }
    Ok(axum::Json(signed_in.user).into_response())
}

/// The body of `PUT /user`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Update {
    email: String,
    phone: String,
    channel: String,
    password: Option<String>,
    current_password: Option<String>,
    nonce: String,
    data: Option<JsonObject>,
    app_metadata: Option<JsonObject>,
    code_challenge: Option<String>,
    code_challenge_method: Option<String>,
}

/// `PUT /user`
pub async fn put(
    State(auth): State<Auth>,
    request: RequestInfo,
    signed_in: SignedIn,
    Json(body): Json<Update>,
) -> Result<Response, AuthError> {
    auth.limits().check(Limiter::UpdateUser, &request)?;
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let email = given(&body.email).map(|email| EmailAddress::parse(&email)).transpose()?;
    let phone = given(&body.phone).map(|phone| PhoneNumber::parse(&phone)).transpose()?;
    if phone.is_some() {
        text::check_channel(&auth, &body.channel)?;
    }
    let password = body.password.as_deref();
    if let Some(password) = password {
        auth.passwords().check_strength(password).await?;
    }
    let challenge = Challenge::from_request(body.code_challenge.as_deref(), body.code_challenge_method.as_deref())?;
    let user = &signed_in.user;
    if body.app_metadata.is_some() && user.role != auth.settings().jwt.admin_group {
        return Err(ContractError::AppMetadataNeedsAdministrator.into());
    }
    let new_email = email.filter(|email| email.as_str() != user.email);
    let new_phone = phone.filter(|phone| phone.as_str() != user.phone);
    check_who(&signed_in, &body, new_email.is_some() || new_phone.is_some())?;
    if let Some(email) = &new_email {
        mailer::check_domain(&auth, email).await?;
    }
    // Hashes are computed before the transaction: it holds a connection and a lock
    let new_password = match password {
        Some(password) => {
            // First what others may refuse, and the nonce: whoever has none learns nothing about the password
            if new_email.is_some() || new_phone.is_some() {
                let tx = Tx::begin(auth.database()).await?;
                check_contacts(&auth, &tx, user, new_email.as_ref(), new_phone.as_ref()).await?;
            }
            if needs_nonce(&auth, &signed_in, &body)? {
                check_nonce(&auth, user, &body.nonce, &request).await?;
            }
            Some(prepare_password(&auth, &signed_in, password, body.current_password.as_deref()).await?)
        }
        None => None,
    };

    let tx = Tx::begin(auth.database()).await?;
    let user = users::lock_complete(&tx, user.id).await?.ok_or(ContractError::SubjectGone)?;
    check_contacts(&auth, &tx, &user, new_email.as_ref(), new_phone.as_ref()).await?;
    if let Some(hash) = &new_password {
        if user.encrypted_password != signed_in.user.encrypted_password {
            return Err(ContractError::PasswordChangedMeanwhile.into());
        }
        // The nonce that was checked must not have been used meanwhile
        if needs_nonce(&auth, &signed_in, &body)?
            && user.reauthentication_token != signed_in.user.reauthentication_token
        {
            return Err(invalid_nonce());
        }
        set_password(&auth, &tx, &signed_in, &user, hash, &request).await?;
    }
    if let Some(changes) = body.data {
        let merged = metadata::merge(&user.user_metadata, changes);
        metadata::check_size(&merged)?;
        users::set_user_metadata(&tx, user.id, &merged, request.now).await.context(FAILED)?;
    }
    if let Some(changes) = body.app_metadata {
        let merged = metadata::merge(&user.app_metadata, changes);
        metadata::check_size(&merged)?;
        users::set_app_metadata(&tx, user.id, &merged, request.now).await.context(FAILED)?;
    }
    if let Some(email) = &new_email {
        change_email(&auth, &tx, &user, email, challenge.as_ref(), &request).await?;
    }
    let text = match &new_phone {
        Some(phone) => phone::begin_phone_change(&auth, &tx, &user, phone, &body.channel, &request).await?,
        None => None,
    };
    let (audit, updated) = tokio::join!(biased;
        audit::record(&auth, &tx, AuditEvent::new(&user, Action::UserModified), request.now),
        users::complete(&tx, user.id),
    );
    audit?;
    let updated = updated?.ok_or(ContractError::SubjectGone)?;
    tx.commit().await?;
    if let Some(text) = text {
        text.deliver(&auth).await?;
    }
    Ok(axum::Json(updated).into_response())
}

/// Whether a new address and number are free.
///
/// # Errors
/// 422 `email_exists`, `phone_exists`.
async fn check_contacts(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    email: Option<&EmailAddress>,
    phone: Option<&PhoneNumber>,
) -> Result<(), AuthError> {
    if let Some(email) = email {
        let others = auth.providers_of_other_domains();
        if users::lock_owner_of_email(tx, email, &user.aud, &others, Some(user.id)).await?.is_some() {
            return Err(ContractError::EmailTaken.into());
        }
    }
    if let Some(phone) = phone
        && users::by_phone(tx, phone, &user.aud).await?.is_some_and(|other| other.id != user.id)
    {
        return Err(ContractError::PhoneTaken.into());
    }
    Ok(())
}

/// Whether this kind of account, in this session, may change this.
fn check_who(signed_in: &SignedIn, body: &Update, changes_contact: bool) -> Result<(), AuthError> {
    let user = &signed_in.user;
    let aal = signed_in.session.as_ref().map_or("aal1", |session| session.aal.as_str());
    if user.has_verified_factor() && aal != "aal2" && (body.password.is_some() || changes_contact) {
        return Err(ContractError::InsufficientAssurance.into());
    }
    if user.is_anonymous && body.password.is_some() && body.email.is_empty() && body.phone.is_empty() {
        return Err(ContractError::AnonymousPasswordNeedsContact.into());
    }
    if user.is_sso_user && (body.password.is_some() || changes_contact || !body.nonce.is_empty()) {
        return Err(ContractError::ManagedBySso.into());
    }
    Ok(())
}

/// Whether a password change must come with a nonce.
///
/// # Errors
/// 400 `reauthentication_needed` when it must and does not.
fn needs_nonce(auth: &Auth, signed_in: &SignedIn, body: &Update) -> Result<bool, AuthError> {
    if !auth.settings().password_change_needs_reauthentication {
        return Ok(false);
    }
    let signed_in_at = signed_in.session.as_ref().and_then(|session| session.created_at);
    if signed_in_at.is_some_and(|at| auth.now() <= at + Duration::hours(24)) {
        return Ok(false);
    }
    if body.nonce.is_empty() {
        return Err(ContractError::NonceRequired.into());
    }
    Ok(true)
}

fn invalid_nonce() -> AuthError {
    AuthError::from(ContractError::NonceInvalid)
}

async fn check_nonce(auth: &Auth, user: &User, nonce: &str, request: &RequestInfo) -> Result<(), AuthError> {
    let kind = Kind::Reauthentication;
    let account = format!("nonce of {}", user.id);
    let attempt = async {
        let is_right = if user.email.is_empty() {
            let phone = PhoneNumber::parse(&user.phone)?;
            let verdict = text_code::ask_gateway(auth, kind.stored(user), &phone, nonce, auth.now()).await?;
            text_code::is_right_code(auth, user, kind, &phone, nonce, verdict.as_ref(), auth.now())
        } else {
            token::code_matches(kind.stored(user), &user.email, nonce)
                && kind.is_fresh(user, auth.settings().email.otp_expiry, auth.now())
        };
        if is_right { Ok(()) } else { Err(invalid_nonce()) }
    };
    attempts::code(auth, &account, request, attempt).await
}

/// Checks the current password where that is demanded, and that the new one is new. Returns its stored form.
async fn prepare_password(
    auth: &Auth,
    signed_in: &SignedIn,
    password: &str,
    current: Option<&str>,
) -> Result<String, AuthError> {
    let user = &signed_in.user;
    if auth.settings().password_change_needs_current && user.has_password() && !came_by_mail(signed_in) {
        let current = current.filter(|text| !text.is_empty()).ok_or(ContractError::CurrentPasswordMissing)?;
        let compared = async {
            let matches = auth.is_password_of(user, current).await?;
            if matches { Ok(()) } else { Err(ContractError::CurrentPasswordWrong.into()) }
        };
        let session = signed_in.session.as_ref().map_or_else(|| user.id.to_string(), |session| session.id.to_string());
        attempts::current_password(auth, &session, compared).await?;
    }
    if user.has_password() && auth.is_password_of(user, password).await? {
        return Err(ContractError::PasswordUnchanged.into());
    }
    let hash = auth.passwords().hash(password).await?;
    Ok(auth.columns().encrypt(user.id.0, &hash))
}

/// Whether the session began with a message: its owner may have forgotten the password.
fn came_by_mail(signed_in: &SignedIn) -> bool {
    let methods = signed_in.claims.get("amr").and_then(|amr| amr.as_array());
    signed_in.session.is_some()
        && methods.into_iter().flatten().any(|entry| {
            matches!(entry.get("method").and_then(|method| method.as_str()), Some("otp" | "magiclink" | "recovery"))
        })
}

/// Stores the password, ends all other sessions and every message that is on its way.
async fn set_password(
    auth: &Auth,
    tx: &Tx,
    signed_in: &SignedIn,
    user: &User,
    hash: &str,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    let now = request.now;
    let (stored, tokens, audit) = tokio::join!(biased;
        users::set_password(tx, user.id, hash, now),
        one_time_tokens::delete_all(tx, user.id),
        audit::record(auth, tx, AuditEvent::new(user, Action::UserUpdatedPassword), now),
    );
    stored.context(FAILED)?;
    tokens?;
    audit?;
    match &signed_in.session {
        Some(session) => sessions::delete_others(tx, user.id, session.id).await?,
        None => sessions::delete_all(tx, user.id).await?,
    }
    let has_email_identity = user.identities.iter().any(|identity| identity.provider == "email");
    if auth.settings().create_email_identity_on_password_set
        && !user.has_password()
        && user.is_email_confirmed()
        && !has_email_identity
    {
        let mut data = metadata::of_contact(JsonObject::new(), user.id, Some(&user.email));
        data.insert("email_verified".into(), true.into());
        identities::upsert_contact(tx, user.id, "email", &data, now).await?;
        users::refresh_providers(tx, user.id, now).await.context(FAILED)?;
    }
    if user.email.is_empty() {
        return Ok(());
    }
    mailer::notify(auth, tx, MailKind::PasswordChanged, &user.email, &mailer::variables(auth, user)).await
}

async fn change_email(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    email: &EmailAddress,
    challenge: Option<&Challenge>,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    if !(auth.settings().email.autoconfirm && user.is_anonymous) {
        return mail::send_email_change(auth, tx, user, email, challenge, request).await;
    }
    // Addresses need no confirmation, and there is no earlier one to defend
    let mut changed = user.clone();
    changed.email_change = email.to_string();
    redeem::apply_email_change(auth, tx, &changed, request).await?;
    users::refresh_providers(tx, user.id, request.now).await.context(FAILED)
}
