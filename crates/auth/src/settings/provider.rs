//! Identity providers.

use portico_base::Secret;

/// One identity provider.
#[derive(Debug, Clone)]
pub struct ProviderSettings {
    /// Whether it may be used.
    pub enabled: bool,
    /// The first is ours; all are accepted as audience of id_tokens.
    pub client_ids: Vec<String>,
    /// Our secret there.
    pub secret: Secret,
    /// Where the provider sends people back; empty: `<external_url>/callback`.
    pub redirect_uri: String,
    /// Replaces the provider's base host or issuer.
    pub url: String,
    /// Accept id_tokens without a nonce check.
    pub skip_nonce_check: bool,
    /// Accounts without an e-mail address may sign in.
    pub email_optional: bool,
}

/// Providers that are kept in the database, whose names start with `custom:`.
#[derive(Debug, Clone)]
pub struct CustomProviderSettings {
    /// Whether they may be used.
    pub enabled: bool,
    /// Base of their callback URL; `None`: the service's external URL.
    pub external_url: Option<String>,
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
        Self { enabled: true, external_url: None }
    }
}
