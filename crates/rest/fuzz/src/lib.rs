//! The modules of `portico-rest` that parse the input of clients: the same files, without the rest
//! of the service.

#[path = "../../src/error.rs"]
pub mod error;
#[path = "../../src/query/mod.rs"]
pub mod query;
pub mod request;

pub use error::RestError;
