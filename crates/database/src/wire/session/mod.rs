//! Sessions: connections that act as a role, with prepared statements and a reset after each
//! transaction.

pub(crate) mod batch_copy;
pub(crate) mod connection;
pub(crate) mod connector;
pub(crate) mod function_traits;
pub(crate) mod mode;
mod origin;
mod pooled;
pub(crate) mod prepared_statements;
pub(crate) mod raw;
pub(crate) mod receive;
pub(crate) mod reset;
mod restore;
pub(crate) mod run;
mod state;
pub(crate) mod statement_texts;
