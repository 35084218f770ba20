//! Providers that misbehave, and providers of other kinds.

use axum::response::IntoResponse as _;
use http::StatusCode;
use portico_testkit::{TestResponse, TestServer, claims_of};
use serde_json::{Value, json};

use crate::id_token::id_token;
use crate::misbehaving::{
    CLIENT_ID, Key, Provider, StartedFlow, begin, return_from_provider, server_and, server_with, silence,
};
use crate::oauth::query_of;

/// Returns the description in the redirect of a sign-in that failed at the provider.
#[track_caller]
fn failure_code(response: &TestResponse) -> String {
    assert_eq!(response.location_query("error").as_deref(), Some("server_error"), "{response:?}");
    assert_eq!(response.location_fragment("error_code").as_deref(), Some("unexpected_failure"));
    response.location_query("error_description").unwrap()
}

pub async fn assert_nothing_is_stored(server: &TestServer) {
    for table in ["users", "identities", "sessions", "refresh_tokens", "one_time_tokens"] {
        assert_eq!(server.count(&format!("select count(*) from auth.{table}")).await, 0, "{table}");
    }
}

pub async fn flow(server: &TestServer) -> StartedFlow {
    begin(server, "google").await
}

#[tokio::test]
async fn a_well_behaved_provider_signs_in() {
    let provider = Provider::start().await;
    let server = server_with("google", &provider).await;
    let started = flow(&server).await;
    assert!(started.url.as_str().starts_with(&format!("{}/authorize?", provider.base)));
    provider.gives(provider.key.sign(&provider.claims(&server, started.nonce.as_deref())));
    let response = return_from_provider(&server, &started).await;
    let token = response.location_fragment("access_token").unwrap_or_else(|| panic!("{response:?}"));
    assert_eq!(claims_of(&token)["email"], "ada@example.com");
    assert_eq!(response.location_fragment("provider_token").as_deref(), Some("at"));
    let (fields, _) = &provider.calls("/token")[0];
    assert_eq!(fields["grant_type"], "authorization_code");
    assert_eq!(fields["code"], "the-code");
    assert_eq!(fields["redirect_uri"], format!("{}/auth/v1/callback", server.base()));
}

#[tokio::test]
async fn an_id_token_for_another_client_time_or_issuer_is_rejected() {
    let provider = Provider::start().await;
    let server = server_with("google", &provider).await;
    let stranger = Key::new("first");
    let now = server.clock().now().unix_timestamp();
    type Bend = Box<dyn Fn(&mut Value)>;
    let set = |key: &'static str, value: Value| -> Bend { Box::new(move |claims| claims[key] = value.clone()) };
    let bends: Vec<(&str, Bend)> = vec![
        ("audience", set("aud", json!("another-client"))),
        ("audiences", set("aud", json!(["another-client", "one-more"]))),
        (
            "authorised party",
            Box::new(|claims| {
                claims["aud"] = json!([CLIENT_ID, "another-client"]);
                claims["azp"] = json!("another-client");
            }),
        ),
        ("issuer", set("iss", json!("https://accounts.google.com"))),
        ("expiry", set("exp", json!(now - 1))),
        ("no expiry", set("exp", Value::Null)),
        ("issued in the future", set("iat", json!(now + 3600))),
        ("not yet valid", set("nbf", json!(now + 3600))),
        ("nonce", set("nonce", json!("of-another-flow"))),
        ("no nonce", Box::new(|claims| drop(claims.as_object_mut().unwrap().remove("nonce")))),
        ("access token", set("at_hash", json!("AAAAAAAAAAAAAAAAAAAAAA"))),
        ("subject's type", set("sub", json!(5))),
        ("no subject", set("sub", json!(""))),
    ];
    for (what, bend) in bends {
        let started = flow(&server).await;
        let mut claims = provider.claims(&server, started.nonce.as_deref());
        bend(&mut claims);
        provider.gives(provider.key.sign(&claims));
        let response = return_from_provider(&server, &started).await;
        assert_eq!(failure_code(&response), "Error getting user profile from external provider", "{what}");
    }
    // Signed with another key of the same id
    let started = flow(&server).await;
    let claims = provider.claims(&server, started.nonce.as_deref());
    provider.gives(stranger.sign(&claims));
    failure_code(&return_from_provider(&server, &started).await);
    // Not signed, or with public data as the secret
    let good = provider.key.sign(&claims);
    let payload = good.split('.').nth(1).unwrap();
    for header in [r#"{"alg":"none"}"#, r#"{"alg":"HS256","kid":"secret"}"#, r#"{"alg":"HS256","kid":"first"}"#] {
        use base64::Engine as _;
        let header = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(header);
        let started = flow(&server).await;
        provider.gives(format!("{header}.{payload}.AAAA"));
        failure_code(&return_from_provider(&server, &started).await);
    }
    assert_nothing_is_stored(&server).await;
}

