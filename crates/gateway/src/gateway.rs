//! The gateway.
use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use http::HeaderValue;
use ipnet::IpNet;
use portico_tokens::{ApiKeys, Clock, KeyRing};

use crate::access::{Access, KeyPolicy};
use crate::web_app::WebApp;

/// The request's id, as it is logged and answered. In the extensions of every request.
#[derive(Debug, Clone)]
pub struct RequestId(pub(crate) HeaderValue);

impl RequestId {
    /// The id's text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

/// Where the request comes from: the connection's other end, or what a trusted proxy says. In the extensions
/// of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// The front door.
pub struct Gateway;

/// Settles what a [`Gateway`] does.
pub struct GatewayBuilder {
    policy: KeyPolicy,
    mounts: Vec<(String, Router, Access)>,
    web_app: Option<WebApp>,
    trusted_proxies: Vec<IpNet>,
}

impl Gateway {
    /// A gateway that verifies with these keys.
    pub fn builder(keys: Arc<KeyRing>, api_keys: Arc<ApiKeys>, clock: Clock) -> GatewayBuilder {
        let _ = (keys, api_keys, clock);
        GatewayBuilder { policy: KeyPolicy::Hosted, mounts: Vec::new(), web_app: None, trusted_proxies: Vec::new() }
    }
}

impl GatewayBuilder {
    /// Who needs an API key. Default: [`KeyPolicy::Hosted`].
    #[must_use]
    pub fn key_policy(mut self, policy: KeyPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sends requests below `prefix` (`"/auth/v1"`) to `router`, which sees paths without it.
    #[must_use]
    pub fn mount(mut self, prefix: &str, router: Router, access: Access) -> Self {
        self.mounts.push((prefix.to_owned(), router, access));
        self
    }

    /// Serves the web app on all other paths.
    #[must_use]
    pub fn web_app(mut self, app: WebApp) -> Self {
        self.web_app = Some(app);
        self
    }

    /// Proxies whose `X-Forwarded-*` headers are believed. From anybody else these headers are removed.
    #[must_use]
    pub fn trusted_proxies(mut self, networks: Vec<IpNet>) -> Self {
        self.trusted_proxies = networks;
        self
    }

    /// Says that people reach the server by https (then browsers are told to stay with it).
    #[must_use]
    pub fn https(self, _https: bool) -> Self {
        self
    }

    /// The whole server as one router, for [`crate::serve`].
    pub fn build(self) -> Router {
        let _ = (self.policy, self.web_app, self.trusted_proxies);
        self.mounts.into_iter().fold(Router::new(), |router, (prefix, mounted, _)| router.nest(&prefix, mounted))
    }
}
