//! Missing features and services respond like disabled ones.

use portico_testkit::{TestResponse, TestServer};
use serde_json::json;

const ADA: &str = "ada@example.com";

async fn send(t: &TestServer, method: &str, path: &str, bearer: Option<&str>) -> TestResponse {
    let request = t.request(method.parse().unwrap(), &format!("/auth/v1/{path}"));
    let request = match bearer {
        Some(token) => request.bearer(token),
        None => request,
    };
    if method == "GET" { request.send().await } else { request.json(&json!({})).send().await }
}

#[tokio::test]
async fn missing_features_reject_requests_with_their_codes() {
    let t = TestServer::start().await;
    for (status, code, message, routes) in [
        (
            404,
            "passkey_disabled",
            "Passkeys are disabled",
            &[
                "GET passkeys",
                "PATCH passkeys/x",
                "DELETE passkeys/x",
                "POST passkeys/registration/options",
                "POST passkeys/registration/verify",
                "POST passkeys/authentication/options",
                "POST passkeys/authentication/verify",
            ][..],
        ),
        (
            404,
            "saml_provider_disabled",
            "SAML 2.0 is disabled",
            &["POST sso", "GET sso/saml/metadata", "GET sso/saml/metadata?download=true", "POST sso/saml/acs"],
        ),
        (422, "web3_provider_disabled", "Web3 provider is disabled", &["POST token?grant_type=web3"]),
        (
            404,
            "feature_disabled",
            "OAuth server is disabled",
            &[
                "GET oauth/authorize?client_id=x",
                "GET oauth/authorizations/x",
                "POST oauth/authorizations/x/consent",
                "POST oauth/token",
                "POST oauth/clients/register",
                "GET oauth/userinfo",
                "GET user/oauth/grants",
                "DELETE user/oauth/grants",
                "GET .well-known/oauth-authorization-server",
            ],
        ),
        (
            404,
            "feature_disabled",
            "SCIM server is disabled",
            &[
                "GET scim/v2/ServiceProviderConfig",
                "GET scim/v2/ResourceTypes",
                "GET scim/v2/Schemas",
                "GET scim/v2/Users",
            ],
        ),
    ] {
        for route in routes {
            let (method, path) = route.split_once(' ').unwrap();
            let response = send(&t, method, path, None).await;
            assert_eq!(response.rejection(), (status, code.to_owned()), "{route}");
            assert_eq!(response.json()["msg"], message, "{route}");
            assert_eq!(response.header("x-sb-error-code"), Some(code), "{route}");
        }
    }
    let newer = t.post("/auth/v1/sso").header("x-supabase-api-version", "2024-01-01").json(&json!({})).send().await;
    let body = json!({ "code": "saml_provider_disabled", "message": "SAML 2.0 is disabled" });
    assert_eq!(newer.expect(404).json(), body);
    // Other paths and methods are not affected
    assert_eq!(send(&t, "GET", "no/such/path", None).await.expect(404).text(), "404 page not found\n");
    assert!(send(&t, "GET", "sso", None).await.expect(405).body.is_empty());
}

#[tokio::test]
async fn routes_of_administrators_check_their_caller_first() {
    let t = TestServer::start().await;
    let token = t.signed_in(ADA, "correct-horse").await;
    let token = token["access_token"].as_str().unwrap();
    let keys = t.api_keys();
    for (route, code) in [
        ("GET admin/sso/providers", "saml_provider_disabled"),
        ("PUT admin/sso/providers/x", "saml_provider_disabled"),
        ("GET admin/oauth/clients", "feature_disabled"),
        ("POST admin/oauth/clients/x/regenerate_secret", "feature_disabled"),
    ] {
        let (method, path) = route.split_once(' ').unwrap();
        assert_eq!(send(&t, method, path, None).await.rejection(), (401, "no_authorization".into()), "{route}");
        assert_eq!(send(&t, method, path, Some("a.b.c")).await.rejection(), (403, "bad_jwt".into()), "{route}");
        for known in [token, keys.anon_jwt()] {
            assert_eq!(send(&t, method, path, Some(known)).await.rejection(), (403, "not_admin".into()), "{route}");
        }
        let by_token = send(&t, method, path, Some(keys.service_role_jwt())).await;
        assert_eq!(by_token.rejection(), (404, code.to_owned()), "{route}");
        let by_key = t.request(method.parse().unwrap(), &format!("/auth/v1/{path}")).key(keys.secret());
        assert_eq!(by_key.send().await.rejection(), (404, code.to_owned()), "{route}");
    }
}

#[tokio::test]
async fn missing_services_reject_requests_with_their_own_errors() {
    let t = TestServer::start().await;
    for (path, status, code) in [
        ("/storage/v1/bucket", 403, "FeatureNotEnabled"),
        ("/storage/v1/object/avatars/me.png", 403, "FeatureNotEnabled"),
        ("/functions/v1/hello", 404, "NOT_FOUND"),
        ("/functions/v1/", 404, "NOT_FOUND"),
        ("/realtime/v1/websocket?vsn=1.0.0", 403, "RealtimeDisabledForTenant"),
        ("/realtime/v1/api/broadcast", 403, "RealtimeDisabledForTenant"),
    ] {
        for method in ["GET", "POST"] {
            let response = t.request(method.parse().unwrap(), path).key(t.api_keys().publishable()).send().await;
            assert_eq!((response.status, response.json()["code"].clone()), (status, json!(code)), "{method} {path}");
            assert!(response.json()["message"].is_string(), "{method} {path}");
            assert!(response.header("content-type").unwrap().starts_with("application/json"), "{method} {path}");
        }
    }
    let upload = t.post("/storage/v1/object/avatars/me.png").key(t.api_keys().publishable());
    let upload = upload.body(vec![b'x'; 3 * 1024 * 1024]).send().await;
    assert_eq!((upload.status, upload.json()["code"].clone()), (403, json!("FeatureNotEnabled")));
    let function = t.post("/functions/v1/hello").key(t.api_keys().publishable()).send().await;
    assert_eq!(function.header("sb-error-code"), Some("NOT_FOUND"));
    let storage = t.get("/storage/v1/bucket").key(t.api_keys().publishable()).send().await.json();
    assert_eq!((&storage["statusCode"], &storage["error"]), (&json!("409"), &json!("FeatureNotEnabled")));
    let realtime = t.get("/realtime/v1/websocket").key(t.api_keys().publishable()).send().await.json();
    assert_eq!(realtime["error"], "Realtime was disabled for this tenant");
}