#[tokio::test]
async fn the_id_token_of_another_sign_in_is_rejected() {
    let provider = Provider::start().await;
    let server = server_with("google", &provider).await;
    let (victim, attacker) = (flow(&server).await, flow(&server).await);
    provider.gives(provider.key.sign(&provider.claims(&server, victim.nonce.as_deref())));
    failure_code(&return_from_provider(&server, &attacker).await);
    assert_nothing_is_stored(&server).await;
}

#[tokio::test]
async fn responses_of_the_wrong_form_are_rejected() {
    let provider = Provider::start().await;
    let server = server_with("google", &provider).await;
    for body in [
        json!([]),
        json!("text"),
        json!({"access_token": 5}),
        json!({"access_token": ""}),
        json!({"error": "invalid_grant"}),
        json!({"access_token": "at", "id_token": {"nested": true}}),
        json!({"access_token": "at", "id_token": "not a token"}),
        json!({"access_token": "at", "id_token": "a.b.c"}),
        json!({"access_token": "at", "error": "temporarily_unavailable"}),
        json!({"access_token": "a".repeat(20_000)}),
    ] {
        provider.says("/token", body.clone());
        let response = return_from_provider(&server, &flow(&server).await).await;
        failure_code(&response);
    }
    // Profiles with members of other types
    provider.says("/token", json!({"access_token": "at"}));
    for body in [
        json!([1]),
        json!({"id": {}}),
        json!({"sub": 1.5}),
        json!({"sub": "1", "email": ["x"]}),
        json!({"sub": "1", "email": "no address"}),
    ] {
        provider.says("/userinfo", body);
        failure_code(&return_from_provider(&server, &flow(&server).await).await);
    }
    assert_nothing_is_stored(&server).await;
}

#[tokio::test]
async fn floods_silence_and_redirects_fail() {
    let provider = Provider::start().await;
    let server = server_with("google", &provider).await;
    provider.answers("/token", |_| vec![b'x'; 5 * 1024 * 1024].into_response());
    failure_code(&return_from_provider(&server, &flow(&server).await).await);
    provider.answers("/token", |_| {
        let chunks = futures_util::stream::repeat(Ok::<_, std::convert::Infallible>(vec![b' '; 64 * 1024]));
        axum::body::Body::from_stream(chunks).into_response()
    });
    failure_code(&return_from_provider(&server, &flow(&server).await).await);

    // The code and the client secret are sent nowhere else
    let elsewhere = Provider::start().await;
    elsewhere.says("/token", json!({"access_token": "stolen"}));
    let target = format!("{}/token", elsewhere.base);
    provider
        .answers("/token", move |_| (StatusCode::TEMPORARY_REDIRECT, [("location", target.clone())]).into_response());
    failure_code(&return_from_provider(&server, &flow(&server).await).await);
    assert!(elsewhere.calls("/token").is_empty());

    provider.answers("/token", |_| silence());
    failure_code(&return_from_provider(&server, &flow(&server).await).await);
    assert_nothing_is_stored(&server).await;
}

