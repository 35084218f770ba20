//! `POST /signup`: new accounts with a password, and anonymous ones.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use crate::Auth;
use crate::account::contact::ContactSettings;
use crate::account::registration::{Applicant, Registration, register};
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::hooks;
use crate::http::extract::{Json, RequestInfo};
use crate::model::JsonObject;
use crate::model::contact::{Contact, ContactKind};
use crate::model::ids::UserId;
use crate::model::metadata;
use crate::oauth::pkce::Challenge;
use crate::one_time::text_message::check_channel;
use crate::operation::AccountOperation;
use crate::protection::captcha::{self, Security};
use crate::protection::limits::Limiter;
use crate::session::{self, AuthenticationMethod};
use crate::settings::HookPoint;
use crate::sql::users::NewUser;
use crate::sql::{Tx, users};

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
    captcha::check(auth.captcha(), &body.gotrue_meta_security, &request).await?;
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
    let (kind, text) = match (body.email.is_empty(), body.phone.is_empty()) {
        (false, false) => return Err(ContractError::SignUpNeedsOneContact.into()),
        (_, true) => (ContactKind::Email, &body.email),
        (true, _) => (ContactKind::Phone, &body.phone),
    };
    if kind == ContactKind::Phone {
        check_channel(&auth, &body.channel)?;
    }
    let challenge = Challenge::from_request(body.code_challenge.as_deref(), body.code_challenge_method.as_deref())?;
    metadata::check_size(&body.data)?;
    if kind == ContactKind::Phone && challenge.is_some() {
        return Err(ContractError::PhoneSignUpWithPkce.into());
    }
    let ContactSettings { is_enabled, autoconfirm } = ContactSettings::of(settings, kind);
    if !is_enabled {
        return Err(match kind {
            ContactKind::Email => ContractError::EmailSignUpsDisabled.into(),
            ContactKind::Phone => ContractError::PhoneSignUpsDisabled.into(),
        });
    }
    let contact = Contact::parse(kind, text)?;
    if let Some(email) = contact.email().filter(|_| !autoconfirm) {
        auth.recipients().check(email)?;
        auth.recipients().check_domain(email).await?;
    }
    // Hashed before the account is looked up: a known contact takes as long as an unknown one
    let hash = auth.passwords().hash(&body.password).await?;
    let applicant =
        Applicant { contact, password: Some(&body.password), hash, data: body.data, challenge, channel: &body.channel };
    let registration = register(&auth, &request, &applicant);
    // Without confirmations the password opens an existing account: then it is a guess
    let registration = if autoconfirm {
        auth.guesses().password(applicant.contact.as_str(), &request, registration).await
    } else {
        registration.await
    };
    match registration? {
        Registration::SignedIn(tokens) => Ok(tokens.into_response()),
        Registration::AwaitsConfirmation { user, delivery } => {
            delivery.deliver(&auth).await?;
            Ok(axum::Json(user).into_response())
        }
    }
}

/// Makes an account without a contact and signs it in.
async fn sign_up_anonymously(auth: &Auth, request: &RequestInfo, data: JsonObject) -> Result<Response, AuthError> {
    const FAILED: ContractError = ContractError::CreatingAnonymousUserFailed;
    let settings = auth.settings();
    if !settings.anonymous_users {
        return Err(ContractError::AnonymousSignInsDisabled.into());
    }
    auth.limits().check(Limiter::Anonymous, request)?;
    if settings.disable_signup {
        return Err(ContractError::SignUpsDisabled.into());
    }
    metadata::check_size(&data)?;
    let id = UserId(request.hooks.uuid("user"));
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
    let tokens = hooks::complete(auth.hooks(), request, || async {
        let tx = Tx::begin(auth.database()).await?;
        let op = AccountOperation::new(auth, request, &tx);
        Box::pin(hooks::before_user_created(op, &new)).await?;
        let (inserted, role, user) = tokio::join!(biased;
            users::insert(&tx, &new, request.now),
            users::set_role(&tx, id, &settings.jwt.default_role, request.now),
            users::complete(&tx, id),
        );
        inserted.context(FAILED)?;
        role.context(FAILED)?;
        let user = user.context(FAILED)?.ok_or_else(|| AuthError::internal(anyhow::anyhow!("the new user is gone")))?;
        let tokens = session::issue(op, &user, AuthenticationMethod::Anonymous).await?;
        tx.commit().await?;
        Ok(tokens)
    });
    let tokens = tokens.await.map_err(|error| match request.hooks.failed_point() {
        // Clients know no other text here
        Some(HookPoint::CustomAccessToken) => FAILED.into(),
        _ => error,
    });
    Ok(tokens?.into_response())
}
