//! The end of a socket.

/// The end of a socket that the server closes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SocketEnd {
    /// The code of the close frame.
    pub code: u16,
    pub reason: &'static str,
}

impl SocketEnd {
    /// The server stops or starts anew.
    pub const SERVICE_RESTART: Self = Self { code: 1012, reason: "the server restarts" };
    /// The joins are too frequent.
    pub const GOING_AWAY: Self = Self { code: 1001, reason: "" };
}
