//! Who may read the mailbox from a browser.
//!
//! Mails hold links and codes that sign people in, and the port is open to every page in a developer's browser. Two headers
//! keep other websites out, since no page can forge either: `Origin` names the page that asks, and `Host` the name by
//! which the port was found, which a website that points its own name here (DNS rebinding) can not make ours. Programs
//! send no `Origin`, so tools and test suites of this machine go on as before.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, uri::Authority};
use url::{Host, Url};

/// The sites besides those of this machine whose pages may read.
#[derive(Debug, Clone, Default)]
pub(super) struct Guests(Arc<[Url]>);

impl Guests {
    /// The sites at these addresses. What is no address of a website is nobody's.
    pub(super) fn new(sites: &[&str]) -> Self {
        Self(sites.iter().filter_map(|site| Url::parse(site).ok()).filter(is_website).collect())
    }

    /// Whether the port was found by a name of this machine, or of one of the sites.
    fn know_name(&self, host: &str) -> bool {
        is_of_this_machine(host) || self.0.iter().any(|site| site.host_str() == Some(host))
    }

    /// Whether pages of this origin may read.
    fn welcome(&self, origin: &str) -> bool {
        let Ok(origin) = Url::parse(origin) else { return false };
        is_website(&origin)
            && (origin.host_str().is_some_and(is_of_this_machine)
                || self.0.iter().any(|site| site.origin() == origin.origin()))
    }
}

/// Answers pages and programs of this machine, and pages of the project's own sites; nobody else.
pub(super) async fn admit(State(guests): State<Guests>, request: Request, next: Next) -> Response {
    let name = name_asked_for(&request);
    if !name.is_some_and(|name| guests.know_name(&name)) {
        return refuse("The mailbox is found at the names of this machine only, such as 127.0.0.1 and localhost");
    }
    let origin = request.headers().get(header::ORIGIN).cloned();
    let is_welcome = |origin: &HeaderValue| origin.to_str().is_ok_and(|origin| guests.welcome(origin));
    if origin.as_ref().is_some_and(|origin| !is_welcome(origin)) {
        return refuse("The mailbox is closed to pages of other websites; [auth] site_url names the project's own");
    }
    let mut response = match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    harden(headers);
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, PUT, DELETE, OPTIONS"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*"));
    }
    response
}

fn refuse(why: &'static str) -> Response {
    let mut response = (StatusCode::FORBIDDEN, why).into_response();
    harden(response.headers_mut());
    response
}

fn harden(headers: &mut HeaderMap) {
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// The host of the request, in lower case, without its port. `None`: it says none, or none that could be one.
fn name_asked_for(request: &Request) -> Option<String> {
    let authority = match request.uri().authority() {
        Some(authority) => authority.clone(),
        None => request.headers().get(header::HOST)?.to_str().ok()?.parse::<Authority>().ok()?,
    };
    Some(authority.host().to_ascii_lowercase())
}

fn is_website(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

/// Names that lead to this machine whoever answers for names: the loopback addresses and `localhost` (RFC 6761, 6.3).
fn is_of_this_machine(host: &str) -> bool {
    match Host::parse(host) {
        Ok(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Ok(Host::Ipv4(address)) => Ipv4Addr::is_loopback(&address),
        Ok(Host::Ipv6(address)) => Ipv6Addr::is_loopback(&address),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_known_and_others_are_not() {
        for own in ["localhost", "shop.localhost", "127.0.0.1", "127.8.0.1", "[::1]"] {
            assert!(is_of_this_machine(own), "{own}");
        }
        for other in
            ["", "example.com", "localhost.example.com", "127.0.0.1.example.com", "10.0.0.1", "0.0.0.0", "[::]"]
        {
            assert!(!is_of_this_machine(other), "{other}");
        }
    }

    #[test]
    fn a_site_is_welcome_at_exactly_its_origin() {
        let guests = Guests::new(&["https://app.example.com/start", "no address", "myapp://open"]);
        for welcome in ["https://app.example.com", "http://localhost:3000", "http://[::1]:5173", "https://127.0.0.1"] {
            assert!(guests.welcome(welcome), "{welcome}");
        }
        for other in [
            "null",
            "",
            "https://example.com",
            "http://app.example.com",
            "https://app.example.com:8443",
            "https://app.example.com.evil.test",
            "myapp://open",
            "chrome-extension://localhost",
        ] {
            assert!(!guests.welcome(other), "{other}");
        }
        assert!(guests.know_name("app.example.com") && !guests.know_name("example.com"));
    }
}
