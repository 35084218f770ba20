//! Measures how much slower it is to sign and verify a token than to compute the signature.
//!
//! The limit is the operation of aws-lc on the same bytes with the same key, without JSON, base64,
//! and the look-up of the key. Both run on one thread.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPairComponents, PublicKeyComponents};
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, ParsedPublicKey, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portico_tokens::{Algorithm, KeyRing, SigningKey, generate_jwk};
use serde_json::{Value, json};

use crate::report::{Report, median};
use crate::rounds::practises;

const ROUNDS: usize = 5;
/// The time of each round.
const ROUND: Duration = Duration::from_millis(400);
/// Tokens that are verified one after the other, each for the first time by a new ring.
const TOKENS: usize = 1000;

/// Signs a text, and returns the length of the signature.
type Sign = Box<dyn Fn(&[u8]) -> usize>;
/// Returns whether a signature belongs to a text.
type Verify = Box<dyn Fn(&[u8], &[u8]) -> bool>;

/// The operations of the library with the key of a JWK.
struct Raw {
    sign: Sign,
    verify: Verify,
}

/// Compares every algorithm of keys that Portico makes.
pub fn measure(report: &mut Report) -> Result<()> {
    for algorithm in [Algorithm::Hs256, Algorithm::Es256, Algorithm::EdDsa, Algorithm::Rs256] {
        measure_algorithm(algorithm, report).with_context(|| algorithm.name())?;
    }
    Ok(())
}

fn measure_algorithm(algorithm: Algorithm, report: &mut Report) -> Result<()> {
    let jwk = generate_jwk(algorithm, "5c1e9a0e-4a6f-4a6e-9d5a-3c2b115d1c7c")?;
    let ring = || anyhow::Ok(KeyRing::new(None, vec![SigningKey::parse_jwk(&jwk)?])?);
    let raw = raw(algorithm, &jwk)?;
    let signer = ring()?;
    let token = signer.sign(&claims(0))?;
    let (message, last) = token.rsplit_once('.').context("a token has three parts")?;
    let message = message.as_bytes().to_vec();
    let given = URL_SAFE_NO_PAD.decode(last)?;
    ensure!((raw.verify)(&message, &given), "the library accepts the token");

    let one = claims(0);
    compare(
        report,
        algorithm,
        "sign a token",
        || black_box(signer.sign(&one).is_ok()),
        || black_box((raw.sign)(&message) > 0),
    );

    let tokens = (0..TOKENS).map(|number| Ok(signer.sign(&claims(number))?)).collect::<Result<Vec<_>>>()?;
    // A ring caches what it has verified, so that each one verifies each token once
    let (mut verifier, mut next, mut failed) = (ring()?, 0, None);
    compare(
        report,
        algorithm,
        "verify a token for the first time",
        || {
            if next == TOKENS {
                match ring() {
                    Ok(new) => verifier = new,
                    Err(error) => failed = Some(error),
                }
                next = 0;
            }
            next += 1;
            black_box(verifier.verify_signature(&tokens[next - 1]).is_ok())
        },
        || black_box((raw.verify)(&message, &given)),
    );
    failed.map_or(Ok(()), Err)?;

    let seconds = per_call(&mut || black_box(verifier.verify_signature(&tokens[0]).is_ok()));
    report.row(
        &format!("{}: verify a token again", algorithm.name()),
        format!("{:.2} µs", seconds * 1e6),
        String::new(),
        String::new(),
    );
    Ok(())
}

/// Returns claims of a usual size.
fn claims(number: usize) -> Value {
    json!({
        "iss": "https://accounts.example.com/auth/v1", "sub": format!("5c1e9a0e-4a6f-4a6e-9d5a-{number:012}"),
        "aud": "authenticated", "exp": 2_000_000_000, "iat": 1_999_996_400, "email": "ada@example.com", "phone": "",
        "app_metadata": { "provider": "email", "providers": ["email"] },
        "user_metadata": { "email": "ada@example.com", "email_verified": true, "phone_verified": false },
        "role": "authenticated", "aal": "aal1", "amr": [{ "method": "password", "timestamp": 1_999_996_400 }],
        "session_id": "8a6e3b9d-5a3c-4b11-8d1c-7c1e9a0e4a6f", "is_anonymous": false,
    })
}

