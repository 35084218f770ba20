//! Linking and unlinking identities of a signed-in person (auth-core 8).

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, Uri};
use portico_mail::MailKind;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::Auth;
use crate::account::unconfirmed_email;
use crate::error::{AuthError, ContractError};
use crate::http::extract::{Query, RequestInfo, SignedIn};
use crate::model::ids::IdentityId;
use crate::model::{Identity, User};
use crate::oauth::flow::account_linking::{self, Outcome, identity_traits, notify, record_link};
use crate::oauth::flow::authorize;
use crate::oauth::flow::browser_binding::Browser;
use crate::oauth::flow::callback_redirect;
use crate::oauth::provider::profile::{Profile, ProviderEmail};
use crate::protection::audit::{self, Action};
use crate::sql::flow_state::{self, FlowState};
use crate::sql::{Tx, accounts, identities, users};

fn check_enabled(auth: &Auth) -> Result<(), AuthError> {
    if auth.settings().manual_linking {
        return Ok(());
    }
    Err(ContractError::ManualLinkingOff.into())
}

/// `GET /user/identities/authorize`: begins a flow that adds an identity.
pub(crate) async fn authorize(
    State(auth): State<Auth>,
    request: RequestInfo,
    query: Query,
    signed_in: SignedIn,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, AuthError> {
    check_enabled(&auth)?;
    let browser = Browser::of(&headers, &uri);
    let begun = authorize::begin(&auth, &request, &query, &browser, Some(signed_in.user.id)).await?;
    let mut response = match query.get("skip_http_redirect") {
        Some("true") => Json(json!({"url": begun.url})).into_response(),
        _ => callback_redirect::redirect(StatusCode::FOUND, &begun.url),
    };
    begun.give_cookie(&mut response);
    Ok(response)
}

/// Whether a provider's identity may be added to `user`, who is locked. Nothing is written.
///
/// # Errors
/// As auth-core 8.2.
pub(crate) async fn check_link(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    provider: &str,
    profile: &Profile,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    if user.is_banned(request.now) {
        return Err(ContractError::Banned.into());
    }
    if let Some(existing) = accounts::identity(tx, provider, &profile.subject).await? {
        return Err(match existing.user_id == user.id {
            true => ContractError::IdentityLinked.into(),
            false => ContractError::IdentityLinkedElsewhere.into(),
        });
    }
    if user.email.is_empty()
        && let Some(email) = profile.candidate()
        && is_taken(auth, tx, user, &email).await?
    {
        return Err(ContractError::EmailTakenAtLink.into());
    }
    Ok(())
}

/// Returns whether the address of an identity is another account's. What another account merely claims
/// is not, unless nothing but a claim is asked of this one either.
async fn is_taken(auth: &Auth, tx: &Tx, user: &User, email: &ProviderEmail) -> Result<bool, AuthError> {
    if !email.verified && auth.settings().email.autoconfirm {
        return Ok(accounts::is_address_taken(tx, &email.address, &user.aud, Some(user.id)).await?);
    }
    unconfirmed_email::is_proved_elsewhere(auth, tx, &email.address, &user.aud, Some(user.id)).await
}

/// Keeps the identity until the code is exchanged. Returns where.
pub(crate) async fn keep_link(
    tx: &Tx,
    provider: &str,
    profile: &Profile,
    request: &RequestInfo,
) -> Result<Uuid, AuthError> {
    let kept = serde_json::to_string(profile).map_err(AuthError::internal)?;
    Ok(flow_state::insert_client_state(tx, provider, &kept, request.now).await?)
}

/// Asks name servers about the address of the identity that waits for the exchange of `code`, as the callback did: that may be a
/// while ago, and in another process.
///
/// # Errors
/// Those of the database.
pub(crate) async fn look_up_waiting_domain(auth: &Auth, code: &str) -> Result<(), AuthError> {
    // Most exchanges link nothing, and need not pay for the question
    if !auth.settings().email.extended_validation {
        return Ok(());
    }
    let client = auth.database().auth().await?;
    let kept = flow_state::kept_for_link(&client, code).await?;
    drop(client);
    if let Some(profile) = kept.and_then(|kept| serde_json::from_str::<Profile>(&kept).ok()) {
        account_linking::look_up_domain(auth, &profile).await;
    }
    Ok(())
}

/// Adds the identity that waits for the exchange of the flow's code to `user`, who is locked and complete.
///
/// # Errors
/// As [`link`]; 404 `flow_state_not_found` when no identity waits.
pub(crate) async fn finish_link(
    auth: &Auth,
    tx: &Tx,
    request: &RequestInfo,
    user: User,
    flow: &FlowState,
) -> Result<Outcome, AuthError> {
    let not_found = || AuthError::from(ContractError::FlowNotFound);
    let pending = flow.oauth_client_state_id.ok_or_else(not_found)?;
    let kept = flow_state::take_client_state(tx, pending)
        .await?
        .filter(|kept| kept.provider_type == flow.provider_type)
        .ok_or_else(not_found)?;
    let profile: Profile =
        serde_json::from_str(kept.code_verifier.as_deref().unwrap_or_default()).map_err(|_| not_found())?;
    // Mails of this link lead to the app as well
    let redirect_to = flow.referrer.clone().unwrap_or_else(|| request.redirect_to.clone());
    let request = &RequestInfo { redirect_to, ..request.clone() };
    link(auth, tx, request, user, &flow.provider_type, &profile).await
}

/// Adds a provider's identity to `user`, who is locked and complete.
///
/// # Errors
/// As auth-core 8.2; then nothing is to be kept.
pub(crate) async fn link(
    auth: &Auth,
    tx: &Tx,
    request: &RequestInfo,
    user: User,
    provider: &str,
    profile: &Profile,
) -> Result<Outcome, AuthError> {
    let now = request.now;
    check_link(auth, tx, &user, provider, profile, request).await?;
    let data = profile.identity_data();
    let identity = identities::insert(tx, user.id, provider, &profile.subject, &data, now).await?;
    record_link(auth, tx, &user, &identity, request).await?;
    let mut kept = None;
    if user.email.is_empty() {
        match profile.candidate() {
            Some(email) => {
                if email.verified || auth.settings().email.autoconfirm {
                    unconfirmed_email::withdraw_from_others(tx, &email.address, &user.aud, Some(user.id), now).await?;
                    accounts::adopt_email(tx, user.id, &email.address, now).await?;
                    users::confirm_email(tx, user.id, now).await?;
                } else {
                    unconfirmed_email::await_proof(auth, tx, &user, &email.address, request).await?;
                    kept = Some(ContractError::LinkedEmailAwaitsConfirmation { provider: provider.to_owned() }.into());
                }
            }
            None => accounts::lose_anonymity(tx, user.id, now).await?,
        }
    }
    users::refresh_providers(tx, user.id, now).await?;
    if let Some(error) = kept {
        return Ok(Outcome::Kept(error));
    }
    let linked = users::lock_complete(tx, user.id).await?.unwrap_or(user);
    Ok(Outcome::SignedIn(Box::new(linked)))
}

/// `DELETE /user/identities/{identity_id}`
pub(crate) async fn unlink(
    State(auth): State<Auth>,
    request: RequestInfo,
    signed_in: SignedIn,
    Path(id): Path<String>,
) -> Result<Json<Value>, AuthError> {
    check_enabled(&auth)?;
    let id = IdentityId::parse(&id).ok_or(ContractError::IdentityIdNotUuid)?;
    if request.names_aud && signed_in.claims.audience().is_some_and(|audience| audience != request.aud) {
        return Err(ContractError::AudienceMismatchOfUnlink.into());
    }
    let now = request.now;
    let tx = Tx::begin(auth.database()).await?;
    let user = users::lock_complete(&tx, signed_in.user.id).await?.ok_or(ContractError::UserUnknown)?;
    if user.identities.len() <= 1 {
        return Err(ContractError::LastIdentity.into());
    }
    let (removed, remaining): (Vec<&Identity>, Vec<&Identity>) =
        user.identities.iter().partition(|identity| identity.id == id);
    let Some(removed) = removed.first() else {
        return Err(ContractError::IdentityUnknown.into());
    };
    accounts::delete_identity(&tx, id, user.id).await?;
    if removed.provider == "phone" {
        accounts::clear_phone(&tx, user.id, now).await?;
    } else if !remaining.iter().any(|identity| !identity.email.is_empty() && identity.email == user.email) {
        replace_email(&auth, &tx, &request, &user, &remaining).await?;
    }
    users::refresh_providers(&tx, user.id, now).await?;
    let traits = identity_traits(removed);
    audit::record(&auth, &tx, &user, Action::IdentityUnlinked, traits, request.ip, now).await?;
    notify(&auth, &tx, &user, MailKind::IdentityUnlinked, removed).await?;
    tx.commit().await?;
    Ok(Json(json!({})))
}

/// Gives the account, whose address was that of the identity that goes, the address that a remaining
/// identity proves. An account without such an identity has no address from then on.
async fn replace_email(
    auth: &Auth,
    tx: &Tx,
    request: &RequestInfo,
    user: &User,
    remaining: &[&Identity],
) -> Result<(), AuthError> {
    let now = request.now;
    // The data of a number's identity is the person's own
    let proves = |identity: &Identity| {
        !identity.email.is_empty() && identity.is_email_verified() && identity.provider != "phone"
    };
    let mut may_be_without = false;
    // Oldest first, as they are sorted
    for identity in remaining {
        let email = &identity.email;
        if email.is_empty() {
            may_be_without = true;
            continue;
        }
        if unconfirmed_email::is_proved_elsewhere(auth, tx, email, &user.aud, Some(user.id)).await? {
            continue;
        }
        if proves(identity) {
            unconfirmed_email::withdraw_from_others(tx, email, &user.aud, Some(user.id), now).await?;
            return Ok(accounts::promote_email(tx, user.id, email, true, now).await?);
        }
        may_be_without = true;
    }
    if may_be_without {
        return Ok(accounts::promote_email(tx, user.id, "", false, now).await?);
    }
    Err(ContractError::IdentityEmailConflict.into())
}
