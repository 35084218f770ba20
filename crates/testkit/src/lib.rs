//! A whole server on a scratch database, for the tests of `auth`, `rest`, `storage` and `realtime`.
//!
//! [`TestServer::start`] clones a migrated template database (a fraction of a second), starts the
//! real server on a free port and gives the test a client, a clock that it moves, a mailbox that it
//! reads and SQL access. Tests share only the PostgreSQL cluster of the process, so hundreds run in
//! parallel.
//!
//! [`Visitor`], [`Member`] and [`Operator`] act in the words of a test.
//!
//! Must not know: how any service works inside. A test speaks HTTP and SQL.

mod actors;
mod cluster;
mod google;
mod mail;
mod person;
mod request;
mod server;
mod text_messages;

pub use actors::{Member, Operator, Visitor, google_page};
pub use cluster::TestDatabase;
pub use google::{Google, GooglePerson};
pub use mail::{code_in, link_in, token_hash_in};
pub use person::{Pkce, claims_of};
pub use request::{Request, TestResponse};
pub use server::{PeerServer, TestServer, TestSettings};
