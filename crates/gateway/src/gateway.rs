//! The path of one request through the gateway.
//!
//! Every request passes here, so this code is the minimum cost of the server: the path is short,
//! and the futures of services are moved to the heap once instead of being copied from wrapper to
//! wrapper.

use std::borrow::Cow;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::middleware::{self, Next};
use axum::response::Response;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use http_body::Body as _;
use ipnet::IpNet;
use portico_base::{
    AllowedOrigins, ClientAddress, Clock, CurrentRequest, LoggedErrorCode, LoggedRoute, RequestId, with_request,
};
use portico_tokens::{CurrentKeys, KeyRefresh};
use tower::Service;

use crate::request::LONGEST_TARGET;
use crate::request::access::{AccessRules, KeyPolicy};
use crate::request::body::{self, RequestBody};
use crate::request::client::RequestClient;
use crate::request::compression::CompressionRequest;
use crate::request::cors;
use crate::request::gateway_headers::{CalledUrl, GatewayHeaders, REQUEST_ID};
use crate::request::head_memory;
use crate::request::host;
use crate::request::keys::{self, Keys, PathRules};
use crate::request::rejection::Rejection;
use crate::web_app::WebApp;

/// The limit of a request line and its headers together, in bytes.
const HEADER_LIMIT: usize = 64 * 1024;

const SB_REQUEST_ID: HeaderName = HeaderName::from_static("sb-request-id");

/// The function that responds to requests below a prefix.
type MountedService = Arc<dyn Fn(Request, GatewayHeaders) -> BoxedResponse + Send + Sync>;

/// A future that returns a response.
pub type BoxedResponse = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A gateway in front of the mounted services. Clones share everything.
#[derive(Clone)]
pub struct Gateway(Arc<GatewayState>);

/// Collects the settings and mounts of a [`Gateway`].
pub struct GatewayBuilder {
    state: GatewayState,
}

impl Gateway {
    /// Returns a builder of a gateway that checks keys and tokens with these keys.
    pub fn builder(keys: CurrentKeys, clock: Clock) -> GatewayBuilder {
        GatewayBuilder {
            state: GatewayState {
                keys: Keys::new(keys, clock),
                mounts: Vec::new(),
                web_app: None,
                trusted_proxies: Vec::new(),
                https: false,
            },
        }
    }
}

impl GatewayBuilder {
    /// Sets which requests need an API key. Default: [`KeyPolicy::Hosted`].
    #[must_use]
    pub fn key_policy(mut self, policy: KeyPolicy) -> Self {
        self.state.keys.policy = policy;
        self
    }

    /// Sets how keys are read again that a token names and that are not known. Default: such a
    /// token is rejected at once.
    #[must_use]
    pub fn refresh_keys(mut self, refresh: KeyRefresh) -> Self {
        self.state.keys.refresh = Some(refresh);
        self
    }

    /// Rejects secret keys, and tokens with other rights than a visitor's or user's, from pages
    /// other than these, and at hosts that could be another website's (DNS rebinding). For servers
    /// whose keys and secrets are published. Default: pages are not checked.
    #[must_use]
    pub fn secret_keys_from(mut self, pages: AllowedOrigins) -> Self {
        self.state.keys.pages = Some(pages);
        self
    }

    /// Sends requests below `prefix` (`"/auth/v1"`) to `router`, which sees paths without it. The
    /// longest prefix wins.
    #[must_use]
    pub fn mount(self, prefix: &str, router: Router, access: AccessRules) -> Self {
        let router = router.layer(middleware::from_fn(record_route));
        let respond = move |mut request: Request, gateway_headers: GatewayHeaders| -> BoxedResponse {
            gateway_headers.write_to(request.headers_mut());
            request.extensions_mut().insert(ClientAddress(gateway_headers.client.address));
            request.extensions_mut().insert(gateway_headers.id);
            let mut router = router.clone();
            Box::pin(async move { infallible(Service::call(&mut router, request).await) })
        };
        self.mount_service(prefix, respond, access)
    }

