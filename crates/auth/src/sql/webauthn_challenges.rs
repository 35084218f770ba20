//! `auth.webauthn_challenges`: the challenges of passkeys.

use serde_json::Value;
use time::OffsetDateTime;
use tokio_postgres::Error;

use super::{Run, Tx};
use crate::model::ids::{CeremonyChallengeId, UserId};

statements! {
    const INSERT = "
        insert into auth.webauthn_challenges (id, user_id, challenge_type, session_data, created_at, expires_at)
        values ($1, $2, $3, $4, $5, $6)";
    /// Of two requests with one challenge, the second finds no row.
    const TAKE = "
        delete from auth.webauthn_challenges
         where id = $1
           and challenge_type = $2
           and user_id is not distinct from $3
        returning session_data, expires_at";
    const DELETE_EXPIRED = "
        delete from auth.webauthn_challenges
         where id in (select old.id
                        from auth.webauthn_challenges as old
                       where old.expires_at < $1
                       limit 500
                         for update skip locked)";
}

/// A challenge to insert, or what must be equal to take one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChallengeKey {
    /// Primary key.
    pub id: CeremonyChallengeId,
    /// The ceremony: `registration` or `authentication`.
    pub ceremony: &'static str,
    /// The user whose challenge it is. `None` for a sign-in, which begins without one.
    pub user: Option<UserId>,
}

/// Adds a challenge.
pub(crate) async fn insert(
    run: &impl Run,
    key: ChallengeKey,
    data: &Value,
    now: OffsetDateTime,
    expires_at: OffsetDateTime,
) -> Result<(), Error> {
    run.rows(INSERT, &[&key.id, &key.user, &key.ceremony, data, &now, &expires_at]).await.map(drop)
}

/// Deletes a challenge and returns its data and the time at which it expires. `None`: there is
/// none, or it was taken before.
pub(crate) async fn take(tx: &Tx, key: ChallengeKey) -> Result<Option<(Value, OffsetDateTime)>, Error> {
    let row = tx.query_opt(TAKE, &[&key.id, &key.ceremony, &key.user]).await?;
    Ok(row.map(|row| (row.get(0), row.get(1))))
}

/// Deletes challenges of passkeys that expired before `now`. Returns their number.
pub async fn delete_expired(tx: &Tx, now: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(DELETE_EXPIRED, &[&now]).await
}
