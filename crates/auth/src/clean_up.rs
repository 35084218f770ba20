//! Removes what is over (auth-core 24): old refresh tokens, ended sessions, abandoned flows.
//!
//! Small batches that skip locked rows, each in its own transaction, so that nobody who signs in ever waits for it.

use time::Duration;

use crate::Auth;
use crate::error::AuthError;
use crate::sql::{Tx, accounts, flow_state, refresh_tokens, sessions};

/// How long replaced refresh tokens and abandoned flows stay, so that their reuse is told apart from an invented one.
const KEPT: Duration = Duration::hours(24);
/// Sessions with a fixed end stay a little longer.
const KEPT_ENDED: Duration = Duration::hours(72);
/// Anonymous users who never came back.
const KEPT_ANONYMOUS: Duration = Duration::days(30);

impl Auth {
    /// Removes one batch of everything that is over. Meant to be called now and then; failures are logged.
    pub async fn clean_up(&self) {
        match self.remove_what_is_over().await {
            Ok(0) => {}
            Ok(removed) => tracing::debug!(removed, "Cleaned up"),
            Err(error) => tracing::warn!(%error, "Clean-up failed and will be tried again"),
        }
    }

    async fn remove_what_is_over(&self) -> Result<u64, AuthError> {
        let now = self.now();
        let policy = &self.settings().sessions;
        let created = policy.timebox.map(|timebox| now - timebox - KEPT);
        let used = policy.inactivity_timeout.map(|timeout| now - timeout - KEPT);
        let mut removed = 0;

        let tx = Tx::begin(self.database()).await?;
        removed += refresh_tokens::delete_old(&tx, now - KEPT).await?;
        tx.commit().await?;

        let tx = Tx::begin(self.database()).await?;
        removed += sessions::delete_ended(&tx, now - KEPT_ENDED).await?;
        if created.is_some() || used.is_some() {
            removed += sessions::delete_outlived(&tx, created, used).await?;
        }
        tx.commit().await?;

        let tx = Tx::begin(self.database()).await?;
        removed += flow_state::delete_old(&tx, now - KEPT).await?;
        removed += flow_state::delete_old_client_states(&tx, now - KEPT).await?;
        tx.commit().await?;

        if self.settings().anonymous_users {
            let tx = Tx::begin(self.database()).await?;
            removed += accounts::delete_old_anonymous(&tx, now - KEPT_ANONYMOUS).await?;
            tx.commit().await?;
        }
        Ok(removed)
    }
}
