//! OpenID Connect issuers: their discovery documents and key sets.
//!
//! Both are cached, and served stale when an issuer does not respond. An unknown key id makes the
//! key set be read again, but not more often than [`KEY_SET_INTERVAL`], so that invented key ids
//! cannot make this server flood an issuer with requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portico_tokens::{KeyError, KeyRing};
use reqwest::header::HeaderMap;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::http_client::{CallError, HttpClient, UrlTrust};

/// Least time between two reads of one key set.
const KEY_SET_INTERVAL: Duration = Duration::from_secs(10);
/// Least time between two attempts to reach an issuer that does not respond. Other requests fail at
/// once meanwhile.
const FAILURE_INTERVAL: Duration = Duration::from_secs(3);
/// The time for which a stale document is used after a failed attempt to renew it.
const STALE_LIFETIME: Duration = Duration::from_secs(30);
/// Most issuers that are cached. Tokens name tenants, so their number must be bounded.
const MAX_ISSUERS: usize = 128;

/// Issuers that issue tokens under a second name: the issuer, and the other `iss`.
const ALIASES: [(&str, &str); 2] = [
    ("https://accounts.google.com", "accounts.google.com"),
    ("https://appleid.apple.com", "https://account.apple.com"),
];

/// An issuer's metadata (OpenID Connect Discovery, 3).
#[derive(Debug, Clone, Deserialize)]
pub struct Discovery {
    /// Must be the issuer that was asked.
    pub issuer: String,
    /// The authorization endpoint.
    pub authorization_endpoint: String,
    /// The token endpoint.
    pub token_endpoint: String,
    /// The userinfo endpoint.
    #[serde(default)]
    pub userinfo_endpoint: Option<String>,
    /// The URL of the key set.
    pub jwks_uri: String,
    /// The methods of client authentication. Absent: `client_secret_basic`.
    #[serde(default)]
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// The PKCE methods.
    #[serde(default)]
    pub code_challenge_methods_supported: Vec<String>,
    /// Every authorization response names the issuer (RFC 9207, 3).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

/// The reason why an issuer's documents cannot be read. Texts are for the log.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// The issuer could not be called.
    #[error("issuer {issuer}: {source}")]
    Call {
        /// The issuer.
        issuer: String,
        /// The error of the call.
        #[source]
        source: CallError,
    },
    /// The issuer did not respond a moment ago.
    #[error("issuer {0} did not respond a moment ago")]
    Unavailable(String),
    /// The discovery document names another issuer.
    #[error("the discovery document of {0} names another issuer")]
    OtherIssuer(String),
}

/// The keys that an issuer published. `None`: none of a supported kind.
pub(super) type IssuerKeys = Option<KeyRing>;

#[derive(Default)]
struct CachedIssuer {
    /// The document, and when it is to be read again.
    discovery: Option<(Arc<Discovery>, Instant)>,
    /// The keys, and when they were read.
    keys: Option<(Arc<IssuerKeys>, Instant)>,
    /// The time of the last attempt that failed.
    failed: Option<Instant>,
}

/// The documents of all issuers, cached.
pub struct Issuers {
    client: Arc<HttpClient>,
    ttl: Duration,
    cached: std::sync::Mutex<HashMap<String, Arc<Mutex<CachedIssuer>>>>,
}

impl std::fmt::Debug for Issuers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuers").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// An issuer, and how far its URL is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// The `iss` of its tokens, and the base of its documents.
    pub url: String,
    /// The URL of its discovery document, if not the standard one.
    pub discovery_url: Option<String>,
    /// The source of the URL.
    pub trust: UrlTrust,
}

impl Issuer {
    /// Makes an issuer that the operator configured or that is built in.
    #[must_use]
    pub fn configured(url: impl Into<String>) -> Self {
        Self { url: url.into(), discovery_url: None, trust: UrlTrust::Configured }
    }

    /// Returns true if `iss` is a name of this issuer.
    #[must_use]
    pub fn is_named(&self, iss: &str) -> bool {
        let own = self.url.trim_end_matches('/');
        iss.trim_end_matches('/') == own || ALIASES.contains(&(own, iss))
    }

    /// Returns the URL of the discovery document.
    pub(crate) fn discovery_url(&self) -> String {
        self.discovery_url
            .clone()
            .unwrap_or_else(|| format!("{}/.well-known/openid-configuration", self.url.trim_end_matches('/')))
    }
}

/// Returns the name of an issuer in the cache.
fn cache_key(issuer: &Issuer) -> String {
    format!("{}\n{}", issuer.url, issuer.discovery_url())
}

impl Issuers {
    /// Creates an empty cache. Nothing is read before the first sign-in.
    #[must_use]
    pub fn new(client: Arc<HttpClient>, ttl: Duration) -> Self {
        Self { client, ttl, cached: std::sync::Mutex::default() }
    }

