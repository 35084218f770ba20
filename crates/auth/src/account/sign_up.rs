//! `POST /signup` (auth-core 4): new accounts with a password, and anonymous ones.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::json;

use crate::Auth;
use crate::account::phone;
use crate::account::unconfirmed_email;
use crate::error::{AuthError, ContractError, ErrorCode, SqlResultExt as _};
use crate::http::extract::{Json, RequestInfo};
use crate::messages::mailer;
use crate::messages::text;
use crate::model::ids::{EmailAddress, UserId};
use crate::model::metadata;
use crate::model::{JsonObject, User};
use crate::oauth::pkce::Challenge;
use crate::one_time::mail::{self, Recovery};
use crate::one_time::token::Kind;
use crate::protection::attempts;
use crate::protection::audit::{self, Action, AuditEvent, provider_trait};
use crate::protection::captcha::{self, Security};
use crate::protection::limits::Limiter;
use crate::session::{self, Method};
use crate::sql::users::NewUser;
use crate::sql::{Tx, identities, users};

/// The body of `POST /signup`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SignUp {
    email: String,
    phone: String,
    password: String,
    data: JsonObject,
    channel: String,
    code_challenge: Option<String>,
    code_challenge_method: Option<String>,
    gotrue_meta_security: Security,
}

/// `POST /signup`
pub async fn sign_up(
    State(auth): State<Auth>,
    request: RequestInfo,
    Json(body): Json<SignUp>,
) -> Result<Response, AuthError> {
    captcha::check(&auth, &body.gotrue_meta_security, &request).await?;
    if body.email.is_empty() && body.phone.is_empty() {
        return sign_up_anonymously(&auth, &request, body.data).await;
    }
    auth.limits().check(Limiter::SignUp, &request)?;
    let settings = auth.settings();
    if settings.disable_signup {
        return Err(ContractError::SignUpsDisabled.into());
    }
    if body.password.is_empty() {
        return Err(ContractError::SignUpNeedsPassword.into());
    }
    auth.passwords().check_strength(&body.password).await?;
    if !body.email.is_empty() && !body.phone.is_empty() {
        return Err(ContractError::SignUpNeedsOneContact.into());
    }
    if !body.phone.is_empty() {
        text::check_channel(&auth, &body.channel)?;
    }
    let challenge = Challenge::from_request(body.code_challenge.as_deref(), body.code_challenge_method.as_deref())?;
    metadata::check_size(&body.data)?;
    if !body.phone.is_empty() {
        return phone::sign_up(&auth, &request, &body.phone, &body.password, body.data, &body.channel, challenge).await;
    }
    if !settings.email.enabled {
        return Err(ContractError::EmailSignUpsDisabled.into());
    }
    let email = EmailAddress::parse(&body.email)?;
    if !settings.email.autoconfirm {
        mailer::check_recipient(&auth, &email)?;
        mailer::check_domain(&auth, &email).await?;
    }
    // Hashed before anybody is looked up: a known address takes as long as an unknown one
    let hash = auth.passwords().hash(&body.password).await?;
    let applicant = Applicant { email, password: Some(&body.password), hash, data: body.data, challenge };
    let registration = register(&auth, &request, &applicant);
    // Without confirmations the password opens an account that is there already: then it is a guess
    let registration = if settings.email.autoconfirm {
        attempts::password(&auth, applicant.email.as_str(), &request, registration).await
    } else {
        registration.await
    };
    match registration? {
        Registration::SignedIn(tokens) => Ok(tokens.into_response()),
        Registration::Waiting(user) => Ok(axum::Json(user).into_response()),
    }
}

/// Someone who wants an account with an e-mail address.
pub(crate) struct Applicant<'a> {
    pub(crate) email: EmailAddress,
    /// `None` for sign-in by link: then `hash` is empty.
    pub(crate) password: Option<&'a str>,
    pub(crate) hash: String,
    pub(crate) data: JsonObject,
    pub(crate) challenge: Option<Challenge>,
}

/// What became of it.
pub(crate) enum Registration {
    /// A session.
    SignedIn(Box<session::TokenResponse>),
    /// The account as the applicant may see it; it waits for its confirmation, or belongs to somebody already.
    Waiting(Box<User>),
}

