//! How often things may be asked for (auth-core 18): buckets by client address, and limits on messages of the whole
//! service. In the memory of this process; `codes` keeps wrong codes across restarts.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use portico_tokens::hash;
use time::OffsetDateTime;

use crate::error::{AuthError, ErrorCode};
use crate::extract::RequestInfo;
use crate::one_time_token::Kind;
use crate::settings::{RateLimitSettings, SendLimit};
use crate::sql::wrong_codes::{Used, Wrong};

/// Addresses remembered at most, of each of the two kinds of buckets. Beyond it the fullest half is forgotten: those who used
/// up their requests are remembered whoever else comes.
pub(crate) const MAX_BUCKETS: usize = 50_000;
const FIVE_MINUTES: f64 = 300.0;
const HOUR: f64 = 3600.0;
const DAY: f64 = 86_400.0;

/// Wrong codes that may be typed at once, and how long that many take to be allowed again.
///
/// A code has six digits and lives for an hour, but another one can be asked for at any time, so what counts is how
/// many guesses a day allows: each finds the code with a chance of one in a million.
///
/// - One client address tries 10 codes of an account at once and 10 more an hour: whoever mistypes is not kept waiting,
///   and a stranger with one address uses up a fifth of what the account allows.
/// - All addresses together try 50 at once and 50 more an hour: five strangers have to work together to keep the person
///   from typing a code, for as long as they go on. Links are never counted, so the mail still lets the person in.
/// - And 100 at once and 100 more a day: any 24 hours hold at most 200 guesses, one chance in 5000; somebody who goes on
///   for a whole year, mailing the person all the time, has one in 27. Five minutes of 30, without a cap, were 8640
///   guesses a day: one in 116 each day, and nearly sure within the year.
///
/// A right code is given back: who signs in often is never limited.
const CODES: [(Limiter, f64, f64); 3] =
    [(Limiter::CodeOfAddress, 10.0, HOUR), (Limiter::CodeOfAccount, 50.0, HOUR), (Limiter::CodeOfDay, 100.0, DAY)];
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
    /// `GET /authorize` and `GET /user/identities/authorize`
    Authorize,
    /// Codes typed for one account at one client address
    CodeOfAddress,
    /// Codes typed for one account
    CodeOfAccount,
    /// Codes typed for one account, in the long run
    CodeOfDay,
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
            Self::Authorize => "authorize",
            Self::CodeOfAddress => "codes-per-address",
            Self::CodeOfAccount => "codes-per-account",
            Self::CodeOfDay => "codes-per-day",
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: OffsetDateTime,
    size: f64,
    per_second: f64,
}

impl Bucket {
    /// What is in it now.
    fn tokens_at(&self, now: OffsetDateTime) -> f64 {
        let passed = (now - self.at).as_seconds_f64().max(0.0);
        (self.tokens + passed * self.per_second).min(self.size)
    }

    /// How full it is; a full one says nothing.
    fn fullness(&self, now: OffsetDateTime) -> f64 {
        if self.size > 0.0 { self.tokens_at(now) / self.size } else { 0.0 }
    }
}

type Buckets = HashMap<(Limiter, String), Bucket>;

/// All limits of the service.
pub struct Limits {
    settings: RateLimitSettings,
    buckets: Mutex<Buckets>,
    /// Apart from the others, which many machines could push out.
    codes: Mutex<Buckets>,
    /// When a mail was last pretended to an address.
    pretended: Mutex<HashMap<(Kind, String), OffsetDateTime>>,
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
        Self {
            settings,
            buckets: Mutex::default(),
            codes: Mutex::default(),
            pretended: Mutex::default(),
            emails: Mutex::default(),
            texts: Mutex::default(),
        }
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

    /// Counts a code that is tried for an e-mail address or number: see [`CODES`]. Counted before it is compared, so that
    /// tries at the same time count as well; [`Limits::code_was_right`] takes it back.
    ///
    /// # Errors
    /// 429 `over_request_rate_limit`.
    pub fn check_code(&self, account: &str, request: &RequestInfo) -> Result<(), AuthError> {
        for (limiter, size, period) in CODES {
            let key = hex::encode(digest(&code_key(limiter, account, request)));
            self.count(limiter, key, size, size / period, request.now)?;
        }
        Ok(())
    }

    /// The code that [`Limits::check_code`] counted was the right one.
    pub fn code_was_right(&self, account: &str, request: &RequestInfo) {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        for (limiter, ..) in CODES {
            let key = hex::encode(digest(&code_key(limiter, account, request)));
            if let Some(bucket) = codes.get_mut(&(limiter, key)) {
                bucket.tokens = (bucket.tokens + 1.0).min(bucket.size);
            }
        }
    }

    /// What a wrong code that [`Limits::check_code`] counted took, to be written down.
    pub fn wrong_code(&self, account: &str, request: &RequestInfo) -> Vec<Wrong> {
        let wrong = |&(limiter, size, period): &(Limiter, f64, f64)| Wrong {
            kind: limiter.name(),
            account: digest(&code_key(limiter, account, request)),
            seconds: period / size,
        };
        CODES.iter().map(wrong).collect()
    }

