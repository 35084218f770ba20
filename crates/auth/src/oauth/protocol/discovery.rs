//! OpenID Connect issuers: discovery documents, key sets, and the check of their id_tokens.
//!
//! Documents are kept for a while and served stale when an issuer does not answer. An unknown key id makes the key
//! set be read again, but not more often than [`KEY_SET_PAUSE`], so that nobody can make this server hammer an issuer
//! with invented key ids. Claims are worth something only after [`Issuers::verify`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portico_tokens::{Algorithm, KeyError, KeyRing, MAX_TOKEN_BYTES, TokenError, TokenHeader};
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use subtle::ConstantTimeEq as _;
use time::OffsetDateTime;
use tokio::sync::Mutex;

use crate::oauth::protocol::http_client::{CallError, ProviderClient, Trust};
use crate::oauth::provider::profile::Object;

/// Least time between two reads of one key set.
const KEY_SET_PAUSE: Duration = Duration::from_secs(10);
/// Least time between two attempts to reach an issuer that does not answer; others fail at once meanwhile.
const FAILURE_PAUSE: Duration = Duration::from_secs(3);
/// How long an old document serves after a failed attempt to renew it.
const STALE_PAUSE: Duration = Duration::from_secs(30);
/// Tenants are named by tokens, so their number is bounded.
const MAX_ISSUERS: usize = 128;
/// How far an issuer's clock may be ahead of ours.
const CLOCK_SKEW: i64 = 60;

/// What an issuer says of itself (OpenID Connect Discovery, 3).
#[derive(Debug, Clone, Deserialize)]
pub struct Discovery {
    /// Must be the issuer that was asked.
    pub issuer: String,
    /// Where people are sent.
    pub authorization_endpoint: String,
    /// Where codes are exchanged.
    pub token_endpoint: String,
    /// Who is that, by access token.
    #[serde(default)]
    pub userinfo_endpoint: Option<String>,
    /// The keys.
    pub jwks_uri: String,
    /// How clients prove themselves. Absent: `client_secret_basic`.
    #[serde(default)]
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// Proof keys that are understood.
    #[serde(default)]
    pub code_challenge_methods_supported: Vec<String>,
    /// Every answer of the authorization endpoint names the issuer (RFC 9207, 3).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

/// Why an id_token, or its issuer, is not usable. Texts are for the log.
#[derive(Debug, thiserror::Error)]
pub enum IdTokenError {
    /// The issuer could not be asked.
    #[error("issuer {issuer}: {source}")]
    Issuer {
        /// Who was asked.
        issuer: String,
        /// What went wrong.
        #[source]
        source: CallError,
    },
    /// It did not answer a moment ago.
    #[error("issuer {0} did not answer a moment ago")]
    Away(String),
    /// The discovery document names another issuer.
    #[error("the discovery document of {0} names another issuer")]
    OtherIssuer(String),
    /// Not three parts, not JSON, no claims.
    #[error("the id_token is malformed")]
    Malformed,
    /// No key of the issuer made this signature.
    #[error("the id_token is not signed by a key of its issuer")]
    Signature,
    /// `iss` is somebody else.
    #[error("the id_token is of another issuer")]
    Issued,
    /// `exp`, `iat` or `nbf`.
    #[error("the id_token is expired or not yet valid")]
    Time,
    /// `at_hash` is of another access token.
    #[error("the id_token belongs to another access token")]
    AccessToken,
}

/// What an issuer published; `None`: no key that we understand.
type Keys = Option<KeyRing>;

#[derive(Default)]
struct Known {
    /// With when it is to be read again.
    discovery: Option<(Arc<Discovery>, Instant)>,
    /// With when they were read.
    keys: Option<(Arc<Keys>, Instant)>,
    /// When it last did not answer.
    failed: Option<Instant>,
}

/// The issuers met so far.
pub struct Issuers {
    client: Arc<ProviderClient>,
    ttl: Duration,
    known: std::sync::Mutex<HashMap<String, Arc<Mutex<Known>>>>,
}

impl std::fmt::Debug for Issuers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuers").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// An issuer, and how far its address is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// The `iss` of its tokens, and the base of its documents.
    pub url: String,
    /// Where its discovery document is, if not at the usual place.
    pub discovery_url: Option<String>,
    /// Where the address came from.
    pub trust: Trust,
}

impl Issuer {
    /// An issuer that the operator configured or that is built in.
    #[must_use]
    pub fn configured(url: impl Into<String>) -> Self {
        Self { url: url.into(), discovery_url: None, trust: Trust::Configured }
    }

    fn documents_at(&self) -> String {
        self.discovery_url
            .clone()
            .unwrap_or_else(|| format!("{}/.well-known/openid-configuration", self.url.trim_end_matches('/')))
    }
}

impl Issuers {
    /// Nothing is asked before somebody signs in.
    #[must_use]
    pub fn new(client: Arc<ProviderClient>, ttl: Duration) -> Self {
        Self { client, ttl, known: std::sync::Mutex::default() }
    }

