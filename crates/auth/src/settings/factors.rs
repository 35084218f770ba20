//! The settings of second factors.

use std::time::Duration;

/// The settings of second factors.
#[derive(Debug, Clone)]
pub struct FactorSettings {
    /// The number of factors that a user may have, verified or not.
    pub max_enrolled: usize,
    /// The number of verified factors that a user may have.
    pub max_verified: usize,
    /// Authenticator apps.
    pub totp: FactorSwitches,
    /// Codes in text messages.
    pub phone: PhoneFactorSettings,
    /// Security keys.
    pub webauthn: FactorSwitches,
    /// Lifetime of a challenge. At least 300 s.
    pub challenge_expiry: Duration,
    /// The time after which the next enrolment deletes a factor that was neither verified nor
    /// challenged. At least 300 s.
    pub unverified_expiry: Duration,
}

/// The switches of a type of factor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FactorSwitches {
    /// New factors may be added.
    pub enroll: bool,
    /// Factors may be used.
    pub verify: bool,
}

/// The settings of codes in text messages as a second factor.
#[derive(Debug, Clone)]
pub struct PhoneFactorSettings {
    /// The switches.
    pub switches: FactorSwitches,
    /// Digits of a code, 6 to 10.
    pub otp_length: usize,
    /// Text; `{{ .Code }}` is the code.
    pub template: String,
    /// Least time between two messages of an account to one number.
    pub max_frequency: Duration,
}

impl Default for FactorSettings {
    fn default() -> Self {
        Self {
            max_enrolled: 10,
            max_verified: 10,
            totp: FactorSwitches { enroll: true, verify: true },
            phone: PhoneFactorSettings::default(),
            webauthn: FactorSwitches::default(),
            challenge_expiry: Duration::from_secs(300),
            unverified_expiry: Duration::from_secs(300),
        }
    }
}

impl Default for PhoneFactorSettings {
    fn default() -> Self {
        Self {
            switches: FactorSwitches::default(),
            otp_length: 6,
            template: "Your code is {{ .Code }}".into(),
            max_frequency: Duration::from_secs(60),
        }
    }
}
