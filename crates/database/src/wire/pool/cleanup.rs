//! The time between a caller that leaves a connection in the middle of something and the next one.

use std::time::Duration;

use super::PooledConnection;
use crate::wire::session::connection::WireConnection;

/// The time that the aftermath of a batch may take: to cancel it, or to restore its session.
const AFTERMATH: Duration = Duration::from_secs(5);

/// A connection whose caller is gone and which is not ready for another.
pub(crate) struct ConnectionCleanup {
    /// A lease without a connection: the place stays taken, so that there are never more connections than agreed.
    pub place: PooledConnection,
    pub connection: Option<Box<WireConnection>>,
}

impl ConnectionCleanup {
    /// Returns whether there is nothing to be done but to close the connection.
    pub fn is_over(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.is_broken())
    }

    /// Restores the session, or cancels the statement that is under way. A restored connection goes back to the pool with
    /// the place.
    pub async fn finish(mut self) {
        let Some(connection) = self.connection.as_mut() else { return };
        if connection.is_ready() {
            let way = self.place.inner.way();
            if let Ok(Ok(())) = tokio::time::timeout(AFTERMATH, connection.restore(way)).await
                && connection.is_reusable()
            {
                self.place.connection = self.connection.take();
            }
        } else {
            let key = connection.key();
            // With the connection closed, the server goes no further than the statement under way
            self.connection = None;
            let cancelled = tokio::time::timeout(AFTERMATH, self.place.inner.dialer.cancel(key));
            if let Ok(Err(error)) = cancelled.await {
                tracing::debug!(%error, "an abandoned statement could not be cancelled");
            }
        }
    }
}

impl Drop for ConnectionCleanup {
    fn drop(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.terminate();
        }
    }
}
