//! Tokens of a third party beside those of the server.

use std::sync::Arc;

use portico_base::Secret;
use portico_tokens::{
    ApiKeys, CurrentKeys, KeyRing, SigningKey, ThirdPartyIssuer, ThirdPartyKeys, TokenError, TokenIssuer,
};
use serde_json::{Value, json};

use crate::{at, keys, ring};

const ISSUER: &str = "https://tenant.example.com";

fn own() -> CurrentKeys {
    let ring = KeyRing::hs256(&Secret::new(portico_tokens::development::JWT_SECRET));
    CurrentKeys::new(Arc::new(ring), Arc::new(ApiKeys::development()))
}

/// Returns the keys of a server that accepts the tokens of `issuer`, signed with the first RS256
/// key.
fn accepting(issuer: &str, audience: Option<&str>) -> CurrentKeys {
    let current = own();
    let issuer =
        ThirdPartyIssuer { url: issuer.to_owned(), other_names: Vec::new(), audience: audience.map(str::to_owned) };
    current.replace_third_party(ThirdPartyKeys::published(issuer, &ring("RS256", 0).jwks()).unwrap());
    current
}

fn signed(claims: &Value) -> String {
    ring("RS256", 0).sign(claims).unwrap()
}

#[test]
fn a_token_may_name_the_issuer_by_another_of_its_names_only() {
    let current = own();
    let other_names = vec!["https://login.example.com/".to_owned()];
    let issuer = ThirdPartyIssuer { url: "https://tenant.example.com".to_owned(), other_names, audience: None };
    current.replace_third_party(ThirdPartyKeys::published(issuer, &ring("RS256", 0).jwks()).unwrap());
    let verified = |iss: &str| current.now().verify_signature(&signed(&json!({ "iss": iss, "sub": "1" }))).is_ok();
    assert!(verified("https://tenant.example.com/") && verified("https://login.example.com"));
    assert!(!verified("https://login.example.com.evil.example") && !verified(""));
}

#[test]
fn a_token_of_each_provider_s_shape_is_accepted() {
    let cases = [
        // Firebase: the project is issuer and audience, and the user an id of its own form
        (
            "https://securetoken.google.com/shop-1",
            Some("shop-1"),
            json!({ "iss": "https://securetoken.google.com/shop-1", "aud": "shop-1", "sub": "x9K2", "user_id": "x9K2",
                    "role": "authenticated", "firebase": { "sign_in_provider": "google.com" } }),
        ),
        // Auth0: the issuer ends with a slash, and there are several audiences
        (
            "https://tenant.eu.auth0.com",
            None,
            json!({ "iss": "https://tenant.eu.auth0.com/", "aud": ["https://api", "https://tenant.eu.auth0.com/userinfo"],
                    "sub": "google-oauth2|1", "role": "authenticated" }),
        ),
        // Cognito: an access token has no audience
        (
            "https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_AbC",
            None,
            json!({ "iss": "https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_AbC", "client_id": "c",
                    "token_use": "access", "sub": "5e1c", "role": "authenticated" }),
        ),
        (
            "https://clerk.example.com",
            None,
            json!({ "iss": "https://clerk.example.com", "azp": "https://app.example.com", "sub": "user_2x", "v": 2,
                    "role": "authenticated" }),
        ),
        (
            "https://api.workos.com/user_management/client_1",
            None,
            json!({ "iss": "https://api.workos.com/user_management/client_1", "sub": "user_01", "sid": "session_01",
                    "role": "authenticated" }),
        ),
    ];
    for (issuer, audience, claims) in cases {
        let token = signed(&claims);
        for _ in 0..2 {
            let accepted = accepting(issuer, audience).now().verify_signature(&token).unwrap();
            assert_eq!((accepted.role(), accepted.is_third_party()), (Some("authenticated"), true), "{issuer}");
            assert_eq!(accepted.subject(), claims["sub"].as_str());
        }
    }
}

