//! Keys that sign and verify tokens, read from JWKs (RFC 7517).

use std::fmt;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPairComponents, PublicKeyComponents};
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, ParsedPublicKey, RsaKeyPair, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use portico_base::Secret;

/// A signature algorithm (RFC 7518). `none` is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the registry")]
pub enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
    EdDsa,
}

impl Algorithm {
    const ALL: [Self; 13] = [
        Self::Hs256,
        Self::Hs384,
        Self::Hs512,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::EdDsa,
    ];

    /// Returns the registered name, as in a token's header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Hs384 => "HS384",
            Self::Hs512 => "HS512",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Parses a registered name (exact spelling).
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// The reasons for which a JWK cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A member of the key is missing or has the wrong form.
    #[error("the key's {0:?} is missing or malformed")]
    Member(&'static str),
    /// The key type, curve and algorithm do not match, or are not supported.
    #[error("a key of type {kty:?} cannot be used with algorithm {alg:?}")]
    Unsupported {
        /// The key's `kty`, with its curve.
        kty: String,
        /// The key's `alg`, empty when absent.
        alg: String,
    },
    /// The parts are not a valid key (wrong point, inconsistent numbers, too short).
    #[error("the key is not valid: {0}")]
    Invalid(&'static str),
    /// The key is for encryption.
    #[error("the key is not for signatures")]
    NotForSignatures,
    /// There is no key to verify with.
    #[error("neither a secret nor a key was given")]
    NoKey,
    /// Two keys have the same `kid`.
    #[error("two keys have the same kid {0:?}")]
    DuplicateId(String),
    /// No key signs.
    #[error("no key signs: exactly one private key must have \"sign\" among its key_ops")]
    NoSigningKey,
    /// More than one key signs; their names.
    #[error(
        "the keys {0} all sign: exactly one must have \"sign\" among its key_ops. Give those that only verify \
         \"key_ops\": [\"verify\"]"
    )]
    SeveralSigningKeys(String),
    /// The signing key makes tokens that are not accepted.
    #[error("the signing key is for {0}, which is not among the accepted methods")]
    MethodNotAccepted(&'static str),
}

/// A key. It verifies, and it signs if it is a private key whose `key_ops` allow it.
pub struct SigningKey {
    id: Option<String>,
    algorithm: Algorithm,
    verifier: Verifier,
    signer: Option<Signer>,
    /// `key_ops` contains `sign`. A private key without `key_ops` can sign, but is not marked for
    /// it.
    is_meant_to_sign: bool,
    /// The public half as a JWK; `None` for a symmetric key, which has none.
    public: Option<Value>,
}

enum Verifier {
    Hmac(Box<hmac::Key>),
    Public(ParsedPublicKey),
}

enum Signer {
    Hmac,
    Rsa(Box<RsaKeyPair>, &'static dyn signature::RsaEncoding),
    Ecdsa(Box<EcdsaKeyPair>),
    Ed25519(Box<Ed25519KeyPair>),
}

impl SigningKey {
    /// Returns the key of an HS256 secret, without an id.
    pub fn hs256(secret: &Secret) -> Self {
        Self::symmetric((Algorithm::Hs256, hmac::HMAC_SHA256), secret.expose().as_bytes(), None, true)
    }

    /// Returns the same key for verification only.
    pub(crate) fn verify_only(self) -> Self {
        Self { signer: None, is_meant_to_sign: false, ..self }
    }

    /// Returns true if the key can sign and its `key_ops` contain `sign`.
    pub(crate) fn is_meant_to_sign(&self) -> bool {
        self.is_meant_to_sign && self.can_sign()
    }

