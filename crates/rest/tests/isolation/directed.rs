//! Schedules for the classic leaks: one connection, many callers; what a broken request leaves
//! behind; a schema that changes between two requests.

mod broken;
pub mod changing;
mod shared;
