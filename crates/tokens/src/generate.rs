//! New signing keys, as private JWKs.

use aws_lc_rs::encoding::{AsBigEndian, AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portico_base::random;
use serde_json::{Map, Value, json};

use crate::key::{Algorithm, KeyError};

/// Returns a new private key of this algorithm with this `kid`, as a JWK in the form that
/// `signing_keys.json` has. Algorithms: ES256, RS256 (2048 bits), EdDSA, HS256.
///
/// # Errors
/// [`KeyError::Unsupported`] for other algorithms; [`KeyError::Invalid`] if the library fails.
pub fn generate_jwk(algorithm: Algorithm, id: &str) -> Result<Value, KeyError> {
    let failed = |_| KeyError::Invalid("no key could be generated");
    let encode = |bytes: &[u8]| Value::from(URL_SAFE_NO_PAD.encode(bytes));
    let mut jwk = Map::new();
    let mut set = |member: &str, value: Value| jwk.insert(member.to_owned(), value);
    match algorithm {
        Algorithm::Es256 => {
            let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(failed)?;
            let point = pair.public_key().as_ref();
            let (x, y) = point.get(1..).and_then(|point| point.split_at_checked(32)).ok_or(KeyError::Member("x"))?;
            set("kty", json!("EC"));
            set("crv", json!("P-256"));
            set("x", encode(x));
            set("y", encode(y));
            set("d", encode(AsBigEndian::as_be_bytes(&pair.private_key()).map_err(failed)?.as_ref()));
        }
        Algorithm::EdDsa => {
            let pair = Ed25519KeyPair::generate().map_err(failed)?;
            set("kty", json!("OKP"));
            set("crv", json!("Ed25519"));
            set("x", encode(pair.public_key().as_ref()));
            let seed = pair.seed().map_err(failed)?;
            set("d", encode(seed.as_be_bytes().map_err(failed)?.as_ref()));
        }
        Algorithm::Rs256 => {
            let pair = RsaKeyPair::generate(KeySize::Rsa2048).map_err(failed)?;
            let document: Pkcs8V1Der<'_> = pair.as_der().map_err(failed)?;
            let numbers = rsa_numbers(document.as_ref()).ok_or(KeyError::Invalid("no key could be generated"))?;
            set("kty", json!("RSA"));
            for (member, number) in ["n", "e", "d", "p", "q", "dp", "dq", "qi"].into_iter().zip(numbers) {
                set(member, encode(number));
            }
        }
        Algorithm::Hs256 => {
            set("kty", json!("oct"));
            set("k", encode(&random::bytes::<32>()));
        }
        other => return Err(KeyError::Unsupported { kty: String::new(), alg: other.name().to_owned() }),
    }
    set("kid", json!(id));
    set("alg", json!(algorithm.name()));
    set("use", json!("sig"));
    set("key_ops", json!(["sign", "verify"]));
    set("ext", json!(true));
    Ok(jwk.into())
}

/// Returns n, e, d, p, q, dp, dq and qi of an RSA key in PKCS #8 (RFC 5958, RFC 8017 A.1.2).
fn rsa_numbers(document: &[u8]) -> Option<[&[u8]; 8]> {
    const SEQUENCE: u8 = 0x30;
    const INTEGER: u8 = 0x02;
    const OCTETS: u8 = 0x04;
    let (outer, _) = element(document, SEQUENCE)?;
    let (_version, rest) = element(outer, INTEGER)?;
    let (_algorithm, rest) = element(rest, SEQUENCE)?;
    let (key, _) = element(rest, OCTETS)?;
    let (key, _) = element(key, SEQUENCE)?;
    let (_version, mut rest) = element(key, INTEGER)?;
    let mut numbers = [[].as_slice(); 8];
    for number in &mut numbers {
        let (value, following) = element(rest, INTEGER)?;
        // A number whose first bit is set has a zero before it
        *number = value.strip_prefix(&[0]).unwrap_or(value);
        rest = following;
    }
    Some(numbers)
}

/// Returns the content of the first element of DER, which must have this tag, and the rest.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        long @ 0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    (*first == tag).then_some(())?;
    rest.split_at_checked(length)
}
