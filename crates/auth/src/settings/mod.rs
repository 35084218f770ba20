//! Everything an operator can decide about accounts.
//!
//! One struct per concern; `Default` holds the contract's defaults (auth-core 25). The wiring fills it from the project's
//! configuration; nothing here knows a file or an environment variable.

mod email;
mod password;
mod protection;
mod provider;
mod session;
mod sms;
mod validate;

use std::collections::BTreeMap;
use std::time::Duration;

use portico_mail::MailKind;
use url::Url;

pub use email::{EmailSettings, TemplateSettings, UrlPaths};
pub use password::{BreachCheckSettings, PasswordSettings};
pub use protection::{CaptchaProvider, CaptchaSettings, EncryptionSettings, RateLimitSettings, SendLimit};
pub use provider::{CustomProviderSettings, ProviderSettings};
pub use session::{JwtSettings, RefreshSettings, SessionSettings};
pub use sms::SmsSettings;
pub use validate::SettingsError;

use validate::absolute_url;

/// Settings of the account service.
#[derive(Debug, Clone)]
pub struct AuthSettings {
    /// Where the application lives: the default redirect target and a template variable.
    pub site_url: String,
    /// Public base URL of this service, with its prefix: `https://api.example.com/auth/v1`.
    pub external_url: String,
    /// Patterns of further redirect targets (auth-core 17).
    pub redirect_allow_list: Vec<String>,
    /// No new users, by no way.
    pub disable_signup: bool,
    /// Whether people may sign in without giving a name.
    pub anonymous_users: bool,
    /// Whether signed-in people may link and unlink identities.
    pub manual_linking: bool,
    /// Access tokens.
    pub jwt: JwtSettings,
    /// Rules for and hashing of passwords.
    pub password: PasswordSettings,
    /// Accounts with an e-mail address, and the mails they get.
    pub email: EmailSettings,
    /// Accounts with a phone number.
    pub sms: SmsSettings,
    /// Identity providers by lower-case name (`google`, `github`, ...).
    pub external: BTreeMap<String, ProviderSettings>,
    /// Providers of `auth.custom_oauth_providers`.
    pub custom_providers: CustomProviderSettings,
    /// Fixed target of all provider callbacks, instead of the flow's own.
    pub external_redirect_url: Option<String>,
    /// Issuers that `grant_type=id_token` accepts without a provider name, each with the client ids
    /// that its tokens may be for.
    pub allowed_id_token_issuers: BTreeMap<String, Vec<String>>,
    /// Provider name to linking domain; providers not listed are in `default`.
    pub linking_domains: BTreeMap<String, String>,
    /// Life time of a flow state. At least 300 s.
    pub flow_state_expiry: Duration,
    /// How long discovery documents and key sets of providers are kept.
    pub oidc_cache_ttl: Duration,
    /// Whether providers may be called over plain HTTP on loopback addresses. Only for development.
    pub allow_insecure_loopback_providers: bool,
    /// Refresh tokens.
    pub refresh: RefreshSettings,
    /// How long sessions live.
    pub sessions: SessionSettings,
    /// Proof that a person asks.
    pub captcha: Option<CaptchaSettings>,
    /// How often things may be asked for.
    pub rate_limits: RateLimitSettings,
    /// A password change needs a session younger than 24 hours or a nonce.
    pub password_change_needs_reauthentication: bool,
    /// A password change needs the current password.
    pub password_change_needs_current: bool,
    /// A first password on an account with a confirmed e-mail address creates its e-mail identity.
    pub create_email_identity_on_password_set: bool,
    /// The first address of `Sb-Forwarded-For` is the client's. Only behind a proxy that writes it.
    pub sb_forwarded_for: bool,
    /// Secrets of accounts that are sealed in their rows.
    pub encryption: EncryptionSettings,
    /// Keep the audit log out of the database (it is always in the log).
    pub audit_log_disabled: bool,
    /// How long a call to a provider or message gateway may take. One to a provider takes at most half of
    /// `max_request_duration`: a sign-in needs two, and people are waiting.
    pub http_timeout: Duration,
    /// A request that takes longer is answered with 504. Zero: no limit.
    pub max_request_duration: Duration,
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self {
            site_url: "http://127.0.0.1:3000".into(),
            external_url: "http://127.0.0.1:54321/auth/v1".into(),
            redirect_allow_list: Vec::new(),
            disable_signup: false,
            anonymous_users: false,
            manual_linking: false,
            jwt: JwtSettings::default(),
            password: PasswordSettings::default(),
            email: EmailSettings::default(),
            sms: SmsSettings::default(),
            external: BTreeMap::new(),
            custom_providers: CustomProviderSettings::default(),
            external_redirect_url: None,
            allowed_id_token_issuers: BTreeMap::new(),
            linking_domains: BTreeMap::new(),
            flow_state_expiry: Duration::from_secs(300),
            oidc_cache_ttl: Duration::from_secs(3600),
            allow_insecure_loopback_providers: false,
            refresh: RefreshSettings::default(),
            sessions: SessionSettings::default(),
            captcha: None,
            rate_limits: RateLimitSettings::default(),
            password_change_needs_reauthentication: false,
            password_change_needs_current: false,
            create_email_identity_on_password_set: false,
            sb_forwarded_for: false,
            encryption: EncryptionSettings::default(),
            audit_log_disabled: false,
            http_timeout: Duration::from_secs(10),
            max_request_duration: Duration::from_secs(10),
        }
    }
}

impl AuthSettings {
    /// Where the body of these mails is read, if it comes from an address.
    ///
    /// # Errors
    /// When that is no address.
    pub fn template_url(&self, kind: MailKind) -> Result<Option<Url>, SettingsError> {
        let Some(written) = self.email.templates.get(&kind).and_then(|own| own.body_url.as_deref()) else {
            return Ok(None);
        };
        // Wire contract: what is no address is a path of the application's (auth-core 15.1)
        let url = match written.starts_with("http") {
            true => written.to_owned(),
            false => format!("{}/{}", self.site_url.trim_end_matches('/'), written.trim_start_matches('/')),
        };
        absolute_url("email.templates", &url).map(Some)
    }

    /// Whether a notification of this kind is sent.
    pub fn notifies(&self, kind: MailKind) -> bool {
        self.email.notifications.contains(&kind)
    }
}
