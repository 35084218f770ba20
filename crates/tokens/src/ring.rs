//! The keys of a server: one signs, all verify.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::claims::Claims;
use crate::key::{Algorithm, KeyError, SigningKey};
use crate::token::{MAX_TOKEN_BYTES, Parts, TokenError};
use crate::verified::Verified;
use portico_base::Secret;
use portico_base::hash;

/// The name of the HS256 secret among the keys, which has no `kid` in tokens.
pub const SECRET_ID: &str = "jwt_secret";

/// The number of verified tokens in the cache.
const REMEMBERED: usize = 4096;

/// The number of verified tokens in the cache of a foreign key set: most of them are presented
/// once.
const REMEMBERED_FOREIGN: usize = 2;

/// The algorithms that an RSA key without `alg` may have signed with.
const RSA_METHODS: [&str; 6] = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];

/// The largest number of keys that are read from a foreign key set.
const MAX_FOREIGN_KEYS: usize = 64;

/// The keys that tokens are signed and verified with.
///
/// Immutable, so a verified token stays verified (apart from its times, which are checked each
/// time).
pub struct KeyRing {
    keys: Vec<Arc<SigningKey>>,
    /// The HS256 secret. It verifies tokens with an unknown `kid`, as the legacy keys require.
    secret: Option<Arc<SigningKey>>,
    /// The key that signs. `None`: no key can.
    signer: Option<Arc<SigningKey>>,
    /// The accepted algorithms; empty: those of the keys.
    methods: Vec<Algorithm>,
    /// True if a key without `kid` verifies a token with one, as some issuers require.
    nameless_keys_fit: bool,
    verified: Verified,
}

impl KeyRing {
    /// Returns a ring of the HS256 `secret` and the keys of a JWK list. At least one of them must
    /// exist, and `kid`s must differ. The first key that can sign does; a server that issues access
    /// tokens uses [`KeyRing::issuing`].
    pub fn new(secret: Option<Secret>, jwks: Vec<SigningKey>) -> Result<Self, KeyError> {
        let secret = secret.filter(|secret| !secret.is_empty());
        if secret.is_none() && jwks.is_empty() {
            return Err(KeyError::NoKey);
        }
        let keys: Vec<_> = jwks.into_iter().map(Arc::new).collect();
        check_ids(&keys)?;
        Ok(Self::assemble(secret.as_ref().map(SigningKey::hs256), keys))
    }

    /// Returns this ring of configured keys with keys that are kept elsewhere, of which one may
    /// sign in its place, and without the keys whose ids are `revoked` ([`SECRET_ID`] for the
    /// secret). All other keys of this ring verify as before.
    ///
    /// # Errors
    /// [`KeyError::DuplicateId`], [`KeyError::NoSigningKey`] if the signing key was revoked and no
    /// kept key signs, [`KeyError::MethodNotAccepted`].
    pub fn with_kept_keys(&self, kept: Vec<KeptKey>, revoked: &[String]) -> Result<Self, KeyError> {
        let is_revoked = |key: &Arc<SigningKey>| {
            let is_secret = self.secret.as_ref().is_some_and(|secret| Arc::ptr_eq(secret, key));
            let name = if is_secret { Some(SECRET_ID) } else { key.id() };
            name.is_some_and(|name| revoked.iter().any(|id| id == name))
        };
        let kept_signer = kept.iter().find(|kept| kept.signs).map(|kept| Arc::clone(&kept.key));
        let configured_signer = self.signer.clone().filter(|key| !is_revoked(key));
        let signer = kept_signer.or(configured_signer).filter(|key| key.can_sign()).ok_or(KeyError::NoSigningKey)?;
        if !self.methods.is_empty() && !self.methods.contains(&signer.algorithm()) {
            return Err(KeyError::MethodNotAccepted(signer.algorithm().name()));
        }
        let secret = self.secret.clone().filter(|key| !is_revoked(key));
        let configured = self.keys.iter().filter(|key| !is_revoked(key)).cloned();
        let keys: Vec<_> = configured.chain(kept.into_iter().map(|kept| kept.key)).collect();
        check_ids(&keys)?;
        Ok(Self { methods: self.methods.clone(), signer: Some(signer), ..Self::assemble_shared(secret, keys) })
    }

