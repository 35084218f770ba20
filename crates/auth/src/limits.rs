//! How often things may be asked for (auth-core 18): buckets by client address, and limits on messages of the whole
//! service. In the memory of this process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;

use crate::error::{AuthError, ErrorCode};
use crate::extract::RequestInfo;
use crate::settings::{RateLimitSettings, SendLimit};

/// Addresses remembered at most. Beyond it those that have waited longest are forgotten.
const MAX_BUCKETS: usize = 50_000;
const FIVE_MINUTES: f64 = 300.0;
/// Codes that may be tried for one account in five minutes.
const CODES: f64 = 30.0;
const HOUR: f64 = 3600.0;
/// One token, but for what adding fractions loses.
const ONE: f64 = 1.0 - 1e-9;

/// What is limited by client address; each has buckets of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limiter {
    /// `POST /signup`
    SignUp,
    /// `POST /signup` without a name
    Anonymous,
    /// `POST /otp`
    Otp,
    /// `POST /magiclink`
    MagicLink,
    /// `POST /recover`
    Recover,
    /// `POST /resend`
    Resend,
    /// `PUT /user`
    UpdateUser,
    /// `POST /token`
    Token,
    /// `/verify`
    Verify,
    /// Codes typed for one account
    Code,
}

impl Limiter {
    const fn name(self) -> &'static str {
        match self {
            Self::SignUp => "signup",
            Self::Anonymous => "anonymous-signup",
            Self::Otp => "otp",
            Self::MagicLink => "magiclink",
            Self::Recover => "recover",
            Self::Resend => "resend",
            Self::UpdateUser => "update-user",
            Self::Token => "token",
            Self::Verify => "verify",
            Self::Code => "codes-per-account",
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: OffsetDateTime,
}

/// All limits of the service.
pub struct Limits {
    settings: RateLimitSettings,
    buckets: Mutex<HashMap<(Limiter, String), Bucket>>,
    emails: Mutex<Option<Sends>>,
    texts: Mutex<Option<Sends>>,
}

/// Where a limit on messages stands.
#[derive(Debug, Clone, Copy)]
struct Sends {
    since: OffsetDateTime,
    left: f64,
}

impl Limits {
    /// Nothing was asked for yet.
    pub fn new(settings: RateLimitSettings) -> Self {
        Self { settings, buckets: Mutex::default(), emails: Mutex::default(), texts: Mutex::default() }
    }

    /// Counts a request of this address.
    ///
    /// # Errors
    /// 429 `over_request_rate_limit`.
    pub fn check(&self, limiter: Limiter, request: &RequestInfo) -> Result<(), AuthError> {
        let Some(key) = &request.limit_key else { return Ok(()) };
        let limits = &self.settings;
        let (size, per_second) = match limiter {
            Limiter::Token => (30.0, f64::from(limits.token_refresh) / FIVE_MINUTES),
            Limiter::Verify => (30.0, f64::from(limits.verify) / FIVE_MINUTES),
            Limiter::Anonymous => (f64::from(limits.anonymous_users), f64::from(limits.anonymous_users) / HOUR),
            _ => (30.0, f64::from(limits.otp) / FIVE_MINUTES),
        };
        self.count(limiter, key.clone(), size, per_second, request.now)
    }

    /// Counts a code that is tried for an e-mail address or number, wherever it is tried from. A code has a million values
    /// and lives for an hour: without this limit, many machines together would find it.
    ///
    /// # Errors
    /// 429 `over_request_rate_limit`.
    pub fn check_code(&self, address: &str, now: OffsetDateTime) -> Result<(), AuthError> {
        self.count(Limiter::Code, address.to_owned(), CODES, CODES / FIVE_MINUTES, now)
    }

    fn count(
        &self,
        limiter: Limiter,
        key: String,
        size: f64,
        per_second: f64,
        now: OffsetDateTime,
    ) -> Result<(), AuthError> {
        match self.take((limiter, key), size, per_second, now) {
            None => Ok(()),
            Some(retry_after) => Err(AuthError::TooMany {
                code: ErrorCode::OverRequestRateLimit,
                message: "Request rate limit reached".into(),
                retry_after,
                limit: limiter.name(),
            }),
        }
    }