    /// Parses a JWK, private or public: EC (P-256, P-384, P-521), RSA (2048 bits or more), OKP
    /// Ed25519, oct.
    ///
    /// Without `alg`, the usual algorithm of the key is used (ES256 for P-256, RS256 for RSA, HS256
    /// for oct, ...).
    /// A private key signs unless it has `key_ops` without `"sign"`.
    pub fn parse_jwk(jwk: &Value) -> Result<Self, KeyError> {
        let jwk = Jwk(jwk.as_object().ok_or(KeyError::Member("kty"))?);
        if jwk.text("use").is_some_and(|purpose| purpose != "sig") {
            return Err(KeyError::NotForSignatures);
        }
        let may_sign = match jwk.0.get("key_ops") {
            None | Some(Value::Null) => true,
            Some(Value::Array(operations)) => {
                let has = |name: &str| operations.iter().any(|operation| operation == name);
                if !has("sign") && !has("verify") {
                    return Err(KeyError::NotForSignatures);
                }
                has("sign")
            }
            Some(_) => return Err(KeyError::Member("key_ops")),
        };
        let is_meant_to_sign = may_sign && matches!(jwk.0.get("key_ops"), Some(Value::Array(_)));
        let key = Self::of_kind(&jwk, may_sign)?;
        Ok(Self { is_meant_to_sign, ..key })
    }

    fn of_kind(jwk: &Jwk<'_>, may_sign: bool) -> Result<Self, KeyError> {
        match jwk.text("kty").ok_or(KeyError::Member("kty"))? {
            "oct" => {
                let method = match jwk.text("alg").unwrap_or("HS256") {
                    "HS256" => (Algorithm::Hs256, hmac::HMAC_SHA256),
                    "HS384" => (Algorithm::Hs384, hmac::HMAC_SHA384),
                    "HS512" => (Algorithm::Hs512, hmac::HMAC_SHA512),
                    _ => return Err(jwk.unsupported()),
                };
                let secret = jwk.bytes("k")?;
                if secret.is_empty() {
                    return Err(KeyError::Member("k"));
                }
                Ok(Self::symmetric(method, &secret, jwk.id(), may_sign))
            }
            "EC" => Self::elliptic(jwk, may_sign),
            "OKP" => Self::edwards(jwk, may_sign),
            "RSA" => Self::rsa(jwk, may_sign),
            _ => Err(jwk.unsupported()),
        }
    }

    fn symmetric(
        (algorithm, hash): (Algorithm, hmac::Algorithm),
        secret: &[u8],
        id: Option<String>,
        may_sign: bool,
    ) -> Self {
        Self {
            id,
            algorithm,
            verifier: Verifier::Hmac(Box::new(hmac::Key::new(hash, secret))),
            signer: may_sign.then_some(Signer::Hmac),
            is_meant_to_sign: false,
            public: None,
        }
    }

    fn elliptic(jwk: &Jwk<'_>, may_sign: bool) -> Result<Self, KeyError> {
        type Curve = (Algorithm, usize, &'static dyn VerificationAlgorithm, &'static EcdsaSigningAlgorithm);
        let (algorithm, size, verification, signing): Curve = match jwk.text("crv").ok_or(KeyError::Member("crv"))? {
            "P-256" => {
                (Algorithm::Es256, 32, &signature::ECDSA_P256_SHA256_FIXED, &signature::ECDSA_P256_SHA256_FIXED_SIGNING)
            }
            "P-384" => {
                (Algorithm::Es384, 48, &signature::ECDSA_P384_SHA384_FIXED, &signature::ECDSA_P384_SHA384_FIXED_SIGNING)
            }
            "P-521" => {
                (Algorithm::Es512, 66, &signature::ECDSA_P521_SHA512_FIXED, &signature::ECDSA_P521_SHA512_FIXED_SIGNING)
            }
            _ => return Err(jwk.unsupported()),
        };
        jwk.check_algorithm(algorithm)?;
        let (x, y) = (jwk.sized("x", size)?, jwk.sized("y", size)?);
        let point = [&[4], x.as_slice(), y.as_slice()].concat();
        let public = ParsedPublicKey::new(verification, point.as_slice())
            .map_err(|_| KeyError::Invalid("x and y are not a point of the curve"))?;
        let signer = match jwk.optional("d")? {
            None => None,
            Some(_) => {
                let d = jwk.sized("d", size)?;
                let pair = EcdsaKeyPair::from_private_key_and_public_key(signing, &d, &point)
                    .map_err(|_| KeyError::Invalid("d does not belong to x and y"))?;
                may_sign.then(|| Signer::Ecdsa(Box::new(pair)))
            }
        };
        Ok(Self::asymmetric(jwk, algorithm, public, signer, &["crv", "x", "y"]))
    }