    /// Like [`mount`](Self::mount), but for a service without routes. Its requests carry only the
    /// [`Caller`](portico_tokens::Caller) as an extension; the rest is the second argument.
    #[must_use]
    pub fn mount_service(
        mut self,
        prefix: &str,
        respond: impl Fn(Request, GatewayHeaders) -> BoxedResponse + Send + Sync + 'static,
        access: AccessRules,
    ) -> Self {
        let prefix = prefix.trim_end_matches('/').to_owned();
        // A prefix is a path of this program, which is a valid header value
        let prefix_header = HeaderValue::from_str(&prefix).unwrap_or(HeaderValue::from_static("/"));
        self.state.mounts.push(Mount { prefix, prefix_header, respond: Arc::new(respond), access });
        self
    }

    /// Serves the web app on all other paths.
    #[must_use]
    pub fn web_app(mut self, app: WebApp) -> Self {
        self.state.web_app = Some(app);
        self
    }

    /// Sets the proxies whose `X-Forwarded-*` headers are trusted. From other clients these headers
    /// are removed.
    #[must_use]
    pub fn trusted_proxies(mut self, networks: Vec<IpNet>) -> Self {
        self.state.trusted_proxies = networks;
        self
    }

    /// Sets whether clients reach the server by https. If so, responses tell browsers to stay with
    /// it.
    #[must_use]
    pub fn https(mut self, https: bool) -> Self {
        self.state.https = https;
        self
    }

    /// Returns the gateway, for [`crate::serve`].
    pub fn build(mut self) -> Gateway {
        self.state.mounts.sort_by_key(|mount| std::cmp::Reverse(mount.prefix.len()));
        if let Some(app) = self.state.web_app.take() {
            self.state.web_app = Some(app.seal(self.state.https));
        }
        Gateway(Arc::new(self.state))
    }
}

struct GatewayState {
    keys: Keys,
    /// Longest prefix first.
    mounts: Vec<Mount>,
    web_app: Option<WebApp>,
    trusted_proxies: Vec<IpNet>,
    https: bool,
}

struct Mount {
    prefix: String,
    /// The prefix as a header value.
    prefix_header: HeaderValue,
    respond: MountedService,
    access: AccessRules,
}

/// The pattern of the route that responded, for the log.
#[derive(Clone)]
struct Route(MatchedPath);

async fn record_route(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    if let Some(route) = route {
        response.extensions_mut().insert(Route(route));
    }
    response
}

impl Gateway {
    /// Returns true if the mount of a path reads bodies before it responds.
    pub(crate) fn reads_before_responding(&self, path: &str) -> bool {
        self.0
            .mounts
            .iter()
            .find(|mount| mount.contains(path))
            .is_some_and(|mount| mount.access.reads_before_responding)
    }

    /// Responds to a request whose connection has `peer` at the other end. Handles what applies to
    /// every request: its id, its client, the access log, the last headers.
    pub async fn respond(&self, request: Request, peer: SocketAddr) -> Response {
        let begun = Instant::now();
        let state = &*self.0;
        let (mut parts, body) = request.into_parts();
        head_memory::copy_for_long_body(&mut parts.headers, &body);
        let client = RequestClient::of(&mut parts.headers, peer, &state.trusted_proxies);
        let id = request_id(&parts.headers, client.by_proxy);
        let current = CurrentRequest { id: id.clone(), method: method_name(&parts.method) };

        let (current, (mut response, prefix)) = with_request(current, state.route(parts, body, client, id)).await;

        let headers = response.headers_mut();
        if let Ok(value) = HeaderValue::from_str(current.id.as_str()) {
            headers.insert(SB_REQUEST_ID, value.clone());
            headers.insert(REQUEST_ID, value);
        }
        if state.https {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
        }
        let facts = response.extensions();
        let route = facts.get::<Route>().map(|Route(route)| route.as_str());
        let route = route.or(facts.get::<LoggedRoute>().map(|LoggedRoute(route)| *route)).unwrap_or_default();
        // Never the query or a header: both can contain tokens
        tracing::info!(
            id = current.id.as_str(),
            method = &*current.method,
            status = response.status().as_u16(),
            route = format_args!("{prefix}{route}"),
            error_code = facts.get::<LoggedErrorCode>().map(|LoggedErrorCode(code)| *code),
            duration_ms = tenths(begun.elapsed().as_secs_f64() * 1000.0),
            "responded"
        );
        response
    }
}

