//! Checks that the stream's slot is alive and keeps up with the server's log, that the stream has
//! the publications that exist, and which tables are published.

use std::time::Duration;

use portico_database::replication::existing_publications;
use portico_database::{Database, DatabaseError};
use tokio::sync::watch;
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

/// Selects a text that differs between different sets of published tables and their names. Reads
/// the catalog alone: `pg_publication_tables` would wait for the lock of a migration on a table.
const TABLES: &str = "
    select pg_catalog.md5(coalesce(pg_catalog.string_agg(
             pg_catalog.format('%s %I.%I', class.oid, namespace.nspname, class.relname), ',' order by class.oid), ''))
      from pg_catalog.pg_publication as publication
           join pg_catalog.pg_class as class on class.relkind in ('r', 'p') and class.relpersistence = 'p'
           join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
     where publication.pubname = 'supabase_realtime'
       and (publication.puballtables
            or exists (select from pg_catalog.pg_publication_rel as member
                        where member.prpubid = publication.oid and member.prrelid = class.oid)
            or exists (select from pg_catalog.pg_publication_namespace as member
                        where member.pnpubid = publication.oid and member.pnnspid = class.relnamespace))";

/// Returns a text that differs between different sets of published tables.
pub(super) async fn published_tables(database: &Database) -> Result<String, DatabaseError> {
    Ok(database.login_client().await?.query_one(TABLES, &[]).await?.try_get(0)?)
}

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
    /// The published tables when the stream began, as [`published_tables`] returns them.
    pub tables: &'a str,
    /// Counts the changes of the published tables.
    pub table_changes: &'a watch::Sender<u64>,
    pub times: StreamTimes,
}

impl Watchdog<'_> {
    /// Returns when the stream has to be opened anew.
    pub async fn watch(&self) -> Unhealthy {
        let start = Instant::now();
        let mut publications = interval_at(start + self.times.publications, self.times.publications);
        let mut slot = interval_at(start + self.times.slot, self.times.slot);
        let mut tables = self.tables.to_owned();
        loop {
            let checked = tokio::select! {
                _ = publications.tick() => timeout(PATIENCE, self.check_publications(&mut tables)).await,
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

    /// Checks the publications, and reports other published tables than those that are `known`.
    async fn check_publications(&self, known: &mut String) -> Result<Option<Unhealthy>, DatabaseError> {
        let existing = existing_publications(&*self.database.login_client().await?).await?;
        if existing != self.publications {
            return Ok(Some(Unhealthy::Publications));
        }
        let tables = published_tables(self.database).await?;
        if tables != *known {
            *known = tables;
            self.table_changes.send_modify(|changes| *changes += 1);
        }
        Ok(None)
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
