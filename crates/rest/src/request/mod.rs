//! A request as types: its head, its query string and its body.

pub mod body;
pub mod media;
pub mod preferences;
pub(crate) mod resource;
pub(crate) mod role;
pub mod row_window;
