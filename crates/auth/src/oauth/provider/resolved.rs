//! Resolved providers: a provider's description joined with the operator's settings for it.

use std::sync::Arc;

use portico_base::Secret;
use serde_json::Value;

use super::catalogue::AZURE_ISSUERS;
use super::description::{
    ClientAuthentication, EndpointTemplates, ForwardedParameters, IdTokenUse, ProfileReader, ProfileSources,
    ProviderDescription, UserinfoExtra,
};
use super::readers;
use crate::http_client::UrlTrust;
use crate::model::JsonObject;
use crate::oauth::protocol::discovery::{Discovery, Issuer, IssuerError, Issuers};
use crate::oauth::protocol::id_token::{IdTokenError, unverified_claims};
use crate::oauth::protocol::token_endpoint::ClientAuthMethod;
use crate::settings::ProviderSettings;

/// The endpoints of a resolved provider.
#[derive(Debug, Clone)]
pub(crate) enum ProviderEndpoints {
    /// Those of the issuer's discovery document.
    Discovered(Issuer),
    /// Known URLs.
    Fixed { authorize: String, token: String },
    /// The three URLs of OAuth 1.0a.
    OAuth1 { request: String, authorize: String, token: String },
}

/// The issuer whose id_tokens a provider's sign-in accepts.
#[derive(Debug, Clone)]
pub(crate) enum IdTokenIssuer {
    /// No id_token is read.
    None,
    /// This issuer. `required`: a sign-in without an id_token fails.
    Fixed { issuer: Issuer, required: bool },
    /// The issuer of the tenant that the token names; with `Some`, only this one.
    Tenant(Option<String>),
}

/// A request for a document that describes the person.
#[derive(Debug, Clone)]
pub(crate) struct UserinfoRequest {
    pub(crate) url: String,
    pub(crate) extra: UserinfoExtra,
}

/// The changes that a custom provider makes to the claims that its reader found.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClaimMapping {
    /// Raw claims that are copied into `custom_claims`.
    pub(crate) copied: Vec<String>,
    /// Target claim to the name of a source claim, or to a literal.
    pub(crate) mapping: JsonObject,
}

/// A provider with everything that a sign-in needs.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedProvider {
    /// The name in identities.
    pub(crate) name: String,
    /// The accepted audiences of id_tokens. The first is the client id of this server's own
    /// requests.
    pub(crate) client_ids: Vec<String>,
    pub(crate) secret: Secret,
    pub(crate) redirect_uri: String,
    pub(crate) endpoints: ProviderEndpoints,
    pub(crate) trust: UrlTrust,
    pub(crate) id_token_issuer: IdTokenIssuer,
    pub(crate) userinfo: Vec<UserinfoRequest>,
    /// The `iss` of identities, unless the reader finds a better one.
    pub(crate) issuer_name: String,
    pub(crate) scopes: String,
    /// `scopes` of a request replace the provider's scopes instead of adding to them.
    pub(crate) scopes_replace: bool,
    pub(crate) forwarded: ForwardedParameters,
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) needs_pkce: bool,
    pub(crate) returns_nonce: bool,
    pub(crate) skip_nonce_check: bool,
    pub(crate) email_optional: bool,
    pub(crate) client_authentication: ClientAuthentication,
    pub(crate) read: ProfileReader,
    pub(crate) claim_mapping: ClaimMapping,
}

