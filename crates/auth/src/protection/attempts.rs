//! Guesses at the secrets of an account: codes and passwords. Wrong ones are limited per account as well as per network.
//!
//! Counted in the database, by all servers on it together and across restarts, with one statement that counts a guess and
//! decides (see `sql::attempts`). A guess is counted before it is compared, so that guesses at the same time count as
//! well; a right one is taken back. Unknown accounts are counted alike, so a limit does not show who has an account.
//!
//! A stranger's guesses do not lock the owner of an account out:
//! - A network has a small limit of its own, which is charged first. One that is beyond it charges nothing else.
//! - In a network from which the account was signed in to before, the limits of the account do not count.
//! - Elsewhere the limits of the account let guesses through again one by one. A link in a message is never counted, and
//!   makes the network known.

use std::pin::Pin;
use std::time::Duration;

use portico_base::hash;

use crate::Auth;
use crate::error::{AuthError, ErrorCode};
use crate::http::extract::RequestInfo;
use crate::model::User;
use crate::protection::limits::{DAY, HOUR, too_many_requests};
use crate::sql::Tx;
use crate::sql::attempts::{self, Charge, Charged, Network};

/// One limit on guesses: `size` at once, and as many again within `period`.
#[derive(Debug, Clone, Copy)]
struct Limit {
    name: &'static str,
    size: u32,
    period: Duration,
}

const fn limit(name: &'static str, size: u32, period: Duration) -> Limit {
    Limit { name, size, period }
}

/// Limits on codes: of an account at one network, of the account, of the account in the long run, and in its place of a
/// network that the account knows.
///
/// A code has six digits and lives for an hour, but another one can be asked for at any time, so what counts is how
/// many guesses a day allows: each finds the code with a chance of one in a million.
///
/// - One network tries 10 codes of an account at once and 10 more an hour: a person who mistypes does not wait.
/// - All networks together try 50 at once and 50 more an hour, and 100 at once and 100 more a day: any 24 hours hold at
///   most 200 guesses, one chance in 5000; a year of them, with messages to the person all the time, has one in 27. Five
///   minutes of 30, without a cap, were 8640 guesses a day: one in 116 each day, and nearly sure within the year.
/// - Strangers in several networks, which one of them has by IPv6 alone, can use that up, for as long as they go on. It does
///   not count in networks from which the account was signed in to: each has its own 200 guesses in any 24 hours.
///   Elsewhere the person has a link, where the message is a mail: links are not counted.
const CODES: [Limit; 4] = [
    limit("codes-per-address", 10, HOUR),
    limit("codes-per-account", 50, HOUR),
    limit("codes-per-day", 100, DAY),
    limit("codes-per-address-and-day", 100, DAY),
];

/// Limits on passwords: the same, but that a network which the account knows is subject to the first only. Once strangers
/// have used up those of the account, one more password is tried in all other networks every quarter of an hour.
const PASSWORDS: [Limit; 3] = [
    limit("passwords-per-address", 10, HOUR),
    limit("passwords-per-account", 50, HOUR),
    limit("passwords-per-day", 100, DAY),
];

/// Limit on the current password that a change of the password asks for, of a session.
const CURRENT_PASSWORDS: [Limit; 1] = [limit("passwords-per-session", 10, HOUR)];

/// Lets a code of `account` be tried, an address, number or anything else that has codes: `attempt` compares it, and its
/// error says that it was wrong. It returns without a connection in hand: taking a right one back needs another.
///
/// # Errors
/// 429 `over_request_rate_limit`; then nothing was compared. Otherwise those of `attempt`.
pub(crate) async fn code<T>(
    auth: &Auth,
    account: &str,
    request: &RequestInfo,
    attempt: impl Future<Output = Result<T, AuthError>>,
) -> Result<T, AuthError> {
    counted(auth, charges(&CODES, account, request), network(account, request).as_ref(), Box::pin(attempt)).await
}

/// As [`code`], for the password of an address in lower case, or of a number in digits: an account that could be named in
/// several ways would have several limits.
///
/// # Errors
/// As [`code`].
pub(crate) async fn password<T>(
    auth: &Auth,
    account: &str,
    request: &RequestInfo,
    attempt: impl Future<Output = Result<T, AuthError>>,
) -> Result<T, AuthError> {
    if !auth.settings().rate_limits.passwords {
        return Box::pin(attempt).await;
    }
    let network = network(account, request);
    counted(auth, charges(&PASSWORDS, account, request), network.as_ref(), Box::pin(attempt)).await
}

