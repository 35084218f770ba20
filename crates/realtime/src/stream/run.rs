//! One run of the stream: from its connection to its first error.

use std::sync::Arc;
use std::time::Duration;

use portico_database::replication::{
    Lsn, PreparedPublications, RefusedChange, ReplicationError, ReplicationSettings, ReplicationStream, WalMessage,
    prepare_publications,
};
use portico_database::{Database, DatabaseError};
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{mpsc, watch};

use super::backoff::Backoff;
use super::message::{DatabaseMessage, holds_messages};
use super::refusals::Refusals;
use super::times::StreamTimes;
use super::visibility::wait_until_visible;
use super::watchdog::{Unhealthy, Watchdog, published_tables};
use crate::decode::{Change, CommitTime, DecodeError, Decoded, Decoder, DescribedTable, TableCatalog, TransactionId};

/// The bytes of a transaction from which on it is handed over in several batches.
const LARGE: usize = 64 * 1024;
/// The time for which the delivery of changes may keep the messages behind them waiting.
const CHANGES_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of attempts to read a table of the stream: for about a minute.
const DESCRIBE_ATTEMPTS: u32 = 16;

/// Changes of one transaction. A large one comes in several batches.
#[derive(Debug)]
pub(crate) struct ChangeBatch {
    /// Changes before these were discarded.
    pub after_gap: bool,
    pub commit_time: CommitTime,
    /// The transaction. It may not be visible to other sessions yet: see [`wait_until_visible`].
    pub transaction: TransactionId,
    pub changes: Vec<TableChange>,
}

/// A change and its table.
#[derive(Debug)]
pub(crate) struct TableChange {
    /// The table. The same allocation until the table has changed.
    pub table: Arc<DescribedTable>,
    pub change: Change,
}

/// Messages of one transaction. A large one comes in several batches.
#[derive(Debug)]
pub(crate) struct MessageBatch {
    /// The transaction. It may not be visible to other sessions yet: see [`wait_until_visible`].
    pub transaction: TransactionId,
    pub messages: Vec<DatabaseMessage>,
}

/// The consumers of the stream.
#[derive(Debug, Clone)]
pub(crate) struct StreamConsumers {
    pub changes: mpsc::Sender<ChangeBatch>,
    pub messages: mpsc::Sender<MessageBatch>,
}

/// The end of a run.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error("StartReplicationFailed: {0}")]
    Replication(#[from] ReplicationError),
    #[error("PoolingReplicationPreparationError: {0}")]
    Database(#[from] DatabaseError),
    #[error("PoolingReplicationError: {0}")]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Unhealthy(#[from] Unhealthy),
    #[error("RealtimeDisabledForConfiguration: the database has no publication to stream")]
    NoPublication,
    #[error("the database is being recreated")]
    BeingRecreated,
    #[error(
        "a committed transaction does not become visible to other sessions: if synchronous_standby_names is '*', it \
         waits for this stream; name the standbys instead"
    )]
    NotVisible,
    #[error("a consumer of the stream has ended")]
    NoConsumer,
}

/// One stream, which can be run again after its end.
#[derive(Debug)]
pub(super) struct StreamRun {
    pub database: Database,
    pub slot: String,
    pub consumers: StreamConsumers,
    pub times: StreamTimes,
    pub refusals: Refusals,
    /// Counts the changes of the published tables.
    pub table_changes: watch::Sender<u64>,
}

/// A stream that was opened.
struct OpenedStream {
    stream: ReplicationStream,
    publications: Vec<String>,
    /// The published tables, as [`published_tables`] returns them.
    tables: String,
}

impl StreamRun {
    /// Opens the stream and hands its transactions over. Calls `running` once changes are received.
    /// Returns with the reason of its end.
    pub async fn run(&self, running: impl FnOnce()) -> RunError {
        let OpenedStream { stream, publications, tables } = match self.open().await {
            Ok(opened) => opened,
            Err(error) => return error,
        };
        running();
        let (database, slot) = (&self.database, &*self.slot);
        let watchdog = Watchdog {
            database,
            slot,
            publications: &publications,
            tables: &tables,
            table_changes: &self.table_changes,
            times: self.times,
        };
        let mut pump = Pump::new(stream, database, &self.consumers, self.times);
        tokio::select! {
            error = pump.pump() => error,
            unhealthy = watchdog.watch() => unhealthy.into(),
        }
    }

    async fn open(&self) -> Result<OpenedStream, RunError> {
        if self.database.is_being_recreated() {
            return Err(RunError::BeingRecreated);
        }
        let PreparedPublications { existing: publications, refused } = prepare_publications(&self.database).await?;
        for RefusedChange { publication, reason } in self.refusals.replace(refused) {
            tracing::warn!(publication, reason, "the login role may not change the publication");
        }
        if publications.is_empty() {
            return Err(RunError::NoPublication);
        }
        let settings = ReplicationSettings {
            slot: self.slot.clone(),
            publications: publications.clone(),
            silence: self.times.silence,
        };
        let stream = ReplicationStream::open(self.database.endpoint(), &settings).await?;
        let tables = published_tables(&self.database).await?;
        Ok(OpenedStream { stream, publications, tables })
    }
}

/// The way from the stream to the consumers.
struct Pump<'a> {
    stream: ReplicationStream,
    database: &'a Database,
    consumers: &'a StreamConsumers,
    decoder: Decoder,
    catalog: TableCatalog,
    /// The commit time of the transaction that is being received.
    commit_time: CommitTime,
    transaction: TransactionId,
    changes: Vec<TableChange>,
    messages: Vec<DatabaseMessage>,
    /// The bytes that were received since the last batch.
    received: usize,
    /// Changes were discarded since the last batch.
    has_gap: bool,
    times: StreamTimes,
}

