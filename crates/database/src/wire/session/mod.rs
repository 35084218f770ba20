pub(crate) mod connection;
pub(crate) mod connector;
pub(crate) mod prepared_statements;
pub(crate) mod reset;
