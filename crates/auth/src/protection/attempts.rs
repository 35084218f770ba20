//! Limits on guesses at codes and passwords, per account and per network.
//!
//! Guesses are counted in the database, by all servers together and across restarts. One statement
//! counts a guess and decides (see `sql::attempts`). A guess is counted before it is compared, so
//! that concurrent guesses count as well; a right one is refunded. Unknown accounts are counted
//! alike, so that a limit does not reveal which accounts exist.
//!
//! An attacker's guesses must not lock out the owner of an account:
//! - A network has a small limit of its own, which is charged first. Beyond it nothing else is
//!   charged.
//! - In a network from which the account was signed in to before, the limits of the account do not
//!   apply.
//! - Elsewhere the limits of the account permit further guesses one by one. A link in a message is
//!   never counted, and makes the network known.

use std::pin::Pin;
use std::time::Duration;

use portico_base::{Clock, hash};
use portico_database::RolePool;

use crate::error::{AuthError, ErrorCode};
use crate::hooks::ledger::HookLedger;
use crate::model::ids::UserId;
use crate::model::{RequestInfo, User};
use crate::operation::AccountOperation;
use crate::protection::limits::{DAY, HOUR, too_many_requests};
use crate::sql::Tx;
use crate::sql::attempts::{self, ChargeOutcome, ChargedLimit, Network};

/// A limit on guesses: `size` at once, and as many again within `period`.
#[derive(Debug, Clone, Copy)]
struct GuessLimit {
    name: &'static str,
    size: u32,
    period: Duration,
}

const fn limit(name: &'static str, size: u32, period: Duration) -> GuessLimit {
    GuessLimit { name, size, period }
}

/// Limits on codes: of an account in one network, of the account, of the account per day, and
/// instead of the last two of a known network.
///
/// A code has six digits and lives for an hour, but another one can be requested at any time, so
/// what matters is the number of guesses per day: each is right with a chance of one in a million.
///
/// - One network has 10 codes of an account at once and 10 more per hour: a typing error causes no
///   wait.
/// - All networks together have 50 at once and 50 more per hour, and 100 at once and 100 more per
///   day: any 24 hours have at most 200 guesses, a chance of 1 in 5000; a year of them, with
///   messages to the person all the time, has 1 in 27. A limit of 30 per five minutes, without a
///   cap, would permit 8640 guesses per day: a chance of 1 in 116 each day, and near certainty
///   within a year.
/// - Attackers in several networks, which a single one has with IPv6, can use that up, for as long
///   as they continue. It does not count in known networks: each has its own 200 guesses in any 24
///   hours. Elsewhere the person can use the link of an email, which is not counted.
const CODES: [GuessLimit; 4] = [
    limit("codes-per-address", 10, HOUR),
    limit("codes-per-account", 50, HOUR),
    limit("codes-per-day", 100, DAY),
    limit("codes-per-address-and-day", 100, DAY),
];

/// Limits on passwords: the same, except that only the first applies to a known network. Once
/// attackers have used up those of the account, all other networks together have one password per
/// quarter of an hour.
const PASSWORDS: [GuessLimit; 3] = [
    limit("passwords-per-address", 10, HOUR),
    limit("passwords-per-account", 50, HOUR),
    limit("passwords-per-day", 100, DAY),
];

/// Limits on the codes of second factors and on recovery codes, of an account.
///
/// Three codes of an authenticator app are right at any time, so a guess succeeds with a chance of
/// 3 in a million, and guesses need the password: fewer are allowed than of other codes. All
/// networks together have at most 60 in any 24 hours, a chance of 1 in 5500. So has each network in
/// which a factor of the account was proved before, and guesses elsewhere do not count in it.
const FACTOR_CODES: [GuessLimit; 4] = [
    limit("factor-codes-per-address", 10, HOUR),
    limit("factor-codes-per-account", 20, HOUR),
    limit("factor-codes-per-day", 30, DAY),
    limit("factor-codes-per-address-and-day", 30, DAY),
];

/// The limit of a session on the current password, which a change of the password requires.
const CURRENT_PASSWORDS: [GuessLimit; 1] = [limit("passwords-per-session", 10, HOUR)];