    /// Returns the issuer's discovery document.
    ///
    /// # Errors
    /// When it cannot be read and none is cached.
    pub async fn discovery(&self, issuer: &Issuer) -> Result<Arc<Discovery>, IssuerError> {
        let entry = self.entry(issuer);
        // Held across the call on purpose: one sign-in sends the request, the others wait for its
        // result
        let mut entry = entry.lock().await;
        self.cached_discovery(issuer, &mut entry).await
    }

    /// Evicts the documents of an issuer.
    pub(crate) fn evict(&self, issuer: &Issuer) {
        let mut cached = self.cached.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        cached.remove(&cache_key(issuer));
    }

    fn entry(&self, issuer: &Issuer) -> Arc<Mutex<CachedIssuer>> {
        let name = cache_key(issuer);
        let mut cached = self.cached.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if cached.len() >= MAX_ISSUERS && !cached.contains_key(&name) {
            cached.clear();
        }
        Arc::clone(cached.entry(name).or_default())
    }

    async fn cached_discovery(&self, issuer: &Issuer, entry: &mut CachedIssuer) -> Result<Arc<Discovery>, IssuerError> {
        if let Some((discovery, until)) = &entry.discovery
            && Instant::now() < *until
        {
            return Ok(Arc::clone(discovery));
        }
        if entry.failed.is_some_and(|at| at.elapsed() < FAILURE_INTERVAL) {
            return Err(IssuerError::Unavailable(issuer.url.clone()));
        }
        match (self.read_discovery(issuer).await, &mut entry.discovery) {
            (Ok(discovery), cached) => {
                let discovery = Arc::new(discovery);
                *cached = Some((Arc::clone(&discovery), Instant::now() + self.ttl));
                entry.failed = None;
                Ok(discovery)
            }
            // A stale document is better than no sign-in
            (Err(error), Some((discovery, until))) => {
                tracing::warn!(issuer = issuer.url, error = %error, "a stale discovery document is kept");
                *until = Instant::now() + STALE_LIFETIME;
                Ok(Arc::clone(discovery))
            }
            (Err(error), None) => {
                entry.failed = Some(Instant::now());
                Err(error)
            }
        }
    }

    async fn read_discovery(&self, issuer: &Issuer) -> Result<Discovery, IssuerError> {
        let failed = |source| IssuerError::Call { issuer: issuer.url.clone(), source };
        let document =
            self.client.get_json(issuer.trust, &issuer.discovery_url(), HeaderMap::new()).await.map_err(failed)?;
        let discovery: Discovery =
            serde_json::from_value(document).map_err(|_| failed(CallError::Malformed("a discovery document")))?;
        if discovery.issuer.trim_end_matches('/') != issuer.url.trim_end_matches('/') {
            return Err(IssuerError::OtherIssuer(issuer.url.clone()));
        }
        for url in [&discovery.authorization_endpoint, &discovery.token_endpoint, &discovery.jwks_uri] {
            self.client.check(issuer.trust, url).map_err(failed)?;
        }
        Ok(discovery)
    }

    /// Returns the issuer's keys. They are read again if none of them has the id `id`.
    pub(super) async fn keys(&self, issuer: &Issuer, id: Option<&str>) -> Result<Arc<IssuerKeys>, IssuerError> {
        let entry = self.entry(issuer);
        let mut entry = entry.lock().await;
        if let Some((keys, at)) = &entry.keys {
            let has = id.is_none_or(|id| keys.as_ref().as_ref().is_some_and(|keys| keys.may_know(id)));
            if at.elapsed() < KEY_SET_INTERVAL || (has && at.elapsed() < self.ttl) {
                return Ok(Arc::clone(keys));
            }
        }
        match self.read_keys(issuer, &mut entry).await {
            Ok(keys) => {
                let keys = Arc::new(keys);
                entry.keys = Some((Arc::clone(&keys), Instant::now()));
                Ok(keys)
            }
            Err(error) => match &mut entry.keys {
                Some((keys, at)) => {
                    tracing::warn!(issuer = issuer.url, error = %error, "a stale key set is kept");
                    *at = Instant::now();
                    Ok(Arc::clone(keys))
                }
                None => Err(error),
            },
        }
    }

    async fn read_keys(&self, issuer: &Issuer, entry: &mut CachedIssuer) -> Result<IssuerKeys, IssuerError> {
        let failed = |source| IssuerError::Call { issuer: issuer.url.clone(), source };
        let discovery = self.cached_discovery(issuer, entry).await?;
        let set = self.client.get_json(issuer.trust, &discovery.jwks_uri, HeaderMap::new()).await.map_err(failed)?;
        match KeyRing::foreign(&set) {
            Ok(keys) => Ok(Some(keys)),
            Err(KeyError::NoKey) => Ok(None),
            Err(_) => Err(failed(CallError::Malformed("a key set"))),
        }
    }
}
