//! The beginning of a socket.

use std::sync::Arc;

use super::frame::Version;

/// The properties of a socket from its handshake.
#[derive(Debug)]
pub(crate) struct SocketHead {
    pub version: Version,
    /// The token that the API key stands for: that of every channel without one of its own.
    pub token: Arc<str>,
    /// The headers that policies see, as a JSON object.
    pub headers: Arc<str>,
    /// False for a page that may not use secret keys.
    pub may_be_privileged: bool,
}
