//! Rate limits on requests by client address, and on messages of the whole service, in the memory
//! of this process. Guesses at codes and passwords are counted in the database instead, see
//! `attempts`.
//!
//! Promises: a limit reads the monotonic clock itself when it is charged. No caller passes a time:
//! one that was read before a slow body arrived would let a bucket fill again and again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portico_base::Clock;
use portico_base::token_bucket::{Quota, TokenBucket, TokenBuckets, whole_seconds};

use crate::error::{AuthError, ContractError};
use crate::model::RequestInfo;
use crate::one_time::token::TokenKind;
use crate::settings::{RateLimitSettings, SendLimit};

/// Most addresses that are stored. Beyond it the fullest half is discarded, so that an address that
/// has used up its requests is kept.
const MAX_BUCKETS: usize = 50_000;
const FIVE_MINUTES: Duration = Duration::from_secs(300);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// The limits by client address. Each has buckets of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limiter {
    /// `POST /signup`
    SignUp,
    /// `POST /signup` of anonymous users
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
    /// `POST /token?grant_type=web3`
    Web3,
    /// `/verify`
    Verify,
    /// `GET /authorize` and `GET /user/identities/authorize`
    Authorize,
    /// `POST /factors/{id}/challenge`
    FactorChallenge,
    /// `POST /factors/{id}/verify` and `POST /factors/recovery-codes/verify`
    FactorVerify,
    /// `POST /passkeys/authentication/options`
    PasskeySignIn,
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
            Self::Web3 => "web3",
            Self::Verify => "verify",
            Self::Authorize => "authorize",
            Self::FactorChallenge => "factor-challenge",
            Self::FactorVerify => "factor-verify",
            Self::PasskeySignIn => "passkey-sign-in",
        }
    }

    /// Returns the number of requests at once, and the rate at which they are allowed again.
    fn quota(self, settings: &RateLimitSettings) -> Quota {
        let per_five_minutes = |count: u32| Quota::new(30.0, f64::from(count) / FIVE_MINUTES.as_secs_f64());
        match self {
            Self::Token => per_five_minutes(settings.token_refresh),
            Self::Web3 => per_five_minutes(settings.web3),
            Self::Verify => per_five_minutes(settings.verify),
            Self::FactorChallenge | Self::FactorVerify => Quota::new(30.0, f64::from(settings.factors) / 60.0),
            Self::PasskeySignIn => per_five_minutes(settings.passkeys),
            Self::Anonymous => Quota::full_after(f64::from(settings.anonymous_users), HOUR),
            _ => per_five_minutes(settings.otp),
        }
    }
}

/// All limits of the service.
pub struct AccountRateLimits {
    settings: RateLimitSettings,
    clock: Clock,
    buckets: TokenBuckets<(Limiter, String)>,
    /// The monotonic time at which an email of a kind to an address was last replaced by a decoy.
    decoys: Mutex<HashMap<(TokenKind, String), Duration>>,
    emails: Option<Mutex<SendBudget>>,
    texts: Option<Mutex<SendBudget>>,
    failures: FailedLoginBudget,
}

/// The budget of audit entries for failed sign-ins, per network and in total.
struct FailedLoginBudget {
    of_network: TokenBuckets<Option<String>>,
    of_all: Mutex<TokenBucket>,
    /// The failed sign-ins without an entry, since the last one with an entry.
    omitted: AtomicU64,
}

/// Entries for failed sign-ins from one network: 20 at once and 20 more per hour, so that one
/// network cannot use up all.
const FAILED_LOGINS_OF_NETWORK: Quota = Quota::full_after(20.0, HOUR);
/// Entries for failed sign-ins of the whole service: 500 at once and 120 more per hour, at most
/// about a megabyte per day.
const FAILED_LOGINS: Quota = Quota::new(500.0, 120.0 / 3600.0);

