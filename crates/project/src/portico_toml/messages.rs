//! `[auth]`: emails and text messages: the targets of links, the lifetime of codes, and rate
//! limits.

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::section::Section;
use crate::units;

/// `[auth.sms]`
#[derive(Debug, Clone, Default)]
pub struct SmsExtras {
    /// The digits of a code.
    pub otp_length: Option<u16>,
    /// The lifetime of a code.
    pub otp_expiry: Option<Duration>,
    /// The time until which the fixed codes of `[auth.sms.test_otp]` are valid.
    pub test_otp_valid_until: Option<OffsetDateTime>,
}

/// `[auth.email.link_paths]`: the targets of links in emails, as addresses or paths of the account
/// service's address.
#[derive(Debug, Clone, Default)]
pub struct LinkPaths {
    /// Invitations.
    pub invite: Option<String>,
    /// Confirmations.
    pub confirmation: Option<String>,
    /// Recovery and sign-in.
    pub recovery: Option<String>,
    /// Changes of the address.
    pub email_change: Option<String>,
}

/// `[auth.rate_limit]`
#[derive(Debug, Clone, Default)]
pub struct RateLimitExtras {
    /// The request header that identifies clients.
    pub header: Option<String>,
    /// Emails of the whole service.
    pub emails: Option<SendRate>,
    /// Text messages of the whole service.
    pub texts: Option<SendRate>,
    /// Sign-ins with a passkey, per five minutes and address.
    pub passkeys: Option<u32>,
}

/// A rate limit of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendRate {
    /// The number of messages at once.
    pub count: u32,
    /// The time after which one more is allowed; `None`: the same number again in the next hour.
    pub every: Option<Duration>,
}

impl SmsExtras {
    pub(super) fn read(mut sms: Section<'_, '_, '_>) -> Self {
        let until = sms.text("test_otp_valid_until").filter(|text| !text.is_empty()).and_then(|text| {
            let until = OffsetDateTime::parse(&text, &Rfc3339).ok();
            if until.is_none() {
                let key = sms.key("test_otp_valid_until");
                sms.fail("test_otp_valid_until", format!("{key}: expected a time such as \"2030-01-31T00:00:00Z\""));
            }
            until
        });
        Self {
            otp_length: sms.number("otp_length"),
            otp_expiry: sms.duration("otp_expiry"),
            test_otp_valid_until: until,
        }
    }
}

impl LinkPaths {
    pub(super) fn read(mut paths: Section<'_, '_, '_>) -> Self {
        let mut path = |name| paths.text(name).filter(|text| !text.is_empty());
        Self {
            invite: path("invite"),
            confirmation: path("confirmation"),
            recovery: path("recovery"),
            email_change: path("email_change"),
        }
    }
}

impl RateLimitExtras {
    pub(super) fn read(mut limits: Section<'_, '_, '_>) -> Self {
        let header = limits.text("header").filter(|text| !text.is_empty());
        let mut rate = |name| {
            let text = limits.text(name).filter(|text| !text.is_empty())?;
            let rate = SendRate::parse(&text);
            if rate.is_none() {
                let key = limits.key(name);
                limits.fail(name, format!("{key}: expected a number an hour, or one such as \"100/30s\": {text:?}"));
            }
            rate
        };
        Self { header, emails: rate("emails"), texts: rate("texts"), passkeys: limits.number("passkeys") }
    }
}

impl SendRate {
    /// Parses `100`, or `100/30s`: a hundred at once, and one more every thirty seconds.
    fn parse(text: &str) -> Option<Self> {
        let (count, every) = match text.split_once('/') {
            Some((count, every)) => {
                (count, Some(units::duration(every.trim()).filter(|every| *every >= Duration::from_millis(1))?))
            }
            None => (text, None),
        };
        Some(Self { count: count.trim().parse().ok()?, every })
    }
}
