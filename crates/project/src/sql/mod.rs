//! SQL text: tokens, and the statements a file consists of.

mod lexer;
mod split;

pub use split::{Statement, split};
