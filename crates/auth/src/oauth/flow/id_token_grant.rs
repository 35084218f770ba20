//! `grant_type=id_token` (auth-core 5.4): an app got an id_token by itself, from the phone's own sign-in for example.

use http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use subtle::ConstantTimeEq as _;

use crate::Auth;
use crate::error::{AuthError, ContractError, OAuthError};
use crate::http::extract::{RequestInfo, SignedIn, bearer_token};
use crate::oauth::flow::account_linking::{self, Claim, Outcome};
use crate::oauth::flow::manual_linking;
use crate::oauth::protocol::discovery::{self, Issuer, has_audience};
use crate::oauth::provider::catalogue::{self, APPLE_ISSUER, AZURE_ISSUERS};
use crate::oauth::provider::custom;
use crate::oauth::provider::description::Sources;
use crate::oauth::provider::exchange;
use crate::oauth::provider::profile::{Object, Profile};
use crate::oauth::provider::readers;
use crate::oauth::provider::resolved::{self, Configured, TokenIssuer};
use crate::session::{self, Method, TokenResponse};
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

/// Whose token it must be, and whom it must be for.
struct Expected {
    provider: String,
    issuer: Issuer,
    /// Apple's issuer has two names; otherwise the token's must be the issuer's.
    audiences: Vec<String>,
    skip_nonce_check: bool,
    email_optional: bool,
    read: crate::oauth::provider::description::Reader,
}

/// Signs in, or links, by an id_token.
///
/// # Errors
/// As the table of auth-core 5.4 lists them.
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
        true => Some(linking_person(auth, headers).await?),
        false => None,
    };
    let expected = expected(auth, &body).await?;
    let claims = verified(auth, request, &body, &expected).await?;
    let profile = read(&expected, &claims)?;
    account_linking::look_up_domain(auth, &profile).await;
    let mut settled = settle(auth, request, &expected, &profile, linking.as_ref()).await;
    for _ in 1..account_linking::ATTEMPTS {
        if !settled.as_ref().is_err_and(account_linking::is_race) {
            break;
        }
        settled = settle(auth, request, &expected, &profile, linking.as_ref()).await;
    }
    settled.map_err(|error| {
        if !error.is_unexplained() {
            return error;
        }
        // Wire contract: what nobody has a word for is an OAuth answer here
        error.log();
        OAuthError::InternalError.into()
    })
}

/// Decides about the account and signs in, in one transaction.
async fn settle(
    auth: &Auth,
    request: &RequestInfo,
    expected: &Expected,
    profile: &Profile,
    linking: Option<&SignedIn>,
) -> Result<TokenResponse, AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    let outcome = match linking {
        Some(person) => {
            let user = users::lock_complete(&tx, person.user.id).await?.ok_or(ContractError::LinkingTargetUnknown)?;
            manual_linking::link(auth, &tx, request, user, &expected.provider, profile).await?
        }
        None => {
            let claim =
                Claim { provider: &expected.provider, profile, email_optional: expected.email_optional, invite: None };
            account_linking::sign_in(auth, &tx, request, &claim).await?
        }
    };
    match outcome {
        Outcome::SignedIn(user) => {
            let response = session::issue(auth, &tx, &user, Method::OAuth, request).await?;
            tx.commit().await?;
            Ok(response)
        }
        Outcome::Kept(error) => {
            tx.commit().await?;
            Err(error)
        }
    }
}

async fn linking_person(auth: &Auth, headers: &HeaderMap) -> Result<SignedIn, AuthError> {
    if !auth.settings().manual_linking {
        return Err(ContractError::ManualLinkingOff.into());
    }
    let token = bearer_token(headers).ok_or(OAuthError::LinkingNeedsBearer)?;
    let claims = auth
        .keys()
        .verify(token, auth.now())
        .map_err(|error| AuthError::from(ContractError::InvalidJwt { detail: error.to_string() }))?;
    SignedIn::check(auth, claims).await
}

fn disabled(issuer: &str) -> AuthError {
    let issuer: String = issuer.chars().filter(|c| !c.is_control()).take(256).collect();
    ContractError::IssuerNotEnabled { issuer }.into()
}

/// The issuer that the token itself names.
fn named_issuer(token: &str) -> Option<String> {
    discovery::unverified_claims(token)?.get("iss").and_then(Value::as_str).map(str::to_owned)
}

async fn expected(auth: &Auth, body: &IdTokenBody) -> Result<Expected, AuthError> {
    let name = body.provider.to_lowercase();
    if name.starts_with(custom::PREFIX) {
        return custom_provider(auth, body, &name).await;
    }
    let settings = &auth.settings().external;
    let known = catalogue::PROVIDERS.iter().filter(|provider| ACCEPTED.contains(&provider.name));
    let off = ProviderSettings::default();
    for provider in known {
        let settings = settings.get(provider.name).unwrap_or(&off);
        let configured = resolved::join(auth, provider, settings);
        let by_issuer = name.is_empty() && is_issuer_of(provider.name, &configured, &body.issuer);
        if name != provider.name && !by_issuer {
            continue;
        }
        let issuer = detect(provider.name, &configured, body)?;
        if !body.issuer.is_empty() && !exchange::is_accepted(&issuer, &body.issuer) {
            return Err(ContractError::IssuerMismatch.into());
        }
        if !settings.enabled {
            return Err(disabled(&issuer.url));
        }
        return Ok(Expected {
            provider: configured.name.clone(),
            issuer,
            audiences: configured.client_ids,
            skip_nonce_check: configured.skip_nonce_check || provider.name == "facebook",
            email_optional: configured.email_optional,
            read: configured.read,
        });
    }
    if !name.is_empty() {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        return Err(ContractError::OidcProviderNotAllowed { name: shown }.into());
    }
    let Some(client_ids) = auth.settings().allowed_id_token_issuers.get(&body.issuer) else {
        return Err(disabled(&body.issuer));
    };
    // The request chooses among the clients of the project: at an issuer that anyone can be a client
    // of, a token for another app says nothing to this one
    let audiences = client_ids.iter().filter(|id| **id == body.client_id).cloned().collect();
    Ok(Expected {
        provider: body.issuer.clone(),
        issuer: Issuer::configured(body.issuer.clone()),
        audiences,
        skip_nonce_check: false,
        email_optional: false,
        read: readers::openid,
    })
}

