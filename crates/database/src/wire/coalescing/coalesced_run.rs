//! A write with the reads of several callers.

use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use super::shared::SharedCoalescer;
use crate::wire::pool::Pool;
use crate::wire::pool::checkout_queue::{CheckoutGrant, DelegatedBatch};
use crate::wire::protocol::batch::{Batch, Statement};
use crate::wire::protocol::encode::SYNC;
use crate::wire::protocol::error::WireError;
use crate::wire::protocol::joined_rows::RowSeparators;
use crate::wire::protocol::result_sets::ResultSets;
use crate::wire::session::batch_copy::{BatchCopy, is_prepared, write_prepared};
use crate::wire::session::connection::WireConnection;
use crate::wire::session::mode::SessionMode;
use crate::wire::session::prepared_statements::PreparedStatements;
use crate::wire::session::receive::Responses;
use crate::wire::session::run::is_out_of_sync;

/// The maximum number of reads in one write.
const MAX_READS: usize = 8;
/// A caller whose results have not arrived after this time is released, to run its read elsewhere.
const WAITER_PATIENCE: Duration = Duration::from_millis(20);

/// The receivers of the results of delegated reads, in their order. Dropped, they run their reads
/// themselves.
type Waiters = Vec<Option<oneshot::Sender<CheckoutGrant>>>;

/// A run of several reads on a connection.
pub(super) struct CoalescedRun<'a> {
    pub pool: &'a Pool,
    pub shared: &'a SharedCoalescer,
    pub connection: &'a mut WireConnection,
    /// The generation of the connection.
    pub generation: u64,
    pub mode: SessionMode,
}

/// The outcome of a [`CoalescedRun`].
pub(super) enum CoalescedOutcome {
    /// There was no other read to send, and nothing was sent.
    NotCoalesced,
    /// The results of the caller's own read. `None`: it failed, or its results had to be discarded.
    Completed(Option<ResultSets>),
    /// The server did not respond in time. The connection is unusable.
    Stalled,
}

/// A statement with its key.
type KeyedStatement<'a> = (u64, Statement<'a>);

/// A read in a coalesced write: the key of its main statement, the number of its statements, and
/// the one whose rows are joined.
struct SentRead {
    key: u64,
    statements: usize,
    joined: Option<(usize, RowSeparators)>,
}

