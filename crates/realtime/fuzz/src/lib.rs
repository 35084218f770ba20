//! The modules of `portico-realtime` that parse bytes: the same files, without the rest of the
//! service. Their items are private to the crate, so that the properties are checked in it, too.

// The rest of the service uses more of the modules
#![allow(dead_code)]

mod check_decoder;
mod check_frame;
mod decode;
#[path = "../../src/socket/frame.rs"]
mod frame;

pub use check_decoder::check_decoder;
pub use check_frame::check_frame;
