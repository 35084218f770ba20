//! Logical replication: the committed changes of a database as a stream of messages.
//!
//! A [`ReplicationStream`] is a connection of the replication protocol with a temporary slot of the
//! plugin `pgoutput`. Changes that are committed while no stream is open are not sent later.
//!
//! The server keeps its log from the oldest position that a stream has not confirmed. Three limits
//! prevent that a stream that stalls keeps it for ever: the slot goes with the connection; the
//! server closes a connection that sends no status within `wal_sender_timeout`, which each stream
//! sets for its session, and statuses are sent only while messages are received; and a slot that is
//! further behind than `max_slot_wal_keep_size` is invalidated. Each is an error of the stream,
//! after which the caller opens a new one.

mod error;
mod messages;
mod publications;
mod slots;
mod stream;

pub use error::ReplicationError;
pub use messages::{Lsn, WalMessage};
pub use publications::{PreparedPublications, RefusedChange, existing_publications, prepare_publications};
pub(crate) use slots::end_streams;
pub use stream::{ReplicationSettings, ReplicationStream};
