//! PostgreSQL's protocol: messages, authentication and streams. Knows neither sessions nor pools.

pub(crate) mod authentication;
pub(crate) mod batch;
pub(crate) mod connect;
pub(crate) mod encode;
pub(crate) mod error;
pub(crate) mod joined_rows;
pub(crate) mod message_channel;
pub(crate) mod message_reader;
pub(crate) mod result_sets;
pub(crate) mod server_stream;
