//! Custom providers: the rows of `auth.custom_oauth_providers`, whose names start with `custom:`.
//!
//! An API writes their URLs, so calls to them are guarded ([`UrlTrust::Guarded`]).

use portico_base::Secret;
use serde_json::{Value, json};

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http_client::UrlTrust;
use crate::model::JsonObject;
use crate::oauth::protocol::discovery::Issuer;
use crate::oauth::protocol::reserved_parameters::is_reserved;
use crate::oauth::provider::description::{ClientAuthentication, ForwardedParameters, ProfileSources, UserinfoExtra};
use crate::oauth::provider::profile::Profile;
use crate::oauth::provider::readers;
use crate::oauth::provider::resolved::{
    ClaimMapping, IdTokenIssuer, ProviderEndpoints, ResolvedProvider, UserinfoRequest,
};
use crate::sql::custom_providers::{self, CustomProvider};

/// The prefix of their names.
pub(crate) const PREFIX: &str = "custom:";

/// Claims that a mapping cannot set: they decide which account an identity belongs to.
const PROTECTED: [&str; 8] =
    ["sub", "iss", "provider_id", "email", "email_verified", "phone", "phone_verified", "custom_claims"];

/// Finds the provider for `/authorize` and `/callback`.
///
/// # Errors
/// 400 `validation_failed` "Unsupported provider: ...".
pub(crate) async fn find(auth: &Auth, name: &str) -> Result<ResolvedProvider, AuthError> {
    let unsupported = |reason: String| AuthError::from(ContractError::ProviderUnsupported { reason });
    if !auth.settings().custom_providers.enabled {
        return Err(unsupported("custom OAuth providers are disabled".to_owned()));
    }
    let row = row(auth, name).await?.ok_or_else(|| unsupported(format!("custom provider {name} not found")))?;
    if !row.enabled {
        return Err(unsupported(format!("custom provider {name} is disabled")));
    }
    resolve(auth, row).ok_or_else(|| unsupported(format!("custom provider {name} is incomplete")))
}

/// Returns the row of that name.
pub(crate) async fn row(auth: &Auth, name: &str) -> Result<Option<CustomProvider>, AuthError> {
    // The widest name that the table takes
    if name.len() > 64 || name.contains('\0') {
        return Ok(None);
    }
    let client = auth.database().client().await?;
    Ok(custom_providers::by_name(&client, name).await?)
}

/// Resolves a row. `None`: it lacks a URL, or its secret cannot be decrypted.
pub(crate) fn resolve(auth: &Auth, row: CustomProvider) -> Option<ResolvedProvider> {
    let secret = match auth.columns().decrypt(row.id, &row.client_secret) {
        Ok(opened) => opened.text,
        Err(error) => {
            tracing::error!(provider = row.identifier, error = %error, "the secret of a provider cannot be decrypted");
            return None;
        }
    };
    let (endpoints, id_token_issuer, userinfo, issuer_name) = if row.is_oidc {
        let url = row.issuer?;
        let issuer = Issuer { url: url.clone(), discovery_url: row.discovery_url, trust: UrlTrust::Guarded };
        (
            ProviderEndpoints::Discovered(issuer.clone()),
            IdTokenIssuer::Fixed { issuer, required: false },
            Vec::new(),
            url,
        )
    } else {
        let (authorize, token, userinfo) = (row.authorization_url?, row.token_url?, row.userinfo_url?);
        let name = url::Url::parse(&userinfo).map(|url| url.origin().ascii_serialization()).ok()?;
        (
            ProviderEndpoints::Fixed { authorize, token },
            IdTokenIssuer::None,
            vec![UserinfoRequest { url: userinfo, extra: UserinfoExtra::Nothing }],
            name,
        )
    };
    let mut scopes = row.scopes;
    if row.is_oidc && !scopes.iter().any(|scope| scope == "openid") {
        scopes.insert(0, "openid".to_owned());
    }
    let parameters = row
        .authorization_params
        .into_iter()
        .filter_map(|(name, value)| value.as_str().map(|value| (name, value.to_owned())))
        .filter(|(name, _)| !is_reserved(name))
        .collect();
    let settings = auth.settings();
    let base = settings.custom_providers.external_url.as_ref().unwrap_or(&settings.external_url);
    let mut client_ids = vec![row.client_id];
    client_ids.extend(row.acceptable_client_ids);
    Some(ResolvedProvider {
        name: row.identifier,
        client_ids,
        secret: Secret::new(secret),
        redirect_uri: format!("{}/callback", base.trim_end_matches('/')),
        endpoints,
        trust: UrlTrust::Guarded,
        id_token_issuer,
        userinfo,
        issuer_name,
        scopes: scopes.join(" "),
        scopes_replace: true,
        forwarded: ForwardedParameters { scopes: true, others: true },
        parameters,
        needs_pkce: row.pkce_enabled,
        returns_nonce: row.is_oidc,
        skip_nonce_check: row.skip_nonce_check,
        email_optional: row.email_optional,
        client_authentication: ClientAuthentication::Detect,
        read: readers::openid,
        claim_mapping: ClaimMapping { copied: row.custom_claims_allowlist, mapping: row.attribute_mapping },
    })
}

/// Applies a custom provider's mapping to the claims that the reader found.
pub(crate) fn map_claims(profile: &mut Profile, mapping: &ClaimMapping, sources: &ProfileSources<'_>) {
    let empty = JsonObject::new();
    let raw = sources.id_token.or_else(|| sources.document(0).as_object()).unwrap_or(&empty);
    for (target, source) in &mapping.mapping {
        let value = match source {
            Value::String(name) => raw.get(name).cloned(),
            literal => Some(literal.clone()),
        };
        if let Some(value) = value.filter(|_| !PROTECTED.contains(&target.as_str())) {
            profile.claims.insert(target.clone(), value);
        }
    }
    let copied: serde_json::Map<_, _> =
        mapping.copied.iter().filter_map(|name| raw.get(name).map(|value| (name.clone(), value.clone()))).collect();
    if !copied.is_empty() {
        let custom = profile.claims.entry("custom_claims").or_insert_with(|| json!({}));
        if let Value::Object(custom) = custom {
            custom.extend(copied);
        }
    }
}