/// The counter of guesses at passwords and codes.
pub(crate) struct GuessCounter {
    /// Guesses at passwords are limited.
    limits_passwords: bool,
    database: RolePool,
    clock: Clock,
}

impl GuessCounter {
    pub(crate) fn new(limits_passwords: bool, database: RolePool, clock: Clock) -> Self {
        Self { limits_passwords, database, clock }
    }

    /// Counts a guess at a code of `account`, which is an address, a number or any other name, and
    /// runs `attempt`, which compares it and fails if it is wrong. `attempt` must hold no
    /// connection when it returns: the refund of a right guess needs one.
    ///
    /// # Errors
    /// 429 `over_request_rate_limit`, without running `attempt`. Otherwise those of `attempt`.
    pub(crate) async fn code<T>(
        &self,
        account: &str,
        request: &RequestInfo,
        attempt: impl Future<Output = Result<T, AuthError>>,
    ) -> Result<T, AuthError> {
        self.counted(Guess::new(&CODES, account, request), Box::pin(attempt)).await
    }

    /// Like [`GuessCounter::code`], but for the password of an address in lower case, or of a
    /// number in digits: an account with several names would have several limits.
    ///
    /// # Errors
    /// Those of [`GuessCounter::code`].
    pub(crate) async fn password<T>(
        &self,
        account: &str,
        request: &RequestInfo,
        attempt: impl Future<Output = Result<T, AuthError>>,
    ) -> Result<T, AuthError> {
        if !self.limits_passwords {
            return Box::pin(attempt).await;
        }
        self.counted(Guess::new(&PASSWORDS, account, request), Box::pin(attempt)).await
    }

    /// Like [`GuessCounter::code`], but for the code of a second factor, or a recovery code. All of
    /// them count together.
    ///
    /// # Errors
    /// Those of [`GuessCounter::code`].
    pub(crate) async fn factor_code<T>(
        &self,
        user: UserId,
        request: &RequestInfo,
        attempt: impl Future<Output = Result<T, AuthError>>,
    ) -> Result<T, AuthError> {
        self.counted(Guess::new(&FACTOR_CODES, &factors_of(user), request), Box::pin(attempt)).await
    }

    /// Stores the network in which a second factor was proved as known, so that guesses from
    /// elsewhere do not count in it.
    pub(crate) async fn remember_factor_network(
        &self,
        op: AccountOperation<'_>,
        user: UserId,
    ) -> Result<(), tokio_postgres::Error> {
        match network(&factors_of(user), op.request) {
            Some(network) => attempts::remember_networks(op.tx, &[network], self.clock.now_in_microseconds()).await,
            None => Ok(()),
        }
    }

    /// Like [`GuessCounter::password`], but for the current password of a signed-in person: only
    /// the session is limited.
    ///
    /// # Errors
    /// Those of [`GuessCounter::code`].
    pub(crate) async fn current_password<T>(
        &self,
        session: &str,
        attempt: impl Future<Output = Result<T, AuthError>>,
    ) -> Result<T, AuthError> {
        if !self.limits_passwords {
            return Box::pin(attempt).await;
        }
        let [limit] = CURRENT_PASSWORDS;
        let guess = Guess { charges: vec![charge(limit, session)], network: None, hooks: None };
        self.counted(guess, Box::pin(attempt)).await
    }

    /// Stores the network of a person who was signed in as known, so that guesses from elsewhere do
    /// not count in it.
    pub(crate) async fn remember_network(
        &self,
        tx: &Tx,
        user: &User,
        request: &RequestInfo,
    ) -> Result<(), tokio_postgres::Error> {
        // An unverified one would make the networks of an attacker known for the account of its
        // owner
        let names = [
            user.is_email_confirmed().then(|| user.email.to_lowercase()),
            user.is_phone_confirmed().then(|| user.phone.clone()),
        ];
        let proved = names.into_iter().flatten().filter(|name| !name.is_empty());
        let networks: Vec<Network> = proved.filter_map(|name| network(&name, request)).collect();
        if networks.is_empty() || !self.limits_passwords {
            return Ok(());
        }
        attempts::remember_networks(tx, &networks, self.clock.now_in_microseconds()).await
    }