/// As [`register`], for someone who signs in by link: an address that needs no confirmation gets a sign-in link, and no
/// session before it was followed.
///
/// # Errors
/// As [`register`].
pub(crate) async fn register_for_link(
    auth: &Auth,
    request: &RequestInfo,
    applicant: &Applicant<'_>,
) -> Result<(), AuthError> {
    if !auth.settings().email.autoconfirm {
        return register(auth, request, applicant).await.map(drop);
    }
    for _ in 0..3 {
        let tx = Tx::begin(auth.database()).await?;
        let user = match users::lock_by_email(&tx, &applicant.email, &request.aud).await? {
            Some(user) => user,
            None => match insert(auth, &tx, request, applicant).await {
                Ok(user) => {
                    let (audit, confirmed, verified) = tokio::join!(biased;
                        audit::record(auth, &tx, AuditEvent::new(&user, Action::UserSignedUp).with_traits(provider_trait("email")), request.now),
                        users::confirm_email(&tx, user.id, request.now),
                        identities::verify_email(&tx, user.id, &user.email, request.now),
                    );
                    audit?;
                    confirmed.context(ContractError::UpdatingUserFailed)?;
                    verified?;
                    user
                }
                Err(error) if error.code() == ErrorCode::UserAlreadyExists => continue,
                Err(error) => return Err(error),
            },
        };
        let challenge = applicant.challenge.as_ref();
        mail::send_recovery(auth, &tx, &user, Recovery::MagicLink, challenge, request).await?;
        return tx.commit().await;
    }
    Err(ContractError::ConcurrentSignUps.into())
}

enum Attempt {
    Done(Registration),
    /// Somebody else made the account at the same time.
    Lost,
}

/// Makes an account, or continues one that nobody confirmed.
///
/// # Errors
/// 422 `user_already_exists` when addresses need no confirmation, 429 when a confirmation was sent just before.
pub(crate) async fn register(
    auth: &Auth,
    request: &RequestInfo,
    applicant: &Applicant<'_>,
) -> Result<Registration, AuthError> {
    for _ in 0..3 {
        if let Attempt::Done(registration) = try_register(auth, request, applicant).await? {
            return Ok(registration);
        }
    }
    // Usually the address is taken in another audience, which is for nobody to know
    if !auth.settings().email.autoconfirm {
        return Ok(Registration::Waiting(Box::new(stranger(request, applicant))));
    }
    Err(ContractError::UserExists.into())
}

async fn try_register(auth: &Auth, request: &RequestInfo, applicant: &Applicant<'_>) -> Result<Attempt, AuthError> {
    let settings = auth.settings();
    let tx = Tx::begin(auth.database()).await?;
    let others = auth.providers_of_other_domains();
    let mut existing = users::lock_owner_of_email(&tx, &applicant.email, &request.aud, &others, None).await?;
    if let Some(claimant) = existing.take_if(|user| {
        let merely_claims = !user.is_email_confirmed() && user.email == applicant.email.as_str();
        merely_claims && user.is_phone_confirmed() && !settings.email.autoconfirm
    }) {
        // The account stays that of the number, and the address is free for the person who proves it
        unconfirmed_email::withdraw(&tx, &claimant, request.now).await?;
    }
    let Some(existing) = existing else {
        return match insert(auth, &tx, request, applicant).await {
            Ok(user) => finish_new(auth, tx, request, applicant, user).await.map(Attempt::Done),
            Err(error) if error.code() == ErrorCode::UserAlreadyExists => Ok(Attempt::Lost),
            Err(error) => Err(error),
        };
    };
    // An address that is another account's by a provider's word is taken as well
    let is_taken = existing.is_email_confirmed() || existing.email != applicant.email.as_str();
    if settings.email.autoconfirm && !is_taken {
        return claim_unconfirmed(auth, tx, request, applicant, existing).await.map(Attempt::Done);
    }
    if is_taken {
        // The reference tells as soon as either channel confirms by itself (auth-core 4.3). Who has this address is
        // hidden by the confirmation of this channel alone, so that decides here.
        if settings.email.autoconfirm {
            return Err(ContractError::UserExists.into());
        }
        let action = Action::UserRepeatedSignUp;
        audit::record(auth, &tx, AuditEvent::new(&existing, action).with_traits(provider_trait("email")), request.now)
            .await?;
        // Also as often as one that waits for its confirmation
        mail::pretend(auth, &tx, Kind::Confirmation, &applicant.email, request).await?;
        tx.commit().await?;
        return Ok(Attempt::Done(Registration::Waiting(Box::new(stranger(request, applicant)))));
    }
    continue_unconfirmed(auth, tx, request, applicant, existing).await.map(Attempt::Done)
}

