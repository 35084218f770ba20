//! The key that signs, and the keys that verify.

use std::sync::Arc;

use portico_base::Secret;
use portico_tokens::{Algorithm, KeyError, KeyRing, SigningKey, TokenError, TokenHeader, development};
use serde_json::{Value, json};

use crate::{at, encode, header_of, keys, ring};

fn secret() -> Secret {
    Secret::new(development::JWT_SECRET)
}

fn key(algorithm: &str, number: usize) -> SigningKey {
    SigningKey::parse_jwk(&keys()[algorithm][number]).unwrap()
}

#[test]
fn the_published_legacy_keys_verify_with_the_published_secret() {
    let ring = KeyRing::hs256(&secret());
    let anon = ring.verify(development::ANON_KEY, at(development::KEYS_EXPIRE_AT - 1)).unwrap();
    assert_eq!(anon.role(), Some("anon"));
    assert_eq!(anon.issuer(), Some("supabase-demo"));
    assert_eq!(anon.subject(), None);
    assert_eq!(
        ring.verify(development::SERVICE_ROLE_KEY, at(0)).unwrap().text(),
        r#"{"iss":"supabase-demo","role":"service_role","exp":1983812996}"#
    );
    assert_eq!(ring.verify(development::ANON_KEY, at(development::KEYS_EXPIRE_AT)).unwrap_err(), TokenError::Expired);
}

#[test]
fn the_development_ring_signs_with_es256_and_accepts_the_legacy_keys() {
    let jwk: Value = serde_json::from_str(development::SIGNING_KEY).unwrap();
    let ring = KeyRing::new(Some(secret()), vec![SigningKey::parse_jwk(&jwk).unwrap()]).unwrap();
    assert!(ring.signs_asymmetrically());

    let token = ring.sign(&json!({ "sub": "u" })).unwrap();
    assert_eq!(
        header_of(&token).to_string(),
        r#"{"alg":"ES256","kid":"b81269f1-21d8-4f2e-b719-c2240a840d90","typ":"JWT"}"#
    );
    assert!(ring.verify(&token, at(0)).is_ok());
    assert!(ring.verify(development::ANON_KEY, at(0)).is_ok());

    let jwks = ring.jwks();
    assert_eq!(jwks["keys"].as_array().unwrap().len(), 1);
    let published = &jwks["keys"][0];
    assert_eq!(published["kid"], "b81269f1-21d8-4f2e-b719-c2240a840d90");
    assert_eq!(published["key_ops"], json!(["verify"]));
    assert_eq!(published["use"], "sig");
    assert!(published.get("d").is_none());
}