/// Rounds to one decimal.
fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

impl GatewayState {
    /// Finds the mount and returns its response, with the prefix for the log.
    async fn route(&self, mut parts: Parts, body: Body, client: RequestClient, id: RequestId) -> (Response, &str) {
        let rejection = too_large(&parts).or_else(|| host::settle(&mut parts).err().map(|_| Rejection::WrongHost));
        if let Some(rejection) = rejection {
            return (reject(rejection, &parts.headers, body).await, "");
        }
        if let Some(mount) = self.mounts.iter().find(|mount| mount.contains(parts.uri.path())) {
            return (self.enter(mount, parts, body, client, id).await, &mount.prefix);
        }
        match &self.web_app {
            Some(app) if !is_service_path(parts.uri.path()) => {
                // Pages do not read bodies
                discard(&parts.headers, body).await;
                let page = Box::pin(app.respond(Request::from_parts(parts, Body::empty())));
                (guarded(page).await.unwrap_or_else(Rejection::response), "web")
            }
            _ => (reject(Rejection::NoRoute, &parts.headers, body).await, ""),
        }
    }

    /// Applies the CORS and compression rules of a mount.
    async fn enter(&self, mount: &Mount, parts: Parts, body: Body, client: RequestClient, id: RequestId) -> Response {
        let cors = &mount.access.cors;
        let has_own_cors =
            parts.uri.path().get(mount.prefix.len()..).is_some_and(|path| mount.access.has_own_cors(path));
        if !has_own_cors && cors::is_preflight(&parts.method, &parts.headers) {
            discard(&parts.headers, body).await;
            return cors.preflight(&parts.headers);
        }
        let origin = parts.headers.get(header::ORIGIN).cloned();
        let compression = mount.access.compressed.then(|| CompressionRequest::of(&parts));
        let mut response = self.admit(mount, parts, body, client, id).await;
        if let Some(compression) = compression {
            response = compression.apply_to(response);
        }
        if !has_own_cors || !response.headers().contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
            cors.open(origin.as_ref(), response.headers_mut());
        }
        response
    }

    async fn admit(
        &self,
        mount: &Mount,
        mut parts: Parts,
        body: Body,
        client: RequestClient,
        id: RequestId,
    ) -> Response {
        let access = &mount.access;
        let path = parts.uri.path().get(mount.prefix.len()..).unwrap_or("/");
        let rules = PathRules { open: access.is_open(path), third_party: access.third_party };
        let limit = access.body_limit;
        let expects_continue = expects_continue(&parts.headers);
        let rejection = match self.keys.caller(&parts.headers, &parts.uri, rules).await {
            Err(rejection) => Some(rejection),
            Ok(_) if body.size_hint().lower() > limit as u64 => Some(Rejection::BodyTooLarge { limit }),
            Ok(caller) => {
                parts.extensions.insert(caller);
                None
            }
        };
        if let Some(rejection) = rejection {
            discard(&parts.headers, body).await;
            return rejection.response();
        }
        let may_be_privileged = !access.own_keys || self.keys.may_be_privileged(&parts.headers);
        let uri = std::mem::take(&mut parts.uri);
        let Some((path, uri)) = called_and_inner(uri, &mount.prefix, access.own_keys) else {
            discard(&parts.headers, body).await;
            return Rejection::NoRoute.response();
        };
        let called = CalledUrl { path, prefix: mount.prefix_header.clone(), authority: uri.authority().cloned() };
        let gateway_headers = GatewayHeaders { client, id, called, may_be_privileged };
        parts.uri = uri;
        if body.is_end_stream() {
            return mount.call(Request::from_parts(parts, body), gateway_headers).await;
        }
        let (body, mut rest) = RequestBody::new(body, limit);
        let response = mount.call(Request::from_parts(parts, Body::new(body)), gateway_headers).await;
        match rest.try_recv() {
            Ok(rest) => {
                if !expects_continue {
                    body::drain(rest.body).await;
                }
                // A service with its own response to long bodies has a lower limit than the gateway
                if rest.too_large && !response.status().is_success() {
                    Rejection::BodyTooLarge { limit }.response()
                } else {
                    response
                }
            }
            Err(_) => response,
        }
    }
}

