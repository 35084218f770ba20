//! Everything an operator can decide about accounts.
//!
//! One struct per concern; `Default` holds the contract's defaults (auth-core 25). The wiring fills it from the project's
//! configuration; nothing here knows a file or an environment variable.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use portico_mail::{Address, Email, HeaderLine, MailKind, Sender};
use portico_tokens::Secret;
use time::OffsetDateTime;
use url::Url;

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
    /// Issuers that `grant_type=id_token` accepts without a provider name.
    pub allowed_id_token_issuers: Vec<String>,
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
    /// Outbound calls to providers and message gateways.
    pub http_timeout: Duration,
    /// A request that takes longer is answered with 504. Zero: no limit.
    pub max_request_duration: Duration,
}

/// Access tokens.
#[derive(Debug, Clone)]
pub struct JwtSettings {
    /// Life time.
    pub expiry: Duration,
    /// `aud` of tokens and users.
    pub audience: String,
    /// `role` of new users.
    pub default_role: String,
    /// `iss`; empty: no such claim.
    pub issuer: String,
    /// Roles that may call the administrator's endpoints.
    pub admin_roles: Vec<String>,
    /// The role that may set `app_metadata` by `PUT /user`.
    pub admin_group: String,
}

/// Rules for and hashing of passwords.
#[derive(Debug, Clone)]
pub struct PasswordSettings {
    /// Fewest bytes; at least 6.
    pub min_length: usize,
    /// Each set must have one hit.
    pub required_characters: Vec<String>,
    /// Ask whether a password is known from a breach.
    pub breach_check: Option<BreachCheckSettings>,
    /// Cost of new bcrypt hashes, 4 to 14. The contract's is 10.
    pub bcrypt_cost: u32,
    /// Hashes computed at the same time; `None`: one per processor.
    pub hashing_threads: Option<usize>,
    /// Requests that may wait for a hash; more are answered with 429.
    pub hashing_queue: usize,
}

/// The k-anonymity range API of breached passwords.
#[derive(Debug, Clone)]
pub struct BreachCheckSettings {
    /// Base of the API; five hexadecimal digits are appended.
    pub url: String,
    /// When the API does not answer: refuse the password (true) or accept it.
    pub fail_closed: bool,
    /// How we introduce ourselves.
    pub user_agent: String,
    /// How long to wait.
    pub timeout: Duration,
}

/// Accounts with an e-mail address.
#[derive(Debug, Clone)]
pub struct EmailSettings {
    /// Sign-up and sign-in by e-mail.
    pub enabled: bool,
    /// Sign-in by a link or code.
    pub magic_link_enabled: bool,
    /// If not empty, only these addresses get mail.
    pub authorized_addresses: Vec<String>,
    /// New addresses count as confirmed.
    pub autoconfirm: bool,
    /// Provider accounts with an unverified address may sign in.
    pub allow_unverified_sign_ins: bool,
    /// A change of address is confirmed from both addresses.
    pub secure_change: bool,
    /// Life time of codes and links.
    pub otp_expiry: Duration,
    /// Digits of a code, 6 to 10.
    pub otp_length: usize,
    /// Least time between two mails of a kind to one person.
    pub max_frequency: Duration,
    /// Paths or URLs that the links in mails point to.
    pub url_paths: UrlPaths,
    /// Own subjects and bodies.
    pub templates: BTreeMap<MailKind, TemplateSettings>,
    /// How long a body from an address is used before it is read again.
    pub template_max_age: Duration,
    /// When a body could not be read, the next attempt comes after this time; the pause doubles up to `template_max_age`.
    pub template_retry: Duration,
    /// Notifications that are sent.
    pub notifications: Vec<MailKind>,
    /// Name of the sender.
    pub sender_name: String,
    /// Address of the sender.
    pub sender_address: String,
    /// Further headers of every mail; `$messageType` becomes the kind.
    pub headers: Vec<(String, String)>,
    /// Host names by which this service may be addressed in links besides `external_url`.
    pub external_hosts: Vec<String>,
    /// Refuse addresses of reserved and obviously invented domains, and of domains that take no mail.
    pub extended_validation: bool,
    /// Who is asked about domains; empty: the machine's own name servers.
    pub name_servers: Vec<SocketAddr>,
}

/// Where the links in mails point to; resolved against the external URL.
#[derive(Debug, Clone)]
pub struct UrlPaths {
    /// `type=invite`
    pub invite: String,
    /// `type=signup`
    pub confirmation: String,
    /// `type=recovery` and `type=magiclink`
    pub recovery: String,
    /// `type=email_change`
    pub email_change: String,
}

