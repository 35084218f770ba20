//! The state of a session between two batches.

use std::sync::Arc;

use super::mode::SessionMode;
use super::origin::SessionOrigin;
use super::reset::{ResetCheck, SessionReset};
use crate::wire::protocol::batch::Access;

/// The state of a connection's session between two batches.
#[derive(Debug, Default)]
pub(crate) struct SessionState {
    pub origin: Arc<SessionOrigin>,
    is_clean: bool,
    /// The session holds something until its end: it had a temporary table, which functions that
    /// were compiled meanwhile may have resolved instead of another table, or values of immutable
    /// functions in expressions.
    must_end: bool,
}

impl SessionState {
    /// Returns the state of a new session.
    pub fn new(origin: SessionOrigin) -> Self {
        Self { origin: Arc::new(origin), is_clean: true, must_end: false }
    }

    /// Returns true if PostgreSQL has confirmed that nothing of the last transaction is left.
    pub fn is_clean(&self) -> bool {
        self.is_clean
    }

    /// Marks the session as not clean. Called before statements are sent.
    pub fn mark_dirty(&mut self) {
        self.is_clean = false;
    }

    /// Returns true if no reset can restore the session.
    pub fn must_end(&self) -> bool {
        self.must_end
    }

    /// Records that everything was discarded. `keeps`: except for values of immutable functions.
    pub fn record_discard(&mut self, keeps: bool) {
        self.must_end |= keeps;
        self.is_clean = !self.must_end;
    }

    /// Returns the reset after a transaction.
    pub fn reset(&self, access: Access, mode: SessionMode) -> SessionReset {
        SessionReset::new(access, mode, Arc::clone(&self.origin))
    }

    /// Applies the result of a reset check, and returns it.
    pub fn apply_reset_check(&mut self, check: ResetCheck) -> ResetCheck {
        self.must_end |= check.must_end;
        self.is_clean = check.is_reset && !self.must_end && !check.has_new_traits;
        check
    }
}
