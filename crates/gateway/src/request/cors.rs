//! CORS: pages of every origin may call every service, since keys and tokens protect services, not
//! the origin; unless a mount restricts them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

const ANY: HeaderValue = HeaderValue::from_static("*");

/// The headers of responses that pages may read by default.
const EXPOSED: &str = "Content-Encoding, Content-Location, Content-Range, Content-Type, Date, ETag, Link, Location, Preference-Applied, \
     Retry-After, Server-Timing, X-RateLimit-Name, X-Total-Count, X-Supabase-Api-Version, x-sb-error-code, \
     sb-request-id, x-request-id";

/// The CORS rules of one mount.
#[derive(Clone)]
pub struct Cors {
    methods: HeaderValue,
    /// Request headers that are allowed besides those that a preflight names.
    headers: &'static str,
    max_age: Duration,
    exposed: HeaderValue,
    admits: Option<Arc<Admits>>,
}

/// A function that returns whether an origin is on the list; `None`: there is no list.
type Admits = dyn Fn(&str) -> Option<bool> + Send + Sync;

/// The decision about an origin.
enum CorsDecision {
    /// All pages are allowed, without cookies.
    Any,
    /// This origin is allowed, with cookies.
    Listed(HeaderValue),
    /// This origin is not allowed: the response has no CORS headers.
    Unlisted,
}

impl Default for Cors {
    /// Allows every origin to send every request.
    fn default() -> Self {
        Self {
            methods: HeaderValue::from_static("GET,HEAD,PUT,PATCH,POST,DELETE,OPTIONS,TRACE,CONNECT"),
            headers: "",
            max_age: Duration::from_secs(3600),
            exposed: HeaderValue::from_static(EXPOSED),
            admits: None,
        }
    }
}

impl Cors {
    /// Pages of other origins cannot read responses, nor send requests that need a preflight.
    #[must_use]
    pub fn none() -> Self {
        Self::default().origins(|_| Some(false))
    }

    /// Sets the methods that a preflight allows.
    #[must_use]
    pub fn methods(self, methods: &'static str) -> Self {
        Self { methods: HeaderValue::from_static(methods), ..self }
    }

    /// Sets the request headers that a preflight always allows.
    #[must_use]
    pub fn headers(self, headers: &'static str) -> Self {
        Self { headers, ..self }
    }

    /// Sets the time for which browsers may cache a preflight.
    #[must_use]
    pub fn max_age(self, max_age: Duration) -> Self {
        Self { max_age, ..self }
    }

    /// Adds response headers that pages may read.
    #[must_use]
    pub fn exposing(self, names: &str) -> Self {
        let exposed = HeaderValue::try_from(format!("{EXPOSED}, {names}")).unwrap_or(self.exposed);
        Self { exposed, ..self }
    }

    /// Calls `admits` for each origin; `None` means that there is no list and all origins are
    /// allowed. Only pages on a list may send cookies.
    #[must_use]
    pub fn origins(self, admits: impl Fn(&str) -> Option<bool> + Send + Sync + 'static) -> Self {
        Self { admits: Some(Arc::new(admits)), ..self }
    }

    fn decide(&self, origin: Option<&HeaderValue>) -> CorsDecision {
        let Some(admits) = &self.admits else { return CorsDecision::Any };
        // A request without an origin shows whether there is a list as well
        let asked = origin.map_or(Some(""), |origin| origin.to_str().ok()).unwrap_or_default();
        match (admits(asked), origin) {
            (None, _) => CorsDecision::Any,
            (Some(true), Some(origin)) => CorsDecision::Listed(origin.clone()),
            (Some(_), _) => CorsDecision::Unlisted,
        }
    }

    /// Returns the response to a preflight. The requested headers are echoed, since applications
    /// send their own too.
    pub(crate) fn preflight(&self, asked: &HeaderMap) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::OK;
        let headers = response.headers_mut();
        headers.insert(header::VARY, HeaderValue::from_static("Origin, Access-Control-Request-Headers"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        match self.decide(asked.get(header::ORIGIN)) {
            CorsDecision::Unlisted => return response,
            CorsDecision::Any => headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY),
            CorsDecision::Listed(origin) => admit(headers, origin),
        };
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, self.methods.clone());
        let requested = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
        let allowed = match (requested.map(HeaderValue::as_bytes), self.headers) {
            (None, "") => None,
            (None, own) => HeaderValue::try_from(own).ok(),
            (Some(_), "") => requested.cloned(),
            (Some(requested), own) => HeaderValue::from_bytes(&[own.as_bytes(), b", ", requested].concat()).ok(),
        };
        if let Some(allowed) = allowed {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
        }
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from(self.max_age.as_secs()));
        response
    }

    /// Adds the CORS headers to a response. Without a list of origins, credentials (cookies) are
    /// never allowed.
    pub(crate) fn open(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        headers.remove(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
        match self.decide(origin) {
            CorsDecision::Any => {
                headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
            }
            CorsDecision::Listed(origin) => {
                headers.append(header::VARY, HeaderValue::from_static("Origin"));
                admit(headers, origin);
            }
            CorsDecision::Unlisted => {
                headers.append(header::VARY, HeaderValue::from_static("Origin"));
                headers.remove(header::ACCESS_CONTROL_ALLOW_ORIGIN);
                return;
            }
        }
        headers.entry(header::ACCESS_CONTROL_EXPOSE_HEADERS).or_insert_with(|| self.exposed.clone());
    }
}

impl fmt::Debug for Cors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { methods, headers, max_age, admits, .. } = self;
        write!(f, "Cors({methods:?}, {headers:?}, {max_age:?}, lists origins: {})", admits.is_some())
    }
}

fn admit(headers: &mut HeaderMap, origin: HeaderValue) -> Option<HeaderValue> {
    headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin)
}

/// Returns true for a CORS preflight.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Allows every page to read a response that belongs to no mount.
pub(crate) fn open_to_pages(headers: &mut HeaderMap) {
    Cors::default().open(None, headers);
}
