//! The modules of `portico-rest` that read what a client sent: the same files, without the rest of the service.

#[path = "../../src/body/mod.rs"]
pub mod body;
#[path = "../../src/error.rs"]
pub mod error;
#[path = "../../src/media.rs"]
pub mod media;
#[path = "../../src/preferences.rs"]
pub mod preferences;
#[path = "../../src/query/mod.rs"]
pub mod query;
#[path = "../../src/range.rs"]
pub mod range;

pub use error::RestError;