#[test]
fn with_the_secret_alone_nothing_is_published() {
    let ring = KeyRing::hs256(&secret());
    assert_eq!(ring.jwks(), json!({ "keys": [] }));
    assert!(!ring.signs_asymmetrically());
    assert_eq!(header_of(&ring.sign(&json!({})).unwrap()).to_string(), r#"{"alg":"HS256","typ":"JWT"}"#);
}

#[test]
fn private_parts_are_never_published() {
    for algorithm in keys().keys() {
        let text = ring(algorithm, 0).jwks().to_string();
        for member in ["\"d\"", "\"p\"", "\"q\"", "\"dp\"", "\"dq\"", "\"qi\"", "\"k\""] {
            assert!(!text.contains(member), "{algorithm} publishes {member}");
        }
        let debug = format!("{:?} {:?}", ring(algorithm, 0), key(algorithm, 0));
        for member in ["d", "k", "p"] {
            if let Some(private) = keys()[algorithm][0].get(member).and_then(Value::as_str) {
                assert!(!debug.contains(private));
            }
        }
    }
}

#[test]
fn a_token_stays_valid_after_rotation_while_its_key_is_listed() {
    let old = ring("ES256", 0);
    let token = old.sign(&json!({ "sub": "u" })).unwrap();

    // The old key only verifies from now on
    let mut retired = keys()["ES256"][0].clone();
    retired["key_ops"] = json!(["verify"]);
    let rotated = KeyRing::new(None, vec![SigningKey::parse_jwk(&retired).unwrap(), key("ES256", 1)]).unwrap();
    assert!(rotated.verify(&token, at(0)).is_ok());
    assert_eq!(header_of(&rotated.sign(&json!({})).unwrap())["kid"], "es256-2");
    assert_eq!(rotated.jwks()["keys"].as_array().unwrap().len(), 2);

    assert!(matches!(ring("ES256", 1).verify(&token, at(0)), Err(TokenError::UnknownKey { .. })));
}

#[test]
fn without_a_key_id_every_key_of_the_algorithm_is_tried() {
    let mut nameless = keys()["RS256"][1].clone();
    nameless.as_object_mut().unwrap().remove("kid");
    let token = KeyRing::new(None, vec![SigningKey::parse_jwk(&nameless).unwrap()]).unwrap().sign(&json!({})).unwrap();
    assert!(header_of(&token).get("kid").is_none());

    let many = KeyRing::new(Some(secret()), vec![key("ES256", 0), key("RS256", 0), key("RS256", 1)]).unwrap();
    assert!(many.verify(&token, at(0)).is_ok());
    let few = KeyRing::new(Some(secret()), vec![key("ES256", 0), key("RS256", 0)]).unwrap();
    assert_eq!(few.verify(&token, at(0)).unwrap_err(), TokenError::BadSignature);
}

#[test]
fn a_secret_s_token_with_a_foreign_key_id_is_tried_with_the_secret() {
    let mut jwk = json!({ "kty": "oct", "alg": "HS256", "kid": "elsewhere" });
    jwk["k"] = json!(encode(development::JWT_SECRET));
    let token = KeyRing::new(None, vec![SigningKey::parse_jwk(&jwk).unwrap()]).unwrap().sign(&json!({})).unwrap();
    assert_eq!(header_of(&token)["kid"], "elsewhere");
    assert!(KeyRing::hs256(&secret()).verify(&token, at(0)).is_ok());
    assert!(KeyRing::new(Some(secret()), vec![key("ES256", 0)]).unwrap().verify(&token, at(0)).is_ok());
}

#[test]
fn rings_that_cannot_work_are_refused() {
    assert_eq!(KeyRing::new(None, vec![]).unwrap_err(), KeyError::NoKey);
    assert_eq!(KeyRing::new(Some(Secret::new("")), vec![]).unwrap_err(), KeyError::NoKey);
    assert_eq!(
        KeyRing::new(None, vec![key("ES256", 0), key("ES256", 0)]).unwrap_err(),
        KeyError::DuplicateId("es256-1".to_owned())
    );
    let mut public = keys()["ES256"][0].clone();
    public["key_ops"] = json!(["verify"]);
    let verifies_only = KeyRing::new(None, vec![SigningKey::parse_jwk(&public).unwrap()]).unwrap();
    assert_eq!(verifies_only.sign(&json!({})).unwrap_err(), TokenError::Unsigned("no key may sign"));
}

#[test]
fn a_foreign_key_set_verifies_its_owner_s_tokens_and_ignores_what_it_must() {
    let owner = KeyRing::new(None, vec![key("RS256", 0)]).unwrap();
    let token = owner.sign(&json!({ "iss": "https://issuer.example" })).unwrap();

    let mut published = owner.jwks();
    // Some issuers leave out `alg`, or publish keys for encryption and unknown kinds
    published["keys"][0].as_object_mut().unwrap().remove("alg");
    let list = published["keys"].as_array_mut().unwrap();
    list.push(json!({ "kty": "oct", "k": encode("a secret that nobody may know!!!"), "kid": "oct" }));
    list.push(keys()["HS512"][0].clone());
    list.push(json!({ "kty": "new", "kid": "new" }));
    list.push(json!("nonsense"));
    let mut encryption = keys()["RS256"][1].clone();
    encryption["use"] = json!("enc");
    list.push(encryption);
    let foreign = KeyRing::foreign(&published).unwrap();
    assert!(foreign.verify(&token, at(0)).is_ok());

    let forged = KeyRing::hs256(&Secret::new("a secret that nobody may know!!!")).sign(&json!({})).unwrap();
    assert!(foreign.verify(&forged, at(0)).is_err());
    assert!(foreign.verify(&ring("HS512", 0).sign(&json!({})).unwrap(), at(0)).is_err());

    for bad in [json!({}), json!([]), json!({ "keys": 1 }), json!({ "keys": [] }), json!({ "keys": [{}] })] {
        assert!(KeyRing::foreign(&bad).is_err(), "{bad}");
    }
}

#[test]
fn a_foreign_key_may_lack_its_name_and_its_algorithm() {
    for algorithm in ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"] {
        let mut private = keys()["RS256"][0].clone();
        private["alg"] = json!(algorithm);
        let owner = KeyRing::new(None, vec![SigningKey::parse_jwk(&private).unwrap()]).unwrap();
        let token = owner.sign(&json!({})).unwrap();
        let mut published = owner.jwks();
        for member in ["alg", "kid"] {
            published["keys"][0].as_object_mut().unwrap().remove(member);
        }
        let foreign = KeyRing::foreign(&published).unwrap();
        assert!(foreign.verify(&token, at(0)).is_ok(), "{algorithm}");
        assert!(foreign.may_know("whatever"));
        // The server's own keys have names
        let ours = KeyRing::new(None, vec![SigningKey::parse_jwk(&published["keys"][0]).unwrap()]).unwrap();
        assert!(ours.verify(&token, at(0)).is_err() && !ours.may_know("whatever"), "{algorithm}");
    }
}

