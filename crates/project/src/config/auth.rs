//! `[auth]`: sign-in, tokens and keys.

use std::collections::BTreeMap;
use std::path::PathBuf;

use portico_base::Secret;
use portico_tokens::development;

use super::api::ApiConfig;
use super::email::EmailConfig;
use super::external::{self, ExternalProvider, OauthServerConfig, ThirdPartyConfig, Web3Config};
use super::folders::{Folders, absolute};
use super::security::{self, CaptchaConfig, HookConfig, MfaConfig, PasskeyConfig, SessionsConfig, WebauthnConfig};
use super::sms::SmsConfig;
use crate::section::Section;

/// `[auth]`
#[derive(Debug, Clone)]
pub struct AuthConfig {
    /// True if the account service runs.
    pub enabled: bool,
    /// The default redirect target.
    pub site_url: String,
    /// True if [`site_url`](Self::site_url) is written, false if it is the default of a developer's
    /// machine.
    pub has_site_url: bool,
    /// The base of links in emails and of OAuth callbacks: normally `<api.external_url>/auth/v1`.
    pub external_url: String,
    /// True if [`external_url`](Self::external_url) is written, false if it is derived.
    pub has_external_url: bool,
    /// Further allowed redirect targets (globs).
    pub additional_redirect_urls: Vec<String>,
    /// The lifetime of an access token in seconds.
    pub jwt_expiry: u32,
    /// Claim `iss`: normally [`external_url`](Self::external_url).
    pub jwt_issuer: String,
    /// True if [`jwt_issuer`](Self::jwt_issuer) is written, false if it is derived.
    pub has_jwt_issuer: bool,
    /// File with an array of private JWKs that replaces the built-in signing key.
    pub signing_keys_path: Option<PathBuf>,
    /// The HS256 secret, if written. The development one:
    /// [`jwt_secret_or_development`](Self::jwt_secret_or_development).
    pub jwt_secret: Option<Secret>,
    /// The legacy key of anonymous callers, if written; else it is made from the secret.
    pub anon_key: Option<Secret>,
    /// The legacy key of the service, if written; else it is made from the secret.
    pub service_role_key: Option<Secret>,
    /// The key of anonymous callers, if written.
    pub publishable_key: Option<Secret>,
    /// The key of the service, if written.
    pub secret_key: Option<Secret>,
    /// True if a refresh token is replaced when it is used.
    pub enable_refresh_token_rotation: bool,
    /// Seconds in which a used refresh token may be presented again.
    pub refresh_token_reuse_interval: u32,
    /// True if sign-ups are allowed.
    pub enable_signup: bool,
    /// True if anonymous sign-ins are allowed.
    pub enable_anonymous_sign_ins: bool,
    /// True if users may link identities themselves.
    pub enable_manual_linking: bool,
    /// The shortest password, in characters.
    pub minimum_password_length: u32,
    /// The required characters of a password.
    pub password_requirements: PasswordRequirements,
    /// `[auth.rate_limit]`
    pub rate_limit: RateLimits,
    /// `[auth.captcha]`
    pub captcha: Option<CaptchaConfig>,
    /// `[auth.passkey]`
    pub passkey: PasskeyConfig,
    /// `[auth.webauthn]`
    pub webauthn: Option<WebauthnConfig>,
    /// `[auth.email]`
    pub email: EmailConfig,
    /// `[auth.sms]`
    pub sms: SmsConfig,
    /// `[auth.sessions]`
    pub sessions: SessionsConfig,
    /// `[auth.hook.<name>]`: the enabled ones.
    pub hook: BTreeMap<String, HookConfig>,
    /// `[auth.mfa]`
    pub mfa: MfaConfig,
    /// `[auth.external.<provider>]`, by lower-case name; including disabled ones.
    pub external: BTreeMap<String, ExternalProvider>,
    /// `[auth.web3]`
    pub web3: Web3Config,
    /// `[auth.oauth_server]`
    pub oauth_server: OauthServerConfig,
    /// `[auth.third_party]`
    pub third_party: ThirdPartyConfig,
}

/// `auth.password_requirements`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PasswordRequirements {
    /// Nothing beyond the length.
    #[default]
    None,
    /// A letter of either case and a digit.
    LettersDigits,
    /// A lower-case letter, an upper-case letter and a digit.
    LowerUpperLettersDigits,
    /// Those and a symbol.
    LowerUpperLettersDigitsSymbols,
}

/// `[auth.rate_limit]`
#[derive(Debug, Clone)]
pub struct RateLimits {
    /// Emails per hour; only applied when `auth.email.smtp` is enabled.
    pub email_sent: u32,
    /// Text messages per hour.
    pub sms_sent: u32,
    /// Anonymous sign-ins per hour and address.
    pub anonymous_users: u32,
    /// Refreshes per five minutes and address.
    pub token_refresh: u32,
    /// Sign-ins and sign-ups per five minutes and address.
    pub sign_in_sign_ups: u32,
    /// Verifications per five minutes and address.
    pub token_verifications: u32,
    /// Web3 sign-ins per five minutes and address.
    pub web3: u32,
}