#[test]
fn neither_issuer_can_sign_in_the_other_s_name() {
    let current = accepting(ISSUER, None);
    let verify = |token: &str| current.now().verify_signature(token);
    // The third party's key, but another issuer, or none
    for claims in [json!({ "iss": "https://evil.example.com" }), json!({ "iss": "" }), json!({}), json!({ "iss": 1 })] {
        assert!(verify(&signed(&claims)).is_err(), "{claims}");
    }
    // This server's key and the third party's name: the key decides
    let token = current.sign(&json!({ "iss": ISSUER, "role": "service_role" })).unwrap();
    assert!(!verify(&token).unwrap().is_third_party());
    // The public key's bytes as a secret
    let public = ring("RS256", 0).jwks()["keys"][0]["n"].as_str().unwrap().to_owned();
    let confused = KeyRing::hs256(&Secret::new(public)).sign(&json!({ "iss": ISSUER })).unwrap();
    assert!(verify(&confused).is_err());
    // This server's tokens are accepted as ever, and are not the third party's
    let own = current.sign(&json!({ "iss": "https://here", "sub": "u" })).unwrap();
    assert!(!verify(&own).unwrap().is_third_party());
    // A service that knows accounts asks the server's own keys only
    assert!(current.verify(&signed(&json!({ "iss": ISSUER })), at(0)).is_err());
}

#[test]
fn a_token_of_this_server_may_name_any_issuer_and_stays_this_server_s() {
    let claims = |name: &str| json!({ "iss": name, "sub": "u", "role": "authenticated" });
    let pair = |algorithm: &str, number: usize, id: Option<&str>| {
        let mut jwk = keys()[algorithm][number].clone();
        match id {
            Some(id) => jwk["kid"] = json!(id),
            None => drop(jwk.as_object_mut().unwrap().remove("kid")),
        }
        Arc::new(KeyRing::new(None, vec![SigningKey::parse_jwk(&jwk).unwrap()]).unwrap())
    };
    // With keys of the third party of the same and another algorithm, of the same id and without
    let id = Some("own");
    for theirs in [pair("RS256", 0, None), pair("ES256", 0, id), pair("EdDSA", 1, None), pair("EdDSA", 1, id)] {
        for audience in [None, Some("shop-1")] {
            for own in [pair("EdDSA", 0, id), own().ring()] {
                let current = CurrentKeys::new(Arc::clone(&own), Arc::new(ApiKeys::development()));
                let issuer = ThirdPartyIssuer {
                    url: ISSUER.to_owned(),
                    other_names: vec!["https://login.example.com".to_owned()],
                    audience: audience.map(str::to_owned),
                };
                for known in [false, true] {
                    current.replace_third_party(match known {
                        false => ThirdPartyKeys::unknown(issuer.clone()),
                        true => ThirdPartyKeys::published(issuer.clone(), &theirs.jwks()).unwrap(),
                    });
                    for name in [ISSUER, "https://tenant.example.com/", "https://login.example.com", "https://here"] {
                        let token = own.sign(&claims(name)).unwrap();
                        for _ in 0..2 {
                            let verified = current.now().verify_signature(&token).unwrap();
                            assert!(!verified.is_third_party(), "{name}");
                        }
                        // With one bit changed it is rejected
                        let (signed, signature) = token.rsplit_once('.').unwrap();
                        let payload = signed.split_once('.').unwrap().0.len() + 6;
                        let mut changed = signed.as_bytes().to_vec();
                        changed[payload] ^= 1;
                        let changed = format!("{}.{signature}", String::from_utf8(changed).unwrap());
                        assert!(current.now().verify_signature(&changed).is_err());
                    }
                }
            }
        }
    }
}

#[test]
fn a_token_of_the_third_party_is_never_taken_for_one_of_this_server() {
    // The worst case: this server knows the third party's keys, as if it had the same ones
    let shared = Arc::new(ring("RS256", 0));
    let current = CurrentKeys::new(Arc::clone(&shared), Arc::new(ApiKeys::development()));
    let issuer =
        ThirdPartyIssuer { url: ISSUER.to_owned(), other_names: Vec::new(), audience: Some("shop-1".to_owned()) };
    current.replace_third_party(ThirdPartyKeys::published(issuer, &shared.jwks()).unwrap());
    let verify = |token: &str| current.now().verify_signature(token);
    let theirs = signed(&json!({ "iss": ISSUER, "aud": "shop-1", "role": "service_role" }));
    let of_another = signed(&json!({ "iss": ISSUER, "aud": "shop-2", "role": "service_role" }));
    // Also after a service that asks this server's keys alone has verified them
    for _ in 0..2 {
        assert!(verify(&theirs).unwrap().is_third_party());
        assert_eq!(verify(&of_another).unwrap_err(), TokenError::OtherAudience);
        assert!(current.verify(&theirs, at(0)).is_ok() && current.verify(&of_another, at(0)).is_ok());
    }
}

