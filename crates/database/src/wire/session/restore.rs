//! The restoration of a session whose last batch did not reset it.

use std::io;
use std::sync::Arc;

use super::connection::WireConnection;
use super::mode::SessionMode;
use crate::wire::protocol::batch::{Access, Batch, Statement};
use crate::wire::protocol::error::WireError;

impl WireConnection {
    /// Restores the session to its origin. An open transaction is rolled back.
    ///
    /// # Errors
    /// An error means that the connection has ended.
    pub async fn restore(&mut self, mode: SessionMode) -> Result<(), WireError> {
        let outcome = self.try_restore(mode).await;
        if outcome.is_err() {
            self.terminate();
        }
        outcome
    }

    async fn try_restore(&mut self, mode: SessionMode) -> Result<(), WireError> {
        if self.is_reusable() {
            return Ok(());
        }
        if self.session.must_end() {
            return Err(WireError::Lost(io::ErrorKind::NotConnected.into()));
        }
        let mut batch = Batch::new();
        if self.in_transaction() {
            batch.push(Statement::named("rollback", &[]));
        }
        self.run(&batch.ending(Access::ReadWrite), mode).await?;
        if self.is_reusable() {
            return Ok(());
        }
        if mode.pooled || !self.is_ready() || self.session.must_end() {
            return Err(WireError::Lost(io::ErrorKind::NotConnected.into()));
        }
        // Only this removes what is left, at the price of the prepared statements
        self.execute("discard all").await?;
        self.statements.remove_all();
        let origin = Arc::clone(&self.session.origin);
        if !origin.assume_role.is_empty() {
            self.execute(&origin.assume_role).await?;
        }
        let mode = SessionMode { traits: mode.traits.with_unknown(), ..mode };
        self.run(&Batch::new().ending(Access::ReadWrite), mode).await?;
        if self.is_reusable() { Ok(()) } else { Err(WireError::Lost(io::ErrorKind::NotConnected.into())) }
    }
}