/// An own subject and body of one kind of mail.
#[derive(Debug, Clone, Default)]
pub struct TemplateSettings {
    /// Template text.
    pub subject: Option<String>,
    /// Template text.
    pub body: Option<String>,
    /// File with the body; read again when it changes.
    pub body_file: Option<PathBuf>,
    /// Address of the body, read again from time to time: https, or what is appended to [`AuthSettings::site_url`].
    pub body_url: Option<String>,
}

/// Accounts with a phone number.
#[derive(Debug, Clone)]
pub struct SmsSettings {
    /// Sign-up and sign-in by phone.
    pub enabled: bool,
    /// New numbers count as confirmed.
    pub autoconfirm: bool,
    /// Life time of codes.
    pub otp_expiry: Duration,
    /// Digits of a code, 6 to 10.
    pub otp_length: usize,
    /// Least time between two messages to one person.
    pub max_frequency: Duration,
    /// Text; `{{ .Code }}` is the code.
    pub template: String,
    /// Name of the configured gateway, as `/settings` shows it.
    pub provider: String,
    /// Fixed codes by phone number, for tests of applications.
    pub test_otps: BTreeMap<String, String>,
    /// Until when the fixed codes hold; `None`: for ever.
    pub test_otps_valid_until: Option<OffsetDateTime>,
}

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

/// Refresh tokens.
#[derive(Debug, Clone)]
pub struct RefreshSettings {
    /// A detected reuse ends the whole family.
    pub rotation: bool,
    /// How long a replaced token is still accepted.
    pub reuse_interval: Duration,
    /// 0 or 1: stored tokens; 2: signed ones.
    pub algorithm_version: u8,
    /// Percent of existing sessions that move to the signed form when they refresh.
    pub upgrade_percentage: u8,
    /// Replaced tokens of the signed form are always accepted.
    pub allow_reuse: bool,
}

/// How long sessions live. `None`: as long as they are refreshed.
#[derive(Debug, Clone, Default)]
pub struct SessionSettings {
    /// From sign-in.
    pub timebox: Option<Duration>,
    /// From the last refresh.
    pub inactivity_timeout: Option<Duration>,
    /// From sign-in, for people with a factor who did not use it.
    pub allow_low_aal: Option<Duration>,
    /// Only the newest session of a person lives.
    pub single_per_user: bool,
    /// Classes of sessions that `single_per_user` treats separately.
    pub tags: Vec<String>,
}

/// Master keys of sealed columns (auth-core 14.3). Default: everything is written in clear.
#[derive(Debug, Clone, Default)]
pub struct EncryptionSettings {
    /// Name of the key that seals what is written; `None`: nothing is sealed, but sealed values are still read.
    pub current: Option<String>,
    /// 32 bytes in base64url by name: every key under which a value may be sealed.
    pub keys: BTreeMap<String, Secret>,
}

/// Proof that a person asks.
#[derive(Debug, Clone)]
pub struct CaptchaSettings {
    /// Whose puzzle.
    pub provider: CaptchaProvider,
    /// Our secret there.
    pub secret: Secret,
    /// How long to wait for the provider.
    pub timeout: Duration,
    /// Replaces the provider's address.
    pub verify_url: Option<String>,
}

/// Captcha services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptchaProvider {
    /// hCaptcha
    HCaptcha,
    /// Cloudflare Turnstile
    Turnstile,
}

/// How often things may be asked for (auth-core 18).
#[derive(Debug, Clone)]
pub struct RateLimitSettings {
    /// Request header whose first value is the key of the limits per address. `None`: the client address that the
    /// gateway found, when `per_address` is set.
    pub header: Option<String>,
    /// Limit by client address when there is no header.
    pub per_address: bool,
    /// Sign-up, codes, links, recovery: per five minutes.
    pub otp: u32,
    /// `/token`: per five minutes.
    pub token_refresh: u32,
    /// `/verify`: per five minutes.
    pub verify: u32,
    /// Anonymous sign-ins per hour.
    pub anonymous_users: u32,
    /// Mails of the whole service. `None`: no limit.
    pub emails: Option<SendLimit>,
    /// Text messages of the whole service. `None`: no limit.
    pub texts: Option<SendLimit>,
}

/// A limit on messages of the whole service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendLimit {
    /// So many per fixed hour.
    PerHour(u32),
    /// A bucket of this size, refilled by one per duration.
    Bucket(u32, Duration),
}

