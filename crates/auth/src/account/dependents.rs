//! The interface for what others keep of an account: which accounts exist, and which are deleted.

use tokio::sync::broadcast;
use uuid::Uuid;

use crate::Auth;
use crate::error::AuthError;
use crate::model::JsonObject;
use crate::model::ids::UserId;
use crate::sql::{Tx, users};

impl Auth {
    /// Returns a receiver of the ids of accounts that this process deletes from now on, also
    /// softly. Deletions by SQL and by other processes are not announced.
    pub fn deleted_accounts(&self) -> broadcast::Receiver<Uuid> {
        self.inner.deletions.subscribe()
    }

    /// Announces an account whose deletion is committed.
    pub(crate) fn announce_deletion(&self, id: UserId) {
        // Without a receiver there is nothing to do
        let _ = self.inner.deletions.send(id.0);
    }

    /// Returns the user metadata of those of the accounts that exist and are not deleted.
    ///
    /// # Errors
    /// When the database cannot be used.
    pub async fn metadata_of(&self, ids: &[Uuid]) -> Result<Vec<(Uuid, JsonObject)>, AuthError> {
        let tx = Tx::begin(self.database()).await?;
        let found = users::metadata_of(&tx, ids).await?;
        tx.commit().await?;
        Ok(found)
    }
}
