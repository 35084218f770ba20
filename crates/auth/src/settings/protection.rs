//! The settings of protection: captchas, rate limits, column encryption.

use std::collections::BTreeMap;
use std::time::Duration;

use portico_base::Secret;

/// The settings of captchas.
#[derive(Debug, Clone)]
pub struct CaptchaSettings {
    /// The captcha service.
    pub provider: CaptchaProvider,
    /// The secret of this server at the service.
    pub secret: Secret,
    /// Timeout of a verification.
    pub timeout: Duration,
    /// Replaces the URL of the service.
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

/// Rate limits.
#[derive(Debug, Clone)]
pub struct RateLimitSettings {
    /// Request header whose first value is the key of the limits per address. `None`: the client
    /// address that the gateway found, when `per_address` is set.
    pub header: Option<String>,
    /// Limit by client address when there is no header.
    pub per_address: bool,
    /// Sign-up, codes, links, recovery: per five minutes.
    pub otp: u32,
    /// `/token`: per five minutes.
    pub token_refresh: u32,
    /// `/token` for wallets: per five minutes.
    pub web3: u32,
    /// `/verify`: per five minutes.
    pub verify: u32,
    /// Challenges of second factors, and separately their verifications: per minute.
    pub factors: u32,
    /// Anonymous sign-ins per hour.
    pub anonymous_users: u32,
    /// Sign-ins with a passkey: per five minutes.
    pub passkeys: u32,
    /// Limit wrong passwords per account and per network.
    pub passwords: bool,
    /// Emails of the whole service. `None`: no limit.
    pub emails: Option<SendLimit>,
    /// Text messages of the whole service. `None`: no limit.
    pub texts: Option<SendLimit>,
}

/// A limit on messages of the whole service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendLimit {
    /// This many per fixed hour.
    PerHour(u32),
    /// A bucket of this size, refilled by one per duration.
    Bucket(u32, Duration),
}

/// The master keys of column encryption. Default: values are stored unencrypted.
#[derive(Debug, Clone, Default)]
pub struct EncryptionSettings {
    /// Name of the key for new values. `None`: they are stored unencrypted, but encrypted values
    /// are still read.
    pub current: Option<String>,
    /// 32 bytes in base64url by name: every key with which a value may be encrypted.
    pub keys: BTreeMap<String, Secret>,
}

impl Default for RateLimitSettings {
    fn default() -> Self {
        Self {
            header: None,
            per_address: false,
            otp: 30,
            token_refresh: 150,
            web3: 30,
            verify: 30,
            factors: 15,
            anonymous_users: 30,
            passkeys: 30,
            passwords: true,
            emails: Some(SendLimit::PerHour(30)),
            texts: Some(SendLimit::PerHour(30)),
        }
    }
}
