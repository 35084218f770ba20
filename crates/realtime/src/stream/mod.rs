//! The stream of database changes: one connection for all clients, while there are any.
//!
//! It runs from the first [`StreamUse`] until eleven minutes after the last one has been dropped,
//! and connects again after every failure. Each committed transaction goes to two consumers: rows
//! that were inserted into `realtime.messages` as [`MessageBatch`]es, and changes of all other
//! published tables as [`ChangeBatch`]es. Both have the order of the commits.
//!
//! Promises: a change is handed over once at most, and only after its commit. Does not promise:
//! changes that are committed while the stream is not running. A consumer that is slow delays the
//! stream, which keeps its connection meanwhile; one that stalls for minutes makes the watchdog
//! open a new stream, so that the server's log is not kept for ever.

mod backoff;
mod message;
mod owner;
mod refusals;
mod run;
#[cfg(test)]
mod tests;
mod times;
mod visibility;
mod watchdog;

pub(crate) use message::{DatabaseMessage, MessagePayload};
pub(crate) use owner::{ChangeStream, ChangeStreamSettings, FollowedStream, StreamState, StreamUse};
#[cfg(test)]
pub(crate) use run::TableChange;
pub(crate) use run::{ChangeBatch, MessageBatch, StreamConsumers};
pub(crate) use times::StreamTimes;
pub(crate) use visibility::wait_until_visible;
