//! Passwords: their rules and their hashes.

mod breach;
mod hash;
mod rules;
mod stored;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

pub use hash::MAX_BYTES;
pub(crate) use hash::is_known_form;
pub use rules::parse_required_characters;
pub(crate) use stored::stored_password;

use crate::error::{AuthError, ContractError, WeakPassword, WeakPasswordReason};
use crate::settings::PasswordSettings;
use breach::BreachCheck;

/// The rules of this project, and the bounded computation of hashes.
pub struct Passwords {
    rules: rules::PasswordRules,
    breach: Option<BreachCheck>,
    cost: u32,
    /// A hash that matches no password. It is compared for accounts without one, so that the
    /// duration does not reveal which accounts exist.
    unmatchable: String,
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    queue: usize,
}

/// The result of comparing a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// It is the account's password.
    pub matches: bool,
    /// It matches, and its stored form is outdated: [`Passwords::hash`] of it should be stored.
    pub needs_rehash: bool,
}

impl Passwords {
    /// Creates the rules without computing a hash.
    pub fn new(settings: &PasswordSettings) -> Self {
        let threads = settings
            .hashing_threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from))
            .max(1);
        Self {
            rules: rules::PasswordRules::new(settings),
            breach: settings.breach_check.clone().map(BreachCheck::new),
            cost: settings.bcrypt_cost,
            unmatchable: hash::unmatchable(settings.bcrypt_cost),
            permits: Arc::new(Semaphore::new(threads)),
            waiting: AtomicUsize::new(0),
            queue: settings.hashing_queue,
        }
    }

    /// Checks a new password.
    ///
    /// # Errors
    /// 400 `validation_failed` when it is too long, 422 `weak_password` with all reasons, 500 when
    /// the breach check fails and is to fail closed.
    pub async fn check_strength(&self, password: &str) -> Result<(), AuthError> {
        if password.len() > MAX_BYTES {
            return Err(ContractError::PasswordTooLong.into());
        }
        match self.weakness(password).await? {
            Some(weak) => Err(AuthError::WeakPassword(weak)),
            None => Ok(()),
        }
    }

    /// Returns the current rules that a password breaks, for the hint at sign-in. `None`: it breaks
    /// none.
    ///
    /// # Errors
    /// 500 when the breach check fails and is to fail closed.
    pub async fn weakness(&self, password: &str) -> Result<Option<WeakPassword>, AuthError> {
        let mut found = self.rules.broken_by(password);
        if let Some(breach) = &self.breach
            && breach.is_known(password).await?
        {
            found.push((
                WeakPasswordReason::Pwned,
                "Password is known to be weak and easy to guess, please choose a different one.".to_owned(),
            ));
        }
        if found.is_empty() {
            return Ok(None);
        }
        let (reasons, texts): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        Ok(Some(WeakPassword { reasons, message: texts.join(" ") }))
    }

    /// Returns the hash of a password, as it is stored.
    ///
    /// # Errors
    /// 429 when the queue is full.
    pub async fn hash(&self, password: &str) -> Result<String, AuthError> {
        let (password, cost) = (password.to_owned(), self.cost);
        self.compute(move || hash::hash(&password, cost)).await?.map_err(AuthError::internal)
    }

    /// Compares a password with a stored one. `None` or an empty text, for an unknown account or
    /// one without a password, takes as long as a wrong password.
    ///
    /// # Errors
    /// 429 when the queue is full.
    pub async fn compare(&self, password: &str, stored: Option<&str>) -> Result<Comparison, AuthError> {
        let stored = stored.filter(|stored| !stored.is_empty()).unwrap_or(&self.unmatchable).to_owned();
        let (password, cost) = (password.to_owned(), self.cost);
        self.compute(move || {
            let matches = hash::verify(&password, &stored);
            // A password that bcrypt would truncate keeps its old form, which uses all of it
            let fits = password.len() <= MAX_BYTES;
            Comparison { matches, needs_rehash: matches && fits && hash::is_outdated(&stored, cost) }
        })
        .await
    }

    /// Runs a computation on a thread of its own. The number of concurrent and queued ones is
    /// bounded.
    async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, AuthError> {
        let queued = HashQueueSlot::take(&self.waiting, self.queue)?;
        let permit =
            self.permits.clone().acquire_owned().await.expect("the semaphore is never closed while the service lives");
        drop(queued);
        // The permit moves to the thread: a cancelled request must not let another one start while
        // its hash still runs
        portico_base::spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        })
        .await
        .map_err(AuthError::internal)
    }
}

/// A slot in the queue, released when dropped.
struct HashQueueSlot<'a>(&'a AtomicUsize);

impl<'a> HashQueueSlot<'a> {
    fn take(waiting: &'a AtomicUsize, most: usize) -> Result<Self, AuthError> {
        let slot = Self(waiting);
        if waiting.fetch_add(1, Ordering::AcqRel) >= most.max(1) {
            return Err(AuthError::TooMany {
                error: ContractError::TooManySignIns,
                retry_after: Duration::from_secs(2),
                limit: "password-hashing",
            });
        }
        Ok(slot)
    }
}

impl Drop for HashQueueSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    fn passwords(change: impl FnOnce(&mut PasswordSettings)) -> Passwords {
        let mut settings = PasswordSettings { bcrypt_cost: 4, ..PasswordSettings::default() };
        change(&mut settings);
        Passwords::new(&settings)
    }

    #[tokio::test]
    async fn a_hash_matches_only_its_password() {
        let passwords = passwords(|_| {});
        let stored = passwords.hash("correct horse").await.unwrap();
        assert!(stored.starts_with("$2a$04$"));
        let right = passwords.compare("correct horse", Some(&stored)).await.unwrap();
        assert_eq!(right, Comparison { matches: true, needs_rehash: false });
        assert!(!passwords.compare("wrong", Some(&stored)).await.unwrap().matches);
        for stored in [None, Some("")] {
            assert!(!passwords.compare("", stored).await.unwrap().matches);
        }
    }

    #[tokio::test]
    async fn reasons_are_listed_together() {
        let passwords = passwords(|settings| {
            settings.min_length = 8;
            settings.required_characters = vec!["abc".into(), "012".into()];
        });
        let weak = passwords.weakness("xyz").await.unwrap().unwrap();
        assert_eq!(weak.reasons, [WeakPasswordReason::Length, WeakPasswordReason::Characters]);
        assert_eq!(
            weak.message,
            "Password should be at least 8 characters. \
             Password should contain at least one character of each: abc, 012."
        );
        assert!(passwords.check_strength("a0345678").await.is_ok());
        let long = passwords.check_strength(&"a0".repeat(40)).await.unwrap_err();
        assert_eq!(long.to_string(), "Password cannot be longer than 72 characters");
    }

    #[tokio::test]
    async fn a_full_queue_rejects_requests() {
        let passwords = passwords(|settings| {
            settings.hashing_threads = Some(1);
            settings.hashing_queue = 1;
        });
        let _busy = passwords.permits.clone().acquire_owned().await.unwrap();
        let mut first = Box::pin(passwords.hash("a"));
        assert!(futures_util::poll!(&mut first).is_pending());
        let error = passwords.hash("b").await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::OverRequestRateLimit);
        drop(first);
        assert_eq!(passwords.waiting.load(Ordering::Acquire), 0);
    }
}