/// Joins a built-in provider with its settings, which may be incomplete. `external_url` is the
/// public URL of this service.
pub(crate) fn resolve(
    provider: &'static ProviderDescription,
    settings: &ProviderSettings,
    external_url: &str,
) -> ResolvedProvider {
    let base = Some(settings.url.trim_end_matches('/')).filter(|url| !url.is_empty());
    let own_issuer = |issuer: &str| Issuer::configured(base.unwrap_or(issuer));
    let endpoints = match provider.endpoints {
        EndpointTemplates::Discovered { issuer } => ProviderEndpoints::Discovered(own_issuer(issuer)),
        EndpointTemplates::Fixed { authorize, token } => {
            ProviderEndpoints::Fixed { authorize: authorize.url(base), token: token.url(base) }
        }
        EndpointTemplates::OAuth1 { request, authorize, token } => ProviderEndpoints::OAuth1 {
            request: request.url(base),
            authorize: authorize.url(base),
            token: token.url(base),
        },
    };
    let id_token_issuer = match (provider.id_tokens, provider.endpoints) {
        (IdTokenUse::Ignored, _) => IdTokenIssuer::None,
        (IdTokenUse::Preferred, EndpointTemplates::Discovered { issuer }) => {
            IdTokenIssuer::Fixed { issuer: own_issuer(issuer), required: false }
        }
        (IdTokenUse::Required(_), EndpointTemplates::Discovered { issuer }) => {
            IdTokenIssuer::Fixed { issuer: own_issuer(issuer), required: true }
        }
        (IdTokenUse::Preferred, _) => IdTokenIssuer::None,
        (IdTokenUse::Required(issuer), _) => {
            IdTokenIssuer::Fixed { issuer: Issuer::configured(issuer), required: true }
        }
        (IdTokenUse::PerTenant, _) => IdTokenIssuer::Tenant(base.map(|base| format!("{base}/v2.0"))),
    };
    let read = match &id_token_issuer {
        IdTokenIssuer::Tenant(None) => readers::azure_of_any_tenant,
        _ => provider.read,
    };
    let issuer_name = match (provider.endpoints, provider.userinfo.first()) {
        (EndpointTemplates::Discovered { issuer }, _) => base.unwrap_or(issuer).to_owned(),
        (_, Some(document)) => document.url.origin(base),
        (EndpointTemplates::Fixed { token, .. } | EndpointTemplates::OAuth1 { token, .. }, None) => token.origin(base),
    };
    let redirect_uri = match settings.redirect_uri.is_empty() {
        true => format!("{}/callback", external_url.trim_end_matches('/')),
        false => settings.redirect_uri.clone(),
    };
    let userinfo = provider.userinfo.iter();
    ResolvedProvider {
        name: provider.name.to_owned(),
        client_ids: settings.client_ids.iter().filter(|id| !id.is_empty()).cloned().collect(),
        secret: settings.secret.clone(),
        redirect_uri,
        endpoints,
        trust: UrlTrust::Configured,
        id_token_issuer,
        userinfo: userinfo.map(|own| UserinfoRequest { url: own.url.url(base), extra: own.extra }).collect(),
        issuer_name,
        scopes: provider.scopes.to_owned(),
        scopes_replace: false,
        forwarded: provider.forwarded,
        parameters: provider.parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        needs_pkce: provider.needs_pkce,
        returns_nonce: provider.returns_nonce,
        skip_nonce_check: settings.skip_nonce_check,
        email_optional: settings.email_optional,
        client_authentication: provider.client_authentication,
        read,
        claim_mapping: ClaimMapping::default(),
    }
}

/// The endpoints of a provider at the moment, discovered if needed.
#[derive(Debug, Clone)]
pub(crate) struct CurrentEndpoints {
    pub(crate) authorize: String,
    pub(crate) token: String,
    /// The document that they come from, if they are discovered.
    pub(crate) discovery: Option<Arc<Discovery>>,
}

impl ResolvedProvider {
    /// Returns the client id of this server's own requests.
    pub(crate) fn client_id(&self) -> &str {
        self.client_ids.first().map_or("", String::as_str)
    }

    /// Returns the issuer of its id_tokens, unless it depends on the token.
    pub(crate) fn fixed_issuer(&self) -> Option<&Issuer> {
        match &self.id_token_issuer {
            IdTokenIssuer::Fixed { issuer, .. } => Some(issuer),
            _ => None,
        }
    }

