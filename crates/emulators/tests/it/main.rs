//! The emulators over real sockets, as programs and browsers meet them.
#![allow(clippy::unwrap_used)]

mod identity_flow;
mod identity_refusals;
mod mailbox_api;
mod mailbox_smtp;
mod support;
