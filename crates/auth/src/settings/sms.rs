//! The settings of accounts with a phone number, and of their text messages.

use std::collections::BTreeMap;
use std::time::Duration;

use time::OffsetDateTime;

/// The settings of accounts with a phone number.
#[derive(Debug, Clone)]
pub struct SmsSettings {
    /// Sign-up and sign-in by phone.
    pub enabled: bool,
    /// New numbers count as confirmed.
    pub autoconfirm: bool,
    /// Lifetime of codes.
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
    /// End of the fixed codes. `None`: they do not expire.
    pub test_otps_valid_until: Option<OffsetDateTime>,
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

impl SmsSettings {
    /// Returns the fixed code of a number that an application tests with.
    pub(crate) fn test_code(&self, phone: &str, now: OffsetDateTime) -> Option<&str> {
        if self.test_otps_valid_until.is_some_and(|until| now > until) {
            return None;
        }
        self.test_otps.get(phone).map(String::as_str).filter(|code| !code.is_empty())
    }
}