    /// Returns the issuer that must have signed an id_token of this provider. `None`: id_tokens are
    /// not read.
    ///
    /// # Errors
    /// When the token names a tenant that is not accepted.
    pub(crate) fn issuer_of(&self, token: &str) -> Result<Option<Issuer>, IdTokenError> {
        match &self.id_token_issuer {
            IdTokenIssuer::None => Ok(None),
            IdTokenIssuer::Fixed { issuer, .. } => Ok(Some(issuer.clone())),
            IdTokenIssuer::Tenant(only) => {
                let claims = unverified_claims(token).ok_or(IdTokenError::Malformed)?;
                let named = claims.get("iss").and_then(Value::as_str).ok_or(IdTokenError::OtherIssuer)?;
                let allowed = match only {
                    Some(only) => named == only,
                    None => AZURE_ISSUERS.iter().any(|start| named.starts_with(start)),
                };
                if allowed { Ok(Some(Issuer::configured(named))) } else { Err(IdTokenError::OtherIssuer) }
            }
        }
    }

    /// Returns true if a response in the name of `iss` may come from this provider, whose
    /// authorization endpoint is `authorize`. The issuers of most built-in providers without
    /// id_tokens are not known; a custom provider that names none must at least have the origin of
    /// its authorization endpoint.
    pub(crate) fn may_be_issuer(&self, authorize: &str, iss: &str) -> bool {
        if let ProviderEndpoints::Discovered(issuer) = &self.endpoints {
            return issuer.is_named(iss);
        }
        match &self.id_token_issuer {
            IdTokenIssuer::Fixed { issuer, .. } => issuer.is_named(iss),
            IdTokenIssuer::Tenant(Some(only)) => iss == only,
            IdTokenIssuer::Tenant(None) => AZURE_ISSUERS.iter().any(|start| iss.starts_with(start)),
            IdTokenIssuer::None if self.trust == UrlTrust::Configured => true,
            IdTokenIssuer::None => {
                let origin =
                    |url: &str| url::Url::parse(url).ok().map(|url| url.origin()).filter(url::Origin::is_tuple);
                origin(iss).is_some_and(|iss| Some(iss) == origin(authorize))
            }
        }
    }

    /// Returns the endpoints to use now.
    ///
    /// # Errors
    /// When the issuer's discovery document cannot be read.
    pub(crate) async fn current_endpoints(&self, issuers: &Issuers) -> Result<CurrentEndpoints, IssuerError> {
        match &self.endpoints {
            ProviderEndpoints::Discovered(issuer) => {
                let discovery = issuers.discovery(issuer).await?;
                Ok(CurrentEndpoints {
                    authorize: discovery.authorization_endpoint.clone(),
                    token: discovery.token_endpoint.clone(),
                    discovery: Some(discovery),
                })
            }
            ProviderEndpoints::Fixed { authorize, token } | ProviderEndpoints::OAuth1 { authorize, token, .. } => {
                Ok(CurrentEndpoints { authorize: authorize.clone(), token: token.clone(), discovery: None })
            }
        }
    }

    /// Returns the methods of client authentication to try at the token endpoint, best first.
    pub(crate) fn client_auth_methods(&self, endpoints: &CurrentEndpoints) -> &'static [ClientAuthMethod] {
        use ClientAuthMethod::{Basic, Post};
        if self.client_authentication == ClientAuthentication::Form {
            return &[Post];
        }
        let discovery = endpoints.discovery.as_ref();
        match discovery.and_then(|discovery| discovery.token_endpoint_auth_methods_supported.as_ref()) {
            Some(methods) if methods.iter().any(|method| method == "client_secret_post") => &[Post],
            Some(methods) if methods.iter().any(|method| method == "client_secret_basic") => &[Basic],
            Some(_) => &[Post],
            None => &[Basic, Post],
        }
    }

    /// Returns the sources of a profile that has nothing but the response of the token endpoint.
    pub(crate) fn sources<'a>(&'a self, token_fields: &'a JsonObject) -> ProfileSources<'a> {
        ProfileSources {
            issuer: &self.issuer_name,
            token: token_fields,
            id_token: None,
            documents: &[],
            form_user: None,
        }
    }
}
