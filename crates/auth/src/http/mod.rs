//! The HTTP interface: routes, extractors, and the endpoints that belong to no concept.

pub(crate) mod discovery;
pub mod extract;
pub(crate) mod info;
pub(crate) mod link_redirect;
pub(crate) mod routes;
pub(crate) mod switched_off;