/// Returns the keys of a configuration, with these `key_ops`.
fn listed(keys_and_operations: &[(&str, usize, Value)]) -> Vec<SigningKey> {
    let jwk = |(algorithm, index, operations): &(&str, usize, Value)| {
        let mut jwk = keys()[*algorithm][*index].clone();
        jwk["key_ops"] = operations.clone();
        SigningKey::parse_jwk(&jwk).unwrap()
    };
    keys_and_operations.iter().map(jwk).collect()
}

#[test]
fn exactly_one_key_of_an_issuer_signs() {
    let (sign, verify) = (json!(["sign", "verify"]), json!(["verify"]));
    let issuing = |keys: &[(&str, usize, Value)]| KeyRing::issuing(Some(secret()), listed(keys), &[]);

    let issuer =
        issuing(&[("RS256", 0, verify.clone()), ("ES256", 0, sign.clone()), ("ES256", 1, Value::Null)]).unwrap();
    assert_eq!(header_of(&issuer.sign(&json!({})).unwrap())["kid"], "es256-1", "and not one that does not say so");
    assert_eq!(issuer.jwks()["keys"].as_array().unwrap().len(), 3);
    for other in [ring("RS256", 0), ring("ES256", 1)] {
        assert!(issuer.verify(&other.sign(&json!({})).unwrap(), at(0)).is_ok(), "all verify");
    }
    assert!(issuer.verify(development::ANON_KEY, at(0)).is_ok());

    assert_eq!(issuing(&[("ES256", 0, verify)]).unwrap_err(), KeyError::NoSigningKey);
    assert_eq!(issuing(&[("ES256", 0, Value::Null)]).unwrap_err(), KeyError::NoSigningKey);
    let several = issuing(&[("ES256", 0, sign.clone()), ("ES256", 1, sign)]).unwrap_err().to_string();
    assert!(several.starts_with("the keys \"es256-1\", \"es256-2\" all sign: exactly one must"), "{several}");
    let alone = KeyRing::issuing(Some(secret()), Vec::new(), &[]).unwrap();
    assert_eq!(header_of(&alone.sign(&json!({})).unwrap())["alg"], "HS256");
}

#[test]
fn tokens_that_another_library_has_signed_are_verified() {
    // Signed with the first key of each algorithm by the JavaScript library `jose`
    let tokens: Value = serde_json::from_str(include_str!("made_elsewhere.json")).unwrap();
    assert_eq!(tokens.as_object().unwrap().len(), keys().len());
    for (algorithm, token) in tokens.as_object().unwrap() {
        let claims = ring(algorithm, 0).verify(token.as_str().unwrap(), at(50)).unwrap();
        assert_eq!(claims.subject(), Some("u"), "{algorithm}");
    }
}

