//! The clean-up of a connection whose caller left it in the middle of something.

use std::sync::Arc;
use std::time::Duration;

use portico_base::inherit_request;
use tokio::runtime::Handle;

use super::pooled_connection::PooledConnection;
use crate::wire::session::connection::WireConnection;

/// The maximum duration of a clean-up: a cancellation or the restoration of a session.
const MAX_DURATION: Duration = Duration::from_secs(5);

impl Drop for PooledConnection {
    fn drop(&mut self) {
        let unfinished = self.connection.take_if(|connection| !connection.is_reusable());
        let Some(unfinished) = unfinished else {
            return self.pool.give_back(self.connection.take(), self.generation, self.is_limited);
        };
        // The clean-up keeps the checkout, so that the connection limit holds meanwhile
        let checkout = PooledConnection {
            pool: Arc::clone(&self.pool),
            connection: None,
            generation: self.generation,
            is_limited: self.is_limited,
        };
        let clean_up = ConnectionCleanUp { checkout, connection: Some(unfinished) };
        if !clean_up.is_over()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(inherit_request(clean_up.run()));
        }
    }
}

/// A connection whose caller has dropped it and that is not reusable yet.
struct ConnectionCleanUp {
    /// A checkout without a connection. It counts until the clean-up has ended, so that the
    /// connection limit holds.
    checkout: PooledConnection,
    connection: Option<Box<WireConnection>>,
}

impl ConnectionCleanUp {
    /// Returns true if nothing is left to do but to close the connection.
    fn is_over(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.is_broken())
    }

    /// Restores the session, or cancels the running statement. A restored connection returns to the
    /// pool with its checkout.
    async fn run(mut self) {
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

impl Drop for ConnectionCleanUp {
    fn drop(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.terminate();
        }
    }
}
