//! The settings of the account service that `portico.toml` adds.

use std::num::NonZeroU32;

use portico_auth::settings::{AuthSettings, BreachCheckSettings, SendLimit};
use portico_mail::MailKind;
use portico_project::Config;
use portico_project::portico_toml::{AccountSettings, BrandSettings, BreachCheckMode, SendRate};

/// Enables every notification that `config.toml` does not mention, if `portico.toml` says so.
pub fn enable_notifications(settings: &mut AuthSettings, config: &Config, own: &AccountSettings) {
    if own.email.notifications == Some(true) {
        let mentioned = &config.auth.email.notification;
        let others = MailKind::ALL.into_iter().filter(|kind| kind.is_notification());
        settings.email.notifications.extend(others.filter(|kind| !mentioned.contains_key(kind.config_name())));
    }
}

/// Puts the name and the colour of the product into its emails.
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
    set(&mut settings.cursor_pagination, own.cursor_pagination);
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
    set(&mut settings.private_hook_addresses, own.hook.private_addresses);
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
        None | Some(BreachCheckMode::Off) => None,
        Some(answer) => Some(answer == BreachCheckMode::FailClosed),
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
    email.sign_in_page.clone_from(&own.email.sign_in_page);
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
        third_party.issuer.other_names.extend(own.third_party_issuer_names.iter().cloned());
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use portico_auth::settings::{CaptchaProvider, CaptchaSettings};
    use portico_project::Project;

    use super::*;
    use crate::compose::auth::settings;

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
        own.password.breach_check = Some(BreachCheckMode::FailClosed);
        own.password.breach_check_url = Some("https://mirror.example/range/".into());
        own.refresh_tokens.algorithm_version = Some(2);
        own.passkey.max_per_user = Some(3);
        own.hook.private_addresses = Some(true);
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
        assert!(settings.private_hook_addresses);
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
