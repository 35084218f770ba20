//! The headers that the gateway adds for services: the request id, the client's address, and the
//! URL that the client requested.
//!
//! Headers of a trusted proxy are kept. Those of other clients are removed before
//! ([`RequestClient::of`]), and replaced by what the gateway itself observes.

use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use portico_base::RequestId;

use crate::request::client::RequestClient;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const PATH: HeaderName = HeaderName::from_static("x-forwarded-path");
const PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
/// The longest prefix of a proxy that is passed on, in bytes.
const LONGEST_PREFIX: usize = 1024;

/// The headers that the gateway can add to a request. Writing them ([`GatewayHeaders::write_to`])
/// costs more than most services gain, so each service decides whether it needs them.
#[derive(Debug, Clone)]
pub struct GatewayHeaders {
    pub(crate) client: RequestClient,
    pub(crate) id: RequestId,
    pub(crate) called: CalledUrl,
    pub(crate) may_be_privileged: bool,
}

/// The URL that the client requested.
#[derive(Debug, Clone)]
pub(crate) struct CalledUrl {
    /// The path that the client requested.
    pub path: HeaderValue,
    /// The part of it that the service does not see.
    pub prefix: HeaderValue,
    /// The host, if the request line names it.
    pub authority: Option<Authority>,
}

impl GatewayHeaders {
    /// Returns false for a page that may not use secret keys, nor tokens with a service's rights.
    /// Only the services that check keys themselves
    /// ([`AccessRules::own_keys`](crate::AccessRules::own_keys)) need it; for others it is true.
    #[must_use]
    pub fn may_be_privileged(&self) -> bool {
        self.may_be_privileged
    }

    /// Sets `X-Request-Id`, `X-Real-IP` and `X-Forwarded-*` in the headers of a request.
    pub fn write_to(&self, headers: &mut HeaderMap) {
        headers.reserve(8);
        self.client.write_to(headers);
        if let Ok(id) = HeaderValue::from_str(self.id.as_str()) {
            headers.insert(REQUEST_ID, id);
        }
        self.called.write_to(headers);
    }
}

impl CalledUrl {
    /// Sets `X-Forwarded-*`.
    ///
    /// Precondition: headers of untrusted peers are removed ([`RequestClient::of`]).
    fn write_to(&self, headers: &mut HeaderMap) {
        let Self { path, prefix, authority } = self;
        if !headers.contains_key(&HOST)
            && let Some(host) = host(headers, authority.as_ref())
        {
            headers.insert(HOST, host);
        }
        // The gateway itself never encrypts: that is the task of a proxy
        let is_https = headers.get(&PROTO).is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"));
        if !headers.contains_key(&PROTO) {
            headers.insert(PROTO, HeaderValue::from_static("http"));
        }
        if !headers.contains_key(&PORT) {
            let named = headers.get(&HOST).and_then(port).map(HeaderValue::from);
            let usual = if is_https { "443" } else { "80" };
            headers.insert(PORT, named.unwrap_or(HeaderValue::from_static(usual)));
        }
        let outer = headers.get(&PREFIX);
        let whole_prefix = outer.and_then(|outer| joined(outer, prefix)).unwrap_or_else(|| prefix.clone());
        let whole_path = outer.and_then(|outer| joined(outer, path)).unwrap_or_else(|| path.clone());
        headers.insert(PREFIX, whole_prefix);
        if !headers.contains_key(&PATH) {
            headers.insert(PATH, whole_path);
        }
    }
}

/// Returns the host as the client wrote it, with its port.
fn host(headers: &HeaderMap, authority: Option<&Authority>) -> Option<HeaderValue> {
    match headers.get(header::HOST) {
        Some(host) => Some(host.clone()),
        // HTTP/2 names it here
        None => HeaderValue::from_str(authority?.as_str()).ok(),
    }
}

fn port(host: &HeaderValue) -> Option<u16> {
    // Most hosts have no port, and need no parser
    if !host.as_bytes().contains(&b':') {
        return None;
    }
    Authority::try_from(host.as_bytes()).ok()?.port_u16()
}

/// Joins the prefix that a proxy has removed with the gateway's own prefix or path.
fn joined(outer: &HeaderValue, inner: &HeaderValue) -> Option<HeaderValue> {
    let outer = outer.to_str().ok()?.trim_end_matches('/');
    if !outer.starts_with('/') || outer.len() > LONGEST_PREFIX {
        return None;
    }
    HeaderValue::try_from([outer.as_bytes(), inner.as_bytes()].concat()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX_OF_SERVICE: HeaderValue = HeaderValue::from_static("/rest/v1");
    const CALLED: HeaderValue = HeaderValue::from_static("/rest/v1/notes");

    /// Returns host, protocol, port, prefix and path as a service at `/rest/v1` reads them.
    fn forwarded(given: &[(&'static str, &str)]) -> [String; 5] {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.insert(*name, HeaderValue::from_str(value).expect("a header"));
        }
        CalledUrl { path: CALLED, prefix: PREFIX_OF_SERVICE, authority: None }.write_to(&mut headers);
        [HOST, PROTO, PORT, PREFIX, PATH]
            .map(|name| headers.get(name).map(|value| value.to_str().expect("text").to_owned()).unwrap_or_default())
    }

    #[test]
    fn without_a_proxy_the_headers_name_the_requested_url() {
        let (prefix, path) = ("/rest/v1", "/rest/v1/notes");
        assert_eq!(forwarded(&[("host", "127.0.0.1:54321")]), ["127.0.0.1:54321", "http", "54321", prefix, path]);
        assert_eq!(forwarded(&[("host", "app.example")]), ["app.example", "http", "80", prefix, path]);
        assert_eq!(forwarded(&[("host", "[::1]:8000")]), ["[::1]:8000", "http", "8000", prefix, path]);
        assert_eq!(forwarded(&[("host", "[::1]")])[2], "80");
        assert_eq!(forwarded(&[("host", "app.example:port")])[2], "80");
        assert_eq!(forwarded(&[]), ["", "http", "80", prefix, path]);
    }

    #[test]
    fn headers_of_a_proxy_are_kept_and_its_prefix_comes_first() {
        let said = [
            ("host", "10.0.0.7:54321"),
            ("x-forwarded-host", "app.example"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-prefix", "/backend/"),
        ];
        assert_eq!(forwarded(&said), ["app.example", "https", "443", "/backend/rest/v1", "/backend/rest/v1/notes"]);
        assert_eq!(forwarded(&[("x-forwarded-path", "/there/notes")])[4], "/there/notes");
        assert_eq!(forwarded(&[("x-forwarded-port", "8443")])[2], "8443");
        for odd in ["backend", "", "https://evil.example"] {
            let [.., prefix, path] = forwarded(&[("x-forwarded-prefix", odd)]);
            assert_eq!([prefix, path], ["/rest/v1", "/rest/v1/notes"], "{odd}");
        }
    }

    #[test]
    fn the_host_of_the_target_is_used_without_a_host_header() {
        let mut headers = HeaderMap::new();
        let authority = Some(Authority::from_static("app.example:81"));
        CalledUrl { path: CALLED, prefix: PREFIX_OF_SERVICE, authority }.write_to(&mut headers);
        assert_eq!((&headers[HOST], &headers[PORT]), (&"app.example:81".parse().unwrap(), &HeaderValue::from(81)));
    }
}
