//! The modules of `portico-rest` that parse the input of clients: the same files, without the rest
//! of the service.

#[path = "../../src/error.rs"]
pub mod error;
#[path = "../../src/query/mod.rs"]
pub mod query;

/// The parts of a request, as `portico_rest::request` names them.
pub mod request {
    #[path = "../../../src/request/body/mod.rs"]
    pub mod body;
    #[path = "../../../src/request/media.rs"]
    pub mod media;
    #[path = "../../../src/request/preferences.rs"]
    pub mod preferences;
    #[path = "../../../src/request/row_window.rs"]
    pub mod row_window;
}

pub use error::RestError;
