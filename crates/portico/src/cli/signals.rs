//! Ctrl-C and its relatives.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for the signals that ask a server to end.
pub(super) struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl EndSignals {
    /// From here on the signals no longer end the process at once.
    ///
    /// # Errors
    /// When the handlers can not be installed.
    pub(super) fn install() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Comes back with the first signal.
    pub(super) async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