#[tokio::test]
async fn a_discovery_document_that_is_not_valid_is_rejected() {
    for document in [
        json!({"issuer": "https://accounts.google.com", "authorization_endpoint": "https://x/", "token_endpoint": "https://x/", "jwks_uri": "https://x/"}),
        json!({"issuer": 5}),
        json!([]),
    ] {
        let provider = Provider::start().await;
        provider.says("/.well-known/openid-configuration", document);
        let server = server_with("google", &provider).await;
        let response = server.get("/auth/v1/authorize?provider=google").send().await;
        assert_eq!(response.rejection(), (500, "unexpected_failure".into()));
        assert_eq!(server.count("select count(*) from auth.flow_state").await, 0);
    }
    let provider = Provider::start().await;
    let base = provider.base.clone();
    provider.says("/.well-known/openid-configuration", json!({
        "issuer": base, "authorization_endpoint": format!("{base}/a"), "token_endpoint": "http://example.com/token", "jwks_uri": format!("{base}/jwks"),
    }));
    let server = server_with("google", &provider).await;
    assert_eq!(server.get("/auth/v1/authorize?provider=google").send().await.status, 500, "plain http elsewhere");
}

#[tokio::test]
async fn invented_key_ids_do_not_flood_the_issuer() {
    let provider = Provider::start().await;
    let server = server_with("google", &provider).await;
    for index in 0..10 {
        let started = flow(&server).await;
        let claims = provider.claims(&server, started.nonce.as_deref());
        provider.gives(Key::new(&format!("invented-{index}")).sign(&claims));
        failure_code(&return_from_provider(&server, &started).await);
    }
    assert!(provider.key_reads() <= 3, "{} reads", provider.key_reads());
}

#[tokio::test]
async fn an_unavailable_issuer_is_not_called_by_every_sign_in() {
    const DOCUMENT: &str = "/.well-known/openid-configuration";
    let provider = Provider::start().await;
    provider.answers(DOCUMENT, |_| StatusCode::SERVICE_UNAVAILABLE.into_response());
    let server = server_with("google", &provider).await;
    let asked = || server.get("/auth/v1/authorize?provider=google").send();
    for response in futures_util::future::join_all((0..10).map(|_| asked())).await {
        assert_eq!(response.rejection(), (500, "unexpected_failure".into()));
    }
    assert!(provider.calls(DOCUMENT).len() <= 3, "{} calls", provider.calls(DOCUMENT).len());
}

#[tokio::test]
async fn stale_documents_are_used_while_the_issuer_is_unavailable() {
    let provider = Provider::start().await;
    let server = server_and("google", &provider, |auth| auth.oidc_cache_ttl = std::time::Duration::ZERO).await;
    let started = flow(&server).await;
    let id_token = provider.key.sign(&provider.claims(&server, started.nonce.as_deref()));
    provider.gives(id_token);
    assert!(return_from_provider(&server, &started).await.location_fragment("access_token").is_some());
    provider.answers("/.well-known/openid-configuration", |_| StatusCode::SERVICE_UNAVAILABLE.into_response());
    provider.answers("/jwks", |_| StatusCode::SERVICE_UNAVAILABLE.into_response());
    let started = flow(&server).await;
    provider.gives(provider.key.sign(&provider.claims(&server, started.nonce.as_deref())));
    assert!(return_from_provider(&server, &started).await.location_fragment("access_token").is_some());
}

