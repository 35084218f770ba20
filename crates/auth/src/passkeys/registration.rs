//! `POST /passkeys/registration/options` and `/verify`: a user adds a passkey.

use axum::Json as JsonResponse;
use axum::extract::State;
use portico_mail::MailKind;
use serde_json::{Value, json};

use super::ceremony::{self, CeremonyBody, CeremonyResponse, IssuedChallenge, PasskeyCeremony};
use super::{PasskeysEnabled, check_assurance, lock_owner, providers};
use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::hooks;
use crate::http::extract::{Json, RequestInfo, SignedIn};
use crate::model::{Passkey, Timestamp, User};
use crate::operation::AccountOperation;
use crate::protection::audit::Action;
use crate::settings::PasskeySettings;
use crate::sql::{Tx, webauthn_credentials};
use crate::webauthn::{CeremonyError, CredentialOwner, RegistrationResponse, descriptor, offered_algorithms};

/// `POST /passkeys/registration/options`
pub(crate) async fn options(
    State(auth): State<Auth>,
    _: PasskeysEnabled,
    request: RequestInfo,
    signed_in: SignedIn,
) -> Result<JsonResponse<Value>, AuthError> {
    check_may_register(&signed_in)?;
    let relying_party = auth.relying_party()?;
    let user = &signed_in.user;
    let client = auth.database().client().await?;
    let registered = webauthn_credentials::of_user(&client, user.id).await?;
    check_limit(&auth.settings().passkeys, &registered)?;
    let lifetime = auth.settings().passkeys.challenge_expiry;
    let ceremony = PasskeyCeremony::Registration(user.id);
    let issued = IssuedChallenge::issue(&client, ceremony, request.now, lifetime).await?;
    drop(client);
    let handle = user.id.to_string();
    let name = account_name(user);
    let owner = CredentialOwner { handle: &handle, name, display_name: display_name(user).unwrap_or(name) };
    let mut options = json!({
        "rp": relying_party.to_json(),
        "user": owner.to_json(),
        "challenge": issued.challenge,
        "pubKeyCredParams": offered_algorithms(),
        "timeout": issued.timeout,
        "authenticatorSelection": {
            "residentKey": "required",
            "userVerification": user_verification(&auth.settings().passkeys),
        },
        "attestation": "none",
    });
    if !registered.is_empty() {
        options["excludeCredentials"] =
            registered.iter().map(|passkey| descriptor(&passkey.credential_id, &[])).collect();
    }
    Ok(JsonResponse(issued.response_body(options)))
}

/// `POST /passkeys/registration/verify`
pub(crate) async fn verify(
    State(auth): State<Auth>,
    _: PasskeysEnabled,
    request: RequestInfo,
    signed_in: SignedIn,
    Json(body): Json<CeremonyBody>,
) -> Result<JsonResponse<Value>, AuthError> {
    check_may_register(&signed_in)?;
    let response = body.parse()?;
    let registered = hooks::complete(auth.hooks(), &request, || async {
        let tx = Tx::begin(auth.database()).await?;
        let registered = register(AccountOperation::new(&auth, &request, &tx), &signed_in, response.clone()).await;
        ceremony::conclude(tx, &request, registered).await
    });
    let passkey = registered.await?;
    Ok(JsonResponse(json!({
        "id": passkey.id,
        "friendly_name": passkey.friendly_name,
        "created_at": Timestamp(passkey.created_at),
    })))
}

async fn register(
    op: AccountOperation<'_>,
    signed_in: &SignedIn,
    response: CeremonyResponse,
) -> Result<Passkey, AuthError> {
    let AccountOperation { auth, tx, .. } = op;
    let relying_party = auth.relying_party()?;
    // Registrations of one user come one after another, so that the limit holds
    let user = lock_owner(tx, signed_in).await?;
    let ceremony = PasskeyCeremony::Registration(user.id);
    let (challenge, response) = response.take_challenge::<RegistrationResponse>(tx, ceremony, op.now()).await?;
    let credential = relying_party.verify_registration(&challenge, &response).map_err(ceremony::reject)?;
    if auth.settings().passkeys.require_user_verification && !credential.is_user_verified {
        return Err(ceremony::reject(CeremonyError::UserVerification));
    }
    check_limit(&auth.settings().passkeys, &webauthn_credentials::of_user(tx, user.id).await?)?;
    let name = providers::name_of(credential.aaguid).unwrap_or("Passkey");
    let passkey = webauthn_credentials::insert(tx, user.id, &credential, name, op.now()).await?;
    let passkey = passkey.ok_or(ContractError::CredentialRegistered)?;
    op.record_with_ip(&user, Action::PasskeyCreated, super::traits(&passkey)).await?;
    super::notify(op, &user, MailKind::PasskeyAdded, &passkey).await?;
    Ok(passkey)
}

/// Checks that the user may add passkeys.
fn check_may_register(signed_in: &SignedIn) -> Result<(), AuthError> {
    if signed_in.user.is_anonymous {
        return Err(ContractError::AnonymousNotAllowed.into());
    }
    if signed_in.user.is_sso_user {
        return Err(ContractError::PasskeyOfSsoUser.into());
    }
    check_assurance(signed_in)
}

fn check_limit(settings: &PasskeySettings, registered: &[Passkey]) -> Result<(), AuthError> {
    match registered.len() >= settings.max_per_user as usize {
        true => Err(ContractError::PasskeyLimitReached.into()),
        false => Ok(()),
    }
}

/// Returns the name under which an authenticator lists the account: its address or number.
fn account_name(user: &User) -> &str {
    match (&*user.email, &*user.phone) {
        ("", "") => display_name(user).unwrap_or("Account"),
        ("", phone) => phone,
        (email, _) => email,
    }
}

fn display_name(user: &User) -> Option<&str> {
    user.user_metadata.get("name").and_then(Value::as_str).filter(|name| !name.is_empty())
}

/// Returns the member `userVerification` of options.
pub(super) fn user_verification(settings: &PasskeySettings) -> &'static str {
    if settings.require_user_verification { "required" } else { "preferred" }
}
