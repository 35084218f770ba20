//! `grant_type=id_token`: sign-in by an id_token that the app obtained itself, for example from a
//! phone's native sign-in.

use http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use subtle::ConstantTimeEq as _;

use crate::Auth;
use crate::error::{AuthError, ContractError, OAuthError};
use crate::hooks;
use crate::http::extract::{RequestInfo, SignedIn, bearer_token};
use crate::model::JsonObject;
use crate::oauth::flow::account_linking::{self, ExternalIdentity, SignInOutcome};
use crate::oauth::flow::manual_linking;
use crate::oauth::protocol::discovery::Issuer;
use crate::oauth::protocol::id_token::{has_audience, unverified_claims};
use crate::oauth::provider::catalogue::{self, APPLE_ISSUER, AZURE_ISSUERS};
use crate::oauth::provider::custom;
use crate::oauth::provider::description::ProfileSources;
use crate::oauth::provider::identification::make_storable;
use crate::oauth::provider::profile::Profile;
use crate::oauth::provider::readers;
use crate::oauth::provider::resolved::{self, IdTokenIssuer, ResolvedProvider};
use crate::operation::AccountOperation;
use crate::session::{self, AuthenticationMethod, TokenResponse, assurance};
use crate::settings::ProviderSettings;
use crate::sql::{Tx, users};

/// The body of the grant.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct IdTokenBody {
    id_token: String,
    provider: String,
    access_token: String,
    nonce: String,
    client_id: String,
    issuer: String,
    link_identity: bool,
}

/// The issuer and audience that an id_token must have.
struct ExpectedIdToken {
    provider: String,
    issuer: Issuer,
    audiences: Vec<String>,
    skip_nonce_check: bool,
    email_optional: bool,
    read: crate::oauth::provider::description::ProfileReader,
}

/// Signs in, or links an identity, by an id_token.
///
/// # Errors
/// OAuth errors for a token that is not acceptable, `validation_failed` and `provider_disabled` for
/// the provider, and those of a sign-in.
pub(crate) async fn grant(
    auth: &Auth,
    request: &RequestInfo,
    headers: &HeaderMap,
    body: IdTokenBody,
) -> Result<TokenResponse, AuthError> {
    if body.id_token.is_empty() {
        return Err(OAuthError::IdTokenRequired.into());
    }
    if body.provider.is_empty() && (body.client_id.is_empty() || body.issuer.is_empty()) {
        return Err(OAuthError::ProviderOrIssuerRequired.into());
    }
    let linking = match body.link_identity {
        true => Some(authenticate_linking_user(auth, headers).await?),
        false => None,
    };
    let expected = expected(auth, &body).await?;
    let claims = verified(auth, request, &body, &expected).await?;
    let profile = read(&expected, &claims)?;
    account_linking::look_up_domain(auth, &profile).await;
    let run =
        || hooks::complete(auth.hooks(), request, || complete(auth, request, &expected, &profile, linking.as_ref()));
    let mut completed = run().await;
    for _ in 1..account_linking::MAX_RACE_ATTEMPTS {
        if !completed.as_ref().is_err_and(account_linking::is_lost_race) {
            break;
        }
        completed = run().await;
    }
    completed.map_err(|error| {
        if !error.is_unexplained() {
            return error;
        }
        // Clients expect an OAuth error here also for internal errors
        error.log();
        OAuthError::InternalError.into()
    })
}

/// Finds or creates the account and signs in, in one transaction.
async fn complete(
    auth: &Auth,
    request: &RequestInfo,
    expected: &ExpectedIdToken,
    profile: &Profile,
    linking: Option<&SignedIn>,
) -> Result<TokenResponse, AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(auth, request, &tx);
    let outcome = match linking {
        Some(person) => {
            let user = users::lock_complete(&tx, person.user.id).await?.ok_or(ContractError::LinkingTargetUnknown)?;
            assurance::lock_and_check(&tx, &user, person.session_id()).await?;
            manual_linking::link(op, user, &expected.provider, profile).await?
        }
        None => {
            let external = ExternalIdentity {
                provider: &expected.provider,
                profile,
                email_optional: expected.email_optional,
                invite: None,
            };
            account_linking::sign_in(op, &external).await?
        }
    };
    match outcome {
        SignInOutcome::SignedIn(user) => {
            let response = session::issue(op, &user, AuthenticationMethod::OAuth).await?;
            tx.commit().await?;
            Ok(response)
        }
        SignInOutcome::AwaitsConfirmation { error, .. } => {
            tx.commit().await?;
            Err(error)
        }
    }
}

