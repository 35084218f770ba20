//! The program itself, as an operator runs it.
#![allow(clippy::unwrap_used)]

mod external;
mod production;
mod program;
