//! The witness that this is a development server.

/// Proof that whoever holds it has decided to run a development server. Every emulator asks for one.
#[derive(Debug, Clone, Copy)]
pub struct Development(());

impl Development {
    /// Confirms that this program serves development or tests. A production server must have no path to this call:
    /// whoever reaches an emulated provider signs in as anybody.
    pub fn confirm() -> Self {
        Self(())
    }
}