    /// Takes over what was written down before this process began.
    pub fn recall_codes(&self, used: &[Used], now: OffsetDateTime) {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        for used in used {
            let Some((limiter, size, period)) = CODES.into_iter().find(|(limiter, ..)| limiter.name() == used.kind)
            else {
                continue;
            };
            let per_second = size / period;
            let missing = (used.full_at - now).as_seconds_f64().max(0.0) * per_second;
            let bucket = Bucket { tokens: (size - missing).max(0.0), at: now, size, per_second };
            codes.insert((limiter, hex::encode(&used.account)), bucket);
        }
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
        let is_code = CODES.iter().any(|(limiter, ..)| *limiter == key.0);
        let buckets = if is_code { &self.codes } else { &self.buckets };
        let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_BUCKETS && !buckets.contains_key(&key) {
            forget_half(&mut buckets, now);
        }
        let bucket = buckets.entry(key).or_insert(Bucket { tokens: size, at: now, size, per_second });
        bucket.tokens = bucket.tokens_at(now);
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
        send(&self.emails, self.settings.emails, now).map_err(too_many_emails)
    }

    /// As [`Limits::take_email`], for a mail that is not sent: nobody learns from this limit who has an account, and nobody
    /// uses it up with invented addresses.
    ///
    /// # Errors
    /// 429 `over_email_send_rate_limit`.
    pub fn check_email(&self, now: OffsetDateTime) -> Result<(), AuthError> {
        let state = *self.emails.lock().unwrap_or_else(PoisonError::into_inner);
        send(&Mutex::new(state), self.settings.emails, now).map_err(too_many_emails)
    }

    /// The least time between two mails of a kind to one address, for an address that gets none.
    ///
    /// # Errors
    /// 429 `over_email_send_rate_limit`, as for an address that has an account.
    pub fn pretend(&self, kind: Kind, address: &str, interval: Duration, now: OffsetDateTime) -> Result<(), AuthError> {
        let mut pretended = self.pretended.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (kind, address.to_owned());
        if let Some(next) = pretended.get(&key).map(|at| *at + interval).filter(|next| now < *next) {
            return Err(AuthError::too_early(ErrorCode::OverEmailSendRateLimit, (next - now).unsigned_abs()));
        }
        if pretended.len() >= MAX_BUCKETS {
            pretended.retain(|_, at| now < *at + interval);
            if pretended.len() >= MAX_BUCKETS {
                pretended.clear();
            }
        }
        pretended.insert(key, now);
        Ok(())
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

/// Whose bucket it is: the account's, or the account's at one client address.
fn code_key(limiter: Limiter, account: &str, request: &RequestInfo) -> String {
    match (limiter, &request.network) {
        (Limiter::CodeOfAddress, Some(network)) => format!("{network} {account}"),
        _ => account.to_owned(),
    }
}

/// As codes are counted: a table of who mistyped is nobody's business.
fn digest(key: &str) -> Vec<u8> {
    hash::sha256(key.as_bytes()).to_vec()
}

fn too_many_emails(retry_after: Duration) -> AuthError {
    AuthError::TooMany {
        code: ErrorCode::OverEmailSendRateLimit,
        message: "email rate limit exceeded".into(),
        retry_after,
        limit: "emails-sent",
    }
}

/// Forgets the fuller half.
fn forget_half(buckets: &mut Buckets, now: OffsetDateTime) {
    let mut fullness: Vec<f64> = buckets.values().map(|bucket| bucket.fullness(now)).collect();
    let middle = fullness.len() / 2;
    let (_, limit, _) = fullness.select_nth_unstable_by(middle, f64::total_cmp);
    let limit = *limit;
    let mut left = fullness.len() - middle;
    buckets.retain(|_, bucket| {
        let goes = left > 0 && bucket.fullness(now) >= limit;
        left -= usize::from(goes);
        !goes
    });
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

    #[test]
    fn a_crowd_does_not_make_anybody_forgotten_who_used_up_their_requests() {
        let limits = Limits::new(RateLimitSettings::default());
        let eve = || (Limiter::Verify, "192.0.2.1".to_owned());
        while limits.take(eve(), 30.0, 0.1, START).is_none() {}
        for number in 0..MAX_BUCKETS + 10 {
            assert_eq!(limits.take((Limiter::Verify, number.to_string()), 30.0, 0.1, START), None);
        }
        assert!(limits.take(eve(), 30.0, 0.1, START).is_some());
        assert!(limits.buckets.lock().unwrap().len() <= MAX_BUCKETS);
        // Codes are counted apart
        assert!(limits.codes.lock().unwrap().is_empty());
        assert_eq!(limits.take((Limiter::CodeOfDay, "ada@example.com".into()), 100.0, 0.1, START), None);
        assert_eq!(limits.codes.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_mail_that_is_only_pretended_has_its_interval() {
        let limits = Limits::new(RateLimitSettings::default());
        let minute = Duration::from_secs(60);
        let pretend = |kind, at| limits.pretend(kind, "ada@example.com", minute, START + Duration::from_secs(at));
        assert!(pretend(Kind::Recovery, 0).is_ok());
        assert!(pretend(Kind::Confirmation, 1).is_ok());
        assert!(
            matches!(pretend(Kind::Recovery, 7), Err(AuthError::TooMany { retry_after, .. }) if retry_after == Duration::from_secs(53))
        );
        assert!(pretend(Kind::Recovery, 60).is_ok());
    }
}
