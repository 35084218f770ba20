//! HTTP as far as the protocols share it: requests, their bodies, and the headers of objects.

pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod form;
pub(crate) mod object_headers;
pub(crate) mod response;
