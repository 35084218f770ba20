//! A lean client for the requests of the data API: a caller takes a connection for itself, writes one buffer and reads
//! the answer, without a task or a channel in between.
//!
//! ```no_run
//! # async fn example(endpoint: portico_database::Endpoint) -> Result<(), Box<dyn std::error::Error>> {
//! use portico_database::wire::{Access, Batch, Pool, WirePoolSettings, Statement};
//!
//! let pool = Pool::open(&endpoint, "authenticator", WirePoolSettings::default())?;
//! let mut lease = pool.checkout().await?;
//! let batch = Batch::new()
//!     .statement(Statement::named("begin read only", &[]))
//!     .statement(Statement::named("select set_config('role', $1, true)", &[Some(b"anon")]))
//!     .statement(Statement::named("select name from items where id = $1", &[Some(b"1")]).scope("anon"))
//!     .statement(Statement::named("commit", &[]))
//!     .ending(Access::ReadOnly);
//! let answers = lease.run(&batch).await?;
//! let name = answers.row(2).and_then(|row| row.get(0));
//! # let _ = name;
//! # Ok(()) }
//! ```
//!
//! How callers who share connections are kept apart is the matter of [`session`].
//!
//! Sources of its speed: a statement is parsed once per connection, within the same write as its first use; a
//! transaction is one write, one `Sync` and one read; rows are slices of the read buffer; and reads of callers
//! who wait for a connection travel along with those of callers who have one ([`Pool::take_for_read`]). Values
//! are in PostgreSQL's text form, and results too unless a statement asks for the binary one.
//!
//! Invariant: between two batches a connection has read everything up to `ReadyForQuery`. One that has not (its
//! caller went away in the middle) is never used again.

mod coalescing;
mod pool;
mod protocol;
mod session;

pub use pool::{Pool, PoolStatus, PooledConnection, Taken, WirePoolSettings};
pub use protocol::batch::{Access, Batch, Param, Statement};
pub use protocol::error::{PostgresError, WireError};
pub use protocol::joined_rows::{JoinedRows, RowSeparators};
pub use protocol::result_sets::{ResultSets, Row};
pub use session::reset::FunctionTraits;