/// The rows of a new account. 422 `user_already_exists` when somebody else was faster.
async fn insert(auth: &Auth, tx: &Tx, request: &RequestInfo, applicant: &Applicant<'_>) -> Result<User, AuthError> {
    const FAILED: ContractError = ContractError::SavingUserFailed;
    let id = UserId::random();
    let email = applicant.email.as_str();
    let now = request.now;
    let password = auth.columns().encrypt(id.0, &applicant.hash);
    let new = NewUser {
        id,
        aud: &request.aud,
        email,
        phone: "",
        encrypted_password: &password,
        app_metadata: provider_metadata("email"),
        user_metadata: applicant.data.clone(),
        is_sso_user: false,
        is_anonymous: false,
    };
    let data = metadata::of_contact(applicant.data.clone(), id, Some(email));
    let provider_id = id.to_string();
    // The order that triggers of applications know (database, 5.4), in one round trip
    let (inserted, role, identity, metadata, user) = tokio::join!(biased;
        users::insert(tx, &new, now),
        users::set_role(tx, id, &auth.settings().jwt.default_role, now),
        identities::insert(tx, id, "email", &provider_id, &data, now),
        users::set_user_metadata(tx, id, &data, now),
        users::complete(tx, id),
    );
    inserted.on_constraint("users_email_partial_key", ContractError::UserExists).context(FAILED)?;
    role.context(FAILED)?;
    identity.context(FAILED)?;
    metadata.context(FAILED)?;
    user.context(FAILED)?.ok_or_else(|| AuthError::internal(anyhow::anyhow!("a trigger removed the new user")))
}

/// `{"provider": p, "providers": [p]}`
pub(crate) fn provider_metadata(provider: &str) -> JsonObject {
    JsonObject::from_iter([("provider".to_owned(), provider.into()), ("providers".to_owned(), json!([provider]))])
}

async fn finish_new(
    auth: &Auth,
    tx: Tx,
    request: &RequestInfo,
    applicant: &Applicant<'_>,
    user: User,
) -> Result<Registration, AuthError> {
    if auth.settings().email.autoconfirm {
        return sign_in_confirmed(auth, tx, request, user).await;
    }
    await_confirmation(auth, tx, request, applicant, &user).await
}

/// Addresses need no confirmation: the account is confirmed and signed in at once.
async fn sign_in_confirmed(auth: &Auth, tx: Tx, request: &RequestInfo, user: User) -> Result<Registration, AuthError> {
    let now = request.now;
    let (audit, confirmed, verified, reread) = tokio::join!(biased;
        audit::record(auth, &tx, AuditEvent::new(&user, Action::UserSignedUp).with_traits(provider_trait("email")), now),
        users::confirm_email(&tx, user.id, now),
        identities::verify_email(&tx, user.id, &user.email, now),
        users::complete(&tx, user.id),
    );
    audit?;
    confirmed.context(ContractError::UpdatingUserFailed)?;
    verified?;
    let mut user = reread?.ok_or_else(|| AuthError::internal(anyhow::anyhow!("the new user is gone")))?;
    // Wire contract (4.2): this answer does not have it
    user.confirmed_at = None;
    let tokens = session::issue(auth, &tx, &user, Method::Password, request).await?;
    tx.commit().await?;
    Ok(Registration::SignedIn(Box::new(tokens)))
}

async fn await_confirmation(
    auth: &Auth,
    tx: Tx,
    request: &RequestInfo,
    applicant: &Applicant<'_>,
    user: &User,
) -> Result<Registration, AuthError> {
    let action = Action::UserConfirmationRequested;
    let (audit, sent, user) = tokio::join!(biased;
        audit::record(auth, &tx, AuditEvent::new(user, action).with_traits(provider_trait("email")), request.now),
        mail::send_confirmation(auth, &tx, user, applicant.challenge.as_ref(), request),
        users::complete(&tx, user.id),
    );
    audit?;
    sent?;
    let user = user?;
    tx.commit().await?;
    let user = user.ok_or_else(|| AuthError::internal(anyhow::anyhow!("the new user is gone")))?;
    Ok(Registration::Waiting(Box::new(user)))
}

