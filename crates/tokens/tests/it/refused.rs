//! Tokens that must be rejected, for every algorithm.

use portico_base::{Clock, Secret};
use portico_tokens::{KeyRing, MAX_TOKEN_BYTES, TokenError, development};
use proptest::prelude::*;
use serde_json::json;
use time::Duration;

use crate::{at, decode, encode, keys, ring};

#[test]
fn a_token_of_each_algorithm_verifies_with_its_key_only() {
    for algorithm in keys().keys() {
        let (ours, theirs) = (ring(algorithm, 0), ring(algorithm, 1));
        let token = ours.sign(&json!({ "sub": "u", "exp": 100 })).unwrap();

        assert_eq!(ours.verify(&token, at(50)).unwrap().subject(), Some("u"), "{algorithm}");
        assert!(matches!(theirs.verify(&token, at(50)), Err(TokenError::UnknownKey { .. })), "{algorithm}");

        // The same key id does not help
        let mut renamed = keys()[algorithm][1].clone();
        renamed["kid"] = keys()[algorithm][0]["kid"].clone();
        let impostor = KeyRing::new(None, vec![portico_tokens::SigningKey::parse_jwk(&renamed).unwrap()]).unwrap();
        assert_eq!(impostor.verify(&token, at(50)).unwrap_err(), TokenError::BadSignature, "{algorithm}");
    }
}

#[test]
fn an_expired_or_early_token_of_each_algorithm_is_rejected_even_if_it_is_cached() {
    for algorithm in keys().keys() {
        let ring = ring(algorithm, 0);
        let token = ring.sign(&json!({ "nbf": 50, "exp": 100 })).unwrap();

        assert_eq!(ring.verify(&token, at(49)).unwrap_err(), TokenError::NotYetValid, "{algorithm}");
        assert!(ring.verify(&token, at(50)).is_ok(), "{algorithm}");
        assert!(ring.verify(&token, at(99)).is_ok(), "{algorithm}");
        assert_eq!(ring.verify(&token, at(100)).unwrap_err(), TokenError::Expired, "{algorithm}");
        assert_eq!(ring.verify(&token, at(49)).unwrap_err(), TokenError::NotYetValid, "{algorithm}");
    }
}

