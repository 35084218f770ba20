//! `auth.webauthn_challenges`.

use time::OffsetDateTime;
use tokio_postgres::Error;

use super::Tx;

statements! {
    const DELETE_EXPIRED = "
        delete from auth.webauthn_challenges
         where id in (select old.id
                        from auth.webauthn_challenges as old
                       where old.expires_at < $1
                       limit 500
                         for update skip locked)";
}

/// Deletes challenges of passkeys that expired before `now`. Returns their number.
pub async fn delete_expired(tx: &Tx, now: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(DELETE_EXPIRED, &[&now]).await
}
