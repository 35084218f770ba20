//! Manual linking: identities that a signed-in person links and unlinks.
//!
//! An identity is a sign-in method, and may bring the account its address or take it away. So a
//! person with a second factor must have proved it in the session ([`assurance`]).

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
use crate::hooks;
use crate::http::extract::{Query, RequestInfo, SignedIn};
use crate::model::ids::IdentityId;
use crate::model::{Identity, User};
use crate::oauth::flow::account_linking::{self, SignInOutcome, identity_traits, notify, record_link};
use crate::oauth::flow::authorize;
use crate::oauth::flow::browser_binding::BrowserContext;
use crate::oauth::flow::callback_redirect;
use crate::oauth::provider::profile::{Profile, ProviderEmail};
use crate::operation::AccountOperation;
use crate::protection::audit::Action;
use crate::session::assurance;
use crate::sql::flow_state::{self, FlowState};
use crate::sql::{Tx, identities, link_sessions, users};

fn check_enabled(auth: &Auth) -> Result<(), AuthError> {
    if auth.settings().manual_linking {
        return Ok(());
    }
    Err(ContractError::ManualLinkingOff.into())
}

/// `GET /user/identities/authorize`: starts a flow that links an identity.
pub(crate) async fn authorize(
    State(auth): State<Auth>,
    request: RequestInfo,
    query: Query,
    signed_in: SignedIn,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, AuthError> {
    check_enabled(&auth)?;
    assurance::check(&signed_in.user, signed_in.aal())?;
    let browser = BrowserContext::from_request(&headers, &uri);
    let started = authorize::start(&auth, &request, &query, &browser, Some(&signed_in)).await?;
    let mut response = match query.get("skip_http_redirect") {
        Some("true") => Json(json!({"url": started.url})).into_response(),
        _ => callback_redirect::redirect(StatusCode::FOUND, &started.url),
    };
    started.set_cookie(&mut response);
    Ok(response)
}

/// Checks that the session which began a link has not ended, and may still make it. `user` is
/// locked. Otherwise a person who was signed out could finish a link that gives access again.
///
/// # Errors
/// As [`assurance::lock_and_check`].
pub(crate) async fn check_session(tx: &Tx, user: &User, flow: &FlowState) -> Result<(), AuthError> {
    // Flows that another server software began have none
    let session = link_sessions::of_flow(tx, flow.id).await?.ok_or(ContractError::SessionOfTokenGone)?;
    assurance::lock_and_check(tx, user, session).await
}

/// Checks that a provider's identity may be linked to `user`, who is locked. Writes nothing.
///
/// # Errors
/// `user_banned`, `identity_already_exists`, `email_exists`.
pub(crate) async fn check_link(
    op: AccountOperation<'_>,
    user: &User,
    provider: &str,
    profile: &Profile,
) -> Result<(), AuthError> {
    if user.is_banned(op.now()) {
        return Err(ContractError::Banned.into());
    }
    if let Some(existing) = identities::by_subject(op.tx, provider, &profile.subject).await? {
        return Err(match existing.user_id == user.id {
            true => ContractError::IdentityLinked.into(),
            false => ContractError::IdentityLinkedElsewhere.into(),
        });
    }
    if user.email.is_empty()
        && let Some(email) = profile.primary_email()
        && is_taken(op, user, &email).await?
    {
        return Err(ContractError::EmailTakenAtLink.into());
    }
    Ok(())
}

/// Returns true if the address of an identity belongs to another account. An unverified address of
/// another account counts only where this one need not be verified either.
async fn is_taken(op: AccountOperation<'_>, user: &User, email: &ProviderEmail) -> Result<bool, AuthError> {
    if !email.verified && op.auth.settings().email.autoconfirm {
        return Ok(users::is_address_taken(op.tx, &email.address, &user.aud, Some(user.id)).await?);
    }
    unconfirmed_email::is_proved_elsewhere(op.auth, op.tx, &email.address, &user.aud, Some(user.id)).await
}

/// Stores the identity until the code is exchanged, and returns its id.
pub(crate) async fn store_pending_link(
    op: AccountOperation<'_>,
    provider: &str,
    profile: &Profile,
) -> Result<Uuid, AuthError> {
    let stored = serde_json::to_string(profile).map_err(AuthError::internal)?;
    Ok(flow_state::insert_client_state(op.tx, provider, &stored, op.now()).await?)
}

/// Looks up the mail domain of the identity that awaits the exchange of `code`. The callback did so
/// too, but maybe long ago and in another process.
///
/// # Errors
/// Those of the database.
pub(crate) async fn look_up_pending_domain(auth: &Auth, code: &str) -> Result<(), AuthError> {
    // Most exchanges link nothing and need no query
    if !auth.settings().email.extended_validation {
        return Ok(());
    }
    let client = auth.database().client().await?;
    let stored = flow_state::kept_for_link(&client, code).await?;
    drop(client);
    if let Some(profile) = stored.and_then(|stored| serde_json::from_str::<Profile>(&stored).ok()) {
        account_linking::look_up_domain(auth, &profile).await;
    }
    Ok(())
}

/// Links the identity that awaits the exchange of the flow's code to `user`, who is locked and
/// complete.
///
/// # Errors
/// As [`check_session`] and [`link`]; 404 `flow_state_not_found` when there is no such identity.
pub(crate) async fn complete_pending_link(
    op: AccountOperation<'_>,
    user: User,
    flow: &FlowState,
) -> Result<SignInOutcome, AuthError> {
    check_session(op.tx, &user, flow).await?;
    let not_found = || AuthError::from(ContractError::FlowNotFound);
    let pending = flow.oauth_client_state_id.ok_or_else(not_found)?;
    let stored = flow_state::take_client_state(op.tx, pending)
        .await?
        .filter(|stored| stored.provider_type == flow.provider_type)
        .ok_or_else(not_found)?;
    let profile: Profile =
        serde_json::from_str(stored.code_verifier.as_deref().unwrap_or_default()).map_err(|_| not_found())?;
    // The links in emails of this flow lead to the app as well
    let redirect_to = flow.referrer.clone().unwrap_or_else(|| op.request.redirect_to.clone());
    let request = &RequestInfo { redirect_to, ..op.request.clone() };
    link(AccountOperation { request, ..op }, user, &flow.provider_type, &profile).await
}

/// Links a provider's identity to `user`, who is locked and complete.
///
/// # Errors
/// Those of [`check_link`]; the transaction must then be rolled back.
pub(crate) async fn link(
    op: AccountOperation<'_>,
    user: User,
    provider: &str,
    profile: &Profile,
) -> Result<SignInOutcome, AuthError> {
    let now = op.now();
    check_link(op, &user, provider, profile).await?;
    let data = profile.identity_data();
    let identity = op.insert_identity(user.id, provider, &profile.subject, &data).await?;
    record_link(op, &user, &identity).await?;
    let mut awaited = None;
    if user.email.is_empty() {
        match profile.primary_email() {
            Some(email) => {
                if email.verified || op.auth.settings().email.autoconfirm {
                    unconfirmed_email::withdraw_from_others(op.tx, &email.address, &user.aud, Some(user.id), now)
                        .await?;
                    users::adopt_email(op.tx, user.id, &email.address, now).await?;
                    users::confirm_email(op.tx, user.id, now).await?;
                } else {
                    unconfirmed_email::await_proof(op, &user, &email.address).await?;
                    awaited = Some(email.address);
                }
            }
            None => users::lose_anonymity(op.tx, user.id, now).await?,
        }
    }
    users::refresh_providers(op.tx, user.id, now).await?;
    if let Some(email) = awaited {
        let error = ContractError::LinkedEmailAwaitsConfirmation { provider: provider.to_owned() }.into();
        return Ok(SignInOutcome::AwaitsConfirmation { error, email });
    }
    let linked = users::lock_complete(op.tx, user.id).await?.unwrap_or(user);
    Ok(SignInOutcome::SignedIn(Box::new(linked)))
}

/// `DELETE /user/identities/{identity_id}`: unlinks an identity.
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
    hooks::complete(auth.hooks(), &request, || try_unlink(&auth, &request, &signed_in, id)).await?;
    Ok(Json(json!({})))
}

