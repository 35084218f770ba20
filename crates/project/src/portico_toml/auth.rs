//! `[auth]`: settings of the account service that `config.toml` has no key for.
//!
//! All of them are optional: an absent key keeps the service's default. The service defines the
//! meaning of a value and its range; here are its name and type.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use portico_base::Secret;
use url::Url;

use super::development_users::DevelopmentUser;
use super::messages::{LinkPaths, RateLimitExtras, SmsExtras};
use crate::config::email::{NOTIFICATIONS, TEMPLATES};
use crate::section::Section;

/// `[auth]`
#[derive(Debug, Clone, Default)]
pub struct AccountSettings {
    /// True if a password can only be changed with the current one.
    pub require_current_password: Option<bool>,
    /// True if a first password creates an email identity.
    pub create_email_identity_on_password_set: Option<bool>,
    /// True if the list of accounts has pages behind a cursor.
    pub cursor_pagination: Option<bool>,
    /// The lifetime of a sign-in that is in progress at a provider or in an email.
    pub flow_state_expiry: Option<Duration>,
    /// The time for which discovery documents and keys of providers are cached.
    pub oidc_cache_ttl: Option<Duration>,
    /// The timeout of calls to providers and message gateways.
    pub http_timeout: Option<Duration>,
    /// The timeout of requests. Zero: none.
    pub max_request_duration: Option<Duration>,
    /// `[auth.captcha] timeout`: the timeout of the captcha provider.
    pub captcha_timeout: Option<Duration>,
    /// True to keep `auth.audit_log_entries` empty.
    pub audit_log_disabled: Option<bool>,
    /// True to trust `Sb-Forwarded-For` of a trusted proxy.
    pub sb_forwarded_for: Option<bool>,
    /// Algorithms of accepted access tokens.
    pub jwt_valid_methods: Option<Vec<String>>,
    /// Another address of the third party's discovery document: of a stand-in, or of a mirror.
    pub third_party_discovery_url: Option<String>,
    /// Further names of the issuer of `[auth.third_party]` in its tokens, such as that of a custom
    /// domain.
    pub third_party_issuer_names: Vec<String>,
    /// One target of all providers' callbacks.
    pub external_redirect_url: Option<String>,
    /// `[auth.allowed_id_token_issuers]`: issuers whose id_tokens need no provider name, each with
    /// the allowed client ids.
    pub allowed_id_token_issuers: BTreeMap<String, Vec<String>>,
    /// `[auth.linking_domains]`: provider to domain; accounts are linked within a domain only.
    pub linking_domains: BTreeMap<String, String>,
    /// `[auth.password]`
    pub password: PasswordExtras,
    /// `[auth.sessions]`
    pub sessions: SessionExtras,
    /// `[auth.refresh_tokens]`
    pub refresh_tokens: RefreshTokenExtras,
    /// `[auth.email]`
    pub email: EmailExtras,
    /// `[auth.sms]`
    pub sms: SmsExtras,
    /// `[auth.rate_limit]`
    pub rate_limits: RateLimitExtras,
    /// `[auth.custom_providers]`
    pub custom_providers: CustomProviderExtras,
    /// `[auth.encryption]`
    pub encryption: EncryptionExtras,
    /// `[auth.passkey]`
    pub passkey: PasskeyExtras,
    /// `[auth.hook]`
    pub hook: HookExtras,
    /// `[auth.users]`: accounts of development servers.
    pub users: Vec<DevelopmentUser>,
}

/// `[auth.password]`
#[derive(Debug, Clone, Default)]
pub struct PasswordExtras {
    /// The check for breached passwords, and its result if the service does not respond.
    pub breach_check: Option<BreachCheckMode>,
    /// Another address of the check, for a mirror.
    pub breach_check_url: Option<String>,
    /// The cost of new hashes.
    pub bcrypt_cost: Option<u16>,
}

/// The check for breached passwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreachCheckMode {
    /// No check.
    Off,
    /// Accepts the password if the service does not respond.
    FailOpen,
    /// Rejects the password if the service does not respond.
    FailClosed,
}

/// `[auth.sessions]`
#[derive(Debug, Clone, Default)]
pub struct SessionExtras {
    /// True if only the newest session of a user is kept.
    pub single_per_user: Option<bool>,
    /// Classes of sessions for `single_per_user`.
    pub tags: Option<Vec<String>>,
    /// The time for which a user with a second factor may go without it.
    pub allow_low_aal: Option<Duration>,
}

/// `[auth.refresh_tokens]`
#[derive(Debug, Clone, Default)]
pub struct RefreshTokenExtras {
    /// 1: stored tokens; 2: signed ones.
    pub algorithm_version: Option<u16>,
    /// Share of existing sessions that move to signed tokens.
    pub upgrade_percentage: Option<u16>,
    /// True if replaced signed tokens stay valid.
    pub allow_reuse: Option<bool>,
}

