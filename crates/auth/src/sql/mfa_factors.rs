//! `auth.mfa_factors`.

use time::OffsetDateTime;
use tokio_postgres::Error;

use super::{Run, Tx};
use crate::model::ids::UserId;
use crate::model::{Factor, factor_columns};

statements! {
    const OF_USER = concat!(
        "select ",
        factor_columns!(),
        " from auth.mfa_factors as factors where factors.user_id = $1 order by factors.created_at, factors.id"
    );
    const DELETE_ALL = "delete from auth.mfa_factors where user_id = $1";
    const DELETE_ABANDONED = "
        delete from auth.mfa_factors
         where id in (select old.id
                        from auth.mfa_factors as old
                       where old.created_at < $1
                         and old.status = 'unverified'
                       limit 500
                         for update skip locked)";
}

/// Returns the second factors of a user, oldest first.
pub async fn of_user(run: &impl Run, user: UserId) -> Result<Vec<Factor>, Error> {
    Ok(run.rows(OF_USER, &[&user]).await?.iter().map(Factor::from_row).collect())
}

/// Deletes the second factors of a user.
pub async fn delete_all(tx: &Tx, user: UserId) -> Result<(), Error> {
    tx.execute(DELETE_ALL, &[&user]).await.map(drop)
}

/// Deletes factors whose enrolment began before `before` and was not completed. Returns their
/// number.
pub async fn delete_abandoned(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(DELETE_ABANDONED, &[&before]).await
}
