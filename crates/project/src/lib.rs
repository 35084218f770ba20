//! The project folder: `supabase/config.toml`, environment files, migrations and seeds.
//!
//! - `config` and `portico_toml`: the two files, every key with its type; `section` reads the keys
//!   of a table
//! - `migrations`; `sql`: the statements of a file
//!
//! This crate reads a project and applies its SQL to the database. The composition of the server
//! gives the values their meaning for services. It must not know HTTP, and it imports no service.

mod config;
mod document;
mod dotenv;
mod encrypted;
mod environment;
mod error;
mod exposure;
mod glob;
mod init;
pub mod migrations;
mod nearest;
pub mod portico_toml;
mod prepare;
mod progress;
mod project;
mod section;
pub mod seeds;
mod sql;
pub mod status;
mod units;
mod unprotected;

pub use config::*;
pub use environment::Environment;
pub use error::{Problem, ProjectError, SourcePosition, Warning, WarningKind};
pub use exposure::Exposure;
pub use init::init;
pub use migrations::{Migration, MigrationError, PlanError, PlanOptions, StatementError};
pub use prepare::{
    PrepareOptions, PreparedDatabase, current_branch, prepare, reset, store_vault_secrets, warn_of_edited,
    warn_of_unprotected,
};
pub use progress::{Progress, ProgressSink};
pub use project::{LoadOptions, Project};
pub use sql::{SqlStatement, split as split_statements};
pub use units::duration as parse_duration;
pub use unprotected::{Unprotected, unprotected};