/// Rejects a request before it reaches a mount.
async fn reject(rejection: Rejection, headers: &HeaderMap, body: Body) -> Response {
    discard(headers, body).await;
    let mut response = rejection.response();
    cors::open_to_pages(response.headers_mut());
    response
}

/// Reads and discards a body, within bounds, so that its sender can read the response.
async fn discard(headers: &HeaderMap, body: Body) {
    if !body.is_end_stream() && !expects_continue(headers) {
        body::drain(body).await;
    }
}

/// Returns true if the client sends the body only after an interim response: then no body is on its
/// way.
fn expects_continue(headers: &HeaderMap) -> bool {
    headers.contains_key(header::EXPECT)
}

impl Mount {
    /// Returns true if a path is below the prefix. The prefix alone, without a slash, is not.
    fn contains(&self, path: &str) -> bool {
        path.strip_prefix(self.prefix.as_str()).is_some_and(|rest| rest.starts_with('/'))
    }

    async fn call(&self, request: Request, gateway_headers: GatewayHeaders) -> Response {
        let called = guarded((self.respond)(request, gateway_headers));
        let outcome = match self.access.timeout {
            Some(limit) => tokio::time::timeout(limit, called).await.unwrap_or(Err(Rejection::TooSlow)),
            None => called.await,
        };
        outcome.unwrap_or_else(Rejection::response)
    }
}

/// Turns a panic into an error response: a bug must affect one client only.
async fn guarded(response: impl Future<Output = Response> + Unpin) -> Result<Response, Rejection> {
    AssertUnwindSafe(response).catch_unwind().await.map_err(|panic| {
        let message = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        tracing::error!(panic = message, "a handler panicked");
        Rejection::Panicked
    })
}

/// Returns the id of a request. That of a trusted proxy is kept, so that its log can be joined with
/// this one.
fn request_id(headers: &HeaderMap, by_proxy: bool) -> RequestId {
    by_proxy
        .then(|| headers.get(REQUEST_ID)?.to_str().ok().and_then(RequestId::parse))
        .flatten()
        .unwrap_or_else(RequestId::generate)
}

fn too_large(parts: &Parts) -> Option<Rejection> {
    let target = parts.uri.path_and_query().map_or(0, |path| path.as_str().len());
    if target > LONGEST_TARGET {
        return Some(Rejection::TargetTooLong);
    }
    // Name, colon, space, line end
    let headers: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    (target + headers > HEADER_LIMIT).then_some(Rejection::HeadersTooLarge)
}

/// Returns the path that the client requested, and the URI that the service sees: the path without
/// the prefix, the query without the API key unless the service needs it (`keeps_key`).
fn called_and_inner(uri: Uri, prefix: &str, keeps_key: bool) -> Option<(HeaderValue, Uri)> {
    let whole = uri.path_and_query()?;
    let path = whole.path();
    path.strip_prefix(prefix)?;
    // Every request passes here: one copy of the text serves both
    let text = match whole.query().filter(|_| !keeps_key).and_then(keys::query_without_key) {
        None => Bytes::copy_from_slice(whole.as_str().as_bytes()),
        Some(query) if query.is_empty() => Bytes::copy_from_slice(path.as_bytes()),
        Some(query) => Bytes::from(format!("{path}?{query}")),
    };
    let called = HeaderValue::from_maybe_shared(text.slice(..path.len())).ok()?;
    let inner = PathAndQuery::from_maybe_shared(text.slice(prefix.len()..)).ok()?;
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(inner);
    Some((called, Uri::from_parts(parts).ok()?))
}

