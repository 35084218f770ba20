//! The account service, at `/auth/v1`: `[auth]` of the configuration as its settings, its routes
//! and its periodic work.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use portico_auth::settings::{
    AuthSettings, BreachCheckSettings, CaptchaProvider, CaptchaSettings, FactorSwitches, HookPoint, HookSettings,
    PhoneFactorSettings, ProviderSettings, SendLimit, TemplateSettings, ThirdPartySettings,
};
use portico_auth::{AccountToAdd, Auth, TextTransport};
use portico_base::Clock;
use portico_database::Database;
use portico_gateway::Access;
use portico_mail::{MailKind, Transport};
use portico_project::portico_toml::{AccountSettings, BrandSettings, BreachCheck, DevelopmentUser, SendRate, Settings};
use portico_project::{
    AuthConfig, CaptchaProvider as ConfiguredCaptcha, Config, ExternalProvider, HookConfig, MfaConfig, MfaFactor,
    PasswordRequirements, Project,
};
use portico_tokens::{CurrentKeys, ThirdPartyIssuer};

use super::service::{Foundation, Service};
use super::{keys, mail, texts, webauthn};

const LOWER: &str = "abcdefghijklmnopqrstuvwxyz";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const DIGITS: &str = "0123456789";
const SYMBOLS: &str = "!@#$%^&*()_+-=[]{};'\\:\"|<>?,./`~";
/// The lifetime of a text message's code. The format of `config.toml` fixes it.
const SMS_OTP_EXPIRY: Duration = Duration::from_secs(6000);
/// The period at which expired sessions, tokens and flow states are removed. Each run works in
/// small batches and skips locked rows.
const CLEAN_UP_PERIOD: Duration = Duration::from_secs(60);

/// The paths that need no API key: links in mails and redirects of providers arrive without one.
const OPEN_PATHS: [&str; 9] = [
    "/verify",
    "/callback",
    "/authorize",
    "/.well-known/jwks.json",
    "/.well-known/openid-configuration",
    "/.well-known/oauth-authorization-server",
    "/sso/saml/acs",
    "/sso/saml/metadata",
    "/health",
];

/// Opens the account service.
///
/// # Errors
/// When a setting is invalid; the text names it.
pub(super) fn open(
    settings: AuthSettings,
    mail: Arc<dyn Transport>,
    texts: Option<Arc<dyn TextTransport>>,
    foundation: &Foundation,
) -> anyhow::Result<Auth> {
    let Foundation { database, keys, clock } = foundation;
    let auth = Auth::new(settings, database.clone(), keys.clone(), mail, clock.clone())
        .context("the settings of [auth] cannot work")?;
    Ok(match texts {
        Some(texts) => auth.with_texts(texts),
        None => auth,
    })
}

/// Opens the account service of a command, on the database of a project. It sends no mail.
///
/// # Errors
/// When a setting is invalid; the text names it.
pub fn for_commands(project: &Project, settings: &Settings, database: &Database) -> anyhow::Result<Auth> {
    let mut own = self::settings(project.config());
    add(&mut own, &settings.auth);
    // The service issues no token, so any key does
    let keys = keys::development()?;
    Auth::without_deliveries(
        own,
        database.clone(),
        CurrentKeys::new(keys.ring, keys.api),
        mail::none(),
        Clock::system(),
    )
    .context("the settings of [auth] cannot work")
}

/// Returns the accounts of `[auth.users]`.
pub fn development_accounts(settings: &AccountSettings) -> Vec<AccountToAdd> {
    let account = |user: &DevelopmentUser| AccountToAdd {
        email: Some(user.email.clone()),
        phone: user.phone.clone(),
        password: user.password.clone(),
        confirmed: user.confirmed,
        user_metadata: user.user_metadata.clone(),
        app_metadata: user.app_metadata.clone(),
    };
    settings.users.iter().map(account).collect()
}

/// Returns the routes and the periodic work of the account service.
pub(super) fn service(auth: &Auth) -> Service {
    let cleaned = auth.clone();
    Service::new().mount("/auth/v1", auth.router(), access()).every(CLEAN_UP_PERIOD, move || {
        let auth = cleaned.clone();
        async move { auth.clean_up().await }
    })
}

