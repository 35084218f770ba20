//! `auth.mfa_challenges`.

use time::OffsetDateTime;
use tokio_postgres::Error;

use super::Tx;

statements! {
    const DELETE_OLD = "
        delete from auth.mfa_challenges
         where id in (select old.id
                        from auth.mfa_challenges as old
                       where old.created_at < $1
                       limit 500
                         for update skip locked)";
}

/// Deletes challenges of second factors from before `before`. Returns their number.
pub async fn delete_old(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(DELETE_OLD, &[&before]).await
}