/// `[auth.email]`
#[derive(Debug, Clone, Default)]
pub struct EmailExtras {
    /// Sign-in by link and code.
    pub magic_link: Option<bool>,
    /// True if every notification is sent that `config.toml` does not mention.
    pub notifications: Option<bool>,
    /// The page where people check their sign-in methods.
    pub security_page: Option<String>,
    /// The page where people request a new password.
    pub recovery_page: Option<String>,
    /// The page where people sign in.
    pub sign_in_page: Option<String>,
    /// True if provider accounts with an unverified address may sign in.
    pub allow_unverified_sign_ins: Option<bool>,
    /// If not empty, the only addresses that receive email.
    pub authorized_addresses: Option<Vec<String>>,
    /// True to reject addresses that cannot receive email.
    pub extended_validation: Option<bool>,
    /// Mail servers whose domains `extended_validation` rejects.
    pub blocked_mail_servers: Option<Vec<String>>,
    /// Name servers for `extended_validation`, in place of the machine's.
    pub name_servers: Option<Vec<SocketAddr>>,
    /// The time for which a downloaded body is used before it is downloaded again.
    pub template_max_age: Option<Duration>,
    /// The time after which a failed download of a body is retried.
    pub template_retry: Option<Duration>,
    /// Further host names for the links in emails.
    pub external_hosts: Option<Vec<String>>,
    /// `[auth.email.headers]`: further headers of every email.
    pub headers: Vec<(String, String)>,
    /// `[auth.email.templates]`: the sources of email bodies: an address, or a path of the
    /// application.
    pub templates: BTreeMap<String, String>,
    /// `[auth.email.link_paths]`
    pub link_paths: LinkPaths,
}

/// `[auth.custom_providers]`
#[derive(Debug, Clone, Default)]
pub struct CustomProviderExtras {
    /// True if providers in the database may be used.
    pub enabled: Option<bool>,
    /// The base of their callback address.
    pub external_url: Option<String>,
    /// The greatest number of custom providers; 0: no limit.
    pub max_providers: Option<u32>,
}

/// `[auth.encryption]`
#[derive(Debug, Clone, Default)]
pub struct EncryptionExtras {
    /// The name of the key that encrypts.
    pub current: Option<String>,
    /// `keys`: 32 bytes in base64url by name.
    pub keys: BTreeMap<String, Secret>,
}

/// `[auth.passkey]`
#[derive(Debug, Clone, Default)]
pub struct PasskeyExtras {
    /// The largest number of passkeys of a user.
    pub max_per_user: Option<u32>,
    /// The time in which a ceremony must be completed.
    pub challenge_expiry: Option<Duration>,
    /// True to reject authenticators that did not verify the person.
    pub require_user_verification: Option<bool>,
}

/// `[auth.hook]`
#[derive(Debug, Clone, Default)]
pub struct HookExtras {
    /// True if hooks over HTTP may be inside private networks.
    pub private_addresses: Option<bool>,
}

impl AccountSettings {
    pub(super) fn read(mut auth: Section<'_, '_, '_>) -> Self {
        Self {
            require_current_password: auth.flag("require_current_password"),
            create_email_identity_on_password_set: auth.flag("create_email_identity_on_password_set"),
            cursor_pagination: auth.flag("cursor_pagination"),
            flow_state_expiry: auth.duration("flow_state_expiry"),
            oidc_cache_ttl: auth.duration("oidc_cache_ttl"),
            http_timeout: auth.duration("http_timeout"),
            max_request_duration: auth.duration("max_request_duration"),
            captcha_timeout: auth.section("captcha").duration("timeout"),
            audit_log_disabled: auth.flag("audit_log_disabled"),
            sb_forwarded_for: auth.flag("sb_forwarded_for"),
            jwt_valid_methods: auth.list("jwt_valid_methods"),
            third_party_discovery_url: written(&mut auth, "third_party_discovery_url"),
            third_party_issuer_names: auth.list("third_party_issuer_names").unwrap_or_default(),
            external_redirect_url: written(&mut auth, "external_redirect_url"),
            allowed_id_token_issuers: own_names(auth.section("allowed_id_token_issuers"), |section, name| {
                section.any_list(name)
            }),
            linking_domains: own_names(auth.section("linking_domains"), |section, name| section.any_text(name)),
            password: PasswordExtras::read(auth.section("password")),
            sessions: SessionExtras::read(auth.section("sessions")),
            refresh_tokens: RefreshTokenExtras::read(auth.section("refresh_tokens")),
            email: EmailExtras::read(auth.section("email")),
            sms: SmsExtras::read(auth.section("sms")),
            rate_limits: RateLimitExtras::read(auth.section("rate_limit")),
            custom_providers: CustomProviderExtras::read(auth.section("custom_providers")),
            encryption: EncryptionExtras::read(auth.section("encryption")),
            passkey: PasskeyExtras::read(auth.section("passkey")),
            hook: HookExtras { private_addresses: auth.section("hook").flag("private_addresses") },
            users: DevelopmentUser::read_all(auth.section("users")),
        }
    }
}

