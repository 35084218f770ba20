//! The callers of the routes of administrators.

use portico_testkit::{TestResponse, TestServer};
use serde_json::Value;
use time::Duration;

/// A route of administrators that changes nothing.
const ROUTE: &str = "/auth/v1/admin/sso/providers";

async fn call(t: &TestServer, token: &str) -> TestResponse {
    t.get(ROUTE).bearer(token).send().await
}

/// Gives an account the role of the service, and signs it in.
async fn service_account(t: &TestServer) -> Value {
    t.account("root@example.com", "correct-horse").await;
    t.execute("update auth.users set role = 'service_role'").await;
    t.visitor("root@example.com").with_password("correct-horse").signs_in().await.expect(200).json()
}

#[tokio::test]
async fn every_key_without_the_role_is_rejected() {
    let t = TestServer::start().await;
    let member = t.member("ada@example.com").await;
    let keys = t.api_keys();
    let bare = t.get(ROUTE).send().await;
    assert_eq!(bare.rejection(), (401, "no_authorization".into()));
    assert_eq!(bare.json()["msg"], "This endpoint requires a valid Bearer token");
    let nonsense = call(&t, "a.b.c").await;
    assert_eq!(nonsense.rejection(), (403, "bad_jwt".into()));
    for token in [keys.anon_jwt(), member.access_token()] {
        let refused = call(&t, token).await;
        assert_eq!(refused.rejection(), (403, "not_admin".into()));
        assert_eq!(refused.json()["msg"], "User not allowed");
    }
    for key in [keys.anon_jwt(), keys.publishable()] {
        assert_eq!(t.get(ROUTE).key(key).send().await.rejection(), (403, "not_admin".into()));
        // As the client sends it
        assert_eq!(t.get(ROUTE).key(key).bearer(key).send().await.rejection(), (403, "not_admin".into()));
    }
    // The secret key gives a caller with a token of their own no further rights
    let both = t.get(ROUTE).key(keys.secret()).bearer(member.access_token());
    assert_eq!(both.send().await.rejection(), (403, "not_admin".into()));
    let both = t.get(ROUTE).key(keys.secret()).bearer("a.b.c");
    assert_eq!(both.send().await.rejection(), (403, "bad_jwt".into()));
}

#[tokio::test]
async fn every_key_with_the_role_is_accepted() {
    let t = TestServer::start().await;
    let keys = t.api_keys();
    let accepted = |response: TestResponse| assert_eq!(response.rejection().1, "saml_provider_disabled");
    accepted(call(&t, keys.service_role_jwt()).await);
    for key in [keys.service_role_jwt(), keys.secret()] {
        accepted(t.get(ROUTE).key(key).send().await);
        accepted(t.get(ROUTE).key(key).bearer(key).send().await);
    }
}

#[tokio::test]
async fn an_account_with_the_role_needs_a_valid_session() {
    let t = TestServer::with_auth(|settings| {
        settings.jwt.expiry = std::time::Duration::from_secs(7 * 86_400);
        settings.sessions.timebox = Some(std::time::Duration::from_secs(3600));
    })
    .await;
    let tokens = service_account(&t).await;
    let token = tokens["access_token"].as_str().unwrap();
    assert_eq!(call(&t, token).await.rejection().1, "saml_provider_disabled");

    t.execute("update auth.users set banned_until = now() + interval '100 years'").await;
    assert_eq!(call(&t, token).await.rejection(), (403, "user_banned".into()));
    t.execute("update auth.users set banned_until = null").await;

    t.clock().advance(Duration::hours(2));
    let ended = call(&t, token).await;
    assert_eq!(ended.rejection(), (403, "session_expired".into()));
    assert_eq!(ended.json()["msg"], "Session is no longer valid");

    t.execute("delete from auth.sessions").await;
    assert_eq!(call(&t, token).await.rejection(), (403, "session_not_found".into()));
}
