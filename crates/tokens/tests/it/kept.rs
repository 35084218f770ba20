//! Keys that are made while a server runs, beside those of its configuration.

use std::sync::Arc;

use portico_base::Secret;
use portico_tokens::{Algorithm, KeptKey, KeyError, KeyRing, SECRET_ID, SigningKey, TokenError, generate_jwk};
use serde_json::json;

use crate::{at, header_of, keys};

const MADE: [Algorithm; 4] = [Algorithm::Es256, Algorithm::Rs256, Algorithm::EdDsa, Algorithm::Hs256];

fn made(algorithm: Algorithm, id: &str) -> Arc<SigningKey> {
    Arc::new(SigningKey::parse_jwk(&generate_jwk(algorithm, id).unwrap()).unwrap())
}

fn configured() -> KeyRing {
    let jwk = SigningKey::parse_jwk(&keys()["ES256"][0]).unwrap();
    KeyRing::new(Some(Secret::new("a secret of at least thirty-two bytes")), vec![jwk]).unwrap()
}

fn kept(key: &Arc<SigningKey>, signs: bool) -> Vec<KeptKey> {
    vec![KeptKey { key: Arc::clone(key), signs }]
}

#[test]
fn a_generated_key_of_each_algorithm_signs_and_never_shows_its_private_parts() {
    for algorithm in MADE {
        let jwk = generate_jwk(algorithm, "made").unwrap();
        assert_eq!(
            (&jwk["kid"], &jwk["use"], &jwk["key_ops"]),
            (&json!("made"), &json!("sig"), &json!(["sign", "verify"]))
        );
        let ring = KeyRing::issuing(None, vec![SigningKey::parse_jwk(&jwk).unwrap()], &[]).unwrap();
        let token = ring.sign(&json!({ "sub": "u" })).unwrap();
        assert_eq!(header_of(&token), json!({ "alg": algorithm.name(), "kid": "made", "typ": "JWT" }));
        assert_eq!(ring.verify(&token, at(0)).unwrap().subject(), Some("u"));
        let other = KeyRing::new(None, vec![SigningKey::parse_jwk(&generate_jwk(algorithm, "made").unwrap()).unwrap()]);
        assert_eq!(other.unwrap().verify(&token, at(0)).unwrap_err(), TokenError::BadSignature, "{algorithm:?}");
        let published = ring.jwks();
        assert_eq!(published["keys"].as_array().unwrap().len(), usize::from(algorithm != Algorithm::Hs256));
        for private in ["d", "p", "q", "dp", "dq", "qi", "k"] {
            assert!(published["keys"].get(0).is_none_or(|key| key.get(private).is_none()), "{private}");
        }
    }
    assert!(matches!(generate_jwk(Algorithm::Ps512, "x"), Err(KeyError::Unsupported { .. })));
}

#[test]
fn a_key_goes_from_standby_to_revoked_and_no_token_is_rejected_before() {
    let configured = configured();
    let old = configured.sign(&json!({ "sub": "old" })).unwrap();
    let key = made(Algorithm::EdDsa, "next");

    let standby = configured.with_kept_keys(kept(&key, false), &[]).unwrap();
    assert_ne!(standby.signing_id(), "next");
    assert_eq!(standby.jwks()["keys"].as_array().unwrap().len(), 2);

    let in_use = configured.with_kept_keys(kept(&key, true), &[]).unwrap();
    let new = in_use.sign(&json!({ "sub": "new" })).unwrap();
    assert_eq!(header_of(&new)["kid"], "next");
    for ring in [&standby, &in_use] {
        assert!(ring.verify(&old, at(0)).is_ok() && ring.verify(&new, at(0)).is_ok());
    }

    let first = configured.signing_id().to_owned();
    let revoked = configured.with_kept_keys(kept(&key, true), std::slice::from_ref(&first)).unwrap();
    assert!(matches!(
        revoked.verify(&old, at(0)),
        Err(TokenError::NoKeyForAlgorithm(_) | TokenError::UnknownKey { .. })
    ));
    assert!(revoked.verify(&new, at(0)).is_ok());
    assert_eq!(revoked.jwks()["keys"].as_array().unwrap().len(), 1);
    // Without another key nothing would sign
    assert_eq!(configured.with_kept_keys(kept(&key, false), &[first]).unwrap_err(), KeyError::NoSigningKey);
}

#[test]
fn a_revoked_secret_verifies_nothing_and_the_key_in_use_signs_in_its_place() {
    let secret = Secret::new("a secret of at least thirty-two bytes");
    let configured = KeyRing::hs256(&secret);
    let legacy = configured.sign(&json!({ "role": "service_role" })).unwrap();
    let key = made(Algorithm::Hs256, "next");
    let revoked = [SECRET_ID.to_owned()];
    let ring = configured.with_kept_keys(kept(&key, true), &revoked).unwrap();
    assert!(!ring.has_secret());
    assert!(ring.verify(&legacy, at(0)).is_err());
    assert_eq!(header_of(&ring.sign_with_secret(&json!({})).unwrap())["kid"], "next");
    assert_eq!(configured.with_kept_keys(Vec::new(), &revoked).unwrap_err(), KeyError::NoSigningKey);
}

#[test]
fn a_kept_key_of_a_method_that_is_not_accepted_or_of_a_known_id_is_refused() {
    let jwk = SigningKey::parse_jwk(&keys()["ES256"][0]).unwrap();
    let id = jwk.id().unwrap().to_owned();
    let strict = KeyRing::issuing(
        None,
        vec![
            SigningKey::parse_jwk(&{
                let mut jwk = keys()["ES256"][0].clone();
                jwk["key_ops"] = json!(["sign", "verify"]);
                jwk
            })
            .unwrap(),
        ],
        &[Algorithm::Es256],
    )
    .unwrap();
    let refused = strict.with_kept_keys(kept(&made(Algorithm::EdDsa, "next"), true), &[]).unwrap_err();
    assert_eq!(refused, KeyError::MethodNotAccepted("EdDSA"));
    let twice = configured().with_kept_keys(kept(&made(Algorithm::Es256, &id), true), &[]).unwrap_err();
    assert_eq!(twice, KeyError::DuplicateId(id));
}
