//! `auth.mfa_challenges`.

use std::net::IpAddr;

use serde_json::Value;
use time::OffsetDateTime;
use tokio_postgres::{Error, Row};

use super::{Run, Tx};
use crate::model::ids::{FactorChallengeId, FactorId};

statements! {
    const INSERT = "
        insert into auth.mfa_challenges (id, factor_id, created_at, ip_address, otp_code, web_authn_session_data)
        values ($1, $2, $3, $4, $5, $6)";
    const FIND = "
        select id, created_at, verified_at, ip_address, otp_code, web_authn_session_data
          from auth.mfa_challenges
         where id = $1
           and factor_id = $2";
    const LOCK = "
        select id, created_at, verified_at, ip_address, otp_code, web_authn_session_data
          from auth.mfa_challenges
         where id = $1
           and factor_id = $2
           for update";
    const SET_VERIFIED = "update auth.mfa_challenges set verified_at = $2 where id = $1";
    const DELETE = "delete from auth.mfa_challenges where id = $1";
    /// Of those that can still be proved, for which the index by time is enough. One that is being
    /// proved stays: its transaction may wait for the factor.
    const DELETE_SURPLUS = "
        delete from auth.mfa_challenges
         where id in (select surplus.id
                        from auth.mfa_challenges as surplus
                       where surplus.id in (select open.id
                                              from auth.mfa_challenges as open
                                             where open.created_at > $2
                                               and open.factor_id = $1
                                               and open.verified_at is null
                                             order by open.created_at desc, open.id
                                            offset $3)
                         for update skip locked)";
    const DELETE_OLD = "
        delete from auth.mfa_challenges
         where id in (select old.id
                        from auth.mfa_challenges as old
                       where old.created_at < $1
                       limit 500
                         for update skip locked)";
}

/// A row of `auth.mfa_challenges`.
#[derive(Clone)]
pub struct FactorChallenge {
    /// Primary key.
    pub id: FactorChallengeId,
    /// The time at which it was made.
    pub created_at: OffsetDateTime,
    /// The time at which it was used.
    pub verified_at: Option<OffsetDateTime>,
    /// The address of the client that requested it.
    pub ip: IpAddr,
    /// The hash of the code that was sent to a phone.
    pub otp_code: Option<String>,
    /// The data of the challenge of a security key.
    pub webauthn_data: Option<Value>,
}

impl FactorChallenge {
    fn from_row(row: &Row) -> Self {
        Self {
            id: row.get(0),
            created_at: row.get(1),
            verified_at: row.get(2),
            ip: row.get(3),
            otp_code: row.get::<_, Option<String>>(4).filter(|code| !code.is_empty()),
            webauthn_data: row.get(5),
        }
    }
}

/// Inserts a challenge of a factor.
pub async fn insert(tx: &Tx, factor: FactorId, challenge: &FactorChallenge) -> Result<(), Error> {
    let FactorChallenge { id, created_at, ip, otp_code, webauthn_data, .. } = challenge;
    tx.execute(INSERT, &[id, &factor, created_at, ip, otp_code, webauthn_data]).await.map(drop)
}

/// Returns a challenge of a factor.
pub async fn find(run: &impl Run, id: FactorChallengeId, factor: FactorId) -> Result<Option<FactorChallenge>, Error> {
    Ok(run.rows(FIND, &[&id, &factor]).await?.first().map(FactorChallenge::from_row))
}

/// Returns the row of [`find`], locked until the transaction ends.
pub async fn lock(tx: &Tx, id: FactorChallengeId, factor: FactorId) -> Result<Option<FactorChallenge>, Error> {
    Ok(tx.query_opt(LOCK, &[&id, &factor]).await?.as_ref().map(FactorChallenge::from_row))
}

/// Marks a challenge as used.
pub async fn set_verified(tx: &Tx, id: FactorChallengeId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_VERIFIED, &[&id, &now]).await.map(drop)
}

/// Deletes a challenge.
pub async fn delete(tx: &Tx, id: FactorChallengeId) -> Result<(), Error> {
    tx.execute(DELETE, &[&id]).await.map(drop)
}

/// Deletes the unproved challenges of a factor, other than the newest `keep` ones, that were made
/// after `since`.
pub async fn delete_surplus(tx: &Tx, factor: FactorId, since: OffsetDateTime, keep: i64) -> Result<(), Error> {
    tx.execute(DELETE_SURPLUS, &[&factor, &since, &keep]).await.map(drop)
}

/// Deletes challenges of second factors from before `before`. Returns their number.
pub async fn delete_old(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(DELETE_OLD, &[&before]).await
}
