//! The settings of identity providers.

use std::num::NonZeroU32;

use portico_base::Secret;

/// The settings of one identity provider.
#[derive(Debug, Clone)]
pub struct ProviderSettings {
    /// It may be used.
    pub enabled: bool,
    /// The client ids. The first is that of this server; all are accepted as audience of id_tokens.
    pub client_ids: Vec<String>,
    /// The client secret of this server.
    pub secret: Secret,
    /// The redirect URI of the client. Empty: `<external_url>/callback`.
    pub redirect_uri: String,
    /// Replaces the provider's base host or issuer.
    pub url: String,
    /// Accept id_tokens without a nonce check.
    pub skip_nonce_check: bool,
    /// Accounts without an email address may sign in.
    pub email_optional: bool,
}

/// The settings of custom providers, which are stored in the database and whose names start with
/// `custom:`.
#[derive(Debug, Clone)]
pub struct CustomProviderSettings {
    /// They may be used.
    pub enabled: bool,
    /// Base of their callback URL; `None`: the service's external URL.
    pub external_url: Option<String>,
    /// The greatest number of them; `None`: no limit.
    pub max_providers: Option<NonZeroU32>,
}

impl Default for ProviderSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            client_ids: Vec::new(),
            secret: Secret::new(String::new()),
            redirect_uri: String::new(),
            url: String::new(),
            skip_nonce_check: false,
            email_optional: false,
        }
    }
}

impl Default for CustomProviderSettings {
    fn default() -> Self {
        Self { enabled: true, external_url: None, max_providers: None }
    }
}