    /// Returns the ring of a server that issues tokens: exactly one of `jwks` must be a private key
    /// with `sign` among its `key_ops`, all others only verify; without any, the `secret` signs.
    /// `methods` are the accepted algorithms; empty: those of the keys, and HS256 with a secret.
    ///
    /// # Errors
    /// Those of [`KeyRing::new`]; [`KeyError::NoSigningKey`], [`KeyError::SeveralSigningKeys`],
    /// [`KeyError::MethodNotAccepted`].
    pub fn issuing(secret: Option<Secret>, jwks: Vec<SigningKey>, methods: &[Algorithm]) -> Result<Self, KeyError> {
        let signing: Vec<&SigningKey> = jwks.iter().filter(|key| key.is_meant_to_sign()).collect();
        let algorithm = match signing.as_slice() {
            [key] => key.algorithm(),
            [] if jwks.is_empty() => Algorithm::Hs256,
            [] => return Err(KeyError::NoSigningKey),
            several => {
                let names = several.iter().map(|key| format!("{:?}", key.id().unwrap_or_default()));
                return Err(KeyError::SeveralSigningKeys(names.collect::<Vec<_>>().join(", ")));
            }
        };
        if !methods.is_empty() && !methods.contains(&algorithm) {
            return Err(KeyError::MethodNotAccepted(algorithm.name()));
        }
        let only_one_signs = |key: SigningKey| if key.is_meant_to_sign() { key } else { key.verify_only() };
        let ring = Self::new(secret, jwks.into_iter().map(only_one_signs).collect())?;
        Ok(Self { methods: methods.to_vec(), ..ring })
    }

    /// Returns a ring of the HS256 secret alone.
    pub fn hs256(secret: &Secret) -> Self {
        Self::assemble(Some(SigningKey::hs256(secret)), Vec::new())
    }

    /// Returns a ring of a foreign issuer's published keys (`{"keys":[...]}`), to verify the tokens
    /// of that issuer. Symmetric keys and unknown kinds are left out; an error if nothing remains.
    /// A key without `kid` may have signed a token with one, and an RSA key without `alg` signs
    /// with any RSA algorithm.
    pub fn foreign(jwks: &Value) -> Result<Self, KeyError> {
        let keys: Vec<Arc<SigningKey>> = jwks
            .get("keys")
            .and_then(Value::as_array)
            .ok_or(KeyError::Member("keys"))?
            .iter()
            .take(MAX_FOREIGN_KEYS)
            .flat_map(with_methods)
            .filter_map(|jwk| SigningKey::parse_jwk(&jwk).ok())
            .filter(|key| key.public_jwk().is_some())
            .map(Arc::new)
            .collect();
        if keys.is_empty() {
            return Err(KeyError::NoKey);
        }
        let verified = Verified::new(REMEMBERED_FOREIGN);
        Ok(Self { nameless_keys_fit: true, verified, ..Self::assemble(None, keys) })
    }

    fn assemble(secret: Option<SigningKey>, keys: Vec<Arc<SigningKey>>) -> Self {
        Self::assemble_shared(secret.map(Arc::new), keys)
    }

    fn assemble_shared(secret: Option<Arc<SigningKey>>, keys: Vec<Arc<SigningKey>>) -> Self {
        let signer = keys.iter().find(|key| key.can_sign()).or(secret.as_ref()).cloned();
        let verified = Verified::new(REMEMBERED);
        Self { keys, secret, signer, methods: Vec::new(), nameless_keys_fit: false, verified }
    }

    /// Returns the same ring with a cache for the tokens of many callers.
    #[must_use]
    pub(crate) fn with_large_cache(self) -> Self {
        Self { verified: Verified::new(REMEMBERED), ..self }
    }

    /// Returns the keys of the ring, without the secret.
    pub fn keys(&self) -> impl Iterator<Item = &SigningKey> {
        self.keys.iter().map(|key| &**key)
    }

    /// Returns true if the HS256 secret verifies.
    pub fn has_secret(&self) -> bool {
        self.secret.is_some()
    }

    /// Returns the id of the key that signs; [`SECRET_ID`] for the secret.
    pub fn signing_id(&self) -> &str {
        self.signer.as_ref().and_then(|key| key.id()).unwrap_or(SECRET_ID)
    }