/// Runs subject and limit in turns and reports the medians.
fn compare(
    report: &mut Report,
    algorithm: Algorithm,
    what: &str,
    mut subject: impl FnMut() -> bool,
    mut limit: impl FnMut() -> bool,
) {
    per_call(&mut subject);
    if practises() {
        return;
    }
    per_call(&mut limit);
    let (mut subjects, mut limits, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (own, best) = (per_call(&mut subject), per_call(&mut limit));
        subjects.push(own);
        limits.push(best);
        ratios.push(best / own);
    }
    report.row(
        &format!("{}: {what}", algorithm.name()),
        format!("{:.1} µs", median(subjects) * 1e6),
        format!("aws-lc: {:.1} µs", median(limits) * 1e6),
        format!("{:.2}", median(ratios)),
    );
}

/// Returns the seconds for one call.
fn per_call(work: &mut impl FnMut() -> bool) -> f64 {
    let (started, mut calls) = (Instant::now(), 0u32);
    while started.elapsed() < ROUND {
        for _ in 0..16 {
            assert!(work(), "a signature was not accepted");
        }
        calls += 16;
    }
    started.elapsed().as_secs_f64() / f64::from(calls)
}

fn raw(algorithm: Algorithm, jwk: &Value) -> Result<Raw> {
    let part = |member: &str| -> Result<Vec<u8>> {
        Ok(URL_SAFE_NO_PAD.decode(jwk[member].as_str().with_context(|| member.to_owned())?)?)
    };
    let rejected = |_| anyhow!("the library rejects the key");
    let random = SystemRandom::new();
    Ok(match algorithm {
        Algorithm::Hs256 => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, &part("k")?);
            let verifier = key.clone();
            Raw {
                sign: Box::new(move |message| hmac::sign(&key, message).as_ref().len()),
                verify: Box::new(move |message, given| hmac::verify(&verifier, message, given).is_ok()),
            }
        }
        Algorithm::Es256 => {
            let point = [&[4], part("x")?.as_slice(), part("y")?.as_slice()].concat();
            let pair =
                EcdsaKeyPair::from_private_key_and_public_key(&ECDSA_P256_SHA256_FIXED_SIGNING, &part("d")?, &point)
                    .map_err(rejected)?;
            let public = ParsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).map_err(rejected)?;
            Raw {
                sign: Box::new(move |message| pair.sign(&random, message).map_or(0, |made| made.as_ref().len())),
                verify: Box::new(move |message, given| public.verify_sig(message, given).is_ok()),
            }
        }
        Algorithm::EdDsa => {
            let pair = Ed25519KeyPair::from_seed_and_public_key(&part("d")?, &part("x")?).map_err(rejected)?;
            let public = ParsedPublicKey::new(&signature::ED25519, part("x")?).map_err(rejected)?;
            Raw {
                sign: Box::new(move |message| pair.sign(message).as_ref().len()),
                verify: Box::new(move |message, given| public.verify_sig(message, given).is_ok()),
            }
        }
        _ => {
            let public_key = PublicKeyComponents { n: part("n")?, e: part("e")? };
            let parsed = public_key.to_parsed_public_key(&signature::RSA_PKCS1_2048_8192_SHA256);
            let public = parsed.map_err(|_| anyhow!("the library rejects the key"))?;
            let (d, p, q) = (part("d")?, part("p")?, part("q")?);
            let (d_p, d_q, q_inv) = (part("dp")?, part("dq")?, part("qi")?);
            let components = KeyPairComponents { public_key, d, p, q, dP: d_p, dQ: d_q, qInv: q_inv };
            let pair = RsaKeyPair::from_components(&components).map_err(rejected)?;
            Raw {
                sign: Box::new(move |message| {
                    let mut made = vec![0; pair.public_modulus_len()];
                    pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut made).map_or(0, |()| made.len())
                }),
                verify: Box::new(move |message, given| public.verify_sig(message, given).is_ok()),
            }
        }
    })
}
