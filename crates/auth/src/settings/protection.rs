//! What keeps strangers and machines out: captchas, limits, and the sealing of secrets.

use std::collections::BTreeMap;
use std::time::Duration;

use portico_base::Secret;

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
    /// Limit wrong passwords per account and per network.
    pub passwords: bool,
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

/// Master keys of sealed columns (auth-core 14.3). Default: everything is written in clear.
#[derive(Debug, Clone, Default)]
pub struct EncryptionSettings {
    /// Name of the key that seals what is written; `None`: nothing is sealed, but sealed values are still read.
    pub current: Option<String>,
    /// 32 bytes in base64url by name: every key under which a value may be sealed.
    pub keys: BTreeMap<String, Secret>,
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
            passwords: true,
            emails: Some(SendLimit::PerHour(30)),
            texts: Some(SendLimit::PerHour(30)),
        }
    }
}
