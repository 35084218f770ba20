//! The ways in which a connection gets server sessions.

/// The way in which a connection gets server sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pooling {
    /// The connection leads to the server, or to something that behaves like it.
    None,
    /// The connection has one server session, which does not begin with our settings.
    Session,
    /// Every transaction may get another server session.
    Transaction,
}