/// What is wrong with the settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A URL can not be read.
    #[error("{name}: \"{value}\" is not an absolute URL: {reason}")]
    Url {
        /// The setting.
        name: &'static str,
        /// What was given.
        value: String,
        /// What is wrong.
        reason: String,
    },
    /// A value is outside its bounds.
    #[error("{name}: {reason}")]
    Value {
        /// The setting.
        name: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A mail template can not be read.
    #[error("template of {kind}: {reason}")]
    Template {
        /// Key of the mail.
        kind: &'static str,
        /// What is wrong, with its place.
        reason: String,
    },
    /// A redirect pattern can not be read.
    #[error("redirect allow list: \"{pattern}\": {reason}")]
    RedirectPattern {
        /// The pattern.
        pattern: String,
        /// What is wrong.
        reason: String,
    },
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
            allowed_id_token_issuers: vec!["https://appleid.apple.com".into(), "https://accounts.google.com".into()],
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

impl Default for JwtSettings {
    fn default() -> Self {
        Self {
            expiry: Duration::from_secs(3600),
            audience: "authenticated".into(),
            default_role: "authenticated".into(),
            issuer: String::new(),
            admin_roles: vec!["service_role".into(), "supabase_admin".into()],
            admin_group: "admin".into(),
        }
    }
}

impl Default for PasswordSettings {
    fn default() -> Self {
        Self {
            min_length: 6,
            required_characters: Vec::new(),
            breach_check: None,
            bcrypt_cost: 10,
            hashing_threads: None,
            hashing_queue: 256,
        }
    }
}

impl Default for BreachCheckSettings {
    fn default() -> Self {
        Self {
            url: "https://api.pwnedpasswords.com/range/".into(),
            fail_closed: false,
            user_agent: "https://github.com/portico".into(),
            timeout: Duration::from_secs(5),
        }
    }
}

impl Default for EmailSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            magic_link_enabled: true,
            authorized_addresses: Vec::new(),
            autoconfirm: false,
            allow_unverified_sign_ins: false,
            secure_change: true,
            otp_expiry: Duration::from_secs(86_400),
            otp_length: 6,
            max_frequency: Duration::from_secs(60),
            url_paths: UrlPaths::default(),
            templates: BTreeMap::new(),
            template_max_age: Duration::from_secs(600),
            template_retry: Duration::from_secs(10),
            notifications: Vec::new(),
            sender_name: "Portico".into(),
            sender_address: "noreply@localhost".into(),
            headers: Vec::new(),
            external_hosts: Vec::new(),
            extended_validation: false,
            name_servers: Vec::new(),
        }
    }
}

impl Default for UrlPaths {
    /// Empty: `/verify` below the external URL, prefix kept. (The reference's own default drops the prefix.)
    fn default() -> Self {
        Self {
            invite: String::new(),
            confirmation: String::new(),
            recovery: String::new(),
            email_change: String::new(),
        }
    }
}

impl Default for SmsSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            autoconfirm: false,
            otp_expiry: Duration::from_secs(60),
            otp_length: 6,
            max_frequency: Duration::from_secs(60),
            template: "Your code is {{ .Code }}".into(),
            provider: String::new(),
            test_otps: BTreeMap::new(),
            test_otps_valid_until: None,
        }
    }
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

impl Default for RefreshSettings {
    fn default() -> Self {
        Self {
            rotation: true,
            reuse_interval: Duration::ZERO,
            algorithm_version: 0,
            upgrade_percentage: 0,
            allow_reuse: false,
        }
    }
}

impl Default for RateLimitSettings {
    fn default() -> Self {
        Self {
            header: None,
            per_address: false,
            otp: 30,
            token_refresh: 150,
            verify: 30,
            anonymous_users: 30,
            emails: Some(SendLimit::PerHour(30)),
            texts: Some(SendLimit::PerHour(30)),
        }
    }
}

