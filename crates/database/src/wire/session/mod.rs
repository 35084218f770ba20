pub(crate) mod connection;
pub(crate) mod dial;
pub(crate) mod reset;
pub(crate) mod statements;
