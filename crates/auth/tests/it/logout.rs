//! `POST /logout` and its scopes.

use portico_testkit::TestServer;
use serde_json::{Value, json};

const PASSWORD: &str = "correct horse";

fn access(session: &Value) -> &str {
    session["access_token"].as_str().unwrap()
}

async fn three(server: &TestServer) -> [Value; 3] {
    [
        server.signed_in("ada@example.com", PASSWORD).await,
        server.sign_in("ada@example.com", PASSWORD).await,
        server.signed_in("eve@example.com", PASSWORD).await,
    ]
}

/// Returns whether each session is still valid.
async fn alive(server: &TestServer, sessions: &[Value; 3]) -> Vec<bool> {
    let mut alive = Vec::new();
    for session in sessions {
        let answer = server.get("/auth/v1/user").bearer(access(session)).send().await;
        if answer.status != 200 {
            assert_eq!(answer.refusal(), (403, "session_not_found".into()));
            let body = json!({"refresh_token": session["refresh_token"]});
            let refreshed = server.post("/auth/v1/token?grant_type=refresh_token").json(&body).send().await;
            assert_eq!(refreshed.refusal(), (400, "refresh_token_not_found".into()));
        }
        alive.push(answer.status == 200);
    }
    alive
}

#[tokio::test]
async fn each_scope_ends_its_sessions() {
    for (query, expected) in [
        ("", [false, false, true]),
        ("?scope=global", [false, false, true]),
        ("?scope=local", [false, true, true]),
        ("?scope=others", [true, false, true]),
    ] {
        let server = TestServer::start().await;
        let sessions = three(&server).await;
        let answer =
            server.post(&format!("/auth/v1/logout{query}")).bearer(access(&sessions[0])).send().await.expect(204);
        assert!(answer.body.is_empty());
        assert_eq!(alive(&server, &sessions).await, expected, "{query}");
        assert!(server.actions().await.contains(&"logout".to_owned()));
    }
}

#[tokio::test]
async fn an_unknown_scope_or_caller_ends_no_session() {
    let server = TestServer::start().await;
    let sessions = three(&server).await;
    let answer = server.post("/auth/v1/logout?scope=everyone").bearer(access(&sessions[0])).send().await;
    assert_eq!(answer.refusal(), (400, "validation_failed".into()));
    assert_eq!(answer.json()["msg"], "Unsupported logout scope \"everyone\"");
    assert_eq!(server.post("/auth/v1/logout").send().await.refusal(), (401, "no_authorization".into()));
    let anon = server.api_keys().anon_jwt().to_owned();
    let answer = server.post("/auth/v1/logout").bearer(&anon).send().await;
    assert_eq!(answer.refusal(), (403, "bad_jwt".into()));
    assert_eq!(alive(&server, &sessions).await, [true, true, true]);
}