/// The shortest HS256 secret that is accepted.
const SHORTEST_SECRET: usize = 16;

impl AuthConfig {
    pub(crate) fn read(mut auth: Section<'_, '_, '_>, api: &ApiConfig, folders: &Folders<'_>) -> Self {
        let enabled = auth.flag_or("enabled", true);
        auth.quiet_unless(enabled);

        let written_site = auth.text("site_url");
        if let Some(site_url) = &written_site {
            auth.require("site_url", !site_url.is_empty());
        }
        let written_site = written_site.filter(|url| !url.is_empty());
        let has_site_url = written_site.is_some();
        let written_url = auth.text("external_url").filter(|url| !url.is_empty());
        let has_external_url = written_url.is_some();
        let external_url = match written_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("{}/auth/v1", api.external_url),
        };
        let written_issuer = auth.text("jwt_issuer").filter(|issuer| !issuer.is_empty());
        let has_jwt_issuer = written_issuer.is_some();
        let jwt_issuer = written_issuer.unwrap_or_else(|| external_url.clone());

        let jwt_secret = auth.secret("jwt_secret");
        if jwt_secret.as_ref().is_some_and(|secret| secret.expose().len() < SHORTEST_SECRET) {
            auth.fail("jwt_secret", "Invalid config for auth.jwt_secret. Must be at least 16 characters");
        }
        let passkey = security::passkey(auth.section("passkey"));
        let webauthn = WebauthnConfig::read(auth.section("webauthn"), passkey.enabled);
        let requirements = [
            ("", PasswordRequirements::None),
            ("letters_digits", PasswordRequirements::LettersDigits),
            ("lower_upper_letters_digits", PasswordRequirements::LowerUpperLettersDigits),
            ("lower_upper_letters_digits_symbols", PasswordRequirements::LowerUpperLettersDigitsSymbols),
        ];
        Self {
            enabled,
            site_url: written_site.unwrap_or_else(|| "http://127.0.0.1:3000".to_owned()),
            has_site_url,
            has_external_url,
            additional_redirect_urls: auth.list_or("additional_redirect_urls", &["https://127.0.0.1:3000"]),
            jwt_expiry: auth.number_or("jwt_expiry", 3600),
            has_jwt_issuer,
            signing_keys_path: auth.path("signing_keys_path").map(|path| absolute(&folders.supabase, path)),
            jwt_secret,
            anon_key: auth.secret("anon_key"),
            service_role_key: auth.secret("service_role_key"),
            publishable_key: auth.secret("publishable_key"),
            secret_key: auth.secret("secret_key"),
            enable_refresh_token_rotation: auth.flag_or("enable_refresh_token_rotation", true),
            refresh_token_reuse_interval: auth.number_or("refresh_token_reuse_interval", 10),
            enable_signup: auth.flag_or("enable_signup", true),
            enable_anonymous_sign_ins: auth.flag_or("enable_anonymous_sign_ins", false),
            enable_manual_linking: auth.flag_or("enable_manual_linking", false),
            minimum_password_length: auth.number_or("minimum_password_length", 6),
            password_requirements: auth.choice("password_requirements", &requirements).unwrap_or_default(),
            rate_limit: RateLimits::read(auth.section("rate_limit")),
            captcha: CaptchaConfig::read(auth.section("captcha")),
            passkey,
            webauthn,
            email: EmailConfig::read(auth.section("email"), folders),
            sms: SmsConfig::read(auth.section("sms")),
            sessions: SessionsConfig::read(auth.section("sessions")),
            hook: security::hooks(auth.section("hook")),
            mfa: MfaConfig::read(auth.section("mfa")),
            external: external::providers(auth.section("external"), &jwt_issuer),
            web3: Web3Config::read(auth.section("web3")),
            oauth_server: OauthServerConfig::read(auth.section("oauth_server")),
            third_party: ThirdPartyConfig::read(auth.section("third_party")),
            external_url,
            jwt_issuer,
        }
    }

    /// Returns the HS256 secret, or the published development one if none is written.
    pub fn jwt_secret_or_development(&self) -> Secret {
        self.jwt_secret.clone().unwrap_or_else(|| Secret::new(development::JWT_SECRET))
    }
}

impl RateLimits {
    fn read(mut limits: Section<'_, '_, '_>) -> Self {
        Self {
            email_sent: limits.number_or("email_sent", 2),
            sms_sent: limits.number_or("sms_sent", 30),
            anonymous_users: limits.number_or("anonymous_users", 30),
            token_refresh: limits.number_or("token_refresh", 150),
            sign_in_sign_ups: limits.number_or("sign_in_sign_ups", 30),
            token_verifications: limits.number_or("token_verifications", 30),
            web3: limits.number_or("web3", 30),
        }
    }
}