/// Returns the rules for requests. The service limits bodies itself. Its responses are never
/// compressed: many hold tokens beside text that users chose (BREACH). Users of a third party have
/// no account.
fn access() -> Access {
    Access::keyed().body_limit(usize::MAX).except(OPEN_PATHS).own_tokens()
}

/// Returns the settings that the configuration describes, for a service at the configuration's own
/// addresses.
#[must_use]
pub fn settings(config: &Config) -> AuthSettings {
    let auth = &config.auth;
    let mut settings = AuthSettings {
        site_url: auth.site_url.clone(),
        external_url: auth.external_url.clone(),
        redirect_allow_list: auth.additional_redirect_urls.clone(),
        disable_signup: !auth.enable_signup,
        anonymous_users: auth.enable_anonymous_sign_ins,
        manual_linking: auth.enable_manual_linking,
        external: auth.external.iter().map(|(name, provider)| (name.clone(), external(provider))).collect(),
        captcha: auth.captcha.as_ref().map(|captcha| CaptchaSettings {
            provider: match captcha.provider {
                ConfiguredCaptcha::Hcaptcha => CaptchaProvider::HCaptcha,
                ConfiguredCaptcha::Turnstile => CaptchaProvider::Turnstile,
            },
            secret: captcha.secret.clone(),
            timeout: Duration::from_secs(10),
            verify_url: None,
        }),
        password_change_needs_reauthentication: auth.email.secure_password_change,
        ..AuthSettings::default()
    };
    // The web app of this server is always an allowed redirect target
    settings.redirect_allow_list.push(format!("{}/**", config.api.external_url));
    settings.jwt.expiry = Duration::from_secs(auth.jwt_expiry.into());
    settings.jwt.issuer.clone_from(&auth.jwt_issuer);
    settings.jwt.admin_roles = vec!["service_role".to_owned()];
    settings.password.min_length = auth.minimum_password_length.max(6) as usize;
    settings.password.required_characters = required_characters(auth.password_requirements);
    settings.refresh.rotation = auth.enable_refresh_token_rotation;
    settings.refresh.reuse_interval = Duration::from_secs(auth.refresh_token_reuse_interval.into());
    settings.web3.ethereum = auth.web3.ethereum;
    settings.web3.solana = auth.web3.solana;
    settings.hooks =
        HookPoint::ALL.iter().filter_map(|point| Some((*point, hook(auth.hook.get(point.key())?)))).collect();
    settings.third_party = auth.third_party.issuer.as_ref().map(|issuer| ThirdPartySettings {
        issuer: ThirdPartyIssuer { url: issuer.url.clone(), audience: issuer.audience.clone() },
        discovery_url: None,
    });
    settings.sessions.timebox = auth.sessions.timebox;
    settings.sessions.inactivity_timeout = auth.sessions.inactivity_timeout;
    settings.passkeys.enabled = auth.passkey.enabled;
    settings.relying_party = webauthn::relying_party(auth);
    email(&mut settings, config);
    sms(&mut settings, auth);
    factors(&mut settings, &auth.mfa);
    rate_limits(&mut settings, auth);
    settings
}

/// Replaces the addresses that the configuration does not set itself by those at `public_url`,
/// under which clients reach the server.
pub fn at_public_url(settings: &mut AuthSettings, config: &Config, public_url: &str) {
    let auth = &config.auth;
    // Without an application of its own, the web app at the public address is the site
    if !auth.has_site_url {
        settings.site_url = public_url.to_owned();
    }
    if !auth.has_external_url {
        settings.external_url = format!("{public_url}/auth/v1");
    }
    if !auth.has_jwt_issuer {
        settings.jwt.issuer.clone_from(&settings.external_url);
    }
    let callback = format!("{}/callback", settings.jwt.issuer);
    for (name, provider) in &auth.external {
        if let Some(known) = settings.external.get_mut(name)
            && !provider.has_redirect_uri
        {
            known.redirect_uri.clone_from(&callback);
        }
    }
    let own = format!("{}/**", config.api.external_url);
    settings.redirect_allow_list.retain(|pattern| *pattern != own);
    settings.redirect_allow_list.push(format!("{public_url}/**"));
}