impl<'a> Pump<'a> {
    fn new(
        stream: ReplicationStream,
        database: &'a Database,
        consumers: &'a StreamConsumers,
        times: StreamTimes,
    ) -> Self {
        Self {
            times,
            stream,
            database,
            consumers,
            decoder: Decoder::default(),
            catalog: TableCatalog::default(),
            commit_time: CommitTime(0),
            transaction: TransactionId(0),
            changes: Vec::new(),
            messages: Vec::new(),
            received: 0,
            has_gap: false,
        }
    }

    async fn pump(&mut self) -> RunError {
        let mut batch = Vec::new();
        loop {
            if let Err(error) = self.stream.next_batch(&mut batch).await {
                return error.into();
            }
            for message in batch.drain(..) {
                self.received += message.body.len();
                if let Err(error) = self.process(message).await {
                    return error;
                }
            }
            // A large transaction is handed over while it is being received
            if self.received >= LARGE
                && let Err(error) = self.hand_over().await
            {
                return error;
            }
        }
    }

    async fn process(&mut self, message: WalMessage) -> Result<(), RunError> {
        match self.decoder.decode(message.body)? {
            Decoded::Begin { commit_time, transaction } => {
                (self.commit_time, self.transaction) = (commit_time, transaction);
            }
            Decoded::Change(change) => {
                let Some(table) = self.describe(&change).await? else { return Ok(()) };
                if !holds_messages(&table.table) {
                    self.changes.push(TableChange { table, change });
                    return Ok(());
                }
                match DatabaseMessage::read(&change) {
                    Ok(message) => self.messages.extend(message),
                    Err(column) => {
                        tracing::warn!(
                            error_code = "UnableToBroadcastChanges",
                            column,
                            "a row of realtime.messages without a value in this column is not broadcast"
                        );
                    }
                }
            }
            Decoded::Commit { end } => {
                self.hand_over().await?;
                self.stream.confirm(Lsn(end));
            }
            Decoded::Relation(_) | Decoded::Nothing => {}
        }
        Ok(())
    }

    /// Returns the table of a change. `None`: it does not exist any more.
    ///
    /// While no connection to the database can be had, the stream waits: its end would lose what
    /// is committed until it runs again.
    async fn describe(&mut self, change: &Change) -> Result<Option<Arc<DescribedTable>>, RunError> {
        if let Some(known) = self.catalog.described(&change.relation) {
            return Ok(known);
        }
        let Self { stream, database, catalog, transaction, times, .. } = self;
        let described = async {
            let mut backoff = Backoff::default();
            for attempt in 1..DESCRIBE_ATTEMPTS {
                match describe_once(database, catalog, change, *transaction, times).await {
                    Err(RunError::Database(error)) if error.is_unavailable() => {
                        if attempt == 1 {
                            tracing::warn!(error = %error, "a table of the stream cannot be read yet");
                        }
                    }
                    outcome => return outcome,
                }
                tokio::time::sleep(backoff.pause()).await;
            }
            describe_once(database, catalog, change, *transaction, times).await
        };
        meanwhile_alive(stream, described).await?
    }

    /// Hands over what was received of the transaction.
    async fn hand_over(&mut self) -> Result<(), RunError> {
        self.received = 0;
        let (commit_time, consumers) = (self.commit_time, self.consumers);
        if !self.messages.is_empty() {
            let (transaction, messages) = (self.transaction, std::mem::take(&mut self.messages));
            let batch = MessageBatch { transaction, messages };
            let sent = meanwhile_alive(&mut self.stream, consumers.messages.send(batch)).await?;
            sent.map_err(|_| RunError::NoConsumer)?;
        }
        if !self.changes.is_empty() {
            let after_gap = std::mem::take(&mut self.has_gap);
            let (transaction, changes) = (self.transaction, std::mem::take(&mut self.changes));
            let batch = ChangeBatch { commit_time, transaction, after_gap, changes };
            let sending = consumers.changes.send_timeout(batch, CHANGES_TIMEOUT);
            match meanwhile_alive(&mut self.stream, sending).await? {
                Ok(()) => {}
                Err(SendTimeoutError::Closed(_)) => return Err(RunError::NoConsumer),
                Err(SendTimeoutError::Timeout(batch)) => {
                    let changes = batch.changes.len();
                    tracing::error!(changes, "changes are discarded: their delivery does not keep up");
                    self.has_gap = true;
                }
            }
        }
        Ok(())
    }
}

async fn describe_once(
    database: &Database,
    catalog: &mut TableCatalog,
    change: &Change,
    transaction: TransactionId,
    times: &StreamTimes,
) -> Result<Option<Arc<DescribedTable>>, RunError> {
    let client = database.login_client().await?;
    // The same transaction may have created or altered the table. Nothing behind it is confirmed
    // meanwhile, so a server that waits for this confirmation would wait for ever
    let transactions = [transaction];
    let visible = wait_until_visible(&client, &transactions);
    let waited = tokio::time::timeout(times.visible, visible).await.map_err(|_| RunError::NotVisible)?;
    waited.map_err(DatabaseError::from)?;
    Ok(catalog.describe(&client, &change.relation).await.map_err(DatabaseError::from)?)
}

/// Waits for `work` while the stream sends status updates.
async fn meanwhile_alive<T>(stream: &mut ReplicationStream, work: impl Future<Output = T>) -> Result<T, RunError> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        error = stream.keep_alive() => Err(error.into()),
    }
}
