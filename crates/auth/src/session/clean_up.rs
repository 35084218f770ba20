//! Removes what is over (auth-core 24): old refresh tokens, ended sessions, abandoned flows.
//!
//! Small batches that pass over locked rows, each in its own transaction, which gives up where it would have to wait. So
//! nobody who signs in ever waits for it for longer than one batch takes, and it never holds a lock while it waits for
//! theirs.

use time::{Duration, OffsetDateTime};
use tokio_postgres::Error;

use crate::Auth;
use crate::error::AuthError;
use crate::sql::{
    Tx, attempts, flow_state, mfa_challenges, mfa_factors, refresh_tokens, saml_relay_states, sessions, users,
    webauthn_challenges,
};

/// How long replaced refresh tokens and abandoned attempts stay, so that their reuse is told apart from an invented one.
const KEPT: Duration = Duration::hours(24);
/// Flows stay a little longer: a link that goes on with one may be opened for 24 hours.
const KEPT_FLOWS: Duration = Duration::hours(25);
/// Sessions with a fixed end stay a little longer.
const KEPT_ENDED: Duration = Duration::hours(72);
/// Anonymous users whose account was not used any more.
const KEPT_ANONYMOUS: Duration = Duration::days(30);

/// Networks from which an account was not signed in to any more: longer than most sessions live.
const KEPT_NETWORKS: Duration = Duration::days(180);

/// One statement of the clean-up.
#[derive(Debug, Clone, Copy)]
enum Batch {
    RefreshTokens,
    EndedSessions,
    OutlivedSessions { created: Option<OffsetDateTime>, used: Option<OffsetDateTime> },
    RelayStates,
    Flows,
    ClientStates,
    Challenges,
    Factors,
    KeyChallenges,
    Anonymous,
    Attempts,
    KnownNetworks,
}

impl Batch {
    /// The most batches of a clean-up. Guesses are written as fast as they are made, and must go as fast: a flood of
    /// them leaves no more rows than it makes in a quarter of an hour.
    const fn rounds(self) -> usize {
        match self {
            Self::Attempts => 100,
            _ => 1,
        }
    }

    async fn remove(self, tx: &Tx, now: OffsetDateTime) -> Result<u64, Error> {
        match self {
            Self::RefreshTokens => refresh_tokens::delete_old(tx, now - KEPT).await,
            Self::EndedSessions => sessions::delete_ended(tx, now - KEPT_ENDED).await,
            Self::OutlivedSessions { created, used } => sessions::delete_outlived(tx, created, used).await,
            Self::RelayStates => saml_relay_states::delete_old(tx, now - KEPT).await,
            Self::Flows => flow_state::delete_old(tx, now - KEPT_FLOWS).await,
            Self::ClientStates => flow_state::delete_old_client_states(tx, now - KEPT).await,
            Self::Challenges => mfa_challenges::delete_old(tx, now - KEPT).await,
            Self::Factors => mfa_factors::delete_abandoned(tx, now - KEPT).await,
            Self::KeyChallenges => webauthn_challenges::delete_expired(tx, now).await,
            Self::Anonymous => users::delete_old_anonymous(tx, now - KEPT_ANONYMOUS).await,
            Self::Attempts => attempts::delete_old(tx, now).await,
            Self::KnownNetworks => attempts::delete_old_networks(tx, now - KEPT_NETWORKS).await,
        }
    }
}

impl Auth {
    /// Removes a bounded number of batches of everything that is over. Meant to be called now and then; failures are logged.
    pub async fn clean_up(&self) {
        let now = self.now();
        let policy = &self.settings().sessions;
        let created = policy.timebox.map(|timebox| now - timebox - KEPT);
        let used = policy.inactivity_timeout.map(|timeout| now - timeout - KEPT);
        let mut batches = vec![
            Batch::RefreshTokens,
            Batch::EndedSessions,
            Batch::RelayStates,
            Batch::Flows,
            Batch::ClientStates,
            Batch::Challenges,
            Batch::Factors,
            Batch::KeyChallenges,
            Batch::Attempts,
            Batch::KnownNetworks,
        ];
        if created.is_some() || used.is_some() {
            batches.push(Batch::OutlivedSessions { created, used });
        }
        if self.settings().anonymous_users {
            batches.push(Batch::Anonymous);
        }
        for batch in batches {
            for _ in 0..batch.rounds() {
                match self.remove(batch, now).await {
                    Ok(0) => break,
                    Ok(removed) => tracing::debug!(removed, ?batch, "Cleaned up"),
                    // The others do not wait for it
                    Err(error) => {
                        tracing::warn!(%error, ?batch, "Clean-up failed and will be tried again");
                        break;
                    }
                }
            }
        }
    }

    async fn remove(&self, batch: Batch, now: OffsetDateTime) -> Result<u64, AuthError> {
        let tx = Tx::begin(self.database()).await?;
        tx.give_way().await?;
        let removed = batch.remove(&tx, now).await?;
        tx.commit().await?;
        Ok(removed)
    }
}