/// Returns true for paths of services, whether these exist or not (`/rest/v1/...`): a page must not
/// be their response. The web app itself redirects password managers to the page for a new
/// password.
fn is_service_path(path: &str) -> bool {
    let mut segments = path.split('/').skip(1);
    let (first, second) = (segments.next().unwrap_or_default(), segments.next());
    let is_version = |segment: &str| {
        segment.strip_prefix('v').is_some_and(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
    };
    let is_well_known = first == ".well-known" && path != "/.well-known/change-password";
    second.is_some_and(is_version) || matches!(first, "pg" | "mcp") || is_well_known
}

pub(crate) fn infallible<T>(result: Result<T, std::convert::Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}

/// Returns the name of a method for the log, without an allocation for those of HTTP itself.
fn method_name(method: &Method) -> Cow<'static, str> {
    let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    match known.into_iter().find(|name| *name == method.as_str()) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(method.as_str().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::routing::post;
    use portico_base::Secret;
    use portico_tokens::{ApiKeys, KeyRing, development};
    use proptest::prelude::*;

    use super::*;

    #[tokio::test]
    async fn the_block_in_which_a_head_arrived_is_free_while_a_long_body_arrives() {
        let block = Bytes::from(vec![b'a'; 8192]);
        let value = HeaderValue::from_maybe_shared(block.slice(10..20)).unwrap();
        let block = Arc::new(block);
        let respond = move |headers: HeaderMap| {
            let is_free = block.is_unique();
            // Only now: the service has them while it reads the body
            drop(headers);
            std::future::ready(is_free.to_string())
        };
        let service = Router::new().route("/upload", post(respond));
        let ring = Arc::new(KeyRing::hs256(&Secret::new(development::JWT_SECRET)));
        let keys = CurrentKeys::new(ring, Arc::new(ApiKeys::development()));
        let builder = Gateway::builder(keys, Clock::system());
        let gateway = builder.mount("/storage/v1", service, AccessRules::open()).build();
        let body = Body::from_stream(futures_util::stream::pending::<Result<Bytes, Infallible>>());
        let request = http::Request::post("/storage/v1/upload")
            .header("host", "localhost")
            .header("x-name", value)
            .body(body)
            .unwrap();
        let response = gateway.respond(request, "127.0.0.1:1".parse().unwrap()).await;
        assert_eq!(axum::body::to_bytes(response.into_body(), 100).await.unwrap(), "true");
    }

    #[test]
    fn a_service_sees_neither_the_prefix_nor_the_key() {
        let inner = |uri: &str| called_and_inner(uri.parse().unwrap(), "/auth/v1", false).unwrap().1.to_string();
        assert_eq!(inner("/auth/v1/user"), "/user");
        assert_eq!(inner("/auth/v1/user?apikey=x"), "/user");
        assert_eq!(inner("/auth/v1/user?a=1&apikey=x&b=%20+"), "/user?a=1&b=%20+");
        assert_eq!(inner("/auth/v1/user?a=1&b&=c"), "/user?a=1&b&=c");
        assert_eq!(inner("/auth/v1/user?api%6bey=x&a"), "/user?a");
        assert_eq!(inner("http://host/auth/v1/?x"), "http://host/?x");
        let kept = called_and_inner("/realtime/v1/websocket?apikey=x".parse().unwrap(), "/realtime/v1", true);
        assert_eq!(kept.unwrap().1.to_string(), "/websocket?apikey=x");
    }

    #[test]
    fn paths_of_services_are_distinguished_from_pages() {
        for path in ["/rest/v1/", "/auth/v1", "/pooler/v2/x", "/pg/tables", "/.well-known/x"] {
            assert!(is_service_path(path), "{path}");
        }
        for path in ["/", "/app", "/app/v", "/docs/vine", "/sign-in"] {
            assert!(!is_service_path(path), "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_path_and_query_reaches_the_service_without_the_key(path in "([!-~]|\\PC){0,30}", query in "([!-~]|\\PC){0,60}") {
            if let Ok(uri) = format!("/auth/v1/{path}?{query}").parse::<Uri>() {
                let (called, inner) = called_and_inner(uri.clone(), "/auth/v1", false).unwrap();
                prop_assert_eq!(called.as_bytes(), uri.path().as_bytes());
                prop_assert_eq!(inner.path(), &uri.path()["/auth/v1".len()..]);
                let kept: Vec<_> = form_urlencoded::parse(inner.query().unwrap_or_default().as_bytes()).collect();
                prop_assert!(kept.iter().all(|(name, _)| name != "apikey"));
                let all = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
                prop_assert_eq!(kept.clone(), all.filter(|(name, _)| name != "apikey").collect::<Vec<_>>());
            }
        }
    }
}