/// Enables every notification that `config.toml` does not mention, if `portico.toml` says so.
pub fn enable_notifications(settings: &mut AuthSettings, config: &Config, own: &AccountSettings) {
    if own.email.notifications == Some(true) {
        let mentioned = &config.auth.email.notification;
        let others = MailKind::ALL.into_iter().filter(|kind| kind.is_notification());
        settings.email.notifications.extend(others.filter(|kind| !mentioned.contains_key(kind.config_name())));
    }
}

/// Adds the pages of the web app at `origin` that notifications link to, unless the settings name
/// others.
pub fn link_to_web_app(settings: &mut AuthSettings, origin: &str) {
    let email = &mut settings.email;
    email.security_page.get_or_insert_with(|| format!("{origin}/app/security"));
    email.recovery_page.get_or_insert_with(|| format!("{origin}/forgot-password"));
}

/// Puts the name and the colour of the product into its mails.
pub fn add_brand(settings: &mut AuthSettings, brand: &BrandSettings) {
    let email = &mut settings.email;
    email.brand_name.clone_from(&brand.name);
    email.brand_accent = brand.accent;
    if email.sender_name.is_empty() {
        email.sender_name.clone_from(&brand.name);
    }
}

/// Adds the settings of `portico.toml`; a setting that it does not mention keeps its value.
pub fn add(settings: &mut AuthSettings, own: &AccountSettings) {
    set(&mut settings.password_change_needs_current, own.require_current_password);
    set(&mut settings.create_email_identity_on_password_set, own.create_email_identity_on_password_set);
    set(&mut settings.flow_state_expiry, own.flow_state_expiry);
    set(&mut settings.oidc_cache_ttl, own.oidc_cache_ttl);
    set(&mut settings.http_timeout, own.http_timeout);
    set(&mut settings.max_request_duration, own.max_request_duration);
    if let Some(captcha) = &mut settings.captcha {
        set(&mut captcha.timeout, own.captcha_timeout);
    }
    set(&mut settings.audit_log_disabled, own.audit_log_disabled);
    set(&mut settings.sb_forwarded_for, own.sb_forwarded_for);
    settings.allowed_id_token_issuers.clone_from(&own.allowed_id_token_issuers);
    settings.external_redirect_url.clone_from(&own.external_redirect_url);
    settings.linking_domains.clone_from(&own.linking_domains);
    let (limits, rates) = (&mut settings.rate_limits, &own.rate_limits);
    limits.header.clone_from(&rates.header);
    if let Some(rate) = rates.emails {
        limits.emails = Some(send_limit(rate));
    }
    if let Some(rate) = rates.texts {
        limits.texts = Some(send_limit(rate));
    }
    set(&mut limits.passkeys, rates.passkeys);
    set(&mut settings.sms.otp_length, own.sms.otp_length.map(usize::from));
    set(&mut settings.sms.otp_expiry, own.sms.otp_expiry);
    settings.sms.test_otps_valid_until = own.sms.test_otp_valid_until;

    let (password, check) = (&mut settings.password, &own.password);
    set(&mut password.bcrypt_cost, check.bcrypt_cost.map(u32::from));
    let fail_closed = match check.breach_check {
        None | Some(BreachCheck::Off) => None,
        Some(answer) => Some(answer == BreachCheck::FailClosed),
    };
    password.breach_check = fail_closed.map(|fail_closed| {
        let mut breach = BreachCheckSettings { fail_closed, ..BreachCheckSettings::default() };
        set(&mut breach.url, check.breach_check_url.clone());
        breach
    });

    let sessions = &mut settings.sessions;
    set(&mut sessions.single_per_user, own.sessions.single_per_user);
    set(&mut sessions.tags, own.sessions.tags.clone());
    sessions.allow_low_aal = own.sessions.allow_low_aal;

    let (refresh, tokens) = (&mut settings.refresh, &own.refresh_tokens);
    // The service rejects larger numbers: it knows the range
    let small = |number: u16| u8::try_from(number).unwrap_or(u8::MAX);
    set(&mut refresh.algorithm_version, tokens.algorithm_version.map(small));
    set(&mut refresh.upgrade_percentage, tokens.upgrade_percentage.map(small));
    set(&mut refresh.allow_reuse, tokens.allow_reuse);

    let email = &mut settings.email;
    set(&mut email.magic_link_enabled, own.email.magic_link);
    email.security_page.clone_from(&own.email.security_page);
    email.recovery_page.clone_from(&own.email.recovery_page);
    set(&mut email.allow_unverified_sign_ins, own.email.allow_unverified_sign_ins);
    set(&mut email.authorized_addresses, own.email.authorized_addresses.clone());
    set(&mut email.extended_validation, own.email.extended_validation);
    set(&mut email.blocked_mail_servers, own.email.blocked_mail_servers.clone());
    set(&mut email.name_servers, own.email.name_servers.clone());
    set(&mut email.template_max_age, own.email.template_max_age);
    set(&mut email.template_retry, own.email.template_retry);
    set(&mut email.external_hosts, own.email.external_hosts.clone());
    email.headers.clone_from(&own.email.headers);
    let (links, paths) = (&mut email.url_paths, &own.email.link_paths);
    set(&mut links.invite, paths.invite.clone());
    set(&mut links.confirmation, paths.confirmation.clone());
    set(&mut links.recovery, paths.recovery.clone());
    set(&mut links.email_change, paths.email_change.clone());
    for (name, address) in &own.email.templates {
        if let Some(kind) = MailKind::from_key(name) {
            let template = email.templates.entry(kind).or_default();
            (template.body_file, template.body_url) = (None, Some(address.clone()));
        }
    }

    set(&mut settings.passkeys.max_per_user, own.passkey.max_per_user);
    set(&mut settings.passkeys.challenge_expiry, own.passkey.challenge_expiry);
    set(&mut settings.passkeys.require_user_verification, own.passkey.require_user_verification);

    set(&mut settings.custom_providers.enabled, own.custom_providers.enabled);
    settings.custom_providers.max_providers = own.custom_providers.max_providers.and_then(NonZeroU32::new);
    settings.custom_providers.external_url.clone_from(&own.custom_providers.external_url);
    settings.encryption.current.clone_from(&own.encryption.current);
    settings.encryption.keys.clone_from(&own.encryption.keys);
    if let Some(third_party) = &mut settings.third_party {
        third_party.discovery_url.clone_from(&own.third_party_discovery_url);
    }
}

