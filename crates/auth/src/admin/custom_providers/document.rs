//! The discovery document of an OpenID Connect provider, as it is stored and shown.

use http::HeaderMap;
use serde_json::Value;
use time::OffsetDateTime;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http_client::UrlTrust;
use crate::model::JsonObject;
use crate::oauth::protocol::discovery::Issuer;
use crate::sql::custom_providers::CustomProvider;

const REQUIRED: [&str; 4] = ["issuer", "authorization_endpoint", "token_endpoint", "jwks_uri"];
const OPTIONAL: [&str; 5] = [
    "userinfo_endpoint",
    "scopes_supported",
    "response_types_supported",
    "grant_types_supported",
    "subject_types_supported",
];

/// Returns the issuer of an OpenID Connect provider.
pub(super) fn issuer(provider: &CustomProvider) -> Option<Issuer> {
    let url = provider.issuer.clone().filter(|_| provider.is_oidc)?;
    Some(Issuer { url, discovery_url: provider.discovery_url.clone(), trust: UrlTrust::Guarded })
}

/// Reads the discovery document of an OpenID Connect provider into its row.
///
/// # Errors
/// 400 `validation_failed` when it cannot be read, or is not that of the issuer.
pub(super) async fn attach(auth: &Auth, provider: &mut CustomProvider, now: OffsetDateTime) -> Result<(), AuthError> {
    let Some(issuer) = issuer(provider) else { return Ok(()) };
    let url = issuer.discovery_url();
    let failed = |reason: String| AuthError::from(ContractError::DiscoveryFailed { url: url.clone(), reason });
    let client = &auth.provider_connections().client;
    let read = client.get_json(UrlTrust::Guarded, &url, HeaderMap::new()).await;
    let document = match read.map_err(|error| failed(error.to_string()))? {
        Value::Object(document) => document,
        _ => return Err(failed("it is not a JSON object".to_owned())),
    };
    let document = known_members(&document)?;
    if document["issuer"] != issuer.url {
        return Err(failed(format!("the document names another issuer than {:?}", issuer.url)));
    }
    provider.cached_discovery = Some(document.into());
    provider.discovery_cached_at = Some(now);
    Ok(())
}

/// Returns the members that are stored.
fn known_members(document: &JsonObject) -> Result<JsonObject, AuthError> {
    let is_present = |name: &&str| document.get(*name).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    let missing: Vec<&str> = REQUIRED.into_iter().filter(|name| !is_present(name)).collect();
    if !missing.is_empty() {
        return Err(ContractError::DiscoveryIncomplete { fields: missing.join(", ") }.into());
    }
    let known = REQUIRED.into_iter().chain(OPTIONAL);
    Ok(known.filter_map(|name| Some((name.to_owned(), document.get(name)?.clone()))).collect())
}
