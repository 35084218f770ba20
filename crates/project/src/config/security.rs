//! Captcha, passkeys, sessions, hooks and multi-factor sign-in.

use std::collections::BTreeMap;
use std::time::Duration;

use portico_base::Secret;

use crate::section::Section;

/// `[auth.captcha]`, when enabled.
#[derive(Debug, Clone)]
pub struct CaptchaConfig {
    /// The provider that verifies.
    pub provider: CaptchaProviderName,
    /// The site's secret.
    pub secret: Secret,
}

/// `auth.captcha.provider`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptchaProviderName {
    /// hCaptcha
    Hcaptcha,
    /// Cloudflare Turnstile
    Turnstile,
}

impl CaptchaConfig {
    pub(crate) fn read(mut captcha: Section<'_, '_, '_>) -> Option<Self> {
        let enabled = captcha.flag_or("enabled", false);
        captcha.quiet_unless(enabled);
        let providers = [("hcaptcha", CaptchaProviderName::Hcaptcha), ("turnstile", CaptchaProviderName::Turnstile)];
        let provider = captcha.choice("provider", &providers);
        let secret = captcha.secret("secret");
        captcha.require("provider", provider.is_some());
        captcha.require("secret", secret.is_some());
        if !enabled {
            return None;
        }
        Some(Self { provider: provider?, secret: secret? })
    }
}

/// `[auth.passkey]`
#[derive(Debug, Clone)]
pub struct PasskeyConfig {
    /// True if passkeys are offered.
    pub enabled: bool,
}

pub(crate) fn passkey(mut passkey: Section<'_, '_, '_>) -> PasskeyConfig {
    PasskeyConfig { enabled: passkey.flag_or("enabled", false) }
}

/// `[auth.webauthn]`
#[derive(Debug, Clone)]
pub struct WebauthnConfig {
    /// The name for display.
    pub rp_display_name: String,
    /// The relying party's domain.
    pub rp_id: String,
    /// Origins that may use it.
    pub rp_origins: Vec<String>,
}

impl WebauthnConfig {
    pub(crate) fn read(mut webauthn: Section<'_, '_, '_>, is_used: bool) -> Option<Self> {
        webauthn.quiet_unless(is_used && webauthn.is_present());
        let rp_display_name = webauthn.text_or("rp_display_name", "");
        let rp_id = webauthn.text_or("rp_id", "");
        let rp_origins = webauthn.list_or("rp_origins", &[]);
        webauthn.require("rp_id", !rp_id.is_empty());
        webauthn.require("rp_origins", !rp_origins.is_empty());
        webauthn.is_present().then_some(Self { rp_display_name, rp_id, rp_origins })
    }
}

/// `[auth.sessions]`. Zero in the file means absent.
#[derive(Debug, Clone, Default)]
pub struct SessionsConfig {
    /// The longest lifetime of a session.
    pub timebox: Option<Duration>,
    /// The longest pause between two refreshes.
    pub inactivity_timeout: Option<Duration>,
}

impl SessionsConfig {
    pub(crate) fn read(mut sessions: Section<'_, '_, '_>) -> Self {
        Self {
            timebox: sessions.duration("timebox").filter(|limit| !limit.is_zero()),
            inactivity_timeout: sessions.duration("inactivity_timeout").filter(|limit| !limit.is_zero()),
        }
    }
}

/// `[auth.hook.<name>]`, when enabled.
#[derive(Debug, Clone)]
pub struct HookConfig {
    /// `http(s)://...` or `pg-functions://<db>/<schema>/<function>`.
    pub uri: String,
    /// Signing secrets of an HTTP hook, each `v1,whsec_<base64>`.
    pub secrets: Vec<Secret>,
}

const HOOKS: [&str; 7] = [
    "mfa_verification_attempt",
    "password_verification_attempt",
    "custom_access_token",
    "send_sms",
    "send_email",
    "before_user_created",
    "after_user_created",
];

pub(crate) fn hooks(mut hooks: Section<'_, '_, '_>) -> BTreeMap<String, HookConfig> {
    HOOKS.into_iter().filter_map(|name| Some((name.to_owned(), HookConfig::read(name, hooks.section(name))?))).collect()
}

