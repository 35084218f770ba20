//! The description of a provider: everything that makes one differ from another.
//!
//! The engine ([`crate::oauth::provider::exchange`]) knows only this description; [`crate::oauth::provider::catalogue`] is the table of all built-in
//! providers, and rows of `auth.custom_oauth_providers` become the same description at run time.

use crate::oauth::provider::profile::{Object, Profile, Unreadable};
use serde_json::Value;

/// An address at a provider. A configured base URL takes the place of the host.
#[derive(Debug, Clone, Copy)]
pub struct At {
    /// Scheme and host (and common path) of the provider's own service.
    pub host: &'static str,
    /// Comes between a configured base and the path (GitHub Enterprise).
    pub under: &'static str,
    /// Path and query.
    pub path: &'static str,
}

impl At {
    /// An address below `host`.
    #[must_use]
    pub const fn new(host: &'static str, path: &'static str) -> Self {
        Self { host, under: "", path }
    }

    /// The address, below `base` if one is configured.
    #[must_use]
    pub fn url(&self, base: Option<&str>) -> String {
        format!("{}{}", self.origin(base), self.path)
    }

    /// The address without its path: what names the provider in identities.
    #[must_use]
    pub fn origin(&self, base: Option<&str>) -> String {
        match base {
            Some(base) => format!("{}{}", base.trim_end_matches('/'), self.under),
            None => self.host.to_owned(),
        }
    }
}

/// Where sign-in begins and codes are exchanged.
#[derive(Debug, Clone, Copy)]
pub enum Endpoints {
    /// The issuer's OpenID discovery document says it. A configured URL is another issuer.
    Discovered {
        /// The provider's own issuer.
        issuer: &'static str,
    },
    /// Known addresses.
    Fixed {
        /// Where the person is sent.
        authorize: At,
        /// Where the code becomes tokens.
        token: At,
    },
    /// OAuth 1.0a: three addresses and signed requests.
    Signed {
        /// Where a sign-in is announced.
        request: At,
        /// Where the person is sent.
        authorize: At,
        /// Where the verifier becomes tokens.
        token: At,
    },
}

/// Whether and whose id_token tells who the person is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdTokens {
    /// The provider gives none that we read.
    Ignored,
    /// Of the issuer of [`Endpoints::Discovered`]; documents are read only without one.
    Preferred,
    /// Of this issuer, and it must be there.
    Required(&'static str),
    /// Of the tenant that the token names (Azure).
    PerTenant,
}

/// How a document is asked for, besides the bearer token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extra {
    /// Nothing else.
    Nothing,
    /// This header.
    Header(&'static str, &'static str),
    /// The client id as header `Client-Id` (Twitch).
    ClientId,
    /// `appsecret_proof` in the query (Facebook).
    SecretProof,
}

/// A document about the person, fetched with the access token.
#[derive(Debug, Clone, Copy)]
pub struct Document {
    /// Where it is.
    pub at: At,
    /// What else the request carries.
    pub extra: Extra,
}

impl Document {
    /// A document that needs nothing but the token.
    #[must_use]
    pub const fn new(host: &'static str, path: &'static str) -> Self {
        Self { at: At::new(host, path), extra: Extra::Nothing }
    }
}

/// How this server proves itself at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientProof {
    /// Basic; the form if that is refused.
    Detect,
    /// Secret in the form only.
    Form,
}

/// Which query parameters of `/authorize` reach the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passes {
    /// `scopes` adds to the default scopes.
    pub scopes: bool,
    /// Unknown parameters are sent on.
    pub others: bool,
}

/// What the readers see.
#[derive(Debug)]
pub struct Sources<'a> {
    /// Names the provider in `iss`, unless the reader knows better.
    pub issuer: &'a str,
    /// The token endpoint's answer.
    pub token: &'a Object,
    /// The verified claims of the id_token.
    pub id_token: Option<&'a Object>,
    /// As many as [`Provider::documents`], or none if the id_token made them unnecessary.
    pub documents: &'a [Value],
    /// The `user` field of the callback's form (Apple).
    pub form_user: Option<&'a Value>,
}

impl Sources<'_> {
    /// The document at `index`, `null` if there is none.
    #[must_use]
    pub fn document(&self, index: usize) -> &Value {
        self.documents.get(index).unwrap_or(&Value::Null)
    }

    /// The id_token's claims.
    pub fn claims(&self) -> Result<&Object, Unreadable> {
        self.id_token.ok_or(Unreadable("id_token"))
    }
}

/// Reads a person from what a provider gave. Pure, so that recorded answers test it.
pub type Reader = fn(&Sources<'_>) -> Result<Profile, Unreadable>;

/// One provider.
#[derive(Debug, Clone, Copy)]
pub struct Provider {
    /// Its name in URLs, settings and identities.
    pub name: &'static str,
    /// Where it is.
    pub endpoints: Endpoints,
    /// Scopes that are always asked for, separated by spaces.
    pub scopes: &'static str,
    /// What callers may add.
    pub passes: Passes,
    /// Parameters that are always sent to its authorize page.
    pub parameters: &'static [(&'static str, &'static str)],
    /// It demands a proof key from us.
    pub needs_pkce: bool,
    /// It returns our nonce in its id_token.
    pub returns_nonce: bool,
    /// How we prove ourselves.
    pub proof: ClientProof,
    /// Its id_tokens.
    pub id_tokens: IdTokens,
    /// Documents about the person.
    pub documents: &'static [Document],
    /// A base URL must be configured.
    pub needs_url: bool,
    /// Makes the profile.
    pub read: Reader,
}
