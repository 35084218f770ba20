//! `POST /logout` and its scopes.

use portico_testkit::{Member, TestServer};

async fn three(server: &TestServer) -> [Member<'_>; 3] {
    let ada = server.member("ada@example.com").await;
    let elsewhere = ada.on_another_device().await;
    [ada, elsewhere, server.member("eve@example.com").await]
}

/// Returns whether each session is still valid.
async fn alive(sessions: &[Member<'_>; 3]) -> Vec<bool> {
    let mut alive = Vec::new();
    for session in sessions {
        let response = session.reads_account().await;
        if response.status != 200 {
            assert_eq!(response.rejection(), (403, "session_not_found".into()));
            let refreshed = session.refreshes_with(session.refresh_token()).await;
            assert_eq!(refreshed.rejection(), (400, "refresh_token_not_found".into()));
        }
        alive.push(response.status == 200);
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
        let response = sessions[0].sends(server.post(&format!("/auth/v1/logout{query}"))).send().await.expect(204);
        assert!(response.body.is_empty());
        assert_eq!(alive(&sessions).await, expected, "{query}");
        assert!(server.actions().await.contains(&"logout".to_owned()));
    }
}

#[tokio::test]
async fn an_unknown_scope_or_caller_ends_no_session() {
    let server = TestServer::start().await;
    let sessions = three(&server).await;
    let response = sessions[0].signs_out("everyone").await;
    assert_eq!(response.rejection(), (400, "validation_failed".into()));
    assert_eq!(response.json()["msg"], "Unsupported logout scope \"everyone\"");
    assert_eq!(server.post("/auth/v1/logout").send().await.rejection(), (401, "no_authorization".into()));
    let anon = server.api_keys().anon_jwt().to_owned();
    let response = server.post("/auth/v1/logout").bearer(&anon).send().await;
    assert_eq!(response.rejection(), (403, "bad_jwt".into()));
    assert_eq!(alive(&sessions).await, [true, true, true]);
}