async fn try_unlink(auth: &Auth, request: &RequestInfo, signed_in: &SignedIn, id: IdentityId) -> Result<(), AuthError> {
    let now = request.now;
    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(auth, request, &tx);
    let user = users::lock_complete(&tx, signed_in.user.id).await?.ok_or(ContractError::UserUnknown)?;
    assurance::lock_and_check(&tx, &user, signed_in.session_id()).await?;
    if user.identities.len() <= 1 {
        return Err(ContractError::LastIdentity.into());
    }
    let (removed, remaining): (Vec<&Identity>, Vec<&Identity>) =
        user.identities.iter().partition(|identity| identity.id == id);
    let Some(removed) = removed.first() else {
        return Err(ContractError::IdentityUnknown.into());
    };
    identities::delete(&tx, id, user.id).await?;
    if removed.provider == "phone" {
        users::clear_phone(&tx, user.id, now).await?;
    } else if !remaining.iter().any(|identity| !identity.email.is_empty() && identity.email == user.email) {
        replace_email(op, &user, &remaining).await?;
    }
    users::refresh_providers(&tx, user.id, now).await?;
    op.record_with_ip(&user, Action::IdentityUnlinked, identity_traits(removed)).await?;
    notify(op, &user, MailKind::IdentityUnlinked, removed).await?;
    tx.commit().await
}

/// Replaces the account's address, which was that of the unlinked identity, by one that a remaining
/// identity proves. Without such an identity the account has no address from then on.
async fn replace_email(op: AccountOperation<'_>, user: &User, remaining: &[&Identity]) -> Result<(), AuthError> {
    let now = op.now();
    // The data of a phone identity is written by its owner
    let proves = |identity: &Identity| {
        !identity.email.is_empty() && identity.is_email_verified() && identity.provider != "phone"
    };
    let mut may_have_no_email = false;
    // They are sorted, oldest first
    for identity in remaining {
        let email = &identity.email;
        if email.is_empty() {
            may_have_no_email = true;
            continue;
        }
        if unconfirmed_email::is_proved_elsewhere(op.auth, op.tx, email, &user.aud, Some(user.id)).await? {
            continue;
        }
        if proves(identity) {
            unconfirmed_email::withdraw_from_others(op.tx, email, &user.aud, Some(user.id), now).await?;
            return Ok(users::promote_email(op.tx, user.id, email, true, now).await?);
        }
        may_have_no_email = true;
    }
    if may_have_no_email {
        return Ok(users::promote_email(op.tx, user.id, "", false, now).await?);
    }
    Err(ContractError::IdentityEmailConflict.into())
}