#[test]
fn the_error_of_a_token_that_neither_issuer_signed_names_the_wrong_signature() {
    let current = accepting(ISSUER, None);
    let error = |ring: &KeyRing| {
        let token = ring.sign(&json!({ "iss": ISSUER })).unwrap();
        current.now().verify_signature(&token).unwrap_err()
    };
    let other_secret = KeyRing::hs256(&Secret::new("another secret of at least 32 characters"));
    assert_eq!(error(&other_secret), TokenError::BadSignature);
    assert!(matches!(error(&ring("RS256", 1)), TokenError::UnknownKey { .. }));
    assert_eq!(error(&ring("ES256", 0)), TokenError::NoKeyForAlgorithm("ES256"));
}

#[test]
fn a_token_for_another_audience_is_rejected_also_if_it_was_presented_before() {
    let current = accepting(ISSUER, Some("shop-1"));
    for aud in [json!("shop-2"), json!(["shop-2"]), json!(null), json!({ "shop-1": true })] {
        let token = signed(&json!({ "iss": ISSUER, "aud": aud }));
        for _ in 0..2 {
            assert_eq!(current.now().verify_signature(&token).unwrap_err(), TokenError::OtherAudience, "{aud}");
        }
    }
    assert!(current.now().verify_signature(&signed(&json!({ "iss": ISSUER, "aud": ["a", "shop-1"] }))).is_ok());
}

#[test]
fn an_unknown_key_names_the_issuers_whose_keys_to_read_again() {
    let current = accepting(ISSUER, None);
    let unread = |token: &str| {
        let lacks = |issuer| current.now().may_lack_key_of(issuer, token);
        (lacks(TokenIssuer::Own), lacks(TokenIssuer::ThirdParty))
    };
    let stranger = |iss: &str| ring("ES256", 0).sign(&json!({ "iss": iss })).unwrap();
    assert_eq!(unread(&stranger(ISSUER)), (true, true));
    assert_eq!(unread(&stranger("https://here")), (true, false));
    assert_eq!(unread(&signed(&json!({ "iss": ISSUER }))), (false, false), "the third party's key is known");
    assert_eq!(unread(&current.sign(&json!({})).unwrap()), (false, false), "the secret has no kid");
    assert_eq!(unread("x.y.z"), (false, false));

    // A key of the third party without an id may have signed every token that names it, and has not
    // signed those that were rejected
    let mut nameless = ring("ES256", 1).jwks();
    nameless["keys"][0].as_object_mut().unwrap().remove("kid");
    let issuer = ThirdPartyIssuer { url: ISSUER.to_owned(), other_names: Vec::new(), audience: None };
    current.replace_third_party(ThirdPartyKeys::published(issuer, &nameless).unwrap());
    assert_eq!(unread(&stranger(ISSUER)), (true, false));

    // Before the keys were fetched every token of the issuer has an unknown key
    let issuer = ThirdPartyIssuer { url: ISSUER.to_owned(), other_names: Vec::new(), audience: None };
    current.replace_third_party(ThirdPartyKeys::unknown(issuer));
    let token = signed(&json!({ "iss": ISSUER }));
    assert!(matches!(current.now().verify_signature(&token), Err(TokenError::UnknownKey { .. })));
    assert_eq!(unread(&token), (true, true));
    assert_eq!(unread(&current.sign(&json!({ "iss": ISSUER })).unwrap()), (false, true));
}

#[test]
fn keys_of_a_third_party_that_it_withdrew_verify_nothing_any_more() {
    let current = accepting(ISSUER, None);
    let token = signed(&json!({ "iss": ISSUER }));
    assert!(current.now().verify_signature(&token).is_ok());
    let issuer = ThirdPartyIssuer { url: ISSUER.to_owned(), other_names: Vec::new(), audience: None };
    current.replace_third_party(ThirdPartyKeys::published(issuer, &ring("RS256", 1).jwks()).unwrap());
    assert!(current.now().verify_signature(&token).is_err());
}

#[test]
fn a_replaced_key_ring_is_seen_by_every_clone_at_once() {
    let (current, clone) = (own(), own());
    let other = current.clone();
    let key = SigningKey::parse_jwk(&keys()["ES256"][0]).unwrap();
    current.replace(Arc::new(KeyRing::new(None, vec![key]).unwrap()), Arc::new(ApiKeys::development()));
    assert_eq!(other.ring().signing_id(), keys()["ES256"][0]["kid"].as_str().unwrap());
    assert_eq!(clone.ring().signing_id(), portico_tokens::SECRET_ID);
}
