//! The pages that may use a stand-in from a browser.
//!
//! Emails hold links and codes that sign people in, and the identity provider lets its caller sign
//! in as any account. Their ports are open to every page in a developer's browser, so
//! [`AllowedOrigins`] decides about each request.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, uri::Authority};
use portico_base::AllowedOrigins;

/// The rules of one port.
#[derive(Debug, Clone)]
pub(crate) struct AdmissionRules {
    pub(crate) origins: AllowedOrigins,
    /// Pages of other origins that are allowed may read responses (CORS).
    pub(crate) shares: bool,
}

/// Responds to pages and programs of this machine, and pages of the project's own sites; others are
/// refused.
pub(crate) async fn admit(State(admission): State<AdmissionRules>, request: Request, next: Next) -> Response {
    let AdmissionRules { origins, shares } = admission;
    if !host_of(&request).is_some_and(|host| origins.knows_host(&host)) {
        return refuse("This port is found at the names of this machine only, such as 127.0.0.1 and localhost");
    }
    let origin = request.headers().get(header::ORIGIN).cloned();
    let is_allowed = |origin: &HeaderValue| origin.to_str().is_ok_and(|origin| origins.allows(origin));
    if origin.as_ref().is_some_and(|origin| !is_allowed(origin)) {
        return refuse("This port is closed to pages of other websites; [auth] site_url names the project's own");
    }
    if !shares {
        return next.run(request).await;
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

/// Returns the host of the request without its port. `None`: it names none, several, or none that
/// could be one.
fn host_of(request: &Request) -> Option<String> {
    let mut named = request.headers().get_all(header::HOST).iter();
    let header = named.next();
    if named.next().is_some() {
        return None;
    }
    let authority = match request.uri().authority() {
        Some(authority) => authority.clone(),
        None => header?.to_str().ok()?.parse::<Authority>().ok()?,
    };
    Some(authority.host().to_owned())
}