/// As [`password`], for a password that a person who is signed in types again: only they are limited.
///
/// # Errors
/// As [`code`].
pub(crate) async fn current_password<T>(
    auth: &Auth,
    session: &str,
    attempt: impl Future<Output = Result<T, AuthError>>,
) -> Result<T, AuthError> {
    if !auth.settings().rate_limits.passwords {
        return Box::pin(attempt).await;
    }
    let [limit] = CURRENT_PASSWORDS;
    counted(auth, vec![charge(limit, session)], None, Box::pin(attempt)).await
}

/// Remembers the network of a person who was signed in, so that strangers' guesses elsewhere do not count there.
pub(crate) async fn remember_network(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    request: &RequestInfo,
) -> Result<(), tokio_postgres::Error> {
    // One that is merely claimed would make the claimant's networks known to its owner's account
    let names = [
        user.is_email_confirmed().then(|| user.email.to_lowercase()),
        user.is_phone_confirmed().then(|| user.phone.clone()),
    ];
    let proved = names.into_iter().flatten().filter(|name| !name.is_empty());
    let networks: Vec<Network> = proved.filter_map(|name| network(&name, request)).collect();
    if networks.is_empty() || !auth.settings().rate_limits.passwords {
        return Ok(());
    }
    attempts::remember_networks(tx, &networks, auth.now()).await
}

async fn counted<T>(
    auth: &Auth,
    charges: Vec<Charge>,
    network: Option<&Network>,
    attempt: Pin<Box<impl Future<Output = Result<T, AuthError>>>>,
) -> Result<T, AuthError> {
    // A connection of its own, given back before `attempt` takes one
    let charged = {
        let client = auth.database().auth().await?;
        attempts::charge(&client, &charges, network, auth.now()).await?
    };
    match charged {
        Charged::Allowed(charged) => {
            let result = attempt.await;
            if result.as_ref().map_or_else(says_nothing, |_| true) {
                give_back(auth, &charged).await;
            }
            result
        }
        Charged::Refused { by, wait, before } => {
            // Nothing was compared
            if !before.is_empty() {
                give_back(auth, &before).await;
            }
            Err(too_many_requests(by, wait))
        }
    }
}

/// Returns true if an error does not tell that the secret was wrong: it was right, or was not compared.
fn says_nothing(error: &AuthError) -> bool {
    !error.status().is_client_error()
        || error.status() == http::StatusCode::TOO_MANY_REQUESTS
        || matches!(error.code(), ErrorCode::EmailNotConfirmed | ErrorCode::PhoneNotConfirmed)
}

async fn give_back(auth: &Auth, charges: &[Charge]) {
    let given_back = async {
        let client = auth.database().auth().await?;
        attempts::give_back(&client, charges).await.map_err(AuthError::from)
    };
    if let Err(error) = given_back.await {
        // It stays counted, and is forgotten with time
        tracing::warn!(error = format!("{:#}", anyhow::Error::new(error)), "A right code or password stays counted");
    }
}

fn charges(limits: &[Limit], account: &str, request: &RequestInfo) -> Vec<Charge> {
    let at_network = match request.network_key() {
        Some(network) => format!("{network} {account}"),
        None => account.to_owned(),
    };
    let whose = |place: usize| if place == 0 || place == 3 { at_network.as_str() } else { account };
    limits.iter().enumerate().map(|(place, limit)| charge(*limit, whose(place))).collect()
}

fn charge(limit: Limit, whose: &str) -> Charge {
    Charge { kind: limit.name, account: digest(whose), each: limit.period / limit.size, size: limit.size }
}

fn network(account: &str, request: &RequestInfo) -> Option<Network> {
    let network = request.network_key()?;
    Some(Network { account: digest(account), network: digest(&format!("{network} {account}")) })
}

/// As guesses are counted: the table shows neither addresses nor networks.
fn digest(text: &str) -> Vec<u8> {
    hash::sha256(text.as_bytes()).to_vec()
}
