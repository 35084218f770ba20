//! What is over: statements that remove a bounded number of rows and pass over rows that somebody uses.
//!
//! Tables that have a file of their own keep theirs there.

use time::OffsetDateTime;
use tokio_postgres::Error;

use super::Tx;

/// Every statement of this file.
pub const ALL: &[(&str, &str)] = &[
    ("clean_up::GIVE_WAY", GIVE_WAY),
    ("clean_up::RELAY_STATES", RELAY_STATES),
    ("clean_up::CHALLENGES", CHALLENGES),
    ("clean_up::FACTORS", FACTORS),
    ("clean_up::KEY_CHALLENGES", KEY_CHALLENGES),
];

/// Rows that follow a removed one (the sessions of a user) can not be passed over; so they are not waited for either.
const GIVE_WAY: &str = "set local lock_timeout = '100ms'";
const RELAY_STATES: &str = "
    delete from auth.saml_relay_states
     where id in (select old.id
                    from auth.saml_relay_states as old
                   where old.created_at < $1
                   limit 500
                     for update skip locked)";
const CHALLENGES: &str = "
    delete from auth.mfa_challenges
     where id in (select old.id
                    from auth.mfa_challenges as old
                   where old.created_at < $1
                   limit 500
                     for update skip locked)";
const FACTORS: &str = "
    delete from auth.mfa_factors
     where id in (select old.id
                    from auth.mfa_factors as old
                   where old.created_at < $1
                     and old.status = 'unverified'
                   limit 500
                     for update skip locked)";
const KEY_CHALLENGES: &str = "
    delete from auth.webauthn_challenges
     where id in (select old.id
                    from auth.webauthn_challenges as old
                   where old.expires_at < $1
                   limit 500
                     for update skip locked)";

/// Makes the transaction fail soon where it would have to wait for somebody.
pub async fn give_way(tx: &Tx) -> Result<(), Error> {
    tx.execute(GIVE_WAY, &[]).await.map(drop)
}

/// Removes sign-ins at a company's provider that began before `before`. Returns how many.
pub async fn delete_old_relay_states(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(RELAY_STATES, &[&before]).await
}

/// Removes challenges of second factors from before `before`. Returns how many.
pub async fn delete_old_challenges(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(CHALLENGES, &[&before]).await
}

/// Removes second factors that nobody finished to set up since `before`. Returns how many.
pub async fn delete_abandoned_factors(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(FACTORS, &[&before]).await
}

/// Removes challenges of passkeys that expired before `now`. Returns how many.
pub async fn delete_expired_key_challenges(tx: &Tx, now: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(KEY_CHALLENGES, &[&now]).await
}
