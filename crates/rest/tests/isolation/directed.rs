//! Schedules for the classic leaks: one connection with many callers; the remains of a broken
//! request; a schema that changes between two requests.

mod broken;
pub mod changing;
pub mod shared;