async fn authenticate_linking_user(auth: &Auth, headers: &HeaderMap) -> Result<SignedIn, AuthError> {
    if !auth.settings().manual_linking {
        return Err(ContractError::ManualLinkingOff.into());
    }
    let token = bearer_token(headers).ok_or(OAuthError::LinkingNeedsBearer)?;
    let claims = auth
        .keys()
        .verify(token, auth.now())
        .map_err(|error| AuthError::from(ContractError::InvalidJwt { detail: error.to_string() }))?;
    let signed_in = SignedIn::check(auth, claims).await?;
    assurance::check(&signed_in.user, signed_in.aal())?;
    Ok(signed_in)
}

fn disabled(issuer: &str) -> AuthError {
    let issuer: String = issuer.chars().filter(|c| !c.is_control()).take(256).collect();
    ContractError::IssuerNotEnabled { issuer }.into()
}

/// Returns the issuer that the unverified token names.
fn named_issuer(token: &str) -> Option<String> {
    unverified_claims(token)?.get("iss").and_then(Value::as_str).map(str::to_owned)
}

async fn expected(auth: &Auth, body: &IdTokenBody) -> Result<ExpectedIdToken, AuthError> {
    let name = body.provider.to_lowercase();
    if name.starts_with(custom::PREFIX) {
        return custom_provider(auth, body, &name).await;
    }
    let settings = auth.settings();
    let known = catalogue::PROVIDERS.iter().filter(|provider| ACCEPTED.contains(&provider.name));
    let off = ProviderSettings::default();
    for provider in known {
        let own = settings.external.get(provider.name).unwrap_or(&off);
        let resolved = resolved::resolve(provider, own, &settings.external_url);
        let by_issuer = name.is_empty() && is_issuer_of(provider.name, &resolved, &body.issuer);
        if name != provider.name && !by_issuer {
            continue;
        }
        let issuer = required_issuer(provider.name, &resolved, body)?;
        if !body.issuer.is_empty() && !issuer.is_named(&body.issuer) {
            return Err(ContractError::IssuerMismatch.into());
        }
        if !own.enabled {
            return Err(disabled(&issuer.url));
        }
        return Ok(ExpectedIdToken {
            provider: resolved.name.clone(),
            issuer,
            audiences: resolved.client_ids,
            skip_nonce_check: resolved.skip_nonce_check || provider.name == "facebook",
            email_optional: resolved.email_optional,
            read: resolved.read,
        });
    }
    if !name.is_empty() {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        return Err(ContractError::OidcProviderNotAllowed { name: shown }.into());
    }
    let Some(client_ids) = settings.allowed_id_token_issuers.get(&body.issuer) else {
        return Err(disabled(&body.issuer));
    };
    // The request chooses among the clients of the project: at a public issuer, where anyone can
    // register a client, a token for another app must not be accepted
    let audiences = client_ids.iter().filter(|id| **id == body.client_id).cloned().collect();
    Ok(ExpectedIdToken {
        provider: body.issuer.clone(),
        issuer: Issuer::configured(body.issuer.clone()),
        audiences,
        skip_nonce_check: false,
        email_optional: false,
        read: readers::openid,
    })
}

/// Providers whose id_tokens are accepted, whether or not their browser flow returns one.
const ACCEPTED: [&str; 8] =
    ["apple", "google", "azure", "facebook", "keycloak", "kakao", "vercel_marketplace", "snapchat"];

/// Returns the issuer of id_tokens that only a provider's native libraries return.
fn id_token_only_issuer(name: &str, resolved: &ResolvedProvider) -> String {
    match name {
        "facebook" => "https://www.facebook.com".to_owned(),
        "kakao" => "https://kauth.kakao.com".to_owned(),
        "snapchat" => "https://accounts.snapchat.com/accounts/oauth2/token".to_owned(),
        _ => resolved.issuer_name.clone(),
    }
}

fn is_issuer_of(name: &str, resolved: &ResolvedProvider, issuer: &str) -> bool {
    match &resolved.id_token_issuer {
        IdTokenIssuer::Fixed { issuer: own, .. } => own.is_named(issuer),
        IdTokenIssuer::Tenant(_) => AZURE_ISSUERS.iter().any(|start| issuer.starts_with(start)),
        IdTokenIssuer::None => id_token_only_issuer(name, resolved) == issuer,
    }
}

/// Returns the issuer that must have signed the token.
fn required_issuer(name: &str, resolved: &ResolvedProvider, body: &IdTokenBody) -> Result<Issuer, AuthError> {
    let unreadable = |provider: &'static str| AuthError::from(ContractError::IssuerUnreadable { provider });
    match name {
        "apple" => {
            let named = named_issuer(&body.id_token).ok_or_else(|| unreadable("Apple"))?;
            let issuer = resolved.fixed_issuer().cloned().unwrap_or_else(|| Issuer::configured(APPLE_ISSUER));
            if !issuer.is_named(&named) {
                return Err(ContractError::IssuerNotApple.into());
            }
            Ok(issuer)
        }
        "azure" => {
            let named = named_issuer(&body.id_token).ok_or_else(|| unreadable("Azure"))?;
            resolved.issuer_of(&body.id_token).ok().flatten().ok_or_else(|| {
                tracing::debug!(issuer = named, "not an issuer of azure");
                AuthError::from(ContractError::IssuerNotAzure)
            })
        }
        _ => Ok(resolved
            .fixed_issuer()
            .cloned()
            .unwrap_or_else(|| Issuer::configured(id_token_only_issuer(name, resolved)))),
    }
}

