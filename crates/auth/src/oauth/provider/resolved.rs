//! A provider as this project uses it: its description and the operator's settings, joined.

use std::sync::Arc;

use portico_base::Secret;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::oauth::protocol::discovery::{Discovery, Issuer};
use crate::oauth::protocol::http_client::Trust;
use crate::oauth::provider::catalogue;
use crate::oauth::provider::custom;
use crate::oauth::provider::description::{ClientProof, Endpoints, Extra, IdTokens, Passes, Provider, Reader};
use crate::oauth::provider::readers;
use crate::settings::ProviderSettings;

/// Where a sign-in happens.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// The issuer says it.
    Issuer(Issuer),
    /// Known addresses.
    Fixed { authorize: String, token: String },
    /// OAuth 1.0a.
    Signed { request: String, authorize: String, token: String },
}

/// Whose id_tokens are read.
#[derive(Debug, Clone)]
pub(crate) enum TokenIssuer {
    /// Nobody's.
    Nobody,
    /// This issuer's; `required`: there must be one.
    One { issuer: Issuer, required: bool },
    /// That of the tenant that the token names; with `Some`, only this one.
    Tenant(Option<String>),
}

/// Changes to what a reader found, for custom providers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Adjust {
    /// Raw claims that are copied into `custom_claims`.
    pub(crate) copied: Vec<String>,
    /// Target claim to a source claim's name, or a literal.
    pub(crate) mapping: serde_json::Map<String, serde_json::Value>,
}

/// A provider that can be used.
#[derive(Debug, Clone)]
pub(crate) struct Configured {
    /// The name in identities.
    pub(crate) name: String,
    pub(crate) client_ids: Vec<String>,
    pub(crate) secret: Secret,
    pub(crate) redirect_uri: String,
    pub(crate) place: Place,
    pub(crate) trust: Trust,
    pub(crate) token_issuer: TokenIssuer,
    /// Address and what else is sent.
    pub(crate) documents: Vec<(String, Extra)>,
    /// `iss` of identities, unless the reader knows better.
    pub(crate) issuer_name: String,
    pub(crate) scopes: String,
    /// `scopes` of a request take the place of ours instead of adding to them.
    pub(crate) scopes_replace: bool,
    pub(crate) passes: Passes,
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) needs_pkce: bool,
    pub(crate) returns_nonce: bool,
    pub(crate) skip_nonce_check: bool,
    pub(crate) email_optional: bool,
    pub(crate) proof: ClientProof,
    pub(crate) read: Reader,
    pub(crate) adjust: Adjust,
}

impl Configured {
    /// The client id that we use ourselves.
    pub(crate) fn client_id(&self) -> &str {
        self.client_ids.first().map_or("", String::as_str)
    }

    /// The issuer of its id_tokens that does not depend on the token.
    pub(crate) fn fixed_issuer(&self) -> Option<&Issuer> {
        match &self.token_issuer {
            TokenIssuer::One { issuer, .. } => Some(issuer),
            _ => None,
        }
    }
}

/// The provider of a request's `provider` parameter, ready to use.
///
/// # Errors
/// 400 `validation_failed` "Unsupported provider: ..." as auth-core 10.1 lists them.
pub(crate) async fn find(auth: &Auth, name: &str) -> Result<Configured, AuthError> {
    let name = name.to_lowercase();
    if name.starts_with(custom::PREFIX) {
        return custom::find(auth, &name).await;
    }
    let unsupported = |reason: &str| AuthError::from(ContractError::ProviderUnsupported { reason: reason.to_owned() });
    let provider = catalogue::find(&name).ok_or_else(|| {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        unsupported(&format!("Provider {shown} could not be found"))
    })?;
    let settings = auth
        .settings()
        .external
        .get(&name)
        .filter(|settings| settings.enabled)
        .ok_or_else(|| unsupported("provider is not enabled"))?;
    let configured = join(auth, provider, settings);
    if configured.client_id().is_empty() {
        return Err(unsupported("missing OAuth client ID"));
    }
    if configured.secret.is_empty() {
        return Err(unsupported("missing OAuth secret"));
    }
    if provider.needs_url && settings.url.is_empty() {
        return Err(unsupported("missing provider URL"));
    }
    Ok(configured)
}

