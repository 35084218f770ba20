//! From configuration to settings: the only place that knows both.

pub mod auth;
pub mod brand;
pub mod database;
pub mod google;
pub mod graphql;
pub mod keys;
pub mod mail;
pub mod missing_services;
pub mod page;
pub mod rest;
pub mod safety;
pub mod texts;
pub mod unsupported;
