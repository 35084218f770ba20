//! The OpenAPI document at the root: the exposed objects, as Swagger 2.0.
//!
//! [`document`](document::document) is pure: it depends on the schema cache and on the objects that
//! the role of the request may use.

mod address;
mod defaults;
mod definitions;
mod document;
mod fragments;
mod parameters;
mod paths;
mod privileges;
mod respond;
mod types;

pub(crate) use respond::{forbidden, has_secret_key, respond};

#[cfg(test)]
mod tests;
