//! Composes a server from one description, for development, production and tests alike.
//!
//! Each service is one file or folder: its settings from the configuration, its routes with their
//! access rules, its periodic work, and what it does before the database is closed, as one
//! [`Service`]. [`Server::new`] lists the services; a new one is a file here and a line there. One
//! with settings is also a field of [`ServerDescription`], which `development`, `production` and
//! the crate `testkit` fill in.
//!
//! - `development` and `production` turn a project's configuration into a [`ServerDescription`];
//!   `safety` and `unsupported` hold the checks of a configuration
//! - `keys`, `mail` and `database` provide what several services use
//!
//! No rule of a service is decided here.

pub mod analytics;
pub mod auth;
pub mod avatars;
pub mod brand;
pub mod database;
pub mod development;
pub mod emulators;
pub mod functions;
pub mod graphql;
pub mod keys;
pub mod mail;
pub mod production;
pub mod realtime;
pub mod rest;
pub mod safety;
pub mod server;
pub mod service;
pub mod setup;
pub mod signing_keys;
pub mod storage;
pub mod unsupported;
pub mod web_app;

pub use server::{Server, ServerDescription};
pub use service::Service;