    /// Returns true if tokens that `algorithm` signed are accepted, as far as the configured
    /// methods go.
    pub fn accepts_method(&self, algorithm: Algorithm) -> bool {
        self.accepts(algorithm)
    }

    /// Returns true if the ring has a key with this `kid`, or one that may have signed a token with
    /// it all the same.
    pub fn may_know(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.id() == Some(id) || (self.nameless_keys_fit && key.id().is_none()))
    }

    /// Returns true if the ring has a key with this `kid`.
    pub(crate) fn has_key(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.id() == Some(id))
    }

    /// Signs `claims` (a JSON object) with the current key: the first private key that may sign,
    /// else the secret.
    pub fn sign(&self, claims: &impl Serialize) -> Result<String, TokenError> {
        sign_with(self.signer.as_deref(), claims)
    }

    /// Signs with the HS256 secret, as for the legacy API keys; without a secret with the current
    /// key.
    pub fn sign_with_secret(&self, claims: &impl Serialize) -> Result<String, TokenError> {
        match &self.secret {
            Some(secret) => sign_with(Some(&**secret), claims),
            None => self.sign(claims),
        }
    }

    /// Returns true if [`KeyRing::sign`] uses a key whose public half is published.
    pub fn signs_asymmetrically(&self) -> bool {
        self.signer.as_ref().is_some_and(|key| key.public_jwk().is_some())
    }

    /// Verifies a token's signature, and its times at `now` without leeway.
    ///
    /// # Errors
    /// Those of [`KeyRing::verify_signature`] and [`Claims::check_times`].
    pub fn verify(&self, token: &str, now: OffsetDateTime) -> Result<Arc<Claims>, TokenError> {
        let claims = self.verify_signature(token)?;
        claims.check_times(now)?;
        Ok(claims)
    }

    /// Verifies a token's signature alone: for a caller that compares its times with another
    /// leeway, or distinguishes an expired token from an invalid one.
    ///
    /// The key is the one with the token's `kid` and algorithm; without a `kid` every key of the
    /// algorithm is tried. An HS256 token with an unknown `kid` is tried with the secret, which has
    /// no `kid` of its own: tokens that another server signed with the same secret carry that
    /// server's `kid`, and remain valid after a move. Rings without a secret, such as those of a
    /// JWK set, have nothing to try then. Verified tokens are cached, in memory that is bounded in
    /// tokens and in bytes, unless they are large; other tokens never are.
    ///
    /// # Errors
    /// Every [`TokenError`] but those about times.
    pub fn verify_signature(&self, token: &str) -> Result<Arc<Claims>, TokenError> {
        self.verify_with(token, |_| Ok(()))
    }

    /// Like [`verify_signature`](Self::verify_signature), but for a token whose claims also pass
    /// `check` before they are cached.
    pub(crate) fn verify_with(
        &self,
        token: &str,
        check: impl FnOnce(&mut Claims) -> Result<(), TokenError>,
    ) -> Result<Arc<Claims>, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::Malformed("token is too long"));
        }
        let fingerprint = hash::sha256(token.as_bytes());
        if let Some(claims) = self.verified.get(&fingerprint) {
            return Ok(claims);
        }
        let mut claims = self.read_signed(token)?;
        check(&mut claims)?;
        let claims = Arc::new(claims);
        self.verified.insert(fingerprint, Arc::clone(&claims));
        Ok(claims)
    }

    /// Returns the claims of a token that was verified before and is in the cache.
    pub(crate) fn remembered(&self, fingerprint: &[u8; 32]) -> Option<Arc<Claims>> {
        self.verified.get_if_cached(fingerprint)
    }

    fn read_signed(&self, token: &str) -> Result<Claims, TokenError> {
        let parts = Parts::parse(token)?;
        let mut fitting = self.fitting_keys(&parts).peekable();
        if fitting.peek().is_none() {
            let mut accepted = self.keys.iter().chain(&self.secret).filter(|key| self.accepts(key.algorithm()));
            let known = accepted.any(|key| key.algorithm() == parts.algorithm);
            return Err(if known {
                parts.unknown_key()
            } else {
                TokenError::NoKeyForAlgorithm(parts.algorithm.name())
            });
        }
        if !fitting.any(|key| key.verify(parts.signed, &parts.signature)) {
            return Err(TokenError::BadSignature);
        }
        Claims::parse(parts.payload()?)
    }

    /// Returns the keys that may have signed the token. Only keys of the token's own algorithm, so
    /// that a public key is never used as a secret.
    fn fitting_keys<'a>(&'a self, parts: &'a Parts<'_>) -> impl Iterator<Item = &'a Arc<SigningKey>> {
        let named = parts.key_id.as_deref();
        let is_ours = named.is_some() && self.keys.iter().any(|key| key.id() == named);
        let secret = self.secret.as_ref().filter(|_| !is_ours);
        self.keys
            .iter()
            .filter(move |key| {
                let fits_any = self.nameless_keys_fit && key.id().is_none();
                named.is_none() || key.id() == named || fits_any
            })
            .chain(secret)
            .filter(|key| key.algorithm() == parts.algorithm && self.accepts(key.algorithm()))
    }

    fn accepts(&self, algorithm: Algorithm) -> bool {
        self.methods.is_empty() || self.methods.contains(&algorithm)
    }

    /// Returns the counters of the cache of verified tokens.
    pub fn figures(&self) -> RingFigures {
        let [presented, remembered, forgotten] = self.verified.figures();
        RingFigures { presented, remembered, forgotten, bytes: self.verified.bytes() }
    }

    /// Returns the public keys as a JWK set. It never contains symmetric keys.
    pub fn jwks(&self) -> Value {
        json!({ "keys": self.keys().filter_map(SigningKey::public_jwk).collect::<Vec<_>>() })
    }
}

