//! `grant_type=refresh_token`, in both forms of tokens.

use std::collections::HashSet;
use std::time::Duration as StdDuration;

use futures_util::future::join_all;
use portico_testkit::{TestServer, claims_of};
use serde_json::Value;
use time::Duration;

const PASSWORD: &str = "correct horse";

/// Returns the refresh token of a new member.
async fn ada(server: &TestServer) -> String {
    server.member("ada@example.com").await.refresh_token().to_owned()
}

fn token_of(body: &Value) -> String {
    body["refresh_token"].as_str().unwrap().to_owned()
}

async fn counted() -> TestServer {
    TestServer::with_auth(|auth| auth.refresh.algorithm_version = 2).await
}

#[tokio::test]
async fn a_refresh_continues_the_same_session() {
    let server = TestServer::start().await;
    let mut ada = server.member("ada@example.com").await;
    let first = ada.session().clone();
    server.clock().advance(Duration::minutes(50));

    let response = ada.refreshes().await.expect(200);

    let second = response.json();
    assert_ne!(token_of(&first), token_of(&second));
    assert_eq!(response.header("sb-auth-refresh-token-reuse"), Some("false"));
    let (before, after) =
        (claims_of(first["access_token"].as_str().unwrap()), claims_of(second["access_token"].as_str().unwrap()));
    assert_eq!(before["session_id"], after["session_id"]);
    assert_eq!(before["amr"], after["amr"]);
    assert_eq!(after["iat"], server.clock().now().unix_timestamp());
    assert_eq!(second["user"]["identities"].as_array().unwrap().len(), 1);
    assert!(second.get("weak_password").is_none());
    let row = &server
        .query("select refreshed_at is not null, user_agent is not null or true, ip is not null from auth.sessions")
        .await[0];
    assert!(row.get::<_, bool>(0) && row.get::<_, bool>(2));
    let actions = server.actions().await;
    assert!(actions.contains(&"token_refreshed".to_owned()) && actions.contains(&"token_revoked".to_owned()));
}

#[tokio::test]
async fn a_parent_presented_again_gets_the_current_token_at_any_time() {
    for version in [1, 2] {
        let server = TestServer::with_auth(|auth| auth.refresh.algorithm_version = version).await;
        let first = ada(&server).await;
        let second = token_of(&server.refresh_with(&first).await.expect(200).json());
        server.clock().advance(Duration::hours(5));
        let again = token_of(&server.refresh_with(&first).await.expect(200).json());
        assert_eq!(second, again);
        server.refresh_with(&second).await.expect(200);
    }
}

#[tokio::test]
async fn fifty_tabs_that_refresh_at_once_share_one_family() {
    for version in [1, 2] {
        let server = TestServer::with_auth(|auth| auth.refresh.algorithm_version = version).await;
        let first = ada(&server).await;
        let responses = join_all((0..50).map(|_| server.refresh_with(&first))).await;
        let tokens: HashSet<String> =
            responses.into_iter().map(|response| token_of(&response.expect(200).json())).collect();
        assert_eq!(tokens.len(), 1, "all tabs hold the same token");
        let next = tokens.into_iter().next().unwrap();
        let responses = join_all((0..20).map(|_| server.refresh_with(&next))).await;
        let tokens: HashSet<String> =
            responses.into_iter().map(|response| token_of(&response.expect(200).json())).collect();
        assert_eq!(tokens.len(), 1);
        assert_eq!(server.count("select count(*) from auth.sessions").await, 1);
    }
}

#[tokio::test]
async fn a_stolen_old_token_ends_the_family_of_stored_tokens() {
    let server = TestServer::start().await;
    let ada = server.member("ada@example.com").await;
    let first = ada.refresh_token().to_owned();
    let second = token_of(&server.refresh_with(&first).await.expect(200).json());
    let third = token_of(&server.refresh_with(&second).await.expect(200).json());
    server.clock().advance(Duration::seconds(11));

    assert_eq!(server.refresh_with(&first).await.rejection(), (400, "refresh_token_already_used".into()));

    // The holder of the current token is signed out, too
    assert_eq!(server.refresh_with(&third).await.rejection(), (400, "refresh_token_already_used".into()));
    assert_eq!(server.count("select count(*) from auth.refresh_tokens where not revoked").await, 0);
    // The session row stays, and its access tokens are valid until they expire
    ada.reads_account().await.expect(200);
}

#[tokio::test]
async fn a_stolen_old_token_ends_the_session_of_counted_tokens() {
    let server = counted().await;
    let first = ada(&server).await;
    let second = token_of(&server.refresh_with(&first).await.expect(200).json());
    let third = token_of(&server.refresh_with(&second).await.expect(200).json());
    server.clock().advance(Duration::seconds(11));

    let refused = server.refresh_with(&first).await;
    assert_eq!(refused.rejection(), (400, "refresh_token_already_used".into()));
    assert_eq!(refused.header("sb-auth-refresh-token-rotated"), Some("true"));
    assert_eq!(server.refresh_with(&third).await.rejection(), (400, "refresh_token_not_found".into()));
    assert_eq!(server.count("select count(*) from auth.sessions").await, 0);
}