impl HookConfig {
    fn read(name: &str, mut hook: Section<'_, '_, '_>) -> Option<Self> {
        let enabled = hook.flag_or("enabled", false);
        hook.quiet_unless(enabled);
        let uri = hook.text("uri").filter(|uri| !uri.is_empty());
        let secrets = hook.secret("secrets");
        hook.require("uri", uri.is_some());
        let uri = uri?;
        if hook.is_quiet() {
            return enabled.then(|| Self { uri, secrets: secrets.iter().flat_map(split_secrets).collect() });
        }
        let scheme = uri.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("http" | "https") => {
                hook.require("secrets", secrets.is_some());
                if secrets.as_ref().is_some_and(|secrets| !split_secrets(secrets).iter().all(is_hook_secret)) {
                    hook.fail(
                        "secrets",
                        format!(
                            "Invalid hook config: auth.hook.{name}.secrets must be formatted as \
                             \"v1,whsec_<base64_encoded_secret>\" with a minimum length of 32 characters."
                        ),
                    );
                }
            }
            Some("pg-functions") => {
                if secrets.is_some() {
                    hook.fail(
                        "secrets",
                        format!("Invalid hook config: auth.hook.{name}.secrets is unsupported for pg-functions URI"),
                    );
                }
            }
            _ => hook.fail(
                "uri",
                format!("Invalid hook config: auth.hook.{name}.uri should be a HTTP, HTTPS, or pg-functions URI"),
            ),
        }
        Some(Self { uri, secrets: secrets.iter().flat_map(split_secrets).collect() })
    }
}

fn split_secrets(secrets: &Secret) -> Vec<Secret> {
    secrets.expose().split('|').map(Secret::new).collect()
}

fn is_hook_secret(secret: &Secret) -> bool {
    secret.expose().strip_prefix("v1,whsec_").is_some_and(|encoded| {
        (32..=88).contains(&encoded.len())
            && encoded.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='))
    })
}

/// `[auth.mfa]`
#[derive(Debug, Clone)]
pub struct MfaConfig {
    /// The number of factors that a user may have.
    pub max_enrolled_factors: u32,
    /// `[auth.mfa.totp]`
    pub totp: MfaFactor,
    /// `[auth.mfa.phone]`
    pub phone: MfaPhone,
    /// `[auth.mfa.web_authn]`
    pub web_authn: MfaFactor,
}

/// The two switches of a kind of factor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MfaFactor {
    /// New factors may be added.
    pub enroll_enabled: bool,
    /// Existing factors may be used.
    pub verify_enabled: bool,
}

/// `[auth.mfa.phone]`
#[derive(Debug, Clone)]
pub struct MfaPhone {
    /// Its switches.
    pub factor: MfaFactor,
    /// Digits of a code.
    pub otp_length: u32,
    /// Text of the message.
    pub template: String,
    /// The pause between two messages to one number.
    pub max_frequency: Duration,
}

impl MfaConfig {
    pub(crate) fn read(mut mfa: Section<'_, '_, '_>) -> Self {
        let mut phone = mfa.section("phone");
        Self {
            max_enrolled_factors: mfa.number_or("max_enrolled_factors", 10),
            totp: MfaFactor::read("totp", &mut mfa.section("totp")),
            phone: MfaPhone {
                factor: MfaFactor::read("phone", &mut phone),
                otp_length: phone.number_or("otp_length", 6),
                template: phone.text_or("template", "Your code is {{ .Code }}"),
                max_frequency: phone.duration_or("max_frequency", Duration::from_secs(5)),
            },
            web_authn: MfaFactor::read("web_authn", &mut mfa.section("web_authn")),
        }
    }
}

impl MfaFactor {
    fn read(name: &str, factor: &mut Section<'_, '_, '_>) -> Self {
        let enroll_enabled = factor.flag_or("enroll_enabled", false);
        let verify_enabled = factor.flag_or("verify_enabled", false);
        if enroll_enabled && !verify_enabled && !factor.is_quiet() {
            factor.fail(
                "enroll_enabled",
                format!("Invalid MFA config: auth.mfa.{name}.enroll_enabled requires verify_enabled"),
            );
        }
        Self { enroll_enabled, verify_enabled }
    }
}
