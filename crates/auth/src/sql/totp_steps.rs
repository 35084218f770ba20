//! `portico.totp_steps`: the time steps of one-time passwords that were used.

use tokio_postgres::Error;

use super::{Run, Tx};
use crate::model::ids::FactorId;

statements! {
    const LAST = "select last_step from portico.totp_steps where factor_id = $1";
    /// An accepted code is of the step before or after the current one at most, so a step that is
    /// more than two ahead of it was written while the clock was wrong.
    const ADVANCE = "
        insert into portico.totp_steps as known (factor_id, last_step)
        values ($1, $2)
        on conflict (factor_id) do update
           set last_step = excluded.last_step
         where known.last_step < excluded.last_step
            or known.last_step > excluded.last_step + 2";
    const DELETE_OLD = "
        delete from portico.totp_steps
         where factor_id in (select old.factor_id
                               from portico.totp_steps as old
                              where old.last_step < $1
                              limit 500
                                for update skip locked)";
}

/// Returns the step of the newest code that was used.
pub async fn last(run: &impl Run, factor: FactorId) -> Result<Option<i64>, Error> {
    Ok(run.rows(LAST, &[&factor]).await?.first().map(|row| row.get(0)))
}

/// Uses up the codes of a step and of those before it. Returns false if they were used already.
pub async fn advance(tx: &Tx, factor: FactorId, step: i64) -> Result<bool, Error> {
    Ok(tx.execute(ADVANCE, &[&factor, &step]).await? > 0)
}

/// Deletes steps before `step`, whose codes are not accepted any more. Returns their number.
pub async fn delete_old(tx: &Tx, step: i64) -> Result<u64, Error> {
    tx.execute(DELETE_OLD, &[&step]).await
}
