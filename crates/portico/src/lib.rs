//! The program: the command line, and the composition of a server from a project's configuration.
//!
//! [`Server`] is the whole server on a database that is set up; `portico-testkit` makes it from a
//! [`ServerDescription`] as `portico dev` and `portico serve` do. Only [`compose`] knows both the
//! configuration file and the settings of the services. `cli` has the commands, and `telemetry` the
//! log. No rule of a service is decided here.

pub mod cli;
pub mod compose;
pub mod control;
mod open_files;
pub mod telemetry;

/// Installs the one implementation of cryptography for the whole process. A second call changes
/// nothing.
pub fn install_cryptography() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

pub use compose::{Server, ServerDescription};
