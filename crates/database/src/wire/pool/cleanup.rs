//! The cleanup of a connection whose caller left it in the middle of something.

use std::time::Duration;

use super::pooled_connection::PooledConnection;
use crate::wire::session::connection::WireConnection;

/// The maximum duration of a cleanup: a cancellation or the restoration of a session.
const MAX_DURATION: Duration = Duration::from_secs(5);

/// A connection whose caller has dropped it and that is not reusable yet.
pub(super) struct ConnectionCleanup {
    /// A checkout without a connection. It counts until the cleanup has ended, so that the
    /// connection limit holds.
    pub checkout: PooledConnection,
    pub connection: Option<Box<WireConnection>>,
}

impl ConnectionCleanup {
    /// Returns whether nothing is left to do but to close the connection.
    pub fn is_over(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.is_broken())
    }

    /// Restores the session, or cancels the running statement. A restored connection returns to the
    /// pool with its checkout.
    pub async fn run(mut self) {
        let Some(connection) = self.connection.as_mut() else { return };
        if connection.is_ready() {
            let mode = self.checkout.pool.mode();
            if let Ok(Ok(())) = tokio::time::timeout(MAX_DURATION, connection.restore(mode)).await
                && connection.is_reusable()
            {
                self.checkout.connection = self.connection.take();
            }
        } else {
            let key = connection.key();
            // With the connection closed, the server stops after the current statement
            self.connection = None;
            let cancelled = tokio::time::timeout(MAX_DURATION, self.checkout.pool.connector.cancel(key));
            if let Ok(Err(error)) = cancelled.await {
                tracing::debug!(error = %error, "an abandoned statement could not be cancelled");
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
