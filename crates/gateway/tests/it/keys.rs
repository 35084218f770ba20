//! The API key of a request, and the caller that it gives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use portico_base::{AllowedOrigins, Secret};
use portico_gateway::{AccessRules, KeyPolicy};
use portico_tokens::development::{ANON_KEY, JWT_SECRET, PUBLISHABLE_KEY, SECRET_KEY, SERVICE_ROLE_KEY};
use portico_tokens::{
    Algorithm, ApiKeys, KeptKey, KeyRing, SigningKey, ThirdPartyIssuer, ThirdPartyKeys, TokenIssuer, generate_jwk,
};
use serde_json::{Value, json};

use crate::{Server, echo, json_of};

struct KeyHeaders<'a> {
    key: Option<&'a str>,
    authorization: Option<&'a str>,
}

async fn ask(server: &Server, given: KeyHeaders<'_>) -> (u16, Value) {
    let mut request = server.get("/auth/v1/user");
    if let Some(key) = given.key {
        request = request.header("apikey", key);
    }
    if let Some(authorization) = given.authorization {
        request = request.header("authorization", authorization);
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), json_of(response).await)
}

fn wrong_key() -> Value {
    json!({
        "message": "Invalid API key",
        "hint": "Double check your Supabase `anon` or `service_role` API key."
    })
}

#[tokio::test]
async fn every_form_of_key_has_its_role_under_both_policies() {
    for policy in [KeyPolicy::Development, KeyPolicy::Hosted] {
        let server = Server::with_echo(policy).await;
        for (key, role) in [
            (ANON_KEY, "anon"),
            (PUBLISHABLE_KEY, "anon"),
            (SERVICE_ROLE_KEY, "service_role"),
            (SECRET_KEY, "service_role"),
        ] {
            // As the client library sends it: the key twice
            for authorization in [None, Some(format!("Bearer {key}")), Some(format!("bearer {key}"))] {
                let given = KeyHeaders { key: Some(key), authorization: authorization.as_deref() };
                let (status, echo) = ask(&server, given).await;
                assert_eq!(status, 200, "{policy:?} {key}");
                assert_eq!(echo["role"], role, "{policy:?} {key}");
                assert_eq!(echo["api_key"], role);
                // A legacy key is a token only where it is sent as one; an opaque key always stands
                // for one
                let has_token = authorization.is_some() || key.starts_with("sb_");
                assert_eq!(echo["token"].is_string(), has_token, "{policy:?} {key}");
            }
        }
    }
}

/// The replacements of `Authorization` by Supabase's gateway.
#[tokio::test]
async fn a_missing_or_opaque_authorization_is_replaced_as_at_supabase() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let token = server.token(json!({ "sub": "u", "role": "authenticated" }));
    let [opaque, another] = [PUBLISHABLE_KEY, SECRET_KEY].map(|key| format!("Bearer {key}"));
    let [anon, service] = [ANON_KEY, SERVICE_ROLE_KEY].map(|jwt| format!("Bearer {jwt}"));
    for (key, authorization, echo) in [
        (Some(PUBLISHABLE_KEY), Some(token.as_str()), None),
        (Some(SECRET_KEY), Some("Basic eDp5"), None),
        (None, None, None),
        (Some(PUBLISHABLE_KEY), None, Some(anon.as_str())),
        (Some(PUBLISHABLE_KEY), Some(&opaque), Some(&anon)),
        (Some(SECRET_KEY), None, Some(&service)),
        (Some(SECRET_KEY), Some(&another), Some(&service)),
        (Some(ANON_KEY), None, Some(ANON_KEY)),
        (Some(SERVICE_ROLE_KEY), Some(&opaque), Some(SERVICE_ROLE_KEY)),
        (Some("something"), None, Some("something")),
        (None, Some(&opaque), Some("")),
    ] {
        let (status, response) = ask(&server, KeyHeaders { key, authorization }).await;
        assert_eq!((status, response["authorization"].as_str()), (200, echo), "{key:?} {authorization:?}");
    }
}

