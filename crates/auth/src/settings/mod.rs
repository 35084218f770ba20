//! The settings of the account service.
//!
//! One struct per concern, whose `Default` has the values of the reference. The program fills them
//! from the project's configuration; nothing here knows a file or an environment variable.

mod email;
mod error;
mod factors;
mod hooks;
mod password;
mod protection;
mod provider;
mod session;
mod sms;
mod validate;
mod web3;
mod webauthn;

use std::collections::BTreeMap;
use std::time::Duration;

use portico_mail::MailKind;
use url::Url;

pub use email::{EmailSettings, TemplateSettings, UrlPaths};
pub use error::SettingsError;
pub use factors::{FactorSettings, FactorSwitches, PhoneFactorSettings};
pub use hooks::{HookPoint, HookSettings};
pub use password::{BreachCheckSettings, PasswordSettings};
pub use protection::{CaptchaProvider, CaptchaSettings, EncryptionSettings, RateLimitSettings, SendLimit};
pub use provider::{CustomProviderSettings, ProviderSettings};
pub use session::{JwtSettings, RefreshSettings, SessionSettings, ThirdPartySettings};
pub use sms::SmsSettings;
pub use web3::Web3Settings;
pub use webauthn::{PasskeySettings, RelyingPartySettings};

use error::absolute_url;

/// Settings of the account service.
#[derive(Debug, Clone)]
pub struct AuthSettings {
    /// URL of the application: the default redirect target and a template variable.
    pub site_url: String,
    /// The page for errors whose application is unknown, such as that of a sign-in with a provider
    /// that was finished before. `None`: `site_url`.
    pub error_url: Option<String>,
    /// Public base URL of this service, with its prefix: `https://api.example.com/auth/v1`.
    pub external_url: String,
    /// Patterns of further redirect targets.
    pub redirect_allow_list: Vec<String>,
    /// Reject every sign-up.
    pub disable_signup: bool,
    /// Permit anonymous sign-ins.
    pub anonymous_users: bool,
    /// Permit signed-in users to link and unlink identities.
    pub manual_linking: bool,
    /// Access tokens.
    pub jwt: JwtSettings,
    /// Rules for and hashing of passwords.
    pub password: PasswordSettings,
    /// Accounts with an email address, and their emails.
    pub email: EmailSettings,
    /// Accounts with a phone number.
    pub sms: SmsSettings,
    /// Second factors.
    pub factors: FactorSettings,
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
    /// Lifetime of a flow state. At least 300 s.
    pub flow_state_expiry: Duration,
    /// The lifetime of cached discovery documents and key sets of providers.
    pub oidc_cache_ttl: Duration,
    /// Permit providers with plain HTTP on loopback addresses. Only for development.
    pub allow_insecure_loopback_providers: bool,
    /// Wallets of blockchains.
    pub web3: Web3Settings,
    /// Functions of the application that take part in sign-ups, sign-ins and messages.
    pub hooks: BTreeMap<HookPoint, HookSettings>,
    /// Permit hooks over HTTP inside private networks. `false`: only on the public internet and on
    /// this machine.
    pub private_hook_addresses: bool,
    /// Refresh tokens.
    pub refresh: RefreshSettings,
    /// The lifetime of sessions.
    pub sessions: SessionSettings,
    /// The captcha service. `None`: no captchas.
    pub captcha: Option<CaptchaSettings>,
    /// Passkeys.
    pub passkeys: PasskeySettings,
    /// The site that passkeys and security keys are for. `None`: neither can be used.
    pub relying_party: Option<RelyingPartySettings>,
    /// Rate limits.
    pub rate_limits: RateLimitSettings,
    /// A password change needs a session younger than 24 hours or a nonce.
    pub password_change_needs_reauthentication: bool,
    /// A password change needs the current password.
    pub password_change_needs_current: bool,
    /// A first password on an account with a confirmed email address creates its email identity.
    pub create_email_identity_on_password_set: bool,
    /// The list of accounts has pages behind a cursor, unless a page is given by its number.
    pub cursor_pagination: bool,
    /// The first address of `Sb-Forwarded-For` is the client's. Only behind a proxy that writes it.
    pub sb_forwarded_for: bool,
    /// Column encryption.
    pub encryption: EncryptionSettings,
    /// The third party whose tokens are accepted.
    pub third_party: Option<ThirdPartySettings>,
    /// Write no audit entries to the database. Events are always logged.
    pub audit_log_disabled: bool,
    /// Timeout of a call to a provider or message gateway. One to a provider takes at most half of
    /// `max_request_duration`, since a sign-in needs two.
    pub http_timeout: Duration,
    /// A request that takes longer gets a response 504. Zero: no limit.
    pub max_request_duration: Duration,
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self {
            site_url: "http://127.0.0.1:3000".into(),
            error_url: None,
            external_url: "http://127.0.0.1:54321/auth/v1".into(),
            redirect_allow_list: Vec::new(),
            disable_signup: false,
            anonymous_users: false,
            manual_linking: false,
            jwt: JwtSettings::default(),
            password: PasswordSettings::default(),
            email: EmailSettings::default(),
            sms: SmsSettings::default(),
            factors: FactorSettings::default(),
            external: BTreeMap::new(),
            custom_providers: CustomProviderSettings::default(),
            external_redirect_url: None,
            allowed_id_token_issuers: BTreeMap::new(),
            linking_domains: BTreeMap::new(),
            flow_state_expiry: Duration::from_secs(300),
            oidc_cache_ttl: Duration::from_secs(3600),
            allow_insecure_loopback_providers: false,
            web3: Web3Settings::default(),
            hooks: BTreeMap::new(),
            private_hook_addresses: false,
            refresh: RefreshSettings::default(),
            sessions: SessionSettings::default(),
            captcha: None,
            passkeys: PasskeySettings::default(),
            relying_party: None,
            rate_limits: RateLimitSettings::default(),
            password_change_needs_reauthentication: false,
            password_change_needs_current: false,
            create_email_identity_on_password_set: false,
            cursor_pagination: false,
            sb_forwarded_for: false,
            encryption: EncryptionSettings::default(),
            third_party: None,
            audit_log_disabled: false,
            http_timeout: Duration::from_secs(10),
            max_request_duration: Duration::from_secs(10),
        }
    }
}

impl AuthSettings {
    /// Returns the URL of the body of these emails, if it is fetched from one.
    ///
    /// # Errors
    /// When the setting is not a URL.
    pub fn template_url(&self, kind: MailKind) -> Result<Option<Url>, SettingsError> {
        let Some(written) = self.email.templates.get(&kind).and_then(|own| own.body_url.as_deref()) else {
            return Ok(None);
        };
        // As in GoTrue, a text that is not a URL is a path of the application
        let url = match written.starts_with("http") {
            true => written.to_owned(),
            false => format!("{}/{}", self.site_url.trim_end_matches('/'), written.trim_start_matches('/')),
        };
        absolute_url("email.templates", &url).map(Some)
    }

    /// Returns true if notifications of this kind are enabled.
    pub fn notifies(&self, kind: MailKind) -> bool {
        self.email.notifications.contains(&kind)
    }
}