#[tokio::test]
async fn an_old_token_is_accepted_within_the_reuse_interval() {
    for version in [1, 2] {
        let server = TestServer::with_auth(|auth| auth.refresh.algorithm_version = version).await;
        let first = ada(&server).await;
        let second = token_of(&server.refresh_with(&first).await.expect(200).json());
        let third = token_of(&server.refresh_with(&second).await.expect(200).json());
        server.clock().advance(Duration::seconds(9));
        let response = server.refresh_with(&first).await.expect(200);
        if version == 2 {
            assert_eq!(response.header("sb-auth-refresh-token-reuse-cause"), Some("concurrent-refresh"));
            assert_eq!(token_of(&response.json()), third);
        }
        server.refresh_with(&token_of(&response.json())).await.expect(200);
        server.clock().advance(Duration::hours(1));
        assert_eq!(server.refresh_with(&first).await.rejection().1, "refresh_token_already_used");
    }
}

#[tokio::test]
async fn without_rotation_reuse_is_rejected_and_the_family_continues() {
    for version in [1, 2] {
        let server = TestServer::with_auth(|auth| {
            auth.refresh.algorithm_version = version;
            auth.refresh.rotation = false;
            auth.refresh.reuse_interval = StdDuration::ZERO;
        })
        .await;
        let first = ada(&server).await;
        server.clock().advance(Duration::seconds(1));
        let second = token_of(&server.refresh_with(&first).await.expect(200).json());
        server.clock().advance(Duration::seconds(1));
        let third = token_of(&server.refresh_with(&second).await.expect(200).json());
        server.clock().advance(Duration::seconds(1));
        assert_eq!(server.refresh_with(&first).await.rejection(), (400, "refresh_token_already_used".into()));
        server.refresh_with(&third).await.expect(200);
    }
}

#[tokio::test]
async fn malformed_and_unknown_tokens_are_rejected() {
    let server = counted().await;
    let good = ada(&server).await;
    let mut changed = good.clone().into_bytes();
    changed[30] = if changed[30] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    for (token, code) in [
        ("", "validation_failed"),
        ("short", "validation_failed"),
        ("UPPERCASE123", "validation_failed"),
        ("aaaaaaaaaaaaaaaaaaaaaa", "validation_failed"),
        (changed.as_str(), "validation_failed"),
        ("abcdefghijkl", "refresh_token_not_found"),
    ] {
        assert_eq!(server.refresh_with(token).await.rejection(), (400, code.to_owned()), "{token}");
    }
    // A token that another session signed
    let key: String = server.query("select refresh_token_hmac_key from auth.sessions").await[0].get(0);
    server.signed_in("eve@example.com", PASSWORD).await;
    server
        .execute(&format!(
            "update auth.sessions set refresh_token_hmac_key = 'AAAA{}' where refresh_token_hmac_key = '{key}'",
            &key[4..]
        ))
        .await;
    assert_eq!(server.refresh_with(&good).await.rejection(), (400, "refresh_token_not_found".into()));
    assert!(server.query("select 1 from auth.sessions where refreshed_at is not null").await.is_empty());
}

#[tokio::test]
async fn a_counted_token_of_the_future_is_rejected() {
    let server = counted().await;
    let first = ada(&server).await;
    let second = token_of(&server.refresh_with(&first).await.expect(200).json());
    server.execute("update auth.sessions set refresh_token_counter = 0").await;
    let response = server.refresh_with(&second).await;
    assert_eq!(response.rejection(), (400, "validation_failed".into()));
    assert_eq!(response.json()["msg"], "Invalid Refresh Token: Not Issued By This Server");
}

#[tokio::test]
async fn sessions_of_stored_tokens_move_to_counted_ones() {
    let server = TestServer::start().await;
    let first = ada(&server).await;
    drop(first);
    let server = TestServer::with_auth(|auth| {
        auth.refresh.algorithm_version = 2;
        auth.refresh.upgrade_percentage = 100;
    })
    .await;
    let id = server.account("ada@example.com", PASSWORD).await;
    server
        .execute(&format!(
            "insert into auth.sessions (id, user_id, created_at) values ('5d1c7c1e-9a0e-4a6f-8a6e-3b9d5a3c2b11', '{id}', now());
             insert into auth.refresh_tokens (token, user_id, revoked, created_at, updated_at, session_id)
             values ('abcdefghijkl', '{id}', false, now(), now(), '5d1c7c1e-9a0e-4a6f-8a6e-3b9d5a3c2b11')"
        ))
        .await;
    let upgraded = token_of(&server.refresh_with("abcdefghijkl").await.expect(200).json());
    assert!(upgraded.len() > 12);
    server.clock().advance(Duration::hours(1));
    assert_eq!(
        token_of(&server.refresh_with("abcdefghijkl").await.expect(200).json()),
        upgraded,
        "the answer was lost"
    );
    let next = token_of(&server.refresh_with(&upgraded).await.expect(200).json());
    server.refresh_with(&next).await.expect(200);
    server.clock().advance(Duration::hours(1));
    assert_eq!(server.refresh_with("abcdefghijkl").await.rejection().1, "refresh_token_already_used");
}

