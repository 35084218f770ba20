//! The witness that this is a development server.

/// Proof that a development server was started on purpose. Every emulator requires one.
#[derive(Debug, Clone, Copy)]
pub struct Development(());

impl Development {
    /// Confirms that this program serves development or tests. A production server must have no
    /// path to this call: anyone who can reach an emulated provider can sign in as any account.
    pub fn confirm() -> Self {
        Self(())
    }
}