    /// The issuer's discovery document.
    pub async fn discovery(&self, issuer: &Issuer) -> Result<Arc<Discovery>, IdTokenError> {
        let known = self.entry(issuer);
        // Held across the call on purpose: one sign-in asks, the others wait for its answer
        let mut known = known.lock().await;
        self.discover(issuer, &mut known).await
    }

    /// The claims of `token` if `issuer` signed it, for now. The audience and the nonce are the caller's to check;
    /// `access_token` is compared with `at_hash` if both are there.
    pub async fn verify(
        &self,
        issuer: &Issuer,
        accepted: &(dyn Fn(&str) -> bool + Sync),
        token: &str,
        access_token: Option<&str>,
        now: OffsetDateTime,
    ) -> Result<Object, IdTokenError> {
        let header = TokenHeader::read(token).map_err(|_| IdTokenError::Malformed)?;
        let keys = self.keys(issuer, header.key_id.as_deref()).await?;
        let keys = keys.as_ref().as_ref().ok_or(IdTokenError::Signature)?;
        let claims = keys.verify_signature(token).map_err(|error| match error {
            TokenError::UnreadableClaims(_) => IdTokenError::Malformed,
            _ => IdTokenError::Signature,
        })?;
        let claims = claims.values().clone();
        if !claims.get("iss").and_then(Value::as_str).is_some_and(accepted) {
            return Err(IdTokenError::Issued);
        }
        check_time(&claims, now.unix_timestamp())?;
        if let (Some(hash), Some(access_token)) = (claims.get("at_hash"), access_token) {
            let right = hash.as_str().is_some_and(|hash| is_hash_of(hash, access_token, header.algorithm));
            if !right {
                return Err(IdTokenError::AccessToken);
            }
        }
        Ok(claims)
    }

    fn entry(&self, issuer: &Issuer) -> Arc<Mutex<Known>> {
        let name = format!("{}\n{}", issuer.url, issuer.documents_at());
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.len() >= MAX_ISSUERS && !known.contains_key(&name) {
            known.clear();
        }
        Arc::clone(known.entry(name).or_default())
    }

    async fn discover(&self, issuer: &Issuer, known: &mut Known) -> Result<Arc<Discovery>, IdTokenError> {
        if let Some((discovery, until)) = &known.discovery
            && Instant::now() < *until
        {
            return Ok(Arc::clone(discovery));
        }
        if known.failed.is_some_and(|at| at.elapsed() < FAILURE_PAUSE) {
            return Err(IdTokenError::Away(issuer.url.clone()));
        }
        match (self.read_discovery(issuer).await, &mut known.discovery) {
            (Ok(discovery), slot) => {
                let discovery = Arc::new(discovery);
                *slot = Some((Arc::clone(&discovery), Instant::now() + self.ttl));
                known.failed = None;
                Ok(discovery)
            }
            // Stale is better than nobody signs in
            (Err(error), Some((discovery, until))) => {
                tracing::warn!(issuer = issuer.url, %error, "Keeping an old discovery document");
                *until = Instant::now() + STALE_PAUSE;
                Ok(Arc::clone(discovery))
            }
            (Err(error), None) => {
                known.failed = Some(Instant::now());
                Err(error)
            }
        }
    }

    async fn read_discovery(&self, issuer: &Issuer) -> Result<Discovery, IdTokenError> {
        let failed = |source| IdTokenError::Issuer { issuer: issuer.url.clone(), source };
        let document =
            self.client.get_json(issuer.trust, &issuer.documents_at(), HeaderMap::new()).await.map_err(failed)?;
        let discovery: Discovery =
            serde_json::from_value(document).map_err(|_| failed(CallError::Malformed("a discovery document")))?;
        if discovery.issuer.trim_end_matches('/') != issuer.url.trim_end_matches('/') {
            return Err(IdTokenError::OtherIssuer(issuer.url.clone()));
        }
        for url in [&discovery.authorization_endpoint, &discovery.token_endpoint, &discovery.jwks_uri] {
            self.client.check(issuer.trust, url).map_err(failed)?;
        }
        Ok(discovery)
    }

    /// The issuer's keys; read again if none has the id that is looked for.
    async fn keys(&self, issuer: &Issuer, id: Option<&str>) -> Result<Arc<Keys>, IdTokenError> {
        let known = self.entry(issuer);
        let mut known = known.lock().await;
        if let Some((keys, at)) = &known.keys {
            let has = id.is_none_or(|id| keys.as_ref().as_ref().is_some_and(|keys| keys.may_know(id)));
            if at.elapsed() < KEY_SET_PAUSE || (has && at.elapsed() < self.ttl) {
                return Ok(Arc::clone(keys));
            }
        }
        match self.read_keys(issuer, &mut known).await {
            Ok(keys) => {
                let keys = Arc::new(keys);
                known.keys = Some((Arc::clone(&keys), Instant::now()));
                Ok(keys)
            }
            Err(error) => match &mut known.keys {
                Some((keys, at)) => {
                    tracing::warn!(issuer = issuer.url, %error, "Keeping an old key set");
                    *at = Instant::now();
                    Ok(Arc::clone(keys))
                }
                None => Err(error),
            },
        }
    }