/// A key that is not configured but kept elsewhere, for [`KeyRing::with_kept_keys`].
#[derive(Debug)]
pub struct KeptKey {
    /// The key.
    pub key: Arc<SigningKey>,
    /// True if it signs; at most one does. Others only verify.
    pub signs: bool,
}

fn check_ids(keys: &[Arc<SigningKey>]) -> Result<(), KeyError> {
    for (place, key) in keys.iter().enumerate() {
        if let Some(id) = key.id()
            && keys[..place].iter().any(|other| other.id() == Some(id))
        {
            return Err(KeyError::DuplicateId(id.to_owned()));
        }
    }
    Ok(())
}

/// The counters of a ring's cache of verified tokens, since the ring was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingFigures {
    /// Tokens that were presented.
    pub presented: u64,
    /// Presented tokens that were in the cache.
    pub remembered: u64,
    /// Verified tokens that were removed for newer ones.
    pub forgotten: u64,
    /// The memory of the cached tokens, in bytes.
    pub bytes: usize,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing")
            .field("keys", &self.keys)
            .field("secret", &self.secret.is_some())
            .finish_non_exhaustive()
    }
}

/// Repeats a key for each of its algorithms: an RSA key that names none has several.
fn with_methods(jwk: &Value) -> Vec<Value> {
    let is_open = jwk.get("kty").is_some_and(|kty| kty == "RSA") && jwk.get("alg").is_none_or(Value::is_null);
    if !is_open {
        return vec![jwk.clone()];
    }
    let with = |method: &str| {
        let mut jwk = jwk.clone();
        jwk["alg"] = json!(method);
        jwk
    };
    RSA_METHODS.iter().map(|method| with(method)).collect()
}

fn sign_with(key: Option<&SigningKey>, claims: &impl Serialize) -> Result<String, TokenError> {
    let key = key.filter(|key| key.can_sign()).ok_or(TokenError::Unsigned("no key may sign"))?;
    let payload = serde_json::to_vec(claims).map_err(|_| TokenError::Unsigned("the claims are no JSON"))?;
    if payload.first() != Some(&b'{') {
        return Err(TokenError::Unsigned("the claims are no JSON object"));
    }
    let header = match key.id() {
        Some(id) => json!({ "alg": key.algorithm().name(), "kid": id, "typ": "JWT" }),
        None => json!({ "alg": key.algorithm().name(), "typ": "JWT" }),
    };
    let mut token = URL_SAFE_NO_PAD.encode(header.to_string());
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(payload, &mut token);
    let signature = key.sign(token.as_bytes()).ok_or(TokenError::Unsigned("the key refused"))?;
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut token);
    Ok(token)
}
