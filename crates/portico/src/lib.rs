//! The program: the command line, and the wiring from configuration to rooms.
//!
//! [`Server`] is the whole server on a database that is there already; `portico-testkit` starts it as `portico dev` and
//! `portico serve` do. Only [`wiring`] knows both the configuration file and the settings of the services. No rule of a
//! service is decided here.

pub mod cli;
pub mod control;
mod open_files;
pub mod server;
pub mod setup;
pub mod telemetry;
mod upkeep;
pub mod wiring;

/// Chooses the one implementation of cryptography for everything in the process. A second call changes nothing.
pub fn install_cryptography() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

pub use server::{Mount, Server, ServerSettings};