    async fn read_keys(&self, issuer: &Issuer, known: &mut Known) -> Result<Keys, IdTokenError> {
        let failed = |source| IdTokenError::Issuer { issuer: issuer.url.clone(), source };
        let discovery = self.discover(issuer, known).await?;
        let set = self.client.get_json(issuer.trust, &discovery.jwks_uri, HeaderMap::new()).await.map_err(failed)?;
        match KeyRing::foreign(&set) {
            Ok(keys) => Ok(Some(keys)),
            Err(KeyError::NoKey) => Ok(None),
            Err(_) => Err(failed(CallError::Malformed("a key set"))),
        }
    }
}

/// The claims as they stand in the token. For choosing the issuer to verify against, never for trusting.
#[must_use]
pub fn unverified_claims(token: &str) -> Option<Object> {
    if token.len() > MAX_TOKEN_BYTES {
        return None;
    }
    let mut parts = token.split('.');
    let payload = parts.nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

fn check_time(claims: &Object, now: i64) -> Result<(), IdTokenError> {
    let seconds = |key| claims.get(key).map(|value| value.as_f64().map(|seconds| seconds as i64));
    let expires = seconds("exp").flatten().ok_or(IdTokenError::Time)?;
    let not_future = |at: Option<Option<i64>>| match at {
        None => true,
        Some(Some(at)) => at <= now.saturating_add(CLOCK_SKEW),
        Some(None) => false,
    };
    if expires <= now || !not_future(seconds("iat")) || !not_future(seconds("nbf")) {
        return Err(IdTokenError::Time);
    }
    Ok(())
}

/// Whether `claims.aud` names one of `accepted` (and `azp`, if there are several audiences, too).
#[must_use]
pub fn has_audience(claims: &Object, accepted: &[String]) -> bool {
    let is_ours =
        |audience: &Value| audience.as_str().is_some_and(|audience| accepted.iter().any(|own| own == audience));
    match claims.get("aud") {
        Some(Value::Array(audiences)) => {
            audiences.iter().any(is_ours) && (audiences.len() == 1 || claims.get("azp").is_none_or(is_ours))
        }
        Some(audience) => is_ours(audience),
        None => false,
    }
}

/// OpenID Connect Core 3.1.3.6: the left half of the hash of the algorithm.
fn is_hash_of(hash: &str, access_token: &str, algorithm: Algorithm) -> bool {
    use Algorithm::{EdDsa, Es256, Es384, Es512, Hs256, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
    let function = match algorithm {
        Hs256 | Rs256 | Ps256 | Es256 => &digest::SHA256,
        Rs384 | Ps384 | Es384 => &digest::SHA384,
        Rs512 | Ps512 | Es512 | EdDsa => &digest::SHA512,
    };
    let whole = digest::digest(function, access_token.as_bytes());
    let (half, _) = whole.as_ref().split_at(whole.as_ref().len() / 2);
    URL_SAFE_NO_PAD.encode(half).as_bytes().ct_eq(hash.as_bytes()).into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn object(value: Value) -> Object {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn audiences_may_be_one_or_many() {
        let own = ["web".to_owned(), "ios".to_owned()];
        for (claims, expected) in [
            (json!({"aud": "web"}), true),
            (json!({"aud": ["ios"]}), true),
            (json!({"aud": ["other", "ios"]}), true),
            (json!({"aud": ["other", "ios"], "azp": "other"}), false),
            (json!({"aud": "other"}), false),
            (json!({"aud": 5}), false),
            (json!({"aud": []}), false),
            (json!({}), false),
        ] {
            assert_eq!(has_audience(&object(claims.clone()), &own), expected, "{claims}");
        }
    }

    #[test]
    fn times_are_checked_against_our_clock() {
        for (claims, expected) in [
            (json!({"exp": 1001}), true),
            (json!({"exp": 1000}), false),
            (json!({"exp": 2000, "iat": 1050, "nbf": 990}), true),
            (json!({"exp": 2000, "iat": 1070}), false),
            (json!({"exp": 2000, "nbf": 1070}), false),
            (json!({"exp": 2000, "nbf": "soon"}), false),
            (json!({"exp": "2000"}), false),
            (json!({}), false),
        ] {
            assert_eq!(check_time(&object(claims.clone()), 1000).is_ok(), expected, "{claims}");
        }
    }

    #[test]
    fn the_access_token_hash_of_the_standard_matches() {
        // OpenID Connect Core, appendix A.3
        assert!(is_hash_of("77QmUPtjPfzWtF2AnpK9RQ", "jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y", Algorithm::Rs256));
        assert!(!is_hash_of("77QmUPtjPfzWtF2AnpK9RQ", "another", Algorithm::Rs256));
    }

    proptest! {
        #[test]
        fn no_token_panics(token in "[A-Za-z0-9_.-]{0,200}") {
            let _ = unverified_claims(&token);
        }
    }
}