    fn edwards(jwk: &Jwk<'_>, may_sign: bool) -> Result<Self, KeyError> {
        if jwk.text("crv") != Some("Ed25519") {
            return Err(jwk.unsupported());
        }
        jwk.check_algorithm(Algorithm::EdDsa)?;
        let x = jwk.sized("x", 32)?;
        let public = ParsedPublicKey::new(&signature::ED25519, x.as_slice())
            .map_err(|_| KeyError::Invalid("x is not a point of the curve"))?;
        let signer = match jwk.optional("d")? {
            None => None,
            Some(_) => {
                let pair = Ed25519KeyPair::from_seed_and_public_key(&jwk.sized("d", 32)?, &x)
                    .map_err(|_| KeyError::Invalid("d does not belong to x"))?;
                may_sign.then(|| Signer::Ed25519(Box::new(pair)))
            }
        };
        Ok(Self::asymmetric(jwk, Algorithm::EdDsa, public, signer, &["crv", "x"]))
    }

    fn rsa(jwk: &Jwk<'_>, may_sign: bool) -> Result<Self, KeyError> {
        type Scheme = (Algorithm, &'static signature::RsaParameters, &'static dyn signature::RsaEncoding);
        let (algorithm, verification, encoding): Scheme = match jwk.text("alg").unwrap_or("RS256") {
            "RS256" => (Algorithm::Rs256, &signature::RSA_PKCS1_2048_8192_SHA256, &signature::RSA_PKCS1_SHA256),
            "RS384" => (Algorithm::Rs384, &signature::RSA_PKCS1_2048_8192_SHA384, &signature::RSA_PKCS1_SHA384),
            "RS512" => (Algorithm::Rs512, &signature::RSA_PKCS1_2048_8192_SHA512, &signature::RSA_PKCS1_SHA512),
            "PS256" => (Algorithm::Ps256, &signature::RSA_PSS_2048_8192_SHA256, &signature::RSA_PSS_SHA256),
            "PS384" => (Algorithm::Ps384, &signature::RSA_PSS_2048_8192_SHA384, &signature::RSA_PSS_SHA384),
            "PS512" => (Algorithm::Ps512, &signature::RSA_PSS_2048_8192_SHA512, &signature::RSA_PSS_SHA512),
            _ => return Err(jwk.unsupported()),
        };
        let (n, e) = (jwk.number("n")?, jwk.number("e")?);
        if !(256..=1024).contains(&n.len()) || e.len() > 8 {
            return Err(KeyError::Invalid("an RSA key needs 2048 to 8192 bits"));
        }
        let public_key = PublicKeyComponents { n, e };
        let public =
            public_key.to_parsed_public_key(verification).map_err(|_| KeyError::Invalid("n and e are no RSA key"))?;
        let signer = match jwk.optional("d")? {
            None => None,
            Some(d) => {
                let pair = RsaKeyPair::from_components(&KeyPairComponents {
                    public_key,
                    d,
                    p: jwk.number("p")?,
                    q: jwk.number("q")?,
                    dP: jwk.number("dp")?,
                    dQ: jwk.number("dq")?,
                    qInv: jwk.number("qi")?,
                })
                .map_err(|_| KeyError::Invalid("the private parts do not belong to n and e"))?;
                may_sign.then(|| Signer::Rsa(Box::new(pair), encoding))
            }
        };
        Ok(Self::asymmetric(jwk, algorithm, public, signer, &["n", "e"]))
    }