fn send_limit(rate: SendRate) -> SendLimit {
    match rate.every {
        Some(every) => SendLimit::Bucket(rate.count, every),
        None => SendLimit::PerHour(rate.count),
    }
}

/// Replaces the default by the configured value, if there is one.
fn set<T>(setting: &mut T, configured: Option<T>) {
    if let Some(configured) = configured {
        *setting = configured;
    }
}

fn email(settings: &mut AuthSettings, config: &Config) {
    let email = &config.auth.email;
    let own = &mut settings.email;
    own.enabled = email.enable_signup;
    own.autoconfirm = !email.enable_confirmations;
    own.secure_change = email.double_confirm_changes;
    own.max_frequency = email.max_frequency;
    own.otp_length = email.otp_length as usize;
    own.otp_expiry = Duration::from_secs(email.otp_expiry.into());
    let inbucket = &config.inbucket;
    (own.sender_address, own.sender_name) = match &email.smtp {
        Some(smtp) => (smtp.admin_email.clone(), smtp.sender_name.clone().unwrap_or_default()),
        None => (inbucket.admin_email.clone(), inbucket.sender_name.clone()),
    };
    let mut templates = BTreeMap::new();
    for (name, template) in &email.template {
        if let Some(kind) = MailKind::from_key(name) {
            let texts = TemplateSettings {
                subject: template.subject.clone(),
                body_file: template.content_path.clone(),
                body_url: template.content_url.clone(),
                ..TemplateSettings::default()
            };
            templates.insert(kind, texts);
        }
    }
    for (name, notification) in &email.notification {
        if let Some(kind) = MailKind::from_key(name)
            && notification.enabled
        {
            let texts = TemplateSettings {
                subject: notification.subject.clone(),
                body_file: notification.content_path.clone(),
                body_url: notification.content_url.clone(),
                ..TemplateSettings::default()
            };
            templates.insert(kind, texts);
            own.notifications.push(kind);
        }
    }
    own.templates = templates;
}

fn sms(settings: &mut AuthSettings, auth: &AuthConfig) {
    let sms = &auth.sms;
    let own = &mut settings.sms;
    own.enabled = sms.enable_signup;
    own.autoconfirm = !sms.enable_confirmations;
    own.template.clone_from(&sms.template);
    own.provider = sms.provider.as_ref().map(texts::name).unwrap_or_default().to_owned();
    own.max_frequency = sms.max_frequency;
    own.otp_expiry = SMS_OTP_EXPIRY;
    own.test_otps = sms.test_otp.iter().map(|(phone, code)| (phone.clone(), code.clone())).collect();
}

