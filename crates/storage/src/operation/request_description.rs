//! The description of a request, which the functions of policies and triggers may read.

use http::{Extensions, HeaderMap, Method, header};
use portico_base::{ClientAddress, Secret};
use serde_json::{Map, Value};

/// The request as SQL sees it.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestDescription {
    pub(super) method: String,
    pub(super) path: String,
    /// A JSON object.
    pub(super) headers: String,
    pub(super) client: Option<ClientAddress>,
}

impl RequestDescription {
    /// Describes a request. `authorization` replaces the header of that name.
    pub fn new(method: &Method, path: &str, headers: &HeaderMap, authorization: Option<&Secret>) -> Self {
        let mut visible = Map::new();
        for (name, value) in headers {
            if *name == header::COOKIE || *name == "apikey" {
                continue;
            }
            visible.insert(name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into());
        }
        if let Some(authorization) = authorization {
            visible.insert(header::AUTHORIZATION.as_str().to_owned(), authorization.expose().into());
        }
        Self {
            method: method.as_str().to_owned(),
            path: path.to_owned(),
            headers: Value::Object(visible).to_string(),
            client: None,
        }
    }

    /// Describes nothing to SQL: for reads as the service. Limits still count the client.
    pub fn of_client(extensions: &Extensions) -> Self {
        Self::default().with_client(extensions)
    }

    /// Adds the address of the client, which limits per caller count by.
    #[must_use]
    pub fn with_client(self, extensions: &Extensions) -> Self {
        Self { client: extensions.get().copied(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_read_as_the_service_knows_the_client_and_shows_sql_nothing() {
        let mut extensions = Extensions::new();
        let address = ClientAddress([192, 0, 2, 7].into());
        extensions.insert(address);
        let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("image/webp"))]);
        let whole = RequestDescription::new(&Method::GET, "/", &headers, None).with_client(&extensions);
        let seen = |of: &RequestDescription| [&of.method, &of.path, &of.headers].map(String::clone);
        assert_eq!(seen(&whole), ["GET", "/", r#"{"accept":"image/webp"}"#]);
        let without = RequestDescription::of_client(&extensions);
        assert_eq!((seen(&without), without.client), (["", "", ""].map(String::from), whole.client));
        assert_eq!(without.client, Some(address));
    }
}