    fn asymmetric(
        jwk: &Jwk<'_>,
        algorithm: Algorithm,
        public: ParsedPublicKey,
        signer: Option<Signer>,
        members: &[&str],
    ) -> Self {
        let mut shown = Map::new();
        shown.insert("kty".to_owned(), json!(jwk.text("kty")));
        if let Some(id) = jwk.id() {
            shown.insert("kid".to_owned(), Value::String(id));
        }
        shown.insert("use".to_owned(), json!("sig"));
        shown.insert("key_ops".to_owned(), json!(["verify"]));
        shown.insert("alg".to_owned(), json!(algorithm.name()));
        shown.insert("ext".to_owned(), json!(true));
        for member in members {
            shown.insert((*member).to_owned(), json!(jwk.text(member)));
        }
        let verifier = Verifier::Public(public);
        Self { id: jwk.id(), algorithm, verifier, signer, is_meant_to_sign: false, public: Some(shown.into()) }
    }

    /// Returns the key's `kid`.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns the one algorithm of the key.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns true if the key can sign.
    pub fn can_sign(&self) -> bool {
        self.signer.is_some()
    }

    /// Returns the public half as a JWK; `None` for a symmetric key.
    pub fn public_jwk(&self) -> Option<&Value> {
        self.public.as_ref()
    }

    pub(crate) fn verify(&self, message: &[u8], given: &[u8]) -> bool {
        match &self.verifier {
            Verifier::Hmac(key) => hmac::verify(key, message, given).is_ok(),
            Verifier::Public(key) => key.verify_sig(message, given).is_ok(),
        }
    }

    /// Signs a message. `None`: the key cannot sign, or the library failed.
    pub(crate) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match (self.signer.as_ref()?, &self.verifier) {
            (Signer::Hmac, Verifier::Hmac(key)) => Some(hmac::sign(key, message).as_ref().to_vec()),
            (Signer::Hmac, Verifier::Public(_)) => None,
            (Signer::Rsa(pair, encoding), _) => {
                let mut out = vec![0; pair.public_modulus_len()];
                pair.sign(*encoding, &random, message, &mut out).ok()?;
                Some(out)
            }
            (Signer::Ecdsa(pair), _) => Some(pair.sign(&random, message).ok()?.as_ref().to_vec()),
            (Signer::Ed25519(pair), _) => Some(pair.try_sign(message).ok()?.as_ref().to_vec()),
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .field("can_sign", &self.can_sign())
            .finish_non_exhaustive()
    }
}

/// The members of a JWK.
struct Jwk<'a>(&'a Map<String, Value>);

impl Jwk<'_> {
    fn text(&self, member: &str) -> Option<&str> {
        self.0.get(member).and_then(Value::as_str)
    }

    fn id(&self) -> Option<String> {
        self.text("kid").filter(|id| !id.is_empty()).map(str::to_owned)
    }

    fn bytes(&self, member: &'static str) -> Result<Vec<u8>, KeyError> {
        self.optional(member)?.ok_or(KeyError::Member(member))
    }

    fn optional(&self, member: &'static str) -> Result<Option<Vec<u8>>, KeyError> {
        match self.0.get(member) {
            None | Some(Value::Null) => Ok(None),
            // Some writers add padding
            Some(Value::String(text)) => {
                URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map(Some).map_err(|_| KeyError::Member(member))
            }
            Some(_) => Err(KeyError::Member(member)),
        }
    }

    fn sized(&self, member: &'static str, size: usize) -> Result<Vec<u8>, KeyError> {
        let bytes = self.bytes(member)?;
        if bytes.len() == size { Ok(bytes) } else { Err(KeyError::Member(member)) }
    }

    /// Decodes an unsigned number, without the leading zeros that some writers add.
    fn number(&self, member: &'static str) -> Result<Vec<u8>, KeyError> {
        let bytes = self.bytes(member)?;
        let first = bytes.iter().position(|byte| *byte != 0).ok_or(KeyError::Member(member))?;
        Ok(bytes[first..].to_vec())
    }

    fn check_algorithm(&self, expected: Algorithm) -> Result<(), KeyError> {
        match self.text("alg") {
            Some(alg) if alg != expected.name() => Err(self.unsupported()),
            _ => Ok(()),
        }
    }

    fn unsupported(&self) -> KeyError {
        let kty = [self.text("kty"), self.text("crv")].into_iter().flatten().collect::<Vec<_>>().join(" ");
        KeyError::Unsupported { kty, alg: self.text("alg").unwrap_or_default().to_owned() }
    }
}
