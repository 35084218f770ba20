//! The parts of a request, as `portico_rest::request` names them.

#[path = "../../src/request/body/mod.rs"]
pub mod body;
#[path = "../../src/request/media.rs"]
pub mod media;
#[path = "../../src/request/preferences.rs"]
pub mod preferences;
#[path = "../../src/request/row_window.rs"]
pub mod row_window;