fn factors(settings: &mut AuthSettings, mfa: &MfaConfig) {
    let own = &mut settings.factors;
    own.max_enrolled = mfa.max_enrolled_factors as usize;
    own.totp = factor_switches(mfa.totp);
    own.webauthn = factor_switches(mfa.web_authn);
    own.phone = PhoneFactorSettings {
        switches: factor_switches(mfa.phone.factor),
        otp_length: mfa.phone.otp_length as usize,
        template: mfa.phone.template.clone(),
        max_frequency: mfa.phone.max_frequency,
    };
}

fn factor_switches(factor: MfaFactor) -> FactorSwitches {
    FactorSwitches { enroll: factor.enroll_enabled, verify: factor.verify_enabled }
}

fn rate_limits(settings: &mut AuthSettings, auth: &AuthConfig) {
    let limits = &auth.rate_limit;
    let own = &mut settings.rate_limits;
    own.otp = limits.sign_in_sign_ups;
    own.token_refresh = limits.token_refresh;
    own.web3 = limits.web3;
    own.verify = limits.token_verifications;
    own.anonymous_users = limits.anonymous_users;
    own.emails = Some(SendLimit::PerHour(limits.email_sent));
    own.texts = Some(SendLimit::PerHour(limits.sms_sent));
}

fn hook(configured: &HookConfig) -> HookSettings {
    let secrets: Vec<&str> = configured.secrets.iter().map(|secret| secret.expose()).collect();
    HookSettings { uri: configured.uri.clone(), secrets: secrets.join("|").into() }
}

fn external(provider: &ExternalProvider) -> ProviderSettings {
    let ids = provider.client_id.as_deref().unwrap_or_default();
    ProviderSettings {
        enabled: provider.enabled,
        client_ids: ids.split(',').map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned).collect(),
        secret: provider.secret.clone().unwrap_or_else(|| "".into()),
        redirect_uri: provider.redirect_uri.clone(),
        url: provider.url.clone().unwrap_or_default(),
        skip_nonce_check: provider.skip_nonce_check,
        email_optional: provider.email_optional,
    }
}