#[tokio::test]
async fn apple_answers_with_a_form_and_sends_the_name_once() {
    let provider = Provider::start().await;
    let server = server_with("apple", &provider).await;
    let started = begin(&server, "apple").await;
    let field = |name| query_of(&started.url, name);
    assert_eq!(field("response_mode").as_deref(), Some("form_post"));
    assert_eq!(field("scope").as_deref(), Some("email name"));
    // A platform that cannot carry a nonce states it in the signed token
    let mut claims = provider.claims(&server, None);
    claims["nonce_supported"] = false.into();
    claims["is_private_email"] = "true".into();
    provider.gives(provider.key.sign(&claims));
    let user = r#"{"name":{"firstName":"Ada","lastName":"L"},"email":"evil@example.com"}"#;
    let fields = [("state", started.state.as_str()), ("code", "the-code"), ("user", user)];
    let response = server.post("/auth/v1/callback").form(&fields).send().await.expect(302);
    let token = response.location_fragment("access_token").unwrap_or_else(|| panic!("{response:?}"));
    let claims = claims_of(&token);
    assert_eq!(claims["email"], "ada@example.com");
    assert_eq!(claims["user_metadata"]["full_name"], "Ada L");
    assert_eq!(claims["user_metadata"]["custom_claims"]["is_private_email"], "true");
    assert_eq!(provider.calls("/token")[0].0["client_secret"], "the-secret");
}

#[tokio::test]
async fn azure_tokens_must_be_of_the_configured_tenant() {
    let provider = Provider::start().await;
    let base = provider.base.clone();
    let tenant = format!("{base}/v2.0");
    provider.says(
        "/v2.0/.well-known/openid-configuration",
        json!({"issuer": tenant, "authorization_endpoint": format!("{base}/a"), "token_endpoint": format!("{base}/t"), "jwks_uri": format!("{base}/jwks")}),
    );
    let server = server_with("azure", &provider).await;
    let finish = async |issuer: &str| {
        let started = begin(&server, "azure").await;
        let mut claims = provider.claims(&server, started.nonce.as_deref());
        claims["iss"] = issuer.into();
        let token = provider.key.sign(&claims);
        provider.says("/oauth2/v2.0/token", json!({"access_token": "at", "id_token": token}));
        return_from_provider(&server, &started).await
    };
    failure_code(&finish(&format!("{base}/other/v2.0")).await);
    failure_code(&finish("https://login.microsoftonline.com/other/v2.0").await);
    assert_nothing_is_stored(&server).await;
    let response = finish(&tenant).await;
    let token = response.location_fragment("access_token").unwrap_or_else(|| panic!("{response:?}"));
    assert_eq!(claims_of(&token)["user_metadata"]["full_name"], "Ada L");
}

#[tokio::test]
async fn a_huge_profile_is_not_stored() {
    let provider = Provider::start().await;
    let server = server_with("google", &provider).await;
    let started = flow(&server).await;
    let mut claims = provider.claims(&server, started.nonce.as_deref());
    claims["hd"] = "x".repeat(30_000).into();
    claims["picture"] = "https://p/\u{0}1".into();
    provider.gives(provider.key.sign(&claims));
    let response = return_from_provider(&server, &started).await;
    let token = response.location_fragment("access_token").unwrap_or_else(|| panic!("{response:?}"));
    assert!(claims_of(&token)["user_metadata"].get("custom_claims").is_none());
    assert_eq!(claims_of(&token)["user_metadata"]["picture"], "https://p/1");
}

#[tokio::test]
async fn github_is_identified_by_userinfo_documents() {
    let provider = Provider::start().await;
    let server = server_with("github", &provider).await;
    provider.answers("/login/oauth/access_token", |fields| match fields.get("client_secret") {
        // Only the form is accepted, and errors have status 200
        None => axum::Json(json!({"error": "incorrect_client_credentials"})).into_response(),
        Some(_) => "access_token=gho_1&scope=user%3Aemail&token_type=bearer".into_response(),
    });
    provider.says("/api/v3/user", json!({"id": 583231, "login": "octo", "name": "Octo", "avatar_url": "https://a/1"}));
    provider.says("/api/v3/user/emails", json!([{"email": "Octo@Example.com", "primary": true, "verified": true}]));
    let started = begin(&server, "github").await;
    assert!(started.url.as_str().starts_with(&format!("{}/login/oauth/authorize?", provider.base)));
    assert_eq!(started.nonce, None);
    let response = return_from_provider(&server, &started).await;
    let token = response.location_fragment("access_token").unwrap_or_else(|| panic!("{response:?}"));
    let claims = claims_of(&token);
    assert_eq!(claims["email"], "octo@example.com");
    assert_eq!(claims["user_metadata"]["user_name"], "octo");
    assert_eq!(claims["user_metadata"]["iss"], format!("{}/api/v3", provider.base));
    let (_, headers) = &provider.calls("/api/v3/user")[0];
    assert_eq!(headers["authorization"], "Bearer gho_1");
    assert_eq!(provider.calls("/login/oauth/access_token").len(), 2, "Basic first, then the form");
}

