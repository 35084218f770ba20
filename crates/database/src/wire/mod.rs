//! The wire client: a small PostgreSQL client for the requests of the data API. A caller checks out
//! a connection, writes one buffer and reads the results, without a task or a channel in between.
//!
//! ```no_run
//! # async fn example(endpoint: portico_database::Endpoint) -> Result<(), Box<dyn std::error::Error>> {
//! use portico_database::wire::{Access, Batch, Pool, Statement, WirePoolSettings};
//!
//! let pool = Pool::open(&endpoint, "authenticator", WirePoolSettings::default())?;
//! let mut connection = pool.checkout().await?;
//! let batch = Batch::new()
//!     .statement(Statement::named("begin read only", &[]))
//!     .statement(Statement::named("select set_config('role', $1, true)", &[Some(b"anon")]))
//!     .statement(Statement::named("select name from items where id = $1", &[Some(b"1")]).scope("anon"))
//!     .statement(Statement::named("commit", &[]))
//!     .ending(Access::ReadOnly);
//! let results = connection.run(&batch).await?;
//! let name = results.row(2).and_then(|row| row.get(0));
//! # let _ = name;
//! # Ok(()) }
//! ```
//!
//! It has five parts; each depends only on those before it:
//!
//! - `protocol`: messages, authentication and streams;
//! - `session`: connections that act as a role, prepared statements, and the session reset that
//!   separates the callers who share a connection (its module `reset` explains how);
//! - `pool`: the checkout of connections;
//! - `coalescing`: several reads in one write. It can be removed without a change of the other
//!   parts' behaviour;
//! - `fixed_read`: one read of the program's own on sessions of its own, without a reset, for many
//!   callers at once. It does not need `coalescing`.
//!
//! Reasons for its speed: a connection parses a statement once, in the same write as its first use;
//! a transaction is one write, one `Sync` and one read; rows are slices of the read buffer; and
//! waiting reads are coalesced ([`ReadCoalescer`]). Values are in PostgreSQL's text form, and so
//! are results unless a statement asks for the binary one.
//!
//! Invariant: between two batches a connection has received everything up to `ReadyForQuery`. A
//! connection that has not, because its caller was cancelled during a batch, is never used again.

mod coalescing;
mod fixed_read;
mod pool;
pub(crate) mod protocol;
mod session;

pub use coalescing::{CoalescingSettings, ReadCoalescer, ReadError};
pub use fixed_read::FixedRead;
pub use pool::Pool;
pub use pool::checkout_queue::PoolStatus;
pub use pool::pooled_connection::PooledConnection;
pub use pool::settings::WirePoolSettings;
pub use protocol::batch::{Access, Batch, Param, Statement};
pub use protocol::error::{PostgresError, WireError};
pub use protocol::joined_rows::{JoinedRows, RowSeparators};
pub use protocol::result_sets::{ResultSets, Row};
pub use session::function_traits::{ExpressionVersion, FunctionTraits};
pub(crate) use session::raw::RawConnection;