#[test]
fn a_token_changed_in_any_part_is_rejected_for_each_algorithm() {
    for algorithm in keys().keys() {
        let ring = ring(algorithm, 0);
        let token = ring.sign(&json!({ "sub": "u", "role": "authenticated" })).unwrap();
        let [header, payload, signature]: [&str; 3] = token.split('.').collect::<Vec<_>>().try_into().unwrap();
        let other = encode(r#"{"sub":"u","role":"service_role"}"#);
        assert_eq!(
            ring.verify(&format!("{header}.{other}.{signature}"), at(0)).unwrap_err(),
            TokenError::BadSignature,
            "{algorithm}"
        );
        assert!(ring.verify(&format!("{header}.{payload}."), at(0)).is_err(), "{algorithm}");
        assert!(ring.verify(&format!("{header}.{payload}.{signature}AA"), at(0)).is_err(), "{algorithm}");
        assert!(ring.verify(&format!("{header}.{payload}.{}", &signature[..signature.len() - 4]), at(0)).is_err());
        assert!(ring.verify(&format!("{header}.{payload}.{}", encode([0_u8; 64])), at(0)).is_err(), "{algorithm}");
    }
}

#[test]
fn the_algorithm_none_is_never_accepted() {
    for name in ["none", "None", "NONE", "nOnE", ""] {
        for algorithm in keys().keys() {
            let ring = ring(algorithm, 0);
            let kid = &keys()[algorithm][0]["kid"];
            let header = encode(json!({ "alg": name, "kid": kid, "typ": "JWT" }).to_string());
            let payload = encode(r#"{"role":"service_role"}"#);
            for signature in ["", "AAAA"] {
                assert_eq!(
                    ring.verify(&format!("{header}.{payload}.{signature}"), at(0)).unwrap_err(),
                    TokenError::UnsupportedAlgorithm(name.to_owned())
                );
                assert_eq!(TokenError::UnsupportedAlgorithm(name.to_owned()).is_unsecured(), !name.is_empty());
            }
        }
    }
}

#[test]
fn a_public_key_is_never_used_as_a_secret() {
    for algorithm in keys().keys().filter(|algorithm| !algorithm.starts_with("HS")) {
        let published = ring(algorithm, 0).jwks()["keys"][0].clone();
        // Values that an attacker could use as the "secret": the key's text, its modulus, its point
        for guess in [published.to_string(), published["n"].to_string(), published["x"].to_string()] {
            let forged = KeyRing::hs256(&Secret::new(guess)).sign(&json!({ "role": "service_role" })).unwrap();
            assert!(
                matches!(ring(algorithm, 0).verify(&forged, at(0)), Err(TokenError::NoKeyForAlgorithm("HS256"))),
                "{algorithm}"
            );
        }
        // Also if there is a secret beside the key, and the token names the key
        let both = KeyRing::new(
            Some(Secret::new(development::JWT_SECRET)),
            vec![portico_tokens::SigningKey::parse_jwk(&keys()[algorithm][0]).unwrap()],
        )
        .unwrap();
        let mut secret_as_key = keys()["HS256"][0].clone();
        secret_as_key["kid"] = keys()[algorithm][0]["kid"].clone();
        let forged = KeyRing::new(None, vec![portico_tokens::SigningKey::parse_jwk(&secret_as_key).unwrap()])
            .unwrap()
            .sign(&json!({}))
            .unwrap();
        assert!(matches!(both.verify(&forged, at(0)), Err(TokenError::UnknownKey { .. })), "{algorithm}");
    }
}

#[test]
fn a_secret_verifies_tokens_of_its_own_hash_only() {
    let with = |alg: &str| {
        let mut jwk = keys()["HS512"][0].clone();
        jwk["alg"] = json!(alg);
        KeyRing::new(None, vec![portico_tokens::SigningKey::parse_jwk(&jwk).unwrap()]).unwrap()
    };
    for (signs, verifies) in [("HS256", "HS512"), ("HS512", "HS256"), ("HS384", "HS512")] {
        let token = with(signs).sign(&json!({})).unwrap();
        assert_eq!(with(verifies).verify(&token, at(0)).unwrap_err(), TokenError::NoKeyForAlgorithm(signs));
    }
    // The project's secret signs and verifies HS256 alone
    let secret = keys()["HS512"][0]["k"].as_str().map(|k| String::from_utf8(decode(k)).unwrap()).unwrap();
    let token = with("HS512").sign(&json!({})).unwrap();
    let ring = KeyRing::hs256(&Secret::new(secret));
    assert_eq!(ring.verify(&token, at(0)).unwrap_err(), TokenError::NoKeyForAlgorithm("HS512"));
}

#[test]
fn malformed_input_is_rejected_without_a_panic() {
    let ring = KeyRing::hs256(&Secret::new(development::JWT_SECRET));
    let good = ring.sign(&json!({})).unwrap();
    for bad in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "sb_secret_x",
        "null",
        "undefined",
        &good[1..],
        &format!("{good}."),
        &format!(".{good}"),
        &format!("{good}="),
        &format!(" {good}"),
        &format!("{}.{}.{}", encode("[]"), encode("{}"), encode("x")),
        &format!("{}.{}.{}", encode("{}"), encode("{}"), encode("x")),
        &format!("{}.{}.{}", encode(r#"{"alg":1}"#), encode("{}"), encode("x")),
        &"x".repeat(MAX_TOKEN_BYTES + 1),
    ] {
        let error = ring.verify(bad, at(0)).unwrap_err();
        let is_malformed =
            matches!(error, TokenError::Malformed(_) | TokenError::UnreadableSignature | TokenError::Segments(_));
        assert!(is_malformed, "{bad:.80}");
        // Only for a token whose header can be parsed
        let has_header = bad.split('.').next() == good.split('.').next();
        assert!(has_header || error != TokenError::UnreadableSignature, "{bad:.80}");
        assert!(error.to_string().starts_with("token is malformed: "), "{bad:.80}");
    }
}

#[test]
fn each_reason_of_a_rejection_is_distinguishable() {
    let ring = KeyRing::hs256(&Secret::new(development::JWT_SECRET));
    let refuse = |token: &str| ring.verify_signature(token).unwrap_err();
    let with_algorithm = |name: &str| format!("{}.e30.AAAA", encode(json!({ "alg": name }).to_string()));

    for (token, parts) in [("", 1), ("a", 1), ("a.b", 2), ("a.b.c.d", 4), ("....", 5)] {
        assert_eq!(refuse(token), TokenError::Segments(parts), "{token}");
    }
    for name in ["RS256", "ES512", "EdDSA", "HS512", "HS384"] {
        assert!(
            matches!(refuse(&with_algorithm(name)), TokenError::NoKeyForAlgorithm(name_in_error) if name_in_error == name)
        );
    }
    assert!(refuse(&with_algorithm("none")).is_unsecured());
    assert_eq!(refuse(&with_algorithm("XY")), TokenError::UnsupportedAlgorithm("XY".to_owned()));
    assert_eq!(refuse(&with_algorithm("HS256")), TokenError::BadSignature);
}

#[test]
fn a_signature_is_verified_independently_of_the_times() {
    let ring = KeyRing::hs256(&Secret::new(development::JWT_SECRET));
    let token = ring.sign(&json!({ "exp": 1, "nbf": "x", "sub": "u" })).unwrap();
    let claims = ring.verify_signature(&token).unwrap();
    assert_eq!(claims.subject(), Some("u"));
    assert_eq!(claims.check_times(at(0)), Err(TokenError::NotANumber("nbf")));
    assert_eq!(ring.verify(&token, at(0)).unwrap_err(), TokenError::NotANumber("nbf"));
}

#[test]
fn signed_claims_that_are_not_an_object_or_have_malformed_times_are_rejected() {
    let ring = KeyRing::hs256(&Secret::new(development::JWT_SECRET));
    assert!(matches!(ring.sign(&json!([1])), Err(TokenError::Unsigned(_))));
    assert!(matches!(ring.sign(&"text"), Err(TokenError::Unsigned(_))));
    let token = ring.sign(&json!({ "exp": "tomorrow" })).unwrap();
    assert_eq!(ring.verify(&token, at(0)).unwrap_err(), TokenError::NotANumber("exp"));
    assert_eq!(TokenError::NotANumber("exp").to_string(), "token has invalid claims: exp is invalid");
}

#[test]
fn a_critical_extension_is_rejected() {
    let ring = KeyRing::hs256(&Secret::new(development::JWT_SECRET));
    let header = encode(r#"{"alg":"HS256","crit":["b64"],"b64":false}"#);
    assert!(matches!(ring.verify(&format!("{header}.{}.AAAA", encode("{}")), at(0)), Err(TokenError::Malformed(_))));
}

#[test]
fn a_token_expires_by_the_movable_clock() {
    let clock = Clock::movable(at(1_000));
    let ring = KeyRing::hs256(&Secret::new(development::JWT_SECRET));
    let token = ring.sign(&json!({ "exp": 1_010 })).unwrap();
    assert!(ring.verify(&token, clock.now()).is_ok());
    clock.advance(Duration::seconds(10));
    assert_eq!(ring.verify(&token, clock.now()).unwrap_err(), TokenError::Expired);
}

#[test]
fn the_error_texts_are_those_that_clients_expect() {
    let ring = KeyRing::hs256(&Secret::new(development::JWT_SECRET));
    let expired = ring.sign(&json!({ "exp": 1 })).unwrap();
    assert_eq!(ring.verify(&expired, at(1)).unwrap_err().to_string(), "token has invalid claims: token is expired");
    assert_eq!(
        ring.verify("x", at(1)).unwrap_err().to_string(),
        "token is malformed: token contains an invalid number of segments"
    );
    // Text of a client is part of the message only if it is printable
    let header = encode("{\"alg\":\"a\\nb\"}");
    assert_eq!(
        ring.verify(&format!("{header}.e30.AAAA"), at(1)).unwrap_err().to_string(),
        "token signature is invalid: signing method ab is invalid"
    );
}

proptest! {
    #[test]
    fn any_text_is_refused_without_a_panic(text in "\\PC{0,200}") {
        let ring = KeyRing::hs256(&Secret::new(development::JWT_SECRET));
        prop_assert!(ring.verify(&text, at(0)).is_err());
    }

    #[test]
    fn any_three_parts_are_refused_without_a_panic(header in ".{0,60}", payload in ".{0,60}", signature: Vec<u8>) {
        let ring = KeyRing::hs256(&Secret::new(development::JWT_SECRET));
        let token = format!("{}.{}.{}", encode(header), encode(payload), encode(signature));
        prop_assert!(ring.verify(&token, at(0)).is_err());
    }

    #[test]
    fn flipping_any_character_of_a_token_spoils_it(place in 0_usize..10_000, to in "[A-Za-z0-9_.-]") {
        let ring = KeyRing::hs256(&Secret::new(development::JWT_SECRET));
        let token = ring.sign(&json!({ "sub": "u", "role": "anon", "exp": 100 })).unwrap();
        let place = place % token.len();
        let changed = format!("{}{to}{}", &token[..place], &token[place + 1..]);
        prop_assume!(changed != token);
        prop_assert!(ring.verify(&changed, at(0)).is_err());
    }

    #[test]
    fn whatever_is_signed_is_read_back(sub in "\\PC{0,40}", number: i64, nested in "\\PC{0,40}") {
        let ring = KeyRing::hs256(&Secret::new(development::JWT_SECRET));
        let claims = json!({ "sub": sub, "n": number, "app_metadata": { "x": [nested] } });
        let token = ring.sign(&claims).unwrap();
        let read = ring.verify(&token, at(0)).unwrap();
        prop_assert_eq!(read.text(), claims.to_string());
        prop_assert_eq!(read.get("n"), claims.get("n"));
    }
}
