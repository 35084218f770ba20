//! The settings of the account service that `config.toml` describes.

use std::collections::BTreeMap;
use std::time::Duration;

use portico_auth::settings::{
    AuthSettings, CaptchaProvider, CaptchaSettings, FactorSwitches, HookPoint, HookSettings, PhoneFactorSettings,
    ProviderSettings, SendLimit, TemplateSettings, ThirdPartySettings,
};
use portico_mail::MailKind;
use portico_project::{
    AuthConfig, CaptchaProviderName, Config, ExternalProvider, HookConfig, MfaConfig, MfaFactor, PasswordRequirements,
};
use portico_tokens::ThirdPartyIssuer;

use super::{text_messages, webauthn};

const LOWER: &str = "abcdefghijklmnopqrstuvwxyz";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const DIGITS: &str = "0123456789";
const SYMBOLS: &str = "!@#$%^&*()_+-=[]{};'\\:\"|<>?,./`~";
/// The lifetime of a text message's code. The format of `config.toml` fixes it.
const SMS_OTP_EXPIRY: Duration = Duration::from_secs(6000);

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
                CaptchaProviderName::Hcaptcha => CaptchaProvider::HCaptcha,
                CaptchaProviderName::Turnstile => CaptchaProvider::Turnstile,
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
        issuer: ThirdPartyIssuer {
            url: issuer.url.clone(),
            other_names: issuer.other_names.clone(),
            audience: issuer.audience.clone(),
        },
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
    own.provider = sms.provider.as_ref().map(text_messages::name).unwrap_or_default().to_owned();
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
