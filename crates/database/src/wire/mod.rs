//! A lean client for the requests of the data API: whoever has work takes a connection for itself, writes one buffer and reads
//! the answer, without a task or a channel in between.
//!
//! ```no_run
//! # async fn example(endpoint: portico_database::Endpoint) -> Result<(), Box<dyn std::error::Error>> {
//! use portico_database::wire::{Batch, Pool, PoolSettings, Statement, Within};
//!
//! let pool = Pool::open(&endpoint, "authenticator", PoolSettings::default())?;
//! let mut lease = pool.take().await?;
//! let batch = Batch::new()
//!     .within(Within { settings: &[("role", "anon")], unseen: &[] })
//!     .statement(Statement::named("select name from items where id = $1", &[Some(b"1")]).scope("anon"));
//! let answers = lease.run(&batch).await?;
//! let name = answers.row(0).and_then(|row| row.get(0));
//! # let _ = name;
//! # Ok(()) }
//! ```
//!
//! What makes it fast: a statement is parsed once per connection, within the same write as its first use; settings that the session has
//! from an earlier batch are not set again; a batch is one implicit transaction and one `Sync`; rows are slices of the read buffer; and reads of
//! callers who wait for a connection travel along with those of callers who have one ([`Pool::take_for_read`]). Values are in PostgreSQL's text
//! form, and results too unless a statement asks for the binary one.
//!
//! Invariant: between two batches a connection has read everything up to `ReadyForQuery`. One that has not (the caller went
//! away in the middle) is never used again.

mod answers;
mod authentication;
mod batch;
mod beginning;
mod channel;
mod connection;
mod dial;
mod encode;
mod error;
mod gathered;
mod held;
mod pool;
mod reader;
mod reported;
mod shelf;
mod statements;
mod stream;
mod times;
mod together;

pub use answers::{Answers, Row};
pub use batch::{Batch, Param, Statement};
pub use error::{PostgresError, WireError};
pub use gathered::{Gathered, Joining};
pub use held::Within;
pub use pool::{Lease, Pool, PoolSettings, PoolStatus, Taken};
