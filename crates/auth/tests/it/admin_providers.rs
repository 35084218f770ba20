//! `/admin/custom-providers`.

use std::num::NonZeroU32;

use portico_testkit::{TestServer, claims_of};
use serde_json::{Value, json};

use crate::column_encryption::encrypting;
use crate::misbehaving::{Provider, begin, return_from_provider, server_and, server_with};

const PATH: &str = "admin/custom-providers";

/// Returns a plain OAuth 2 provider with changes; `null` removes a member.
fn plain(changes: &Value) -> Value {
    let mut body = json!({
        "provider_type": "oauth2", "identifier": "custom:plain", "name": "Plain", "client_id": "the-client",
        "client_secret": "the-secret", "authorization_url": "https://8.8.8.8/authorize",
        "token_url": "https://8.8.8.8/token", "userinfo_url": "https://8.8.8.8/userinfo",
    });
    body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    body
}

/// Lets the table take addresses of this machine.
async fn allow_loopback(t: &TestServer) {
    for constraint in ["oidc_issuer_https", "oidc_discovery_url_https"] {
        let table = "auth.custom_oauth_providers";
        t.execute(&format!("alter table {table} drop constraint custom_oauth_providers_{constraint}")).await;
    }
}

fn oidc(provider: &Provider) -> Value {
    json!({
        "provider_type": "oidc", "identifier": "custom:acme", "name": "Acme", "client_id": "the-client",
        "client_secret": "the-secret", "issuer": provider.base, "scopes": ["email"],
    })
}

#[tokio::test]
async fn an_openid_provider_is_discovered_stored_and_used() {
    let provider = Provider::start().await;
    let t = server_and("google", &provider, |auth| {
        encrypting(auth, Some("new"));
        auth.allow_insecure_loopback_providers = true;
    })
    .await;
    allow_loopback(&t).await;
    let created = t.operator().calls("POST", PATH, &oidc(&provider)).await.expect(201).json();
    assert!(created.get("client_secret").is_none());
    assert_eq!(created["scopes"], json!(["openid", "email"]));
    assert_eq!(created["discovery_document"]["jwks_uri"], format!("{}/jwks", provider.base));
    assert!(created["discovery_document"].get("token_endpoint_auth_methods_supported").is_none());
    for (name, value) in
        [("pkce_enabled", true), ("enabled", true), ("email_optional", false), ("skip_nonce_check", false)]
    {
        assert_eq!(created[name], value, "{name}");
    }
    assert_eq!(
        t.operator().calls("GET", "admin/custom-providers/custom:acme", &Value::Null).await.expect(200).json(),
        created
    );
    // The secret is encrypted, and decrypted for the provider
    assert_eq!(t.count("select count(*) from auth.custom_oauth_providers where client_secret like '{%'").await, 1);
    let started = begin(&t, "custom:acme").await;
    provider.gives(provider.key.sign(&provider.claims(&t, started.nonce.as_deref())));
    let landed = return_from_provider(&t, &started).await;
    let token = landed.location_fragment("access_token").unwrap_or_else(|| panic!("{landed:?}"));
    assert_eq!(claims_of(&token)["app_metadata"]["provider"], "custom:acme");
    assert_eq!(provider.calls("/token")[0].0["client_secret"], "the-secret");

    let change = json!({"name": "", "client_secret": "another", "scopes": [], "enabled": false, "identifier": "custom:x", "provider_type": "oauth2"});
    let changed = t.operator().calls("PUT", "admin/custom-providers/custom:acme", &change).await.expect(200).json();
    assert_eq!((&changed["name"], &changed["identifier"]), (&json!("Acme"), &json!("custom:acme")));
    assert_eq!((&changed["scopes"], &changed["enabled"]), (&json!(["openid"]), &json!(false)));
    let refused = t.get("/auth/v1/authorize?provider=custom:acme").send().await;
    assert_eq!(refused.rejection(), (400, "validation_failed".into()));
    t.operator().calls("DELETE", "admin/custom-providers/custom:acme", &Value::Null).await.expect(204);
    assert_eq!(
        t.operator().calls("DELETE", "admin/custom-providers/custom:acme", &Value::Null).await.rejection(),
        (404, "custom_provider_not_found".into())
    );
}

