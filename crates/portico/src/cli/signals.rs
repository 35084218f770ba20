//! The signals that stop a server.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that stop a server.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl StopSignals {
    /// Installs the handlers. From then on the signals do not end the process immediately.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub(super) fn install() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
