//! Checks that the stream's slot is alive and keeps up with the server's log, and that the stream
//! has the publications that exist.

use std::time::Duration;

use portico_database::replication::existing_publications;
use portico_database::{Database, DatabaseError};
use tokio::time::{Instant, interval_at, timeout};

use super::times::StreamTimes;

/// The longest that a check may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The lag that is too much where the server has no limit for the log that a slot keeps.
const MAX_LAG: i64 = 2 << 30;

/// Selects whether the slot is in use, by how many bytes of the log it lags behind, and the
/// server's limit in megabytes (-1: none).
const SLOT: &str = "
    select slot.active,
           pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), slot.confirmed_flush_lsn)::bigint,
           (select setting::bigint from pg_catalog.pg_settings where name = 'max_slot_wal_keep_size')
      from pg_catalog.pg_replication_slots as slot
     where slot.slot_name = $1::text";

/// The reason why a stream has to be opened anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unhealthy {
    #[error("ReplicationSlotNotAlive: the replication slot is not in use any more")]
    NotAlive,
    #[error("ReplicationSlotLagTooHigh: the replication slot lags behind the log by {0} bytes")]
    Lags(i64),
    #[error("ReplicationConnectionTimeout: the state of the replication slot could not be read within a minute")]
    Silent,
    #[error("ReconnectSubscribeToPostgres: the publications have changed")]
    Publications,
}

/// Watches one stream.
pub(super) struct Watchdog<'a> {
    pub database: &'a Database,
    pub slot: &'a str,
    /// The publications of the stream.
    pub publications: &'a [String],
    pub times: StreamTimes,
}

impl Watchdog<'_> {
    /// Returns when the stream has to be opened anew.
    pub async fn watch(&self) -> Unhealthy {
        let start = Instant::now();
        let mut publications = interval_at(start + self.times.publications, self.times.publications);
        let mut slot = interval_at(start + self.times.slot, self.times.slot);
        loop {
            let checked = tokio::select! {
                _ = publications.tick() => timeout(PATIENCE, self.check_publications()).await,
                _ = slot.tick() => timeout(PATIENCE, self.check_slot()).await,
            };
            match checked {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(unhealthy))) => return unhealthy,
                // The stream's own connection notices a database that is down
                Ok(Err(error)) => tracing::debug!(error = %error, slot = self.slot, "the stream could not be checked"),
                Err(_) => return Unhealthy::Silent,
            }
        }
    }

    async fn check_publications(&self) -> Result<Option<Unhealthy>, DatabaseError> {
        let existing = existing_publications(&*self.database.login_client().await?).await?;
        Ok((existing != self.publications).then_some(Unhealthy::Publications))
    }

    async fn check_slot(&self) -> Result<Option<Unhealthy>, DatabaseError> {
        let client = self.database.login_client().await?;
        let Some(row) = client.query_opt(SLOT, &[&self.slot]).await? else { return Ok(Some(Unhealthy::NotAlive)) };
        let (is_active, lag, limit): (bool, Option<i64>, Option<i64>) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(judge(is_active, lag.unwrap_or_default(), limit))
    }
}

/// Judges a slot. The limit of the server is in megabytes.
fn judge(is_active: bool, lag: i64, limit: Option<i64>) -> Option<Unhealthy> {
    let half = limit.filter(|limit| *limit >= 0).map_or(MAX_LAG, |megabytes| megabytes.saturating_mul(1 << 19));
    match is_active {
        false => Some(Unhealthy::NotAlive),
        true => (lag > half).then_some(Unhealthy::Lags(lag)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_unhealthy_without_a_connection_or_behind_by_half_of_the_limit() {
        assert_eq!(judge(true, 2 << 30, Some(4096)), None);
        assert_eq!(judge(true, (2 << 30) + 1, Some(4096)), Some(Unhealthy::Lags((2 << 30) + 1)));
        assert_eq!(judge(true, MAX_LAG, Some(-1)), None);
        assert_eq!(judge(true, MAX_LAG + 1, None), Some(Unhealthy::Lags(MAX_LAG + 1)));
        assert_eq!(judge(false, 0, Some(4096)), Some(Unhealthy::NotAlive));
    }
}