    fn take(&self, key: (Limiter, String), size: f64, per_second: f64, now: OffsetDateTime) -> Option<Duration> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_BUCKETS && !buckets.contains_key(&key) {
            // A bucket that nobody touched for an hour is full again, or nearly so
            buckets.retain(|_, bucket| (now - bucket.at).as_seconds_f64() < HOUR);
            if buckets.len() >= MAX_BUCKETS {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(key).or_insert(Bucket { tokens: size, at: now });
        let passed = (now - bucket.at).as_seconds_f64().max(0.0);
        bucket.tokens = (bucket.tokens + passed * per_second).min(size);
        bucket.at = now;
        if bucket.tokens >= ONE {
            bucket.tokens -= 1.0;
            return None;
        }
        let seconds = if per_second > 0.0 { (1.0 - bucket.tokens) / per_second } else { HOUR };
        Some(whole_seconds(seconds, HOUR))
    }

    /// Counts a mail.
    ///
    /// # Errors
    /// 429 `over_email_send_rate_limit`.
    pub fn take_email(&self, now: OffsetDateTime) -> Result<(), AuthError> {
        send(&self.emails, self.settings.emails, now).map_err(|retry_after| AuthError::TooMany {
            code: ErrorCode::OverEmailSendRateLimit,
            message: "email rate limit exceeded".into(),
            retry_after,
            limit: "emails-sent",
        })
    }

    /// Counts a text message.
    ///
    /// # Errors
    /// 429 `over_sms_send_rate_limit`.
    pub fn take_text(&self, now: OffsetDateTime) -> Result<(), AuthError> {
        send(&self.texts, self.settings.texts, now).map_err(|retry_after| AuthError::TooMany {
            code: ErrorCode::OverSmsSendRateLimit,
            message: "SMS rate limit exceeded".into(),
            retry_after,
            limit: "texts-sent",
        })
    }

    /// Whether mail is turned off altogether.
    pub fn blocks_all_email(&self) -> bool {
        matches!(self.settings.emails, Some(SendLimit::PerHour(0) | SendLimit::Bucket(0, _)))
    }
}

/// Rounded up, but for what adding fractions gains.
fn whole_seconds(seconds: f64, most: f64) -> Duration {
    Duration::from_secs_f64((seconds - 1e-6).ceil().clamp(1.0, most))
}

fn send(state: &Mutex<Option<Sends>>, limit: Option<SendLimit>, now: OffsetDateTime) -> Result<(), Duration> {
    let Some(limit) = limit else { return Ok(()) };
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let size = match limit {
        SendLimit::PerHour(size) | SendLimit::Bucket(size, _) => f64::from(size),
    };
    let sends = state.get_or_insert(Sends { since: now, left: size });
    let passed = (now - sends.since).as_seconds_f64().max(0.0);
    let wait = match limit {
        SendLimit::PerHour(_) => {
            if passed >= HOUR {
                *sends = Sends { since: now, left: size };
            }
            HOUR - (now - sends.since).as_seconds_f64().max(0.0)
        }
        SendLimit::Bucket(_, every) => {
            let every = every.as_secs_f64().max(0.001);
            sends.left = (sends.left + passed / every).min(size);
            sends.since = now;
            (1.0 - sends.left) * every
        }
    };
    if sends.left >= ONE {
        sends.left -= 1.0;
        return Ok(());
    }
    Err(whole_seconds(wait, 86_400.0))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const START: OffsetDateTime = datetime!(2026-01-01 00:00 UTC);

    #[test]
    fn a_bucket_refills_with_time() {
        let limits = Limits::new(RateLimitSettings::default());
        let key = || (Limiter::Otp, "192.0.2.1".to_owned());
        for _ in 0..30 {
            assert_eq!(limits.take(key(), 30.0, 0.1, START), None);
        }
        assert_eq!(limits.take(key(), 30.0, 0.1, START), Some(Duration::from_secs(10)));
        assert_eq!(limits.take((Limiter::Verify, "192.0.2.1".into()), 30.0, 0.1, START), None);
        assert_eq!(limits.take(key(), 30.0, 0.1, START + Duration::from_secs(10)), None);
        assert!(limits.take(key(), 30.0, 0.1, START + Duration::from_secs(10)).is_some());
    }

    #[test]
    fn mails_are_counted_by_the_hour_or_by_a_bucket() {
        let state = Mutex::default();
        let hourly = Some(SendLimit::PerHour(2));
        assert!(send(&state, hourly, START).is_ok());
        assert!(send(&state, hourly, START + Duration::from_secs(60)).is_ok());
        assert_eq!(send(&state, hourly, START + Duration::from_secs(60)), Err(Duration::from_secs(3540)));
        assert!(send(&state, hourly, START + Duration::from_secs(3600)).is_ok());

        let state = Mutex::default();
        let bucket = Some(SendLimit::Bucket(1, Duration::from_secs(30)));
        assert!(send(&state, bucket, START).is_ok());
        assert_eq!(send(&state, bucket, START + Duration::from_secs(10)), Err(Duration::from_secs(20)));
        assert!(send(&state, bucket, START + Duration::from_secs(30)).is_ok());

        let state = Mutex::default();
        assert!(send(&state, Some(SendLimit::PerHour(0)), START).is_err());
        assert!(send(&state, None, START).is_ok());
    }
}
