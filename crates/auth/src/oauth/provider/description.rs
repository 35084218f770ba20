//! The description of a provider: everything that distinguishes one provider from another.
//!
//! The flows know only descriptions. [`catalogue`](super::catalogue) has those of the built-in
//! providers; rows of `auth.custom_oauth_providers` are resolved to the same form at run time.

use serde_json::Value;

use super::profile::{Profile, UnreadableProfile};
use crate::model::JsonObject;

/// A URL at a provider. A configured base URL replaces its host.
#[derive(Debug, Clone, Copy)]
pub struct UrlTemplate {
    /// Scheme and host (and common path) of the provider's own service.
    pub host: &'static str,
    /// Inserted between a configured base and the path (GitHub Enterprise).
    pub under: &'static str,
    /// Path and query.
    pub path: &'static str,
}

impl UrlTemplate {
    /// Makes a URL below `host`.
    #[must_use]
    pub const fn new(host: &'static str, path: &'static str) -> Self {
        Self { host, under: "", path }
    }

    /// Returns the URL, below `base` if one is configured.
    #[must_use]
    pub fn url(&self, base: Option<&str>) -> String {
        format!("{}{}", self.origin(base), self.path)
    }

    /// Returns the URL without its path, which names the provider in identities.
    #[must_use]
    pub fn origin(&self, base: Option<&str>) -> String {
        match base {
            Some(base) => format!("{}{}", base.trim_end_matches('/'), self.under),
            None => self.host.to_owned(),
        }
    }
}

/// The endpoints of a described provider.
#[derive(Debug, Clone, Copy)]
pub enum EndpointTemplates {
    /// Those of the issuer's OpenID discovery document. A configured URL is another issuer.
    Discovered {
        /// The provider's own issuer.
        issuer: &'static str,
    },
    /// Known URLs.
    Fixed {
        /// The authorization endpoint.
        authorize: UrlTemplate,
        /// The token endpoint.
        token: UrlTemplate,
    },
    /// OAuth 1.0a: three URLs and signed requests.
    OAuth1 {
        /// Issues request tokens.
        request: UrlTemplate,
        /// The page where the person consents.
        authorize: UrlTemplate,
        /// Exchanges the verifier for an access token.
        token: UrlTemplate,
    },
}

/// The use of a provider's id_tokens, and the issuer they must come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdTokenUse {
    /// The provider issues none that are read.
    Ignored,
    /// Of the issuer of [`EndpointTemplates::Discovered`]; userinfo is fetched only without one.
    Preferred,
    /// Of this issuer, and there must be one.
    Required(&'static str),
    /// Of the tenant that the token names (Azure).
    PerTenant,
}

/// The further parts of a userinfo request, besides the bearer token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserinfoExtra {
    /// Nothing else.
    Nothing,
    /// This header.
    Header(&'static str, &'static str),
    /// The client id as header `Client-Id` (Twitch).
    ClientId,
    /// `appsecret_proof` in the query (Facebook).
    SecretProof,
}

/// A document that describes the person, fetched with the access token.
#[derive(Debug, Clone, Copy)]
pub struct UserinfoDocument {
    /// Its URL.
    pub url: UrlTemplate,
    /// The further parameters of the request.
    pub extra: UserinfoExtra,
}

impl UserinfoDocument {
    /// Makes a document that needs nothing but the token.
    #[must_use]
    pub const fn new(host: &'static str, path: &'static str) -> Self {
        Self { url: UrlTemplate::new(host, path), extra: UserinfoExtra::Nothing }
    }
}

/// The authentication of this server at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuthentication {
    /// HTTP Basic; the form if that is rejected.
    Detect,
    /// Secret in the form only.
    Form,
}

/// The query parameters of `/authorize` that are forwarded to the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForwardedParameters {
    /// `scopes` adds to the default scopes.
    pub scopes: bool,
    /// Unknown parameters are forwarded.
    pub others: bool,
}

/// The input of a [`ProfileReader`].
#[derive(Debug, Clone, Copy)]
pub struct ProfileSources<'a> {
    /// The `iss` of the identity, unless the reader finds a better one.
    pub issuer: &'a str,
    /// The response of the token endpoint.
    pub token: &'a JsonObject,
    /// The verified claims of the id_token.
    pub id_token: Option<&'a JsonObject>,
    /// One for each of [`ProviderDescription::userinfo`], or none if the id_token made them
    /// unnecessary.
    pub documents: &'a [Value],
    /// The `user` field of the callback's form (Apple).
    pub form_user: Option<&'a Value>,
}

impl<'a> ProfileSources<'a> {
    /// Returns the same sources with these userinfo documents.
    #[must_use]
    pub fn with_documents(self, documents: &'a [Value]) -> Self {
        Self { documents, ..self }
    }

    /// Returns the document at `index`, `null` if there is none.
    #[must_use]
    pub fn document(&self, index: usize) -> &Value {
        self.documents.get(index).unwrap_or(&Value::Null)
    }

    /// Returns the id_token's claims.
    ///
    /// # Errors
    /// When there is no id_token.
    pub fn claims(&self) -> Result<&JsonObject, UnreadableProfile> {
        self.id_token.ok_or(UnreadableProfile("id_token"))
    }
}

/// Reads a profile from a provider's responses. Pure, so that recorded responses test it.
pub type ProfileReader = fn(&ProfileSources<'_>) -> Result<Profile, UnreadableProfile>;

/// One provider.
#[derive(Debug, Clone, Copy)]
pub struct ProviderDescription {
    /// Its name in URLs, settings and identities.
    pub name: &'static str,
    /// Its endpoints.
    pub endpoints: EndpointTemplates,
    /// Scopes of every request, separated by spaces.
    pub scopes: &'static str,
    /// The parameters that callers may add.
    pub forwarded: ForwardedParameters,
    /// Parameters of every authorization request.
    pub parameters: &'static [(&'static str, &'static str)],
    /// It demands PKCE.
    pub needs_pkce: bool,
    /// It returns the request's nonce in its id_token.
    pub returns_nonce: bool,
    /// The method by which this server authenticates.
    pub client_authentication: ClientAuthentication,
    /// The use of its id_tokens.
    pub id_tokens: IdTokenUse,
    /// Documents that describe the person.
    pub userinfo: &'static [UserinfoDocument],
    /// A base URL must be configured.
    pub needs_url: bool,
    /// Reads the profile.
    pub read: ProfileReader,
}