#[tokio::test]
async fn x_receives_a_pkce_challenge() {
    let provider = Provider::start().await;
    let server = server_with("x", &provider).await;
    provider.says("/2/oauth2/token", json!({"access_token": "at", "refresh_token": "rt"}));
    provider
        .says("/2/users/me", json!({"data": {"id": "2244", "username": "ada", "confirmed_email": "ada@example.com"}}));
    let started = begin(&server, "x").await;
    let field = |name| query_of(&started.url, name).unwrap();
    assert_eq!(field("code_challenge_method"), "S256");
    let response = return_from_provider(&server, &started).await;
    assert_eq!(response.location_fragment("provider_refresh_token").as_deref(), Some("rt"), "{response:?}");
    let verifier = &provider.calls("/2/oauth2/token")[0].0["code_verifier"];
    assert_eq!(field("code_challenge"), portico_auth::oauth::pkce::s256(verifier));
    let again =
        server.get(&format!("/auth/v1/callback?code=the-code&state={}", started.state)).send().await.expect(303);
    assert_eq!(again.location_query("error_code").as_deref(), Some("bad_oauth_state"));
}

#[tokio::test]
async fn twitter_requests_are_signed() {
    let provider = Provider::start().await;
    let server = server_with("twitter", &provider).await;
    provider.answers("/oauth/request_token", |_| {
        "oauth_token=request-1&oauth_token_secret=s1&oauth_callback_confirmed=true".into_response()
    });
    provider.answers("/oauth/access_token", |_| "oauth_token=access-1&oauth_token_secret=s2&user_id=1".into_response());
    provider.says(
        "/1.1/account/verify_credentials.json",
        json!({"id_str": "38", "name": "Ada", "screen_name": "ada", "email": "ada@example.com"}),
    );
    let url = server.get("/auth/v1/authorize?provider=twitter").send().await.expect(302).location();
    assert_eq!(url.as_str(), format!("{}/oauth/authenticate?oauth_token=request-1", provider.base));
    let header = |path: &str| provider.calls(path)[0].1["authorization"].to_str().unwrap().to_owned();
    let announced = header("/oauth/request_token");
    assert!(
        announced.starts_with("OAuth oauth_callback=") && announced.contains("oauth_signature_method=\"HMAC-SHA1\"")
    );
    let state: String = server.query("select id::text from auth.flow_state").await[0].get(0);
    assert!(announced.contains(&format!("state%3D{state}")));

    let back = |token: &str| format!("/auth/v1/callback?state={state}&oauth_token={token}&oauth_verifier=v");
    let response = server.get(&back("request-1")).send().await.expect(302);
    let token = response.location_fragment("access_token").unwrap_or_else(|| panic!("{response:?}"));
    assert_eq!(claims_of(&token)["user_metadata"]["user_name"], "ada");
    assert!(header("/oauth/access_token").contains("oauth_verifier=\"v\""));
    assert!(header("/1.1/account/verify_credentials.json").contains("oauth_token=\"access-1\""));
    let again = server.get(&back("request-1")).send().await.expect(303);
    assert_eq!(again.location_query("error_code").as_deref(), Some("bad_oauth_state"));
}

