//! The HTTP face: routes, extraction of requests, errors and answers.

pub(crate) mod discovery;
pub mod extract;
pub(crate) mod info;
pub(crate) mod landing;
pub(crate) mod routes;
pub(crate) mod switched_off;