impl CoalescedRun<'_> {
    /// Sends the reads of waiting callers along with the caller's own, whose main statement has the
    /// key `key`, and distributes the results.
    pub async fn run(mut self, batch: &Batch<'_>, key: u64) -> Result<CoalescedOutcome, WireError> {
        if self.mode.traits.prepares || self.mode.traits.keeps {
            // A read could replace the prepared statements of the reads after it, or the session
            // ends with it
            return Ok(CoalescedOutcome::NotCoalesced);
        }
        let reset = self.connection.read_only_reset(self.mode);
        let runtime = self.connection.runtime();
        let statements = self.connection.statements();
        // From here on the statements that are looked up are not evicted
        statements.begin_batch();
        let reset_statements = with_keys(self.pool, reset.statements());
        let own = with_keys(self.pool, batch.statements.iter().copied());
        if !own.iter().chain(&reset_statements).all(|(key, statement)| is_prepared(statements, *key, statement)) {
            return Ok(CoalescedOutcome::NotCoalesced);
        }
        let delegated = self.take_delegated(runtime);
        if delegated.is_empty() {
            return Ok(CoalescedOutcome::NotCoalesced);
        }
        let (reads, mut waiters): (Vec<BatchCopy>, Waiters) =
            delegated.into_iter().map(|(read, waiter)| (read, Some(waiter))).unzip();
        let write_all = |out: &mut BytesMut, statements: &mut PreparedStatements| {
            let end = |out: &mut BytesMut, statements: &mut PreparedStatements| {
                let fits =
                    reset_statements.iter().all(|(key, statement)| write_prepared(out, statements, *key, statement));
                out.extend_from_slice(SYNC);
                fits
            };
            // The other reads first: this caller has to wait for all of them in any case
            reads.iter().all(|read| read.write(out, statements) && end(out, statements))
                && own.iter().all(|(key, statement)| write_prepared(out, statements, *key, statement))
                && end(out, statements)
        };
        let mut patience = pin!(tokio::time::sleep(WAITER_PATIENCE));
        match while_waiters_wait(self.connection.send_transactions(write_all), patience.as_mut(), &mut waiters).await {
            Some(Ok(true)) => {}
            Some(Ok(false)) => return Ok(CoalescedOutcome::NotCoalesced),
            Some(Err(error)) => return Err(error),
            None => return Ok(CoalescedOutcome::Stalled),
        }
        let own_joined = own.iter().enumerate().find_map(|(position, (_, it))| Some((position, it.joined?)));
        let mut sent: Vec<SentRead> = reads
            .iter()
            .map(|read| SentRead {
                key: read.main_key().unwrap_or_default(),
                statements: read.len(),
                joined: read.joined(),
            })
            .collect();
        sent.push(SentRead { key, statements: own.len(), joined: own_joined });
        self.receive_all(&sent, patience, waiters).await
    }

    /// Receives the responses to all reads, of which the last is the caller's own.
    async fn receive_all(
        &mut self,
        sent: &[SentRead],
        mut patience: Pin<&mut Sleep>,
        mut waiters: Waiters,
    ) -> Result<CoalescedOutcome, WireError> {
        let reset = self.connection.read_only_reset(self.mode);
        let mut own_results = None;
        // The results of the reads that follow are discarded
        let mut must_discard = false;
        let mut started = Instant::now();
        for (position, read) in sent.iter().enumerate() {
            let is_own = position + 1 == sent.len();
            let expected = read.statements + reset.len();
            let receiving = self.connection.receive_transaction(expected, read.joined);
            let responses = if is_own {
                // Without a time limit of its own
                receiving.await?
            } else {
                match while_waiters_wait(receiving, patience.as_mut(), &mut waiters).await {
                    Some(responses) => responses?,
                    None => return Ok(CoalescedOutcome::Stalled),
                }
            };
            let now = Instant::now();
            self.shared.times.record(read.key, now - std::mem::replace(&mut started, now));
            let Responses { mut results, error, .. } = responses;
            if let Some(error) = error {
                if is_out_of_sync(&error) || results.len() >= read.statements {
                    return Err(WireError::Postgres(error));
                }
                // The read is run again alone, and its caller gets the error of that run
                self.connection.remove_if_stale(read.key, &error);
                must_discard = true;
                // The reads after it are not answered here: their callers run them at once
                waiters.clear();
                continue;
            }
            let check = reset
                .check(&results, read.statements)
                .filter(|_| results.len() == expected && !self.connection.in_transaction());
            let Some(check) = check else { return Err(self.connection.response_mismatch()) };
            if self.connection.session().apply_reset_check(check).has_new_traits {
                self.pool.shared.evict_function_traits();
            }
            let was_discarded = must_discard;
            must_discard |= !self.connection.session().is_clean();
            if was_discarded {
                continue;
            }
            results.truncate(read.statements);
            if is_own {
                own_results = Some(results);
            } else if let Some(waiter) = waiters.get_mut(position).and_then(Option::take) {
                // The caller may have been cancelled
                let _ = waiter.send(CheckoutGrant::Results(results));
            }
            if must_discard {
                waiters.clear();
            }
        }
        if must_discard {
            self.connection.session().mark_dirty();
        }
        self.connection.finish_receiving();
        Ok(CoalescedOutcome::Completed(own_results))
    }

    /// Takes reads of waiting callers that the connection can send.
    fn take_delegated(&mut self, runtime: tokio::runtime::Id) -> Vec<DelegatedBatch> {
        let pool = &self.pool.shared;
        let mut queue = pool.queue();
        // A caller that came after a renewal must not get an older connection. Checked under the
        // lock: a renewal first increases the generation, then locks the queue
        if self.generation != pool.generation() {
            return Vec::new();
        }
        let statements = self.connection.statements();
        let batches = queue.take_delegated(runtime, MAX_READS - 1, &mut |batch| batch.is_prepared(statements));
        self.shared.coalesced.fetch_add(batches.len() as u64, Ordering::Relaxed);
        batches
    }
}

fn with_keys<'a>(pool: &Pool, statements: impl Iterator<Item = Statement<'a>>) -> Vec<KeyedStatement<'a>> {
    statements.map(|statement| (pool.shared.statement_key(&statement), statement)).collect()
}

/// Runs `work`, which other callers wait for. When `patience` ends first, releases them and returns
/// `None`.
async fn while_waiters_wait<T>(
    work: impl Future<Output = T>,
    patience: Pin<&mut Sleep>,
    waiters: &mut Waiters,
) -> Option<T> {
    tokio::select! {
        biased;
        outcome = work => Some(outcome),
        () = patience => {
            waiters.clear();
            None
        }
    }
}