#[tokio::test]
async fn a_discovery_document_that_cannot_be_used_is_rejected() {
    let provider = Provider::start().await;
    let t = server_and("google", &provider, |auth| auth.allow_insecure_loopback_providers = true).await;
    allow_loopback(&t).await;
    let message = async |document: Value| {
        provider.says("/.well-known/openid-configuration", document);
        let refused = t.operator().calls("POST", PATH, &oidc(&provider)).await;
        assert_eq!(refused.rejection(), (400, "validation_failed".into()));
        refused.json()["msg"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        message(json!({"issuer": provider.base, "token_endpoint": ""})).await,
        "OIDC discovery document is missing required fields: authorization_endpoint, token_endpoint, jwks_uri"
    );
    let url = format!("{}/.well-known/openid-configuration", provider.base);
    let failed = |text: &str| text.starts_with(&format!("OIDC discovery from \"{url}\" failed: "));
    let foreign = json!({"issuer": "https://else.example", "authorization_endpoint": "x", "token_endpoint": "x", "jwks_uri": "x"});
    assert!(failed(&message(foreign).await));
    assert!(failed(&message(json!([])).await));
    assert_eq!(t.count("select count(*) from auth.custom_oauth_providers").await, 0);
}

#[tokio::test]
async fn attributes_are_checked_in_the_order_of_the_contract() {
    let t = TestServer::start().await;
    for (changes, message) in [
        (json!({"provider_type": "saml", "identifier": ""}), "provider_type must be either 'oauth2' or 'oidc'"),
        (json!({"identifier": "", "name": ""}), "identifier is required"),
        (json!({"identifier": "acme", "name": ""}), "identifier must start with 'custom:' prefix, e.g. 'custom:<x>'"),
        (json!({"name": "", "client_id": ""}), "name is required"),
        (json!({"client_id": "", "client_secret": ""}), "client_id is required"),
        (json!({"client_secret": ""}), "client_secret is required"),
        (json!({"provider_type": "oidc"}), "issuer is required for OIDC providers"),
        (json!({"token_url": ""}), "token_url is required for OAuth2 providers"),
        (json!({"authorization_params": {"State": "x"}}), "Cannot override reserved OAuth parameter: State"),
        (json!({"authorization_params": {"nonce": "x"}}), "Cannot override reserved OAuth parameter: nonce"),
        (json!({"authorization_params": {"prompt": 1}}), "Authorization parameter \"prompt\" must be a string"),
        (json!({"attribute_mapping": {"role": "x"}}), "Cannot map to protected system field: role"),
        (json!({"custom_claims_allowlist": [""]}), "custom_claims_allowlist entries must be non-empty strings"),
        (json!({"token_url": "x"}), "Invalid URL format"),
        (json!({"token_url": "http://8.8.8.8/"}), "URL must use HTTPS"),
        (json!({"jwks_uri": "https://10.0.0.1/"}), "URL cannot resolve to private network addresses"),
    ] {
        let refused = t.operator().calls("POST", PATH, &plain(&changes)).await;
        assert_eq!(refused.rejection(), (400, "validation_failed".into()), "{changes}");
        assert_eq!(refused.json()["msg"], message);
    }
    // A rule of the table
    assert_eq!(t.operator().calls("POST", PATH, &plain(&json!({"identifier": "custom:Ä"}))).await.status, 500);
    assert_eq!(t.count("select count(*) from auth.custom_oauth_providers").await, 0);
}

#[tokio::test]
async fn identifiers_are_unique_and_the_number_may_be_limited() {
    let t = TestServer::with_auth(|auth| auth.custom_providers.max_providers = NonZeroU32::new(2)).await;
    t.operator().calls("POST", PATH, &plain(&json!({}))).await.expect(201);
    let again = t.operator().calls("POST", PATH, &plain(&json!({}))).await;
    assert_eq!(again.rejection(), (400, "conflict".into()));
    assert_eq!(again.json()["msg"], "A custom OAuth provider with this identifier already exists");
    let attempts = (0..4).map(|number| {
        let body = plain(&json!({"identifier": format!("custom:plain-{number}")}));
        async { t.operator().calls("POST", PATH, &{ body }).await }
    });
    let responses = futures_util::future::join_all(attempts).await;
    assert_eq!(responses.iter().filter(|response| response.status == 201).count(), 1, "{responses:?}");
    let refused = responses.iter().find(|response| response.status != 201).unwrap();
    assert_eq!(refused.rejection(), (400, "over_custom_provider_quota".into()));
    let listed = t.operator().calls("GET", "admin/custom-providers?type=oauth2", &Value::Null).await.expect(200).json();
    assert_eq!(listed["providers"].as_array().unwrap().len(), 2);
    assert_eq!(
        t.operator().calls("GET", "admin/custom-providers?type=oidc", &Value::Null).await.expect(200).json(),
        json!({"providers": []})
    );
    let refused = t.operator().calls("GET", "admin/custom-providers?type=saml", &Value::Null).await;
    assert_eq!((refused.status, &refused.json()["msg"]), (400, &json!("type must be either 'oauth2' or 'oidc'")));
}

#[tokio::test]
async fn the_routes_need_an_administrator_and_the_feature() {
    let provider = Provider::start().await;
    let on = server_with("google", &provider).await;
    let off = TestServer::with_auth(|auth| auth.custom_providers.enabled = false).await;
    let routes = [("GET", ""), ("POST", ""), ("GET", "/custom:x"), ("PUT", "/custom:x"), ("DELETE", "/custom:x")];
    for (method, path) in routes {
        let bare = on.request(method.parse().unwrap(), &format!("/auth/v1/{PATH}{path}")).json(&json!({})).send().await;
        assert_eq!(bare.rejection(), (401, "no_authorization".into()));
        let anon = on.request(method.parse().unwrap(), &format!("/auth/v1/{PATH}{path}")).key(on.api_keys().anon_jwt());
        assert_eq!(anon.json(&json!({})).send().await.rejection(), (403, "not_admin".into()));
        let disabled = off.operator().calls(method, &format!("{PATH}{path}"), &json!({})).await;
        assert_eq!(disabled.rejection(), (404, "feature_disabled".into()));
        assert_eq!(disabled.json()["msg"], "Custom OAuth providers are disabled");
    }
    for method in ["GET", "PUT", "DELETE"] {
        let unknown = on.operator().calls(method, &format!("{PATH}/custom:x"), &json!({})).await;
        assert_eq!(unknown.rejection(), (404, "custom_provider_not_found".into()), "{method}");
    }
}