async fn custom_provider(auth: &Auth, body: &IdTokenBody, name: &str) -> Result<ExpectedIdToken, AuthError> {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    if !auth.settings().custom_providers.enabled {
        return Err(ContractError::CustomProvidersOff.into());
    }
    let row =
        custom::row(auth, name).await?.ok_or_else(|| ContractError::CustomProviderUnknown { name: shown.clone() })?;
    if !row.enabled {
        return Err(ContractError::CustomProviderDisabled { name: shown }.into());
    }
    let not_oidc = || AuthError::from(ContractError::CustomProviderNotOidc { name: shown.clone() });
    if !row.is_oidc {
        return Err(not_oidc());
    }
    let resolved = custom::resolve(auth, row).ok_or_else(not_oidc)?;
    let issuer = resolved.fixed_issuer().cloned().ok_or_else(not_oidc)?;
    if !body.issuer.is_empty() && !issuer.is_named(&body.issuer) {
        return Err(ContractError::IssuerMismatch.into());
    }
    Ok(ExpectedIdToken {
        provider: resolved.name.clone(),
        issuer,
        audiences: resolved.client_ids,
        skip_nonce_check: resolved.skip_nonce_check,
        email_optional: resolved.email_optional,
        read: resolved.read,
    })
}

async fn verified(
    auth: &Auth,
    request: &RequestInfo,
    body: &IdTokenBody,
    expected: &ExpectedIdToken,
) -> Result<JsonObject, AuthError> {
    let access_token = Some(body.access_token.as_str()).filter(|token| !token.is_empty());
    let claims = auth
        .provider_connections()
        .issuers
        .verify(&expected.issuer, &body.id_token, access_token, request.now)
        .await
        .map_err(|error| {
            // Includes a failure to reach the issuer: only its keys can verify the token
            tracing::info!(provider = expected.provider, error = %error, "an id_token was rejected");
            OAuthError::BadIdToken
        })?;
    if claims.get("sub").and_then(Value::as_str).is_none_or(str::is_empty) {
        return Err(OAuthError::IdTokenWithoutSubject.into());
    }
    if !has_audience(&claims, &expected.audiences) {
        return Err(OAuthError::UnacceptableAudience { audience: shown_audience(&claims) }.into());
    }
    if !expected.skip_nonce_check {
        check_nonce(claims.get("nonce").and_then(Value::as_str).unwrap_or_default(), &body.nonce)?;
    }
    Ok(claims)
}

fn shown_audience(claims: &JsonObject) -> String {
    let names: Vec<&str> = match claims.get("aud") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).take(8).collect(),
        _ => Vec::new(),
    };
    names.join(" ").chars().filter(|c| !c.is_control()).take(256).collect()
}

/// Compares the nonce of the request with the hash of it that the token contains.
fn check_nonce(hash: &str, nonce: &str) -> Result<(), AuthError> {
    if hash.is_empty() != nonce.is_empty() {
        return Err(OAuthError::NonceMissing.into());
    }
    let expected = portico_base::hash::sha256_hex(nonce.as_bytes());
    if !nonce.is_empty() && !bool::from(expected.as_bytes().ct_eq(hash.as_bytes())) {
        return Err(OAuthError::NonceMismatch.into());
    }
    Ok(())
}

fn read(expected: &ExpectedIdToken, claims: &JsonObject) -> Result<Profile, AuthError> {
    let sources = ProfileSources {
        issuer: &expected.issuer.url,
        token: &JsonObject::new(),
        id_token: Some(claims),
        documents: &[],
        form_user: None,
    };
    let unusable = |error| {
        tracing::info!(provider = expected.provider, error = %error, "an id_token lacks required claims");
        AuthError::from(ContractError::IdTokenUnusable)
    };
    let mut profile = (expected.read)(&sources).map_err(unusable)?;
    make_storable(&mut profile).map_err(unusable)?;
    Ok(profile)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nonces_are_compared_by_hash() {
        let hash = portico_base::hash::sha256_hex(b"secret");
        assert!(check_nonce("", "").is_ok());
        assert!(check_nonce(&hash, "secret").is_ok());
        assert!(matches!(check_nonce(&hash, ""), Err(AuthError::OAuth(OAuthError::NonceMissing))));
        assert!(matches!(check_nonce("", "secret"), Err(AuthError::OAuth(OAuthError::NonceMissing))));
        assert!(matches!(check_nonce(&hash, "other"), Err(AuthError::OAuth(OAuthError::NonceMismatch))));
    }
}
