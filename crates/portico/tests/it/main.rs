//! The program as an operator, a developer and a script use it: commands, and what they print where it is read, through pipes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod commands;
mod external;
mod folders;
mod history;
mod production;
mod program;
mod project_folder;
