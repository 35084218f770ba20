//! The project folder, read from real folders and applied to a real database.

#![allow(clippy::unwrap_used)]

mod config;
mod environment;
mod folder;
mod init;
mod loading;
mod migrations;
mod portico_toml;
mod scratch;
mod seeds;
