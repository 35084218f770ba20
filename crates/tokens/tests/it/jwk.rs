//! Keys in the form of JWKs.

use portico_tokens::{Algorithm, KeyError, SigningKey};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::keys;

fn parse(jwk: &Value) -> Result<SigningKey, KeyError> {
    SigningKey::parse_jwk(jwk)
}

fn changed(algorithm: &str, member: &str, value: Value) -> Value {
    let mut jwk = keys()[algorithm][0].clone();
    jwk[member] = value;
    jwk
}

#[test]
fn every_kind_of_key_is_parsed_private_and_public() {
    for (algorithm, list) in keys() {
        let key = parse(&list[0]).unwrap();
        assert_eq!(key.algorithm(), Algorithm::parse(algorithm).unwrap());
        assert_eq!(key.algorithm().name(), algorithm);
        assert_eq!(key.id(), list[0]["kid"].as_str());
        assert!(key.can_sign());
        if let Some(public) = key.public_jwk() {
            let public = parse(public).unwrap();
            assert!(!public.can_sign());
            assert_eq!(public.algorithm(), key.algorithm());
        } else {
            assert!(algorithm.starts_with("HS"), "{algorithm}");
        }
    }
}

#[test]
fn a_key_without_an_algorithm_gets_the_usual_one() {
    for (algorithm, kind) in [
        ("ES256", Algorithm::Es256),
        ("ES384", Algorithm::Es384),
        ("ES512", Algorithm::Es512),
        ("EdDSA", Algorithm::EdDsa),
        ("RS512", Algorithm::Rs256),
        ("HS256", Algorithm::Hs256),
        ("HS512", Algorithm::Hs256),
    ] {
        assert_eq!(parse(&changed(algorithm, "alg", Value::Null)).unwrap().algorithm(), kind);
    }
}

#[test]
fn an_algorithm_that_does_not_match_the_key_is_rejected() {
    for (of, alg) in [
        ("ES256", "RS256"),
        ("ES256", "HS256"),
        ("ES256", "ES384"),
        ("RS256", "ES256"),
        ("RS256", "HS256"),
        ("RS256", "none"),
        ("EdDSA", "ES256"),
        ("HS256", "RS256"),
        ("HS256", "none"),
    ] {
        assert!(matches!(parse(&changed(of, "alg", json!(alg))), Err(KeyError::Unsupported { .. })), "{of} {alg}");
    }
}

#[test]
fn a_malformed_key_is_rejected() {
    for bad in [
        json!(null),
        json!("x"),
        json!({}),
        json!({ "kty": "oct" }),
        json!({ "kty": "oct", "k": "" }),
        json!({ "kty": "oct", "k": "not base64 !" }),
        json!({ "kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA" }),
        changed("ES256", "x", json!("AAAA")),
        changed("ES256", "x", keys()["ES256"][1]["x"].clone()),
        changed("ES256", "d", keys()["ES256"][1]["d"].clone()),
        changed("ES256", "d", json!(1)),
        changed("EdDSA", "crv", json!("X25519")),
        changed("EdDSA", "d", keys()["EdDSA"][1]["d"].clone()),
        changed("RS256", "n", json!("AQAB")),
        changed("RS256", "p", Value::Null),
        changed("RS256", "d", keys()["RS256"][1]["d"].clone()),
        changed("RS256", "key_ops", json!("sign")),
    ] {
        assert!(parse(&bad).is_err(), "{bad}");
    }
    assert_eq!(parse(&changed("RS256", "use", json!("enc"))).unwrap_err(), KeyError::NotForSignatures);
    assert_eq!(parse(&changed("RS256", "key_ops", json!(["wrapKey"]))).unwrap_err(), KeyError::NotForSignatures);
}

#[test]
fn a_private_key_that_may_only_verify_does_not_sign() {
    for algorithm in keys().keys() {
        assert!(!parse(&changed(algorithm, "key_ops", json!(["verify"]))).unwrap().can_sign());
    }
}

proptest! {
    #[test]
    fn any_member_may_be_anything_without_a_panic(
        algorithm in prop::sample::select(keys().keys().cloned().collect::<Vec<_>>()),
        member in prop::sample::select(vec!["kty", "crv", "x", "y", "d", "n", "e", "p", "k", "alg", "use", "kid"]),
        value in prop_oneof![
            "[A-Za-z0-9_=-]{0,100}".prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            Just(Value::Null),
            Just(json!([])),
        ],
    ) {
        let _ = parse(&changed(&algorithm, member, value));
    }
}