/// Inserts a custom provider. The checks of the table require https, which the test's provider does
/// not have.
pub async fn custom(server: &TestServer, provider: &Provider) {
    for constraint in ["oidc_issuer_https", "authorization_url_https", "token_url_https", "userinfo_url_https"] {
        server
            .execute(&format!(
                "alter table auth.custom_oauth_providers drop constraint custom_oauth_providers_{constraint}"
            ))
            .await;
    }
    let base = &provider.base;
    server
        .execute(&format!(
            "insert into auth.custom_oauth_providers (provider_type, identifier, name, client_id, client_secret, issuer, scopes,
                 custom_claims_allowlist, attribute_mapping, authorization_params)
             values ('oidc', 'custom:acme', 'Acme', '{CLIENT_ID}', 'the-secret', '{base}', '{{email}}', '{{groups}}',
                 '{{\"nickname\": \"handle\", \"email\": \"other\"}}', '{{\"audience\": \"acme\", \"state\": \"evil\"}}');
             insert into auth.custom_oauth_providers (provider_type, identifier, name, client_id, client_secret, authorization_url,
                 token_url, userinfo_url)
             values ('oauth2', 'custom:plain', 'Plain', '{CLIENT_ID}', 'the-secret', '{base}/authorize', '{base}/token', '{base}/userinfo');
             insert into auth.custom_oauth_providers (provider_type, identifier, name, client_id, client_secret, issuer, enabled)
             values ('oidc', 'custom:off', 'Off', '{CLIENT_ID}', 'the-secret', '{base}', false)"
        ))
        .await;
}

#[tokio::test]
async fn custom_providers_come_from_the_database() {
    let provider = Provider::start().await;
    let server = server_with("google", &provider).await;
    custom(&server, &provider).await;

    let started = begin(&server, "custom:acme").await;
    let field = |name| query_of(&started.url, name);
    assert_eq!(field("scope").as_deref(), Some("openid email"));
    assert_eq!(field("audience").as_deref(), Some("acme"));
    assert_eq!(field("state"), Some(started.state.clone()));
    assert_eq!(field("code_challenge_method").as_deref(), Some("S256"));
    let mut claims = provider.claims(&server, started.nonce.as_deref());
    claims["groups"] = json!(["a"]);
    claims["handle"] = json!("countess");
    claims["other"] = json!("evil@example.com");
    provider.gives(provider.key.sign(&claims));
    let response = return_from_provider(&server, &started).await;
    let token = response.location_fragment("access_token").unwrap_or_else(|| panic!("{response:?}"));
    let claims = claims_of(&token);
    assert_eq!(claims["email"], "ada@example.com");
    assert_eq!(claims["app_metadata"]["providers"], json!(["custom:acme"]));
    assert_eq!(claims["user_metadata"]["custom_claims"], json!({"groups": ["a"]}));
    assert_eq!(claims["user_metadata"]["nickname"], "countess");

    provider.says("/token", json!({"access_token": "at"}));
    provider.says("/userinfo", json!({"sub": "7", "email": "plain@example.com", "email_verified": true}));
    let response = return_from_provider(&server, &begin(&server, "custom:plain").await).await;
    assert!(response.location_fragment("access_token").is_some(), "{response:?}");

    let off = server.get("/auth/v1/authorize?provider=custom:off").send().await;
    assert_eq!(off.rejection(), (400, "validation_failed".into()));
    assert_eq!(off.json()["msg"], "Unsupported provider: custom provider custom:off is disabled");
    for (name, code) in [
        ("custom:off", "provider_disabled"),
        ("custom:plain", "validation_failed"),
        ("custom:none", "validation_failed"),
    ] {
        let body = json!({"provider": name, "id_token": "a.b.c"});
        assert_eq!(id_token(&server, &body).await.rejection(), (400, code.to_owned()), "{name}");
    }
}
