//! The keys in force, which change while the server runs.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use portico_base::hash;
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;

use crate::api_key::ApiKeys;
use crate::claims::Claims;
use crate::ring::{KeyRing, RingFigures};
use crate::third_party::ThirdPartyKeys;
use crate::token::{TokenError, TokenHeader};

/// The issuers of accepted tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenIssuer {
    /// The keys of this server, on all its nodes.
    Own,
    /// The configured third party.
    ThirdParty,
}

impl TokenIssuer {
    /// All issuers, in the order in which their keys are read again: those of this server at once,
    /// those of the third party after a pause.
    pub const ALL: [Self; 2] = [Self::Own, Self::ThirdParty];
}

/// Reads the keys of an issuer again, and returns when that has been done or failed. It decides
/// how often, and several callers wait for one read.
pub type KeyRefresh = Arc<dyn Fn(TokenIssuer) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The time for which a caller waits for keys that its token may have been signed with.
pub const KEY_REFRESH_WAIT: Duration = Duration::from_secs(5);

/// The keys at one moment. A request uses one set from its begin to its end.
#[derive(Debug, Clone)]
pub struct KeySet {
    /// The key ring that signs and verifies this server's tokens.
    pub ring: Arc<KeyRing>,
    /// The API keys. The legacy keys among them are tokens that `ring` verifies.
    pub api: Arc<ApiKeys>,
    /// The third party whose tokens are accepted in addition.
    pub third_party: Option<Arc<ThirdPartyKeys>>,
}

impl KeySet {
    /// Verifies the signature of a token of this server or of the third party, not its times.
    ///
    /// The key that signed a token decides whose it is. The third party's keys verify only tokens
    /// that name it. This server's keys verify tokens of every `iss`; one that names the third
    /// party is theirs only if no key of the third party signed it, so that a token which the third
    /// party issued for another audience is rejected, whatever keys this server has.
    ///
    /// # Errors
    /// Those of [`KeyRing::verify_signature`]; [`TokenError::OtherAudience`].
    pub fn verify_signature(&self, token: &str) -> Result<Arc<Claims>, TokenError> {
        let Some(third_party) = &self.third_party else { return self.ring.verify_signature(token) };
        let fingerprint = hash::sha256(token.as_bytes());
        if let Some(claims) = third_party.remembered(&fingerprint) {
            return Ok(claims);
        }
        let own = self.ring.remembered(&fingerprint);
        if let Some(claims) = own.filter(|claims| !third_party.is_named_by(claims)) {
            return Ok(claims);
        }
        if !third_party.is_named_in(token) {
            return self.ring.verify_signature(token);
        }
        match third_party.verify_signature(token) {
            Err(error) if error.is_of_another_key() => match self.ring.verify_signature(token) {
                // A key of this server could have signed it: the signature is wrong, and not only
                // the key unknown
                Err(TokenError::BadSignature) => Err(TokenError::BadSignature),
                Err(_) => Err(error),
                own => own,
            },
            theirs => theirs,
        }
    }

    /// Returns true if the keys of an issuer should be read again for a rejected token, which a key
    /// that is not among them may have signed.
    ///
    /// A token that names the third party may be of either: this server can have the same `iss`.
    /// One with the id of a key that the third party has published is not of a new key of this
    /// server, so that tokens which the third party issued for others cost this server nothing.
    #[must_use]
    pub fn may_lack_key_of(&self, issuer: TokenIssuer, token: &str) -> bool {
        let Ok(TokenHeader { key_id: id, .. }) = TokenHeader::read(token) else { return false };
        let id = id.as_deref();
        let named = self.third_party.as_ref().filter(|keys| keys.is_named_in(token));
        match issuer {
            TokenIssuer::Own => {
                let is_theirs = |id| named.is_some_and(|keys| keys.has_key(id));
                id.is_some_and(|id| !self.ring.may_know(id) && !is_theirs(id))
            }
            TokenIssuer::ThirdParty => {
                named.is_some_and(|keys| !keys.is_known() || id.is_some_and(|id| !keys.may_know(id)))
            }
        }
    }
}

/// The keys in force. Clones share them, so that a change reaches every service at once.
#[derive(Debug, Clone)]
pub struct CurrentKeys(Arc<RwLock<Arc<KeySet>>>);

impl CurrentKeys {
    /// Returns the configured keys, without a third party.
    #[must_use]
    pub fn new(ring: Arc<KeyRing>, api: Arc<ApiKeys>) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(KeySet { ring, api, third_party: None }))))
    }

    /// Returns the keys at this moment.
    #[must_use]
    pub fn now(&self) -> Arc<KeySet> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the key ring at this moment.
    #[must_use]
    pub fn ring(&self) -> Arc<KeyRing> {
        Arc::clone(&self.now().ring)
    }

    /// Replaces this server's own keys.
    pub fn replace(&self, ring: Arc<KeyRing>, api: Arc<ApiKeys>) {
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *keys = Arc::new(KeySet { ring, api, third_party: keys.third_party.clone() });
    }

    /// Replaces the keys of the third party.
    pub fn replace_third_party(&self, third_party: ThirdPartyKeys) {
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *keys = Arc::new(KeySet { third_party: Some(Arc::new(third_party)), ..KeySet::clone(&keys) });
    }

    /// Does the same as [`KeyRing::sign`].
    ///
    /// # Errors
    /// Those of [`KeyRing::sign`].
    pub fn sign(&self, claims: &impl Serialize) -> Result<String, TokenError> {
        self.ring().sign(claims)
    }

    /// Like [`KeyRing::verify`], but with the keys of this server.
    ///
    /// # Errors
    /// Those of [`KeyRing::verify`].
    pub fn verify(&self, token: &str, now: OffsetDateTime) -> Result<Arc<Claims>, TokenError> {
        self.ring().verify(token, now)
    }

    /// Returns the public keys of this server, as [`KeyRing::jwks`].
    #[must_use]
    pub fn jwks(&self) -> Value {
        self.ring().jwks()
    }

    /// Does the same as [`KeyRing::figures`].
    #[must_use]
    pub fn figures(&self) -> RingFigures {
        self.ring().figures()
    }
}