/// Joins a built-in provider with its settings, without asking whether they are complete.
pub(crate) fn join(auth: &Auth, provider: &'static Provider, settings: &ProviderSettings) -> Configured {
    let base = Some(settings.url.trim_end_matches('/')).filter(|url| !url.is_empty());
    let own_issuer = |issuer: &str| Issuer::configured(base.unwrap_or(issuer));
    let place = match provider.endpoints {
        Endpoints::Discovered { issuer } => Place::Issuer(own_issuer(issuer)),
        Endpoints::Fixed { authorize, token } => {
            Place::Fixed { authorize: authorize.url(base), token: token.url(base) }
        }
        Endpoints::Signed { request, authorize, token } => {
            Place::Signed { request: request.url(base), authorize: authorize.url(base), token: token.url(base) }
        }
    };
    let token_issuer = match (provider.id_tokens, provider.endpoints) {
        (IdTokens::Ignored, _) => TokenIssuer::Nobody,
        (IdTokens::Preferred, Endpoints::Discovered { issuer }) => {
            TokenIssuer::One { issuer: own_issuer(issuer), required: false }
        }
        (IdTokens::Required(_), Endpoints::Discovered { issuer }) => {
            TokenIssuer::One { issuer: own_issuer(issuer), required: true }
        }
        (IdTokens::Preferred, _) => TokenIssuer::Nobody,
        (IdTokens::Required(issuer), _) => TokenIssuer::One { issuer: Issuer::configured(issuer), required: true },
        (IdTokens::PerTenant, _) => TokenIssuer::Tenant(base.map(|base| format!("{base}/v2.0"))),
    };
    let read = match &token_issuer {
        TokenIssuer::Tenant(None) => readers::azure_of_any_tenant,
        _ => provider.read,
    };
    let issuer_name = match (provider.endpoints, provider.documents.first()) {
        (Endpoints::Discovered { issuer }, _) => base.unwrap_or(issuer).to_owned(),
        (_, Some(document)) => document.at.origin(base),
        (Endpoints::Fixed { token, .. } | Endpoints::Signed { token, .. }, None) => token.origin(base),
    };
    let redirect_uri = match settings.redirect_uri.is_empty() {
        true => format!("{}/callback", auth.settings().external_url.trim_end_matches('/')),
        false => settings.redirect_uri.clone(),
    };
    Configured {
        name: provider.name.to_owned(),
        client_ids: settings.client_ids.iter().filter(|id| !id.is_empty()).cloned().collect(),
        secret: settings.secret.clone(),
        redirect_uri,
        place,
        trust: Trust::Configured,
        token_issuer,
        documents: provider.documents.iter().map(|document| (document.at.url(base), document.extra)).collect(),
        issuer_name,
        scopes: provider.scopes.to_owned(),
        scopes_replace: false,
        passes: provider.passes,
        parameters: provider.parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        needs_pkce: provider.needs_pkce,
        returns_nonce: provider.returns_nonce,
        skip_nonce_check: settings.skip_nonce_check,
        email_optional: settings.email_optional,
        proof: provider.proof,
        read,
        adjust: Adjust::default(),
    }
}

/// The addresses of a provider, asked for if needed.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    pub(crate) authorize: String,
    pub(crate) token: String,
    /// Of an issuer only.
    pub(crate) discovery: Option<Arc<Discovery>>,
}

impl Configured {
    /// The addresses to use now.
    ///
    /// # Errors
    /// 500 when the issuer does not say them.
    pub(crate) async fn addresses(&self, auth: &Auth) -> Result<Addresses, AuthError> {
        match &self.place {
            Place::Issuer(issuer) => {
                let discovery = auth
                    .engine()
                    .issuers
                    .discovery(issuer)
                    .await
                    .map_err(|error| AuthError::failed(ContractError::ProviderUnreachable, error))?;
                Ok(Addresses {
                    authorize: discovery.authorization_endpoint.clone(),
                    token: discovery.token_endpoint.clone(),
                    discovery: Some(discovery),
                })
            }
            Place::Fixed { authorize, token } | Place::Signed { authorize, token, .. } => {
                Ok(Addresses { authorize: authorize.clone(), token: token.clone(), discovery: None })
            }
        }
    }
}