impl PasswordExtras {
    fn read(mut password: Section<'_, '_, '_>) -> Self {
        let checks = [
            ("off", BreachCheckMode::Off),
            ("fail-open", BreachCheckMode::FailOpen),
            ("fail-closed", BreachCheckMode::FailClosed),
        ];
        Self {
            breach_check: password.choice("breach_check", &checks),
            breach_check_url: written(&mut password, "breach_check_url"),
            bcrypt_cost: password.number("bcrypt_cost"),
        }
    }
}

impl SessionExtras {
    fn read(mut sessions: Section<'_, '_, '_>) -> Self {
        Self {
            single_per_user: sessions.flag("single_per_user"),
            tags: sessions.list("tags"),
            allow_low_aal: sessions.duration("allow_low_aal"),
        }
    }
}

impl RefreshTokenExtras {
    fn read(mut tokens: Section<'_, '_, '_>) -> Self {
        Self {
            algorithm_version: tokens.number("algorithm_version"),
            upgrade_percentage: tokens.number("upgrade_percentage"),
            allow_reuse: tokens.flag("allow_reuse"),
        }
    }
}

impl EmailExtras {
    fn read(mut email: Section<'_, '_, '_>) -> Self {
        Self {
            magic_link: email.flag("magic_link"),
            notifications: email.flag("notifications"),
            security_page: page(&mut email, "security_page"),
            recovery_page: page(&mut email, "recovery_page"),
            sign_in_page: page(&mut email, "sign_in_page"),
            allow_unverified_sign_ins: email.flag("allow_unverified_sign_ins"),
            authorized_addresses: email.list("authorized_addresses"),
            extended_validation: email.flag("extended_validation"),
            blocked_mail_servers: email.list("blocked_mail_servers"),
            name_servers: name_servers(&mut email),
            template_max_age: email.duration("template_max_age"),
            template_retry: email.duration("template_retry"),
            external_hosts: email.list("external_hosts"),
            headers: own_names(email.section("headers"), |section, name| section.any_text(name)).into_iter().collect(),
            templates: template_addresses(email.section("templates")),
            link_paths: LinkPaths::read(email.section("link_paths")),
        }
    }
}

impl CustomProviderExtras {
    fn read(mut providers: Section<'_, '_, '_>) -> Self {
        Self {
            max_providers: providers.number("max_providers"),
            enabled: providers.flag("enabled"),
            external_url: written(&mut providers, "external_url"),
        }
    }
}

impl EncryptionExtras {
    fn read(mut encryption: Section<'_, '_, '_>) -> Self {
        let current = written(&mut encryption, "current");
        let keys = encryption.named_secrets("keys");
        if let Some(name) = &current
            && !keys.contains_key(name)
        {
            encryption.fail("current", format!("{}: there is no key {name:?}", encryption.key("current")));
        }
        Self { current, keys }
    }
}

impl PasskeyExtras {
    fn read(mut passkey: Section<'_, '_, '_>) -> Self {
        Self {
            max_per_user: passkey.number("max_per_user"),
            challenge_expiry: passkey.duration("challenge_expiry"),
            require_user_verification: passkey.flag("require_user_verification"),
        }
    }
}

fn template_addresses(mut templates: Section<'_, '_, '_>) -> BTreeMap<String, String> {
    let kinds = TEMPLATES.into_iter().chain(NOTIFICATIONS);
    kinds.filter_map(|kind| Some((kind.to_owned(), written(&mut templates, kind)?))).collect()
}

/// Parses addresses, each with a port if it is not 53.
fn name_servers(email: &mut Section<'_, '_, '_>) -> Option<Vec<SocketAddr>> {
    let written = email.list("name_servers")?;
    let read = |text: &String| {
        let address = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 53));
        let address = address.ok().or_else(|| text.parse().ok());
        if address.is_none() {
            let key = email.key("name_servers");
            email
                .fail("name_servers", format!("{key}: expected an IP address, with or without a port, found {text:?}"));
        }
        address
    };
    Some(written.iter().filter_map(read).collect())
}

/// Reads the address of a page.
fn page(section: &mut Section<'_, '_, '_>, name: &'static str) -> Option<String> {
    let text = written(section, name)?;
    let is_page = Url::parse(&text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some());
    if !is_page {
        let key = section.key(name);
        section.fail(name, format!("{key}: expected a URL such as \"https://app.example.com/security\""));
    }
    is_page.then_some(text)
}

/// Reads text that is not empty.
fn written(section: &mut Section<'_, '_, '_>, name: &'static str) -> Option<String> {
    section.text(name).filter(|text| !text.is_empty())
}

/// Reads a table whose names are the user's own.
fn own_names<T>(
    mut section: Section<'_, '_, '_>,
    read: impl Fn(&mut Section<'_, '_, '_>, &str) -> Option<T>,
) -> BTreeMap<String, T> {
    let names = section.names();
    names.into_iter().filter_map(|name| Some((name.to_owned(), read(&mut section, name)?))).collect()
}
