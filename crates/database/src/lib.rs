//! PostgreSQL: the embedded cluster, connections, and the schema every service finds there.
//!
//! - [`cluster`] runs the real PostgreSQL server as a supervised child process;
//! - [`Endpoint`] (`endpoint`) says where a server is and as whom to connect, for the embedded and
//!   an external one alike; `acting` has the names and logins of roles on a server of others;
//! - [`Database`] gives pooled connections by [`RoleProfile`] (`pool`), and brings the roles and
//!   schemas up to date (`bootstrap`; the SQL files in `portico` are the steps of our own schema);
//! - `pooler` makes whole sessions of those behind a connection pooler;
//! - [`wire`] is the lean client of the data API, for many small batches: `protocol`, `session`,
//!   `pool`, `coalescing`;
//! - [`quote`] writes names and texts as SQL;
//! - [`replication`] is the stream of committed changes;
//! - [`scratch`] makes databases that live as long as a test.
//!
//! This crate knows nothing of HTTP, tokens, users or projects: it does not interpret a request,
//! and no statement here depends on who is signed in.

mod acting;
mod bootstrap;
pub mod cluster;
mod connection;
mod database;
mod endpoint;
mod error;
mod listen;
mod lock;
mod pool;
mod pooler;
pub mod quote;
pub mod replication;
pub mod scratch;
pub mod sqlstate;
mod statement_words;
mod temporary;
mod tls;
pub mod wire;

pub use bootstrap::{BootstrapSettings, EMULATED_EXTENSIONS, Limitation, MigrationSession, install_extensions};
pub use connection::connect;
pub use database::Database;
pub use endpoint::{Endpoint, EndpointError, Host, Password, TlsMode, TlsSettings};
pub use error::DatabaseError;
pub use listen::Listener;
pub use lock::HeldLock;
pub use pool::{Client, PoolSettings, RolePool, RoleProfile};
pub use tls::TlsError;