/// Somebody signs up again for an account that nobody confirmed. What they chose replaces what was there, together with
/// the confirmation: whoever confirms gets the password and data of the sign-up that the mail belongs to, never those of an
/// earlier stranger.
async fn continue_unconfirmed(
    auth: &Auth,
    tx: Tx,
    request: &RequestInfo,
    applicant: &Applicant<'_>,
    existing: User,
) -> Result<Registration, AuthError> {
    let now = request.now;
    let data = metadata::of_contact(applicant.data.clone(), existing.id, Some(applicant.email.as_str()));
    let password = auth.columns().encrypt(existing.id.0, &applicant.hash);
    let (replaced, identity, providers) = tokio::join!(biased;
        users::replace_credentials(&tx, existing.id, &password, &data, now),
        identities::upsert_contact(&tx, existing.id, "email", &data, now),
        users::refresh_providers(&tx, existing.id, now),
    );
    replaced.context(ContractError::UpdatingUserFailed)?;
    identity?;
    providers?;
    let registration = await_confirmation(auth, tx, request, applicant, &existing).await?;
    Ok(match registration {
        // Wire contract: who was invited and why is not for whoever types the address
        Registration::Waiting(mut user) if existing.invited_at.is_some() => {
            user.user_metadata = JsonObject::new();
            user.identities = Vec::new();
            Registration::Waiting(user)
        }
        other => other,
    })
}

/// Addresses need no confirmation, but this account was left unconfirmed. It is the applicant's only if the password is.
async fn claim_unconfirmed(
    auth: &Auth,
    tx: Tx,
    request: &RequestInfo,
    applicant: &Applicant<'_>,
    mut existing: User,
) -> Result<Registration, AuthError> {
    let is_owner = match applicant.password {
        Some(password) => auth.is_password_of(&existing, password).await?,
        None => false,
    };
    if !is_owner {
        return Err(ContractError::UserExists.into());
    }
    users::load_relations(&tx, &mut existing).await?;
    sign_in_confirmed(auth, tx, request, existing).await
}

/// Wire contract (4.3): an account that looks new and does not exist, for an address that has one.
fn stranger(request: &RequestInfo, applicant: &Applicant<'_>) -> User {
    User {
        email: applicant.email.to_string(),
        app_metadata: provider_metadata("email"),
        user_metadata: applicant.data.clone(),
        confirmation_sent_at: Some(request.now),
        ..blank(request)
    }
}

/// A user without any facts.
pub(crate) fn blank(request: &RequestInfo) -> User {
    User {
        id: UserId::random(),
        aud: request.aud.clone(),
        role: String::new(),
        email: String::new(),
        encrypted_password: String::new(),
        email_confirmed_at: None,
        invited_at: None,
        confirmation_token: String::new(),
        confirmation_sent_at: None,
        recovery_token: String::new(),
        recovery_sent_at: None,
        email_change_token_new: String::new(),
        email_change_token_current: String::new(),
        email_change: String::new(),
        email_change_sent_at: None,
        email_change_confirm_status: 0,
        last_sign_in_at: None,
        app_metadata: JsonObject::new(),
        user_metadata: JsonObject::new(),
        phone: String::new(),
        phone_confirmed_at: None,
        phone_change: String::new(),
        phone_change_token: String::new(),
        phone_change_sent_at: None,
        confirmed_at: None,
        reauthentication_token: String::new(),
        reauthentication_sent_at: None,
        banned_until: None,
        is_sso_user: false,
        deleted_at: None,
        is_anonymous: false,
        created_at: Some(request.now),
        updated_at: Some(request.now),
        identities: Vec::new(),
        factors: Vec::new(),
    }
}

/// Neither address nor number: an account without a name (auth-core 4.4).
async fn sign_up_anonymously(auth: &Auth, request: &RequestInfo, data: JsonObject) -> Result<Response, AuthError> {
    let settings = auth.settings();
    if !settings.anonymous_users {
        return Err(ContractError::AnonymousSignInsDisabled.into());
    }
    auth.limits().check(Limiter::Anonymous, request)?;
    if settings.disable_signup {
        return Err(ContractError::SignUpsDisabled.into());
    }
    metadata::check_size(&data)?;
    const FAILED: ContractError = ContractError::CreatingAnonymousUserFailed;
    let id = UserId::random();
    let new = NewUser {
        id,
        aud: &request.aud,
        email: "",
        phone: "",
        encrypted_password: "",
        app_metadata: JsonObject::new(),
        user_metadata: data,
        is_sso_user: false,
        is_anonymous: true,
    };
    let tx = Tx::begin(auth.database()).await?;
    let (inserted, role, user) = tokio::join!(biased;
        users::insert(&tx, &new, request.now),
        users::set_role(&tx, id, &settings.jwt.default_role, request.now),
        users::complete(&tx, id),
    );
    inserted.context(FAILED)?;
    role.context(FAILED)?;
    let user = user.context(FAILED)?.ok_or_else(|| AuthError::internal(anyhow::anyhow!("the new user is gone")))?;
    let tokens = session::issue(auth, &tx, &user, Method::Anonymous, request).await?;
    tx.commit().await?;
    Ok(tokens.into_response())
}
