//! The program as operators, developers and scripts use it: commands, and their output through
//! pipes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod commands;
mod external;
mod folders;
mod history;
mod production;
mod program;
mod project_folder;