impl AccountRateLimits {
    /// Creates unused limits.
    pub fn new(settings: RateLimitSettings, clock: Clock) -> Self {
        Self {
            buckets: TokenBuckets::new(clock.clone(), MAX_BUCKETS),
            decoys: Mutex::default(),
            emails: settings.emails.map(|limit| Mutex::new(SendBudget::new(limit, &clock))),
            texts: settings.texts.map(|limit| Mutex::new(SendBudget::new(limit, &clock))),
            failures: FailedLoginBudget {
                of_network: TokenBuckets::new(clock.clone(), MAX_BUCKETS),
                of_all: Mutex::new(TokenBucket::full(FAILED_LOGINS, &clock)),
                omitted: AtomicU64::new(0),
            },
            settings,
            clock,
        }
    }

    /// Counts a request of the client address.
    ///
    /// # Errors
    /// 429 `over_request_rate_limit`.
    pub fn check(&self, limiter: Limiter, request: &RequestInfo) -> Result<(), AuthError> {
        let Some(address) = &request.limit_key else { return Ok(()) };
        let taken = self.buckets.take((limiter, address.clone()), limiter.quota(&self.settings), 1);
        taken.map_err(|wait| too_many_requests(limiter.name(), wait))
    }

    /// Counts an email.
    ///
    /// # Errors
    /// 429 `over_email_send_rate_limit`.
    pub fn take_email(&self) -> Result<(), AuthError> {
        let Some(emails) = &self.emails else { return Ok(()) };
        lock(emails).take(&self.clock).map_err(too_many_emails)
    }

    /// Like [`AccountRateLimits::take_email`], but for a decoy: the limit reveals no account, and
    /// invented addresses cannot use it up.
    ///
    /// # Errors
    /// 429 `over_email_send_rate_limit`.
    pub fn check_email(&self) -> Result<(), AuthError> {
        let Some(emails) = &self.emails else { return Ok(()) };
        lock(emails).clone().take(&self.clock).map_err(too_many_emails)
    }

    /// Checks the least time between two emails of a kind to one address, for an address that gets
    /// decoys instead.
    ///
    /// # Errors
    /// 429 `over_email_send_rate_limit`, as for an address that has an account.
    pub fn check_decoy_interval(&self, kind: TokenKind, address: &str, interval: Duration) -> Result<(), AuthError> {
        let mut decoys = lock(&self.decoys);
        let now = self.clock.monotonic();
        let key = (kind, address.to_owned());
        if let Some(next) = decoys.get(&key).map(|at| *at + interval).filter(|next| now < *next) {
            return Err(AuthError::too_soon(next - now, |seconds| ContractError::EmailTooSoon { seconds }));
        }
        if decoys.len() >= MAX_BUCKETS {
            decoys.retain(|_, at| now < *at + interval);
            if decoys.len() >= MAX_BUCKETS {
                decoys.clear();
            }
        }
        decoys.insert(key, now);
        Ok(())
    }

    /// Counts a text message.
    ///
    /// # Errors
    /// 429 `over_sms_send_rate_limit`.
    pub fn take_text(&self) -> Result<(), AuthError> {
        let Some(texts) = &self.texts else { return Ok(()) };
        lock(texts).take(&self.clock).map_err(|wait| AuthError::TooMany {
            error: ContractError::TooManyTexts,
            retry_after: whole_seconds(wait, DAY),
            limit: "texts-sent",
        })
    }