/// Providers whose id_tokens are accepted, whether or not their sign-in in a browser gives one.
const ACCEPTED: [&str; 8] =
    ["apple", "google", "azure", "facebook", "keycloak", "kakao", "vercel_marketplace", "snapchat"];

/// The issuer of id_tokens that only a provider's phone libraries give.
fn id_token_only_issuer(name: &str, configured: &Configured) -> String {
    match name {
        "facebook" => "https://www.facebook.com".to_owned(),
        "kakao" => "https://kauth.kakao.com".to_owned(),
        "snapchat" => "https://accounts.snapchat.com/accounts/oauth2/token".to_owned(),
        _ => configured.issuer_name.clone(),
    }
}

fn is_issuer_of(name: &str, configured: &Configured, issuer: &str) -> bool {
    match &configured.token_issuer {
        TokenIssuer::One { issuer: own, .. } => exchange::is_accepted(own, issuer),
        TokenIssuer::Tenant(_) => AZURE_ISSUERS.iter().any(|start| issuer.starts_with(start)),
        TokenIssuer::Nobody => id_token_only_issuer(name, configured) == issuer,
    }
}

/// Whose signature the token must have.
fn detect(name: &str, configured: &Configured, body: &IdTokenBody) -> Result<Issuer, AuthError> {
    let unreadable = |provider: &'static str| AuthError::from(ContractError::IssuerUnreadable { provider });
    match name {
        "apple" => {
            let named = named_issuer(&body.id_token).ok_or_else(|| unreadable("Apple"))?;
            let issuer = configured.fixed_issuer().cloned().unwrap_or_else(|| Issuer::configured(APPLE_ISSUER));
            if !exchange::is_accepted(&issuer, &named) {
                return Err(ContractError::IssuerNotApple.into());
            }
            Ok(issuer)
        }
        "azure" => {
            let named = named_issuer(&body.id_token).ok_or_else(|| unreadable("Azure"))?;
            exchange::issuer_of(configured, &body.id_token).map_err(|_| {
                tracing::debug!(issuer = named, "Not an issuer of Azure");
                AuthError::from(ContractError::IssuerNotAzure)
            })
        }
        _ => Ok(configured
            .fixed_issuer()
            .cloned()
            .unwrap_or_else(|| Issuer::configured(id_token_only_issuer(name, configured)))),
    }
}

async fn custom_provider(auth: &Auth, body: &IdTokenBody, name: &str) -> Result<Expected, AuthError> {
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
    let configured = custom::configure(auth, row).ok_or_else(not_oidc)?;
    let issuer = configured.fixed_issuer().cloned().ok_or_else(not_oidc)?;
    if !body.issuer.is_empty() && !exchange::is_accepted(&issuer, &body.issuer) {
        return Err(ContractError::IssuerMismatch.into());
    }
    Ok(Expected {
        provider: configured.name.clone(),
        issuer,
        audiences: configured.client_ids,
        skip_nonce_check: configured.skip_nonce_check,
        email_optional: configured.email_optional,
        read: configured.read,
    })
}

async fn verified(
    auth: &Auth,
    request: &RequestInfo,
    body: &IdTokenBody,
    expected: &Expected,
) -> Result<Object, AuthError> {
    let access_token = Some(body.access_token.as_str()).filter(|token| !token.is_empty());
    let accepted = |iss: &str| exchange::is_accepted(&expected.issuer, iss);
    let claims = auth
        .engine()
        .issuers
        .verify(&expected.issuer, &accepted, &body.id_token, access_token, request.now)
        .await
        .map_err(|error| {
            // Also a failure to reach the issuer: nobody else can say whether the token is good
            tracing::info!(provider = expected.provider, %error, "An id_token was refused");
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

fn shown_audience(claims: &Object) -> String {
    let names: Vec<&str> = match claims.get("aud") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).take(8).collect(),
        _ => Vec::new(),
    };
    names.join(" ").chars().filter(|c| !c.is_control()).take(256).collect()
}

/// The app sends the nonce; the token carries its hash.
fn check_nonce(in_token: &str, given: &str) -> Result<(), AuthError> {
    if in_token.is_empty() != given.is_empty() {
        return Err(OAuthError::NonceMissing.into());
    }
    let hash = portico_base::hash::sha256_hex(given.as_bytes());
    if !given.is_empty() && !bool::from(hash.as_bytes().ct_eq(in_token.as_bytes())) {
        return Err(OAuthError::NonceMismatch.into());
    }
    Ok(())
}

fn read(expected: &Expected, claims: &Object) -> Result<Profile, AuthError> {
    let sources = Sources {
        issuer: &expected.issuer.url,
        token: &Object::new(),
        id_token: Some(claims),
        documents: &[],
        form_user: None,
    };
    let unusable = |error| {
        tracing::info!(provider = expected.provider, %error, "An id_token tells too little");
        AuthError::from(ContractError::IdTokenUnusable)
    };
    let mut profile = (expected.read)(&sources).map_err(unusable)?;
    exchange::tidy(&mut profile).map_err(unusable)?;
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