#[tokio::test]
async fn a_banned_person_and_an_ended_session_are_not_refreshed() {
    for version in [1, 2] {
        let server = TestServer::with_auth(|auth| auth.refresh.algorithm_version = version).await;
        let token = ada(&server).await;
        server.execute("update auth.users set banned_until = now() + interval '1 day'").await;
        assert_eq!(server.refresh_with(&token).await.rejection(), (400, "user_banned".into()));
        server.execute("update auth.users set banned_until = null; update auth.sessions set not_after = now() - interval '1 day'").await;
        assert_eq!(server.refresh_with(&token).await.rejection(), (400, "session_expired".into()));
        server.execute("update auth.sessions set not_after = null").await;
        server.refresh_with(&token).await.expect(200);
        server.execute("delete from auth.sessions").await;
        assert_eq!(server.refresh_with(&token).await.rejection(), (400, "refresh_token_not_found".into()));
    }
}

#[tokio::test]
async fn a_stored_token_without_a_session_is_deleted() {
    let server = TestServer::start().await;
    let id = server.account("ada@example.com", PASSWORD).await;
    server
        .execute(&format!(
            "insert into auth.refresh_tokens (token, user_id, revoked) values ('abcdefghijkl', '{id}', false)"
        ))
        .await;
    assert_eq!(server.refresh_with("abcdefghijkl").await.rejection(), (400, "session_not_found".into()));
    assert_eq!(server.refresh_with("abcdefghijkl").await.rejection(), (400, "refresh_token_not_found".into()));
}

#[tokio::test]
async fn a_session_of_another_application_needs_its_credentials() {
    let server = TestServer::start().await;
    let token = ada(&server).await;
    server
        .execute(
            "insert into auth.oauth_clients (id, registration_type, redirect_uris, grant_types, token_endpoint_auth_method)
             values ('0f6b3f6e-8f0c-4f6b-9a53-0b8f1d4f7a10', 'manual', 'https://x', 'authorization_code', 'none');
             update auth.sessions set oauth_client_id = '0f6b3f6e-8f0c-4f6b-9a53-0b8f1d4f7a10'",
        )
        .await;
    let response = server.refresh_with(&token).await.expect(400);
    assert_eq!(response.json()["error"], "invalid_client");
}

/// Returns a connection that keeps the rows of `sql` locked until it is released.
async fn holding(server: &TestServer, sql: &str) -> tokio_postgres::Client {
    let other = portico_database::scratch::connect(server.endpoint()).await.unwrap();
    other.batch_execute(&format!("begin; {sql}")).await.unwrap();
    other
}

#[tokio::test]
async fn a_refresh_of_a_locked_session_waits_without_a_connection() {
    for version in [1, 2] {
        let server = TestServer::with_auth(|auth| auth.refresh.algorithm_version = version).await;
        // More sessions than the service has connections
        let mut tokens = vec![ada(&server).await];
        for _ in 0..15 {
            tokens.push(token_of(&server.sign_in("ada@example.com", PASSWORD).await));
        }
        let other = holding(&server, "select 1 from auth.sessions for update").await;
        let letting_go = async {
            // Served while all the others wait
            server.account("eve@example.com", PASSWORD).await;
            other.batch_execute("commit").await.unwrap();
        };
        let (responses, ()) = tokio::join!(join_all(tokens.iter().map(|token| server.refresh_with(token))), letting_go);
        for response in responses {
            response.expect(200);
        }
    }
}

#[tokio::test]
async fn a_refresh_of_a_session_that_stays_locked_is_a_conflict() {
    for version in [1, 2] {
        let server = TestServer::with_auth(|auth| auth.refresh.algorithm_version = version).await;
        let token = ada(&server).await;
        let other = holding(&server, "select 1 from auth.sessions for update").await;
        // One in the queue of this process, one that asks the database
        for response in join_all([server.refresh_with(&token), server.refresh_with(&token)]).await {
            assert_eq!(response.rejection(), (409, "conflict".into()));
            assert_eq!(
                response.json()["msg"],
                "Too many concurrent token refresh requests on the same session or refresh token"
            );
        }
        other.batch_execute("rollback").await.unwrap();
        server.refresh_with(&token).await.expect(200);
    }
}
