//! Permissions of private channels: PostgreSQL decides, by the policies on `realtime.messages`.
//!
//! A probe asks whether a subject may select or insert a row with a topic and an extension, in a
//! transaction that is always rolled back ([`probe`]). Identical probes that wait for a connection
//! at the same time share one run ([`sharing`]).
//!
//! Nothing of one probe reaches another, because
//!
//! - role, claims, headers and topic are set for the transaction of the probe alone, each to a
//!   value of this probe, before a policy runs;
//! - the rollback takes back every row, object and setting that a policy has left, also settings
//!   of the session, and each extension is probed behind a savepoint that does the same;
//! - the session reset of the wire client removes what survives a rollback (advisory locks,
//!   prepared statements, values of sequences, cached plans), and a connection is lent again only
//!   after PostgreSQL has confirmed it; a probe that failed, timed out or was cancelled leaves a
//!   connection that is restored first, or closed;
//! - a result is shared only between probes in which everything that a policy can read is equal,
//!   and only by a run that begins after all of them have arrived. Decisions that are kept for a
//!   time (off by default) have the same key.

mod decisions;
mod error;
mod overload;
mod probe;
mod sharing;
mod subject;

use std::sync::Arc;
use std::time::Duration;

use portico_database::wire::{Pool, WireError};
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub(crate) use error::AuthoriseError;
pub(crate) use subject::{OwnedSubject, Subject};

use decisions::Decisions;
use overload::Overload;
use probe::{Probe, ProbeKind, ProbeResult};
use sharing::SharedRuns;

/// The probes that run at the same time.
const MAX_PROBES: usize = 8;
/// The time for which a probe waits for others.
const PERMIT_WAIT: Duration = Duration::from_secs(10);

/// The permissions to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadPermissions {
    pub broadcast: bool,
    /// `None`: not evaluated.
    pub presence: Option<bool>,
}

impl ReadPermissions {
    /// Returns true if anything may be received, so that the channel may be joined.
    pub fn any(self) -> bool {
        self.broadcast || self.presence == Some(true)
    }
}

/// The permissions to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WritePermissions {
    pub broadcast: bool,
    pub presence: bool,
}

/// Asks PostgreSQL for permissions. Clones share the connections.
#[derive(Debug, Clone)]
pub(crate) struct Authoriser(Arc<AuthoriserState>);

#[derive(Debug)]
struct AuthoriserState {
    pool: Pool,
    /// Bounds the probes that run at the same time.
    permits: Semaphore,
    waiting: SharedRuns,
    decisions: Decisions,
    overload: Overload,
}

impl Authoriser {
    /// Returns an authoriser on connections that act as `authenticator`. The decisions are kept for
    /// this time: a join or a message with the same subject does not ask again. Zero: each decision
    /// is a new one.
    pub fn new(pool: Pool, decisions_for: Duration) -> Self {
        Self(Arc::new(AuthoriserState {
            pool,
            permits: Semaphore::new(MAX_PROBES),
            waiting: SharedRuns::default(),
            decisions: Decisions::new(decisions_for),
            overload: Overload::default(),
        }))
    }

    /// Returns the permissions to receive. The policies for presence run only if `presence` is
    /// true.
    ///
    /// # Errors
    /// See [`AuthoriseError`]. While the connections for probes are exhausted, reads fail at once.
    pub async fn read(&self, subject: &Subject<'_>, presence: bool) -> Result<ReadPermissions, AuthoriseError> {
        let verdict = self.decide(Probe::new(ProbeKind::Read { presence }, subject)).await?;
        Ok(ReadPermissions { broadcast: verdict.broadcast, presence: verdict.presence })
    }

    /// Returns the permissions to send, for both extensions.
    ///
    /// # Errors
    /// See [`AuthoriseError`].
    pub async fn write(&self, subject: &Subject<'_>) -> Result<WritePermissions, AuthoriseError> {
        let verdict = self.decide(Probe::new(ProbeKind::Write, subject)).await?;
        Ok(WritePermissions { broadcast: verdict.broadcast, presence: verdict.presence == Some(true) })
    }

    async fn decide(&self, probe: Probe) -> Result<ProbeResult, AuthoriseError> {
        if let Some(verdict) = self.0.decisions.get(&probe, Instant::now()) {
            return Ok(verdict);
        }
        if matches!(probe.kind(), ProbeKind::Read { .. }) && self.0.overload.is_overloaded(Instant::now()) {
            return Err(AuthoriseError::NoConnection);
        }
        let state = Arc::clone(&self.0);
        let run = self.0.waiting.join_or_begin(probe, |slot| async move {
            // The requests of the data API have the other connections
            let permit = tokio::time::timeout(PERMIT_WAIT, state.permits.acquire()).await;
            let Ok(Ok(_permit)) = permit else { return Err(AuthoriseError::NoConnection) };
            let mut connection = match state.pool.checkout().await {
                Ok(connection) => connection,
                Err(error) => {
                    if matches!(error, WireError::Busy(_)) {
                        state.overload.count_timeout(state.pool.status().open, Instant::now());
                    }
                    return Err(error.into());
                }
            };
            // Callers from here on need a newer answer
            let probe = slot.leave();
            let begun_at = Instant::now();
            let verdict = probe.run(&mut connection).await?;
            state.decisions.keep(&probe, verdict, begun_at);
            Ok(verdict)
        });
        run.await
    }
}

#[cfg(test)]
mod tests;
