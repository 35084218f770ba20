//! Hooks: functions of a project, over HTTP or in PostgreSQL, that decide at certain points.

#![allow(dead_code)]

pub mod endpoint;
mod http;
