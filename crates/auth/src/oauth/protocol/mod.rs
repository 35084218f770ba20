//! The protocols that providers speak. Nothing here knows an account, a setting or a provider by
//! name.

pub mod discovery;
pub mod id_token;
pub mod oauth1;
pub(crate) mod reserved_parameters;
pub mod token_endpoint;