fn required_characters(requirements: PasswordRequirements) -> Vec<String> {
    let sets: &[&str] = match requirements {
        PasswordRequirements::None => &[],
        PasswordRequirements::LettersDigits => {
            return vec![format!("{LOWER}{UPPER}"), DIGITS.to_owned()];
        }
        PasswordRequirements::LowerUpperLettersDigits => &[LOWER, UPPER, DIGITS],
        PasswordRequirements::LowerUpperLettersDigitsSymbols => &[LOWER, UPPER, DIGITS, SYMBOLS],
    };
    sets.iter().map(|set| (*set).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_is_not_configured_keeps_its_default() {
        let mut settings = AuthSettings::default();
        add(&mut settings, &AccountSettings::default());
        assert_eq!(format!("{settings:?}"), format!("{:?}", AuthSettings::default()));
    }

    #[test]
    fn every_notification_can_be_enabled_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("supabase")).expect("a folder");
        let text = "[auth.email.notification.phone_changed]\nenabled = false\n\
                    [auth.email.notification.passkey_added]\nenabled = true\n";
        std::fs::write(folder.path().join("supabase/config.toml"), text).expect("a file");
        let project = Project::load(portico_project::LoadOptions {
            workdir: Some(folder.path().to_owned()),
            environment: portico_project::Environment::default(),
            ..Default::default()
        })
        .expect("a project");
        let mut own = AccountSettings::default();
        let notifying = |own: &AccountSettings| {
            let mut settings = settings(project.config());
            enable_notifications(&mut settings, project.config(), own);
            MailKind::ALL.into_iter().filter(|kind| settings.notifies(*kind)).map(MailKind::config_name).collect()
        };
        let configured: Vec<&str> = notifying(&own);
        assert_eq!(configured, ["passkey_added"]);
        own.email.notifications = Some(true);
        let all: Vec<&str> = notifying(&own);
        assert_eq!(all.len(), MailKind::ALL.into_iter().filter(|kind| kind.is_notification()).count() - 1);
        assert!(!all.contains(&"phone_changed"));
    }

    #[test]
    fn notifications_link_to_the_web_app_unless_the_settings_name_other_pages() {
        let mut settings = AuthSettings::default();
        settings.email.recovery_page = Some("https://app.example/reset".into());
        link_to_web_app(&mut settings, "https://accounts.example");
        assert_eq!(settings.email.security_page.as_deref(), Some("https://accounts.example/app/security"));
        assert_eq!(settings.email.recovery_page.as_deref(), Some("https://app.example/reset"));
    }

    #[test]
    fn a_configured_setting_reaches_the_service() {
        let mut own = AccountSettings {
            require_current_password: Some(true),
            sb_forwarded_for: Some(true),
            ..AccountSettings::default()
        };
        own.rate_limits.header = Some("x-real-ip".into());
        own.rate_limits.emails = Some(SendRate { count: 5, every: Some(Duration::from_secs(60)) });
        own.rate_limits.texts = Some(SendRate { count: 6, every: None });
        own.sms.otp_length = Some(8);
        own.http_timeout = Some(Duration::from_secs(3));
        own.captcha_timeout = Some(Duration::from_secs(4));
        own.max_request_duration = Some(Duration::ZERO);
        own.email.name_servers = Some(vec![([192, 0, 2, 53], 53).into()]);
        own.email.link_paths.recovery = Some("https://app.example/reset".into());
        own.password.breach_check = Some(BreachCheck::FailClosed);
        own.password.breach_check_url = Some("https://mirror.example/range/".into());
        own.refresh_tokens.algorithm_version = Some(2);
        own.passkey.max_per_user = Some(3);
        own.passkey.challenge_expiry = Some(Duration::from_secs(60));
        own.passkey.require_user_verification = Some(true);
        own.rate_limits.passkeys = Some(7);
        own.email.headers = vec![("X-Kind".into(), "$messageType".into())];
        own.email.templates.insert("password_changed".into(), "/mails/changed.html".into());
        own.encryption.current = Some("k1".into());
        own.encryption.keys.insert("k1".into(), "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8".into());
        let captcha = CaptchaSettings {
            provider: CaptchaProvider::Turnstile,
            secret: "s".into(),
            timeout: Duration::from_secs(10),
            verify_url: None,
        };
        let mut settings = AuthSettings { captcha: Some(captcha), ..AuthSettings::default() };
        add(&mut settings, &own);
        assert_eq!(settings.captcha.as_ref().map(|captcha| captcha.timeout), own.captcha_timeout);
        assert_eq!((settings.http_timeout, settings.max_request_duration), (Duration::from_secs(3), Duration::ZERO));
        assert_eq!(settings.email.name_servers.len(), 1);
        assert!(settings.password_change_needs_current && settings.sb_forwarded_for);
        assert_eq!(settings.rate_limits.header.as_deref(), Some("x-real-ip"));
        assert_eq!(settings.rate_limits.emails, Some(SendLimit::Bucket(5, Duration::from_secs(60))));
        assert_eq!(settings.rate_limits.texts, Some(SendLimit::PerHour(6)));
        assert_eq!(settings.sms.otp_length, 8);
        assert_eq!(settings.email.url_paths.recovery, "https://app.example/reset");
        let breach = settings.password.breach_check.as_ref().expect("it is switched on");
        assert!(breach.fail_closed && breach.url == "https://mirror.example/range/");
        assert_eq!(settings.refresh.algorithm_version, 2);
        let passkeys = &settings.passkeys;
        assert_eq!((passkeys.max_per_user, passkeys.challenge_expiry), (3, Duration::from_secs(60)));
        assert!(passkeys.require_user_verification && settings.rate_limits.passkeys == 7);
        let url = settings.template_url(MailKind::PasswordChanged).expect("it is an address");
        assert_eq!(url.map(String::from).as_deref(), Some("http://127.0.0.1:3000/mails/changed.html"));
        assert_eq!(settings.encryption.current.as_deref(), Some("k1"));
        assert!(settings.validate().is_ok());
        own.refresh_tokens.algorithm_version = Some(300);
        add(&mut settings, &own);
        assert!(settings.validate().is_err());
    }
}