    async fn counted<T>(
        &self,
        guess: Guess<'_>,
        attempt: Pin<Box<impl Future<Output = Result<T, AuthError>>>>,
    ) -> Result<T, AuthError> {
        // A connection of its own, returned before `attempt` checks one out
        let charged = {
            let client = self.database.client().await?;
            attempts::charge(&client, &guess.charges, guess.network.as_ref(), self.clock.now_in_microseconds()).await?
        };
        match charged {
            ChargeOutcome::Allowed(charged) => {
                let result = attempt.await;
                // The hooks of an operation are called when the secret was right, or where none was
                // compared. (Those that judge guesses are not among them: they reject right ones
                // like wrong ones, so both count, or the limit would show which one was right)
                let is_rejected_by_hook = || guess.hooks.is_some_and(|hooks| hooks.failed_point().is_some());
                if result.as_ref().map_or_else(is_inconclusive, |_| true) || is_rejected_by_hook() {
                    self.refund(&charged).await;
                }
                result
            }
            ChargeOutcome::Refused { by, wait, before } => {
                // Nothing was compared
                if !before.is_empty() {
                    self.refund(&before).await;
                }
                Err(too_many_requests(by, wait))
            }
        }
    }

    async fn refund(&self, charges: &[ChargedLimit]) {
        let refunded = async {
            let client = self.database.client().await?;
            attempts::give_back(&client, charges).await.map_err(AuthError::from)
        };
        if let Err(error) = refunded.await {
            // It stays counted until the limit is full again
            let error = format!("{:#}", anyhow::Error::new(error));
            tracing::warn!(error = %error, "the guess at a right code or password could not be refunded");
        }
    }
}

/// A guess that is to be counted.
struct Guess<'a> {
    charges: Vec<ChargedLimit>,
    /// The network that it comes from.
    network: Option<Network>,
    /// The hooks of its request, if the attempt calls any.
    hooks: Option<&'a HookLedger>,
}

impl<'a> Guess<'a> {
    fn new(limits: &[GuessLimit], account: &str, request: &'a RequestInfo) -> Self {
        Self {
            charges: charges(limits, account, request),
            network: network(account, request),
            hooks: Some(&request.hooks),
        }
    }
}

/// Returns true if an error does not mean that the secret was wrong: it was right, or was not
/// compared.
fn is_inconclusive(error: &AuthError) -> bool {
    !error.status().is_client_error()
        || error.status() == http::StatusCode::TOO_MANY_REQUESTS
        || matches!(
            error.code(),
            ErrorCode::EmailNotConfirmed
                | ErrorCode::PhoneNotConfirmed
                // A hook that judges guesses is out of order, for right ones as for wrong ones
                | ErrorCode::HookTimeout
                | ErrorCode::HookTimeoutAfterRetry
                | ErrorCode::HookPayloadOverSizeLimit
                | ErrorCode::HookPayloadInvalidContentType
        )
}

fn factors_of(user: UserId) -> String {
    format!("factors of {user}")
}

fn charges(limits: &[GuessLimit], account: &str, request: &RequestInfo) -> Vec<ChargedLimit> {
    let at_network = match request.network_key() {
        Some(network) => format!("{network} {account}"),
        None => account.to_owned(),
    };
    let whose = |index: usize| if index == 0 || index == 3 { at_network.as_str() } else { account };
    limits.iter().enumerate().map(|(index, limit)| charge(*limit, whose(index))).collect()
}

fn charge(limit: GuessLimit, whose: &str) -> ChargedLimit {
    ChargedLimit { kind: limit.name, account: digest(whose), each: limit.period / limit.size, size: limit.size }
}

fn network(account: &str, request: &RequestInfo) -> Option<Network> {
    let network = request.network_key()?;
    Some(Network { account: digest(account), network: digest(&format!("{network} {account}")) })
}

/// Hashes a name: the table contains neither addresses nor networks.
fn digest(text: &str) -> Vec<u8> {
    hash::sha256(text.as_bytes()).to_vec()
}