    /// Counts an audit entry for a failed sign-in. Returns the number of entries omitted before it.
    /// `None`: it is omitted.
    pub fn take_failed_login(&self, request: &RequestInfo) -> Option<u64> {
        let FailedLoginBudget { of_network, of_all, omitted } = &self.failures;
        let network = request.network_key().map(str::to_owned);
        let is_allowed =
            of_network.take(network, FAILED_LOGINS_OF_NETWORK, 1).is_ok() && lock(of_all).take(1, &self.clock).is_ok();
        if is_allowed {
            return Some(omitted.swap(0, Ordering::Relaxed));
        }
        omitted.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Returns true if the limit permits no email at all.
    pub fn blocks_all_email(&self) -> bool {
        matches!(self.settings.emails, Some(SendLimit::PerHour(0) | SendLimit::Bucket(0, _)))
    }
}

/// Returns the error of a request beyond a limit.
pub(crate) fn too_many_requests(limit: &'static str, wait: Duration) -> AuthError {
    AuthError::TooMany { error: ContractError::TooManyRequests, retry_after: whole_seconds(wait, HOUR), limit }
}

fn too_many_emails(wait: Duration) -> AuthError {
    AuthError::TooMany {
        error: ContractError::TooManyEmails,
        retry_after: whole_seconds(wait, DAY),
        limit: "emails-sent",
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves the state consistent: it is changed by single assignments
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The remaining messages of the whole service.
#[derive(Debug, Clone)]
enum SendBudget {
    /// Windows of an hour. `since`: the monotonic start of the window, which is its first message.
    PerHour {
        size: u32,
        left: u32,
        since: Option<Duration>,
    },
    Bucket(TokenBucket),
}

impl SendBudget {
    fn new(limit: SendLimit, clock: &Clock) -> Self {
        match limit {
            SendLimit::PerHour(size) => Self::PerHour { size, left: size, since: None },
            SendLimit::Bucket(size, every) => {
                let quota = Quota::new(f64::from(size), 1.0 / every.as_secs_f64().max(0.001));
                Self::Bucket(TokenBucket::full(quota, clock))
            }
        }
    }

    /// Counts a message, or returns the time until the next one is allowed.
    fn take(&mut self, clock: &Clock) -> Result<(), Duration> {
        match self {
            Self::Bucket(bucket) => bucket.take(1, clock),
            Self::PerHour { size, left, since } => {
                let now = clock.monotonic();
                if since.is_none_or(|since| now.saturating_sub(since) >= HOUR) {
                    (*since, *left) = (Some(now), *size);
                }
                let passed = now.saturating_sub(since.unwrap_or(now));
                *left = left.checked_sub(1).ok_or(HOUR.saturating_sub(passed))?;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    fn clock() -> Clock {
        Clock::movable(datetime!(2026-01-01 00:00 UTC))
    }

    fn advance(clock: &Clock, seconds: i64) {
        clock.advance(time::Duration::seconds(seconds));
    }

    #[test]
    fn mails_are_counted_by_the_hour_or_by_a_bucket() {
        let clock = clock();
        let mut hourly = SendBudget::new(SendLimit::PerHour(2), &clock);
        assert!(hourly.take(&clock).is_ok());
        advance(&clock, 60);
        assert!(hourly.take(&clock).is_ok());
        assert_eq!(hourly.take(&clock), Err(Duration::from_secs(3540)));
        advance(&clock, -1800);
        assert_eq!(hourly.take(&clock), Err(Duration::from_secs(3540)), "time does not run backwards");
        advance(&clock, 1800 + 3540);
        assert!(hourly.take(&clock).is_ok());

        let mut bucket = SendBudget::new(SendLimit::Bucket(1, Duration::from_secs(30)), &clock);
        assert!(bucket.take(&clock).is_ok());
        advance(&clock, 10);
        assert_eq!(bucket.take(&clock).map_err(|wait| whole_seconds(wait, DAY)), Err(Duration::from_secs(20)));
        advance(&clock, 20);
        assert!(bucket.take(&clock).is_ok());

        assert_eq!(SendBudget::new(SendLimit::PerHour(0), &clock).take(&clock), Err(HOUR));
        assert!(SendBudget::new(SendLimit::Bucket(0, HOUR), &clock).take(&clock).is_err());
    }

    #[test]
    fn decoy_mails_have_an_interval() {
        let clock = clock();
        let limits = AccountRateLimits::new(RateLimitSettings::default(), clock.clone());
        let pretend = |kind| limits.check_decoy_interval(kind, "ada@example.com", Duration::from_secs(60));
        let wait = || match pretend(TokenKind::Recovery) {
            Err(AuthError::TooMany { retry_after, .. }) => retry_after.as_secs(),
            _ => 0,
        };
        assert!(pretend(TokenKind::Recovery).is_ok());
        advance(&clock, 1);
        assert!(pretend(TokenKind::Confirmation).is_ok());
        advance(&clock, 6);
        assert_eq!(wait(), 53);
        advance(&clock, -3600);
        assert_eq!(wait(), 53, "time does not run backwards");
        advance(&clock, 3600 + 53);
        assert_eq!(wait(), 0);
    }
}