#[test]
fn an_issuer_accepts_the_methods_that_it_names() {
    let keys = || listed(&[("ES256", 0, json!(["sign", "verify"])), ("RS256", 0, json!(["verify"]))]);
    let issuer = KeyRing::issuing(Some(secret()), keys(), &[Algorithm::Es256]).unwrap();
    let own = issuer.sign(&json!({})).unwrap();
    assert!(issuer.verify(&own, at(0)).is_ok());
    assert_eq!(issuer.verify(development::ANON_KEY, at(0)).unwrap_err(), TokenError::NoKeyForAlgorithm("HS256"));
    let retired = ring("RS256", 0).sign(&json!({})).unwrap();
    assert_eq!(issuer.verify(&retired, at(0)).unwrap_err(), TokenError::NoKeyForAlgorithm("RS256"));
    let refused = KeyRing::issuing(Some(secret()), keys(), &[Algorithm::Hs256]).unwrap_err();
    assert_eq!(refused.to_string(), "the signing key is for ES256, which is not among the accepted methods");
}

#[test]
fn a_header_is_parsed_without_verification() {
    let token = ring("ES256", 0).sign(&json!({})).unwrap();
    let header = TokenHeader::read(&format!("{token}A")).unwrap();
    assert_eq!(header, TokenHeader { algorithm: Algorithm::Es256, key_id: Some("es256-1".to_owned()) });
    assert_eq!(TokenHeader::read("a.b").unwrap_err(), TokenError::Segments(2));
}

#[test]
fn a_token_is_verified_once_and_shared() {
    let ring = ring("ES256", 0);
    let token = ring.sign(&json!({ "exp": 100 })).unwrap();
    let first = ring.verify(&token, at(0)).unwrap();
    assert!(Arc::ptr_eq(&first, &ring.verify(&token, at(1)).unwrap()));
}

#[test]
fn claims_contain_the_values_that_services_read() {
    let ring = KeyRing::hs256(&secret());
    let token = ring
        .sign(&json!({
            "iss": "i", "sub": "s", "aud": "authenticated", "exp": 100, "role": "authenticated", "aal": "aal2",
            "session_id": "x", "is_anonymous": true
        }))
        .unwrap();
    let claims = ring.verify(&token, at(0)).unwrap();
    assert_eq!(claims.subject(), Some("s"));
    assert_eq!(claims.role(), Some("authenticated"));
    assert_eq!(claims.session_id(), Some("x"));
    assert_eq!(claims.audience(), Some("authenticated"));
    assert_eq!(claims.aal(), Some("aal2"));
    assert!(claims.is_anonymous());
    assert_eq!(claims.expires_at(), Some(at(100)));
    assert_eq!(claims.values().len(), 8);

    let odd = ring.sign(&json!({ "sub": 1, "role": "", "aud": ["a", "b"], "is_anonymous": "yes" })).unwrap();
    let odd = ring.verify(&odd, at(0)).unwrap();
    assert_eq!((odd.subject(), odd.role(), odd.audience()), (None, None, Some("a")));
    assert!(!odd.is_anonymous());
}

#[test]
fn one_user_with_much_metadata_who_refreshes_and_reads_costs_little_memory() {
    let ring = ring("ES256", 0);
    let metadata = "x".repeat(30_000);
    for n in 0..1_500 {
        let token = ring.sign(&json!({ "sub": "s", "session_id": n, "user_metadata": { "notes": metadata } })).unwrap();
        ring.verify(&token, at(0)).unwrap();
    }
    assert_eq!(ring.figures().bytes, 0, "large tokens are not kept");

    // Smaller ones are cached, up to a sum
    let metadata: Vec<_> = (0..100).map(|n| json!({ "n": n })).collect();
    for n in 0..3_000 {
        let token = ring
            .sign(&json!({ "sub": "s", "session_id": n, "user_metadata": { "list": &metadata[..n % 40] } }))
            .unwrap();
        ring.verify(&token, at(0)).unwrap();
        assert!(ring.figures().bytes < 32 * 1024 * 1024);
    }
    assert!(ring.figures().bytes > 4 * 1024 * 1024, "{}", ring.figures().bytes);
}
