//! `portico.recovery_codes`.

use time::OffsetDateTime;
use tokio_postgres::Error;

use super::{Run, Tx};
use crate::model::ids::UserId;

statements! {
    const OF_USER = "select hashes, created_at from portico.recovery_codes where user_id = $1";
    const REPLACE = "
        insert into portico.recovery_codes as codes (user_id, hashes, created_at)
        values ($1, $2, $3)
        on conflict (user_id) do update set hashes = excluded.hashes, created_at = excluded.created_at";
    const REMOVE = "
        update portico.recovery_codes
           set hashes = array_remove(hashes, $2)
         where user_id = $1
           and $2 = any (hashes)";
    const DELETE = "delete from portico.recovery_codes where user_id = $1";
    /// An account may be deleted by a statement of an application.
    const DELETE_ORPHANED = "
        delete from portico.recovery_codes
         where user_id in (select orphaned.user_id
                             from portico.recovery_codes as orphaned
                            where not exists (select from auth.users where users.id = orphaned.user_id)
                            limit 500
                              for update skip locked)";
}

/// The unused codes of an account.
#[derive(Clone)]
pub struct RecoveryCodes {
    /// The hashes.
    pub hashes: Vec<Vec<u8>>,
    /// The time at which all codes were made.
    pub created_at: OffsetDateTime,
}

/// Returns the unused codes of a user.
pub async fn of_user(run: &impl Run, user: UserId) -> Result<Option<RecoveryCodes>, Error> {
    let rows = run.rows(OF_USER, &[&user]).await?;
    Ok(rows.first().map(|row| RecoveryCodes { hashes: row.get(0), created_at: row.get(1) }))
}

/// Replaces the codes of a user.
pub async fn replace(tx: &Tx, user: UserId, hashes: &[Vec<u8>], now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(REPLACE, &[&user, &hashes, &now]).await.map(drop)
}

/// Removes a used code. Returns false if it was used already.
pub async fn remove(tx: &Tx, user: UserId, hash: &[u8]) -> Result<bool, Error> {
    Ok(tx.execute(REMOVE, &[&user, &hash]).await? > 0)
}

/// Deletes the codes of a user.
pub async fn delete(tx: &Tx, user: UserId) -> Result<(), Error> {
    tx.execute(DELETE, &[&user]).await.map(drop)
}

/// Deletes codes of accounts that do not exist any more. Returns their number.
pub async fn delete_orphaned(tx: &Tx) -> Result<u64, Error> {
    tx.execute(DELETE_ORPHANED, &[]).await
}
