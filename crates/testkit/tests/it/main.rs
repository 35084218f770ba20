//! The harness itself, and its actors.

#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

mod actors;
mod start;