#[tokio::test]
async fn a_user_s_token_precedes_the_key() {
    for policy in [KeyPolicy::Development, KeyPolicy::Hosted] {
        let server = Server::with_echo(policy).await;
        let token = server.token(json!({ "sub": "u", "role": "authenticated" }));
        for key in [ANON_KEY, PUBLISHABLE_KEY, SERVICE_ROLE_KEY, SECRET_KEY] {
            let (status, echo) = ask(&server, KeyHeaders { key: Some(key), authorization: Some(&token) }).await;
            assert_eq!((status, echo["role"].as_str()), (200, Some("authenticated")));
            assert_eq!(echo["token"], r#"{"sub":"u","role":"authenticated"}"#);
        }
    }
}

#[tokio::test]
async fn the_hosted_policy_rejects_requests_without_a_known_key() {
    let server = Server::with_echo(KeyPolicy::Hosted).await;
    let token = server.token(json!({ "sub": "u", "role": "authenticated" }));

    for authorization in [None, Some(token.as_str())] {
        let (status, body) = ask(&server, KeyHeaders { key: None, authorization }).await;
        assert_eq!(status, 401);
        assert_eq!(
            body,
            json!({
                "message": "No API key found in request",
                "hint": "No `apikey` request header or url param was found."
            })
        );
    }
    let user_token = token.trim_start_matches("Bearer ");
    for key in ["wrong", "sb_secret_wrong", "sb_publishable_ACJWlzQHlZjBrEguHvfOxg_3BJgxAaI", user_token] {
        let (status, body) = ask(&server, KeyHeaders { key: Some(key), authorization: Some(&token) }).await;
        assert_eq!((status, body), (401, wrong_key()), "{key}");
    }
    let response = server.get("/auth/v1/user").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/json; charset=utf-8");
    assert_eq!(response.headers()["access-control-allow-origin"], "*");
    assert!(response.headers().contains_key("www-authenticate"));
    assert!(response.headers().contains_key("sb-request-id"));
}

#[tokio::test]
async fn the_development_policy_needs_no_key_but_rejects_a_wrong_opaque_one() {
    let server = Server::with_echo(KeyPolicy::Development).await;

    let (status, echo) = ask(&server, KeyHeaders { key: None, authorization: None }).await;
    assert_eq!((status, echo["role"].as_str(), &echo["api_key"]), (200, Some("anon"), &Value::Null));

    let (status, body) = ask(&server, KeyHeaders { key: Some("sb_secret_wrong"), authorization: None }).await;
    assert_eq!((status, body), (401, wrong_key()));

    // A wrong key of the legacy kind counts as anonymous, as at Supabase
    let (status, echo) = ask(&server, KeyHeaders { key: Some("wrong"), authorization: None }).await;
    assert_eq!((status, echo["role"].as_str(), &echo["token"]), (200, Some("anon"), &Value::Null));

    // An opaque key as a token, and no key: the token is dropped
    let (status, echo) =
        ask(&server, KeyHeaders { key: None, authorization: Some(&format!("Bearer {SECRET_KEY}")) }).await;
    assert_eq!((status, echo["role"].as_str(), &echo["token"]), (200, Some("anon"), &Value::Null));
}

#[tokio::test]
async fn open_paths_work_from_a_plain_browser_navigation() {
    let server = Server::with_echo(KeyPolicy::Hosted).await;
    for path in ["/auth/v1/callback?code=x", "/auth/v1/verify?token=x"] {
        assert_eq!(server.get(path).send().await.unwrap().status(), 200);
    }
    assert_eq!(server.get("/auth/v1/verifyx").send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn a_secret_key_from_a_browser_is_rejected_under_the_hosted_policy() {
    let ask = async |policy, key: &str| {
        let server = Server::with_echo(policy).await;
        let response = server
            .get("/auth/v1/user")
            .header("apikey", key)
            .header("user-agent", "Mozilla/5.0 (X11; Linux x86_64)")
            .send()
            .await
            .unwrap();
        (response.status().as_u16(), json_of(response).await)
    };
    let (status, body) = ask(KeyPolicy::Hosted, SECRET_KEY).await;
    assert_eq!((status, body["message"].as_str()), (401, Some("Forbidden use of secret API key in browser")));
    assert_eq!(ask(KeyPolicy::Hosted, PUBLISHABLE_KEY).await.0, 200);
    assert_eq!(ask(KeyPolicy::Hosted, SERVICE_ROLE_KEY).await.0, 200);
    assert_eq!(ask(KeyPolicy::Development, SECRET_KEY).await.0, 200);
}

#[tokio::test]
async fn a_service_sees_that_a_token_does_not_verify_and_rejects_it_itself() {
    let server = Server::with_echo(KeyPolicy::Hosted).await;
    let expired = server.token(json!({ "sub": "u", "role": "authenticated", "exp": 1 }));
    for (authorization, reason) in [
        (expired.as_str(), "token has invalid claims: token is expired"),
        ("Bearer x", "token is malformed: token contains an invalid number of segments"),
        ("Bearer a b", "token is malformed: token contains an invalid number of segments"),
    ] {
        let (status, echo) =
            ask(&server, KeyHeaders { key: Some(SERVICE_ROLE_KEY), authorization: Some(authorization) }).await;
        assert_eq!((status, echo["refused"].as_str(), &echo["token"]), (200, Some(reason), &Value::Null));
    }
    // Another scheme is not a token
    let (_, echo) = ask(&server, KeyHeaders { key: Some(ANON_KEY), authorization: Some("Basic eDp5") }).await;
    assert_eq!((&echo["token"], &echo["refused"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn a_key_in_the_query_is_accepted_and_hidden_from_the_service() {
    let server = Server::with_echo(KeyPolicy::Hosted).await;
    let response = server.get(&format!("/auth/v1/user?a=1&apikey={PUBLISHABLE_KEY}&b=%20x")).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let echo = json_of(response).await;
    assert_eq!(echo["path"], "/user");
    assert_eq!(echo["query"], "a=1&b=%20x");
    assert_eq!(echo["role"], "anon");
    assert_eq!(server.get("/auth/v1/user?apikey=").send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn a_key_that_was_signed_earlier_with_the_same_secret_stays_valid() {
    let server = Server::with_echo(KeyPolicy::Hosted).await;
    let older = server.token(json!({ "role": "anon", "iss": "supabase", "iat": 1_641_769_200_i64 }));
    let (status, echo) =
        ask(&server, KeyHeaders { key: Some(older.trim_start_matches("Bearer ")), authorization: None }).await;
    assert_eq!((status, echo["role"].as_str()), (200, Some("anon")));
}

async fn status(server: &Server, path: &str, headers: &[(&str, &str)]) -> u16 {
    let mut request = server.get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_published_secret_key_is_accepted_from_programs_and_own_pages_only() {
    let pages = AllowedOrigins::new(["https://app.example.com/start", "myapp://open"]);
    let server = Server::start(|gateway| {
        gateway.key_policy(KeyPolicy::Development).secret_keys_from(pages).mount(
            "/auth/v1",
            echo(),
            AccessRules::open(),
        )
    })
    .await;
    let ring = KeyRing::hs256(&Secret::new(JWT_SECRET));
    let bearer = |claims: Value| format!("Bearer {}", ring.sign(&claims).unwrap());
    let privileged = [
        ("apikey", SECRET_KEY.to_owned()),
        ("apikey", SERVICE_ROLE_KEY.to_owned()),
        ("apikey", ring.sign(&json!({ "role": "service_role" })).unwrap()),
        ("authorization", format!("Bearer {}", SERVICE_ROLE_KEY)),
        ("authorization", bearer(json!({ "role": "service_role", "sub": "x" }))),
        ("authorization", bearer(json!({ "role": "supabase_admin" }))),
        // Within the difference that a service may allow clocks
        ("authorization", bearer(json!({ "role": "service_role", "exp": 1 }))),
    ];
    for (name, value) in &privileged {
        let key = (*name, value.as_str());
        for (headers, is_taken) in [
            (&[][..], true),
            (&[("origin", "http://localhost:3000")], true),
            (&[("origin", "http://127.0.0.1:54321"), ("sec-fetch-site", "cross-site")], true),
            (&[("origin", "https://app.example.com")], true),
            (&[("host", "portico:54321")], true),
            (&[("host", "host.docker.internal:54321")], true),
            (&[("host", "192.168.1.5:54321")], true),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("origin", "https://evil.example")], false),
            (&[("origin", "https://app.example.com:8443")], false),
            (&[("origin", "null")], false),
            (&[("origin", "myapp://open")], false),
            (&[("sec-fetch-site", "cross-site")], false),
            // A name of another website that leads here
            (&[("host", "evil.example:54321")], false),
            (&[("host", "evil.example:54321"), ("origin", "http://evil.example:54321")], false),
            (&[("host", "evil.example:54321"), ("origin", "http://localhost:3000")], false),
        ] {
            let status = status(&server, "/auth/v1/user", &[headers, &[key]].concat()).await;
            assert_eq!(status, if is_taken { 200 } else { 403 }, "{name}: {value}, {headers:?}");
        }
    }
    let evil = ("origin", "https://evil.example");
    let query = format!("/auth/v1/user?apikey={}", SECRET_KEY);
    assert_eq!(status(&server, &query, &[evil]).await, 403);
    // Rights that every page may have
    for (name, value) in [
        ("apikey", ANON_KEY.to_owned()),
        ("apikey", PUBLISHABLE_KEY.to_owned()),
        ("authorization", format!("Bearer {}", ANON_KEY)),
        ("authorization", bearer(json!({ "role": "authenticated", "sub": "x" }))),
        ("authorization", bearer(json!({ "sub": "x" }))),
    ] {
        assert_eq!(status(&server, "/auth/v1/user", &[evil, (name, &value)]).await, 200, "{name}: {value}");
    }
}

fn ring_of_new_key(algorithm: Algorithm, id: &str) -> (KeyRing, Arc<SigningKey>) {
    let jwk = generate_jwk(algorithm, id).unwrap();
    let parse = || SigningKey::parse_jwk(&jwk).unwrap();
    (KeyRing::new(None, vec![parse()]).unwrap(), Arc::new(parse()))
}

#[tokio::test]
async fn a_token_of_a_key_that_another_node_has_just_put_in_use_is_accepted_at_once() {
    let (elsewhere, key) = ring_of_new_key(Algorithm::Es256, "new");
    let refreshes = Arc::new(AtomicUsize::new(0));
    let server = {
        let refreshes = Arc::clone(&refreshes);
        Server::start_with_keys(|keys| {
            let keys = keys.clone();
            Arc::new(move |issuer| {
                assert_eq!(issuer, TokenIssuer::Own);
                refreshes.fetch_add(1, Ordering::SeqCst);
                let (keys, key) = (keys.clone(), Arc::clone(&key));
                Box::pin(async move {
                    tokio::task::yield_now().await;
                    let kept = vec![KeptKey { key, signs: false }];
                    let ring = keys.ring().with_kept_keys(kept, &[]).unwrap();
                    keys.replace(Arc::new(ring), Arc::new(ApiKeys::development()));
                })
            })
        })
        .await
    };
    let token =
        |ring: &KeyRing| format!("Bearer {}", ring.sign(&json!({ "sub": "u", "role": "authenticated" })).unwrap());
    let presented = token(&elsewhere);
    for _ in 0..2 {
        let given = KeyHeaders { key: Some(ANON_KEY), authorization: Some(&presented) };
        assert_eq!(ask(&server, given).await.1["role"], "authenticated");
    }
    assert_eq!(refreshes.load(Ordering::SeqCst), 1, "a known key is not read again");
    // Neither a wrong signature nor a token without a key's name makes the keys be read
    let (impostor, _) = ring_of_new_key(Algorithm::Es256, "new");
    let unsigned = KeyRing::hs256(&Secret::new("another secret of at least 32 bytes"));
    for authorization in [token(&impostor), token(&unsigned), "Bearer x.y.z".to_owned(), "Bearer sb_x".to_owned()] {
        let given = KeyHeaders { key: Some(ANON_KEY), authorization: Some(&authorization) };
        let (_, echo) = ask(&server, given).await;
        assert_ne!(echo["role"], "authenticated", "{authorization}");
    }
    assert_eq!(refreshes.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_token_of_a_new_key_that_names_the_third_party_is_accepted_at_once() {
    const ISSUER: &str = "https://issuer.example.com";
    let (elsewhere, key) = ring_of_new_key(Algorithm::Es256, "new");
    let (theirs, _) = ring_of_new_key(Algorithm::Es256, "theirs");
    let claims = json!({ "iss": ISSUER, "sub": "u", "role": "authenticated" });
    let presented = format!("Bearer {}", elsewhere.sign(&claims).unwrap());
    for path in ["/auth/v1/user", "/accounts/user"] {
        let key = Arc::clone(&key);
        let server = Server::start_with_keys(|keys| {
            let keys = keys.clone();
            Arc::new(move |issuer| {
                assert_eq!(issuer, TokenIssuer::Own, "{path}: nothing waits for the third party");
                let (keys, key) = (keys.clone(), Arc::clone(&key));
                Box::pin(async move {
                    let kept = vec![KeptKey { key, signs: false }];
                    let ring = keys.ring().with_kept_keys(kept, &[]).unwrap();
                    keys.replace(Arc::new(ring), Arc::new(ApiKeys::development()));
                })
            })
        })
        .await;
        let named = ThirdPartyIssuer { url: ISSUER.into(), other_names: Vec::new(), audience: None };
        server.ring.replace_third_party(ThirdPartyKeys::published(named, &theirs.jwks()).unwrap());
        let request = server.get(path).header("apikey", PUBLISHABLE_KEY).header("authorization", &presented);
        let caller = json_of(request.send().await.unwrap()).await;
        assert_eq!((&caller["role"], &caller["refused"]), (&json!("authenticated"), &Value::Null), "{path}");
    }
}

#[tokio::test]
async fn tokens_of_a_third_party_reach_the_data_but_not_the_accounts() {
    let (issuer, _) = ring_of_new_key(Algorithm::Rs256, "theirs");
    let server = Server::with_echo(KeyPolicy::Hosted).await;
    let named = ThirdPartyIssuer { url: "https://issuer.example.com".into(), other_names: Vec::new(), audience: None };
    server.ring.replace_third_party(ThirdPartyKeys::published(named, &issuer.jwks()).unwrap());
    let claims = json!({ "iss": "https://issuer.example.com/", "sub": "user_1", "role": "authenticated" });
    let token = format!("Bearer {}", issuer.sign(&claims).unwrap());
    let ask = async |path: &str| {
        let request = server.get(path).header("apikey", PUBLISHABLE_KEY).header("authorization", &token);
        json_of(request.send().await.unwrap()).await
    };
    let data = ask("/auth/v1/user").await;
    assert_eq!((&data["role"], &data["refused"]), (&json!("authenticated"), &Value::Null));
    let accounts = ask("/accounts/user").await;
    assert_eq!((&accounts["role"], &accounts["token"]), (&json!("anon"), &Value::Null));
    assert!(accounts["refused"].as_str().unwrap().contains("unrecognized JWT kid theirs"), "{accounts}");
}
