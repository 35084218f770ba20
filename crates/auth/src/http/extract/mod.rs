//! The extractors of handlers: bodies, query parameters, request data, and the signed-in user.
//!
//! An extractor is a precondition. A handler that takes [`SignedIn`] runs only for a user whose
//! token, account and session were checked; one that takes [`Json`] only for a body of the right
//! form.

mod body;
mod query;
mod request_info;
mod signed_in;

use http::HeaderMap;

pub use body::{Json, MAX_BODY_BYTES, TokenBody, parse_json, read_body};
pub use query::Query;
pub use signed_in::{Bearer, SignedIn, bearer_token};

pub use crate::model::RequestInfo;

/// Returns the text of a header, if it is present and not empty.
pub fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim).filter(|value| !value.is_empty())
}