impl AuthSettings {
    /// Checks everything that can be checked without a database.
    ///
    /// # Errors
    /// The first setting that can not work, and why.
    pub fn validate(&self) -> Result<(), SettingsError> {
        absolute_url("site_url", &self.site_url)?;
        absolute_url("external_url", &self.external_url)?;
        if let Some(url) = &self.custom_providers.external_url {
            absolute_url("custom_providers.external_url", url)?;
        }
        let within = |name: &'static str, fits: bool, reason: &str| {
            if fits { Ok(()) } else { Err(SettingsError::Value { name, reason: reason.to_owned() }) }
        };
        within("jwt.expiry", self.jwt.expiry >= Duration::from_secs(1), "must be at least one second")?;
        within("jwt.audience", !self.jwt.audience.is_empty(), "must not be empty: tokens would be useless")?;
        within("jwt.default_role", !self.jwt.default_role.is_empty(), "must not be empty: tokens would be useless")?;
        within("password.min_length", (6..=72).contains(&self.password.min_length), "must be 6 to 72")?;
        within("password.bcrypt_cost", (4..=14).contains(&self.password.bcrypt_cost), "must be 4 to 14")?;
        within("password.hashing_threads", self.password.hashing_threads != Some(0), "must be at least 1")?;
        within("email.otp_length", (6..=10).contains(&self.email.otp_length), "must be 6 to 10")?;
        within("sms.otp_length", (6..=10).contains(&self.sms.otp_length), "must be 6 to 10")?;
        within(
            "email.otp_expiry",
            self.email.otp_expiry <= Duration::from_secs(86_400),
            "must be at most 86400 seconds (one day)",
        )?;
        within(
            "flow_state_expiry",
            self.flow_state_expiry >= Duration::from_secs(300),
            "must be at least 300 seconds",
        )?;
        within(
            "email.allow_unverified_sign_ins",
            !(self.email.autoconfirm && self.email.allow_unverified_sign_ins),
            "can not be combined with email.autoconfirm",
        )?;
        within("refresh.algorithm_version", self.refresh.algorithm_version <= 2, "must be 0, 1 or 2")?;
        within("refresh.upgrade_percentage", self.refresh.upgrade_percentage <= 100, "must be 0 to 100")?;
        for (name, duration) in [
            ("sessions.timebox", self.sessions.timebox),
            ("sessions.inactivity_timeout", self.sessions.inactivity_timeout),
            ("sessions.allow_low_aal", self.sessions.allow_low_aal),
        ] {
            within(name, duration != Some(Duration::ZERO), "must be positive")?;
        }
        for kind in self.email.templates.keys() {
            self.template_url(*kind)?;
        }
        let sender = Address::parse(&self.email.sender_address)
            .map_err(|error| SettingsError::Value { name: "email.sender_address", reason: error.to_string() })?;
        headers(&self.email.headers, &sender)
    }

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

fn absolute_url(name: &'static str, value: &str) -> Result<Url, SettingsError> {
    Url::parse(value)
        .map_err(|error| error.to_string())
        .and_then(|url| if url.cannot_be_a_base() { Err("it has no host".to_owned()) } else { Ok(url) })
        .map_err(|reason| SettingsError::Url { name, value: value.to_owned(), reason })
}

/// Whether every mail can carry these headers: a mail that can not is found out at the start, and not when somebody waits
/// for it.
fn headers(headers: &[(String, String)], sender: &Address) -> Result<(), SettingsError> {
    for kind in MailKind::ALL {
        let from = Sender::new("", sender.clone());
        let mut email = Email::new(from, sender.clone(), HeaderLine::default(), "");
        for (name, value) in headers {
            email = email.with_header(name, &kind.in_header(value)).map_err(|error| SettingsError::Value {
                name: "email.headers",
                reason: format!("{:?}: {error}", name.chars().take(76).collect::<String>()),
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        AuthSettings::default().validate().unwrap();
    }

    #[test]
    fn errors_name_the_setting() {
        let mut settings = AuthSettings { site_url: "example.com".into(), ..AuthSettings::default() };
        assert!(settings.validate().unwrap_err().to_string().starts_with("site_url"));
        settings = AuthSettings::default();
        settings.password.min_length = 3;
        assert_eq!(settings.validate().unwrap_err().to_string(), "password.min_length: must be 6 to 72");
        settings = AuthSettings::default();
        settings.email.autoconfirm = true;
        settings.email.allow_unverified_sign_ins = true;
        assert!(settings.validate().is_err());
    }

    #[test]
    fn a_header_that_no_mail_can_carry_is_named() {
        let refused = |name: &str, value: &str| {
            let mut settings = AuthSettings::default();
            settings.email.headers = vec![("X-Kind".into(), "$messageType".into()), (name.into(), value.into())];
            settings.validate().map_err(|error| error.to_string())
        };
        assert_eq!(refused("X-Campaign", "a b"), Ok(()));
        assert_eq!(
            refused("Bcc", "eve@example.com").unwrap_err(),
            "email.headers: \"Bcc\": the header \"Bcc\" can not be set"
        );
        for (name, value) in
            [("X Y", "z"), ("", "z"), ("X-Evil", "a\r\nBcc: eve@example.com"), ("X-Long", &"$messageType".repeat(80))]
        {
            let error = refused(name, value).unwrap_err();
            assert!(error.starts_with(&format!("email.headers: {name:?}: ")), "{error}");
        }
    }
}
