//! The upkeep of the tables: deletes old refresh tokens, ended sessions and abandoned flows.
//!
//! Batches are small and skip locked rows. Each runs in a transaction of its own, which fails where
//! it would have to wait. So a sign-in waits at most for one batch, and the upkeep never holds a
//! lock while it waits for another one.

use time::{Duration, OffsetDateTime};
use tokio_postgres::Error;

use crate::Auth;
use crate::error::AuthError;
use crate::factors::totp;
use crate::sql::{
    Tx, attempts, flow_state, link_sessions, mfa_challenges, mfa_factors, recovery_codes, refresh_tokens,
    saml_relay_states, sessions, totp_steps, users, webauthn_challenges,
};

/// The time for which replaced refresh tokens and abandoned attempts stay, so that their reuse can
/// be distinguished from an invented token.
const KEPT: Duration = Duration::hours(24);
/// Flows stay a little longer: a link that continues one may be opened for 24 hours.
const KEPT_FLOWS: Duration = Duration::hours(25);
/// Sessions with a fixed end stay a little longer.
const KEPT_ENDED: Duration = Duration::hours(72);
/// The time after which an unused anonymous account is deleted.
const KEPT_ANONYMOUS: Duration = Duration::days(30);

/// The time after which a network is forgotten from which an account was not signed in to: longer
/// than most sessions live.
const KEPT_NETWORKS: Duration = Duration::days(180);

/// A batch of the upkeep.
#[derive(Debug, Clone, Copy)]
enum UpkeepBatch {
    RefreshTokens,
    EndedSessions,
    OutlivedSessions { created: Option<OffsetDateTime>, used: Option<OffsetDateTime> },
    RelayStates,
    Flows,
    LinkSessions,
    ClientStates,
    Challenges,
    Factors,
    KeyChallenges,
    PasswordSteps,
    RecoveryCodes,
    Anonymous,
    Attempts,
    KnownNetworks,
}

impl UpkeepBatch {
    /// Returns the maximum number of batches in one run. Guesses, and challenges of passkeys, which
    /// need no account, are deleted as fast as they are written: a flood of them leaves no more
    /// rows than it makes in a quarter of an hour.
    const fn rounds(self) -> usize {
        match self {
            Self::Attempts | Self::KeyChallenges => 100,
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
            Self::LinkSessions => link_sessions::delete_old(tx, now - KEPT_FLOWS).await,
            Self::ClientStates => flow_state::delete_old_client_states(tx, now - KEPT).await,
            Self::Challenges => mfa_challenges::delete_old(tx, now - KEPT).await,
            Self::Factors => mfa_factors::delete_abandoned(tx, now - KEPT).await,
            Self::KeyChallenges => webauthn_challenges::delete_expired(tx, now).await,
            Self::PasswordSteps => totp_steps::delete_old(tx, totp::step_at(now - KEPT)).await,
            Self::RecoveryCodes => recovery_codes::delete_orphaned(tx).await,
            Self::Anonymous => users::delete_old_anonymous(tx, now - KEPT_ANONYMOUS).await,
            Self::Attempts => attempts::delete_old(tx, now).await,
            Self::KnownNetworks => attempts::delete_old_networks(tx, now - KEPT_NETWORKS).await,
        }
    }
}

impl Auth {
    /// Deletes a bounded number of batches of expired rows. To be called periodically; failures are
    /// logged.
    pub async fn clean_up(&self) {
        let now = self.now();
        let policy = &self.settings().sessions;
        let created = policy.timebox.map(|timebox| now - timebox - KEPT);
        let used = policy.inactivity_timeout.map(|timeout| now - timeout - KEPT);
        let mut batches = vec![
            UpkeepBatch::RefreshTokens,
            UpkeepBatch::EndedSessions,
            UpkeepBatch::RelayStates,
            UpkeepBatch::Flows,
            UpkeepBatch::LinkSessions,
            UpkeepBatch::ClientStates,
            UpkeepBatch::Challenges,
            UpkeepBatch::Factors,
            UpkeepBatch::KeyChallenges,
            UpkeepBatch::PasswordSteps,
            UpkeepBatch::RecoveryCodes,
            UpkeepBatch::Attempts,
            UpkeepBatch::KnownNetworks,
        ];
        if created.is_some() || used.is_some() {
            batches.push(UpkeepBatch::OutlivedSessions { created, used });
        }
        if self.settings().anonymous_users {
            batches.push(UpkeepBatch::Anonymous);
        }
        for batch in batches {
            for _ in 0..batch.rounds() {
                match self.remove(batch, now).await {
                    Ok(0) => break,
                    Ok(removed) => tracing::debug!(removed, ?batch, "expired rows deleted"),
                    // The other batches run all the same
                    Err(error) => {
                        tracing::warn!(error = %error, ?batch, "a batch of the clean-up failed and will be retried");
                        break;
                    }
                }
            }
        }
    }

    async fn remove(&self, batch: UpkeepBatch, now: OffsetDateTime) -> Result<u64, AuthError> {
        let tx = Tx::begin(self.database()).await?;
        tx.give_way().await?;
        let removed = batch.remove(&tx, now).await?;
        tx.commit().await?;
        Ok(removed)
    }
}
