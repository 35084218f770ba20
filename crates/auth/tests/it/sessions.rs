//! How long sessions live, and a person's own list of them.

use std::time::Duration as StdDuration;

use portico_testkit::{TestServer, claims_of};
use serde_json::{Value, json};
use time::Duration;

const PASSWORD: &str = "correct horse";

async fn refresh(server: &TestServer, session: &Value) -> portico_testkit::Answer {
    let body = json!({"refresh_token": session["refresh_token"]});
    server.post("/auth/v1/token?grant_type=refresh_token").json(&body).send().await
}

fn access(session: &Value) -> &str {
    session["access_token"].as_str().unwrap()
}

fn id_of(session: &Value) -> String {
    claims_of(access(session))["session_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_time_box_ends_a_session_however_busy_it_is() {
    let server = TestServer::with_auth(|auth| auth.sessions.timebox = Some(StdDuration::from_secs(7200))).await;
    let mut session = server.signed_in("ada@example.com", PASSWORD).await;
    for _ in 0..2 {
        server.clock().advance(Duration::minutes(59));
        session = refresh(&server, &session).await.expect(200).json();
    }
    server.clock().advance(Duration::minutes(3));
    let answer = refresh(&server, &session).await;
    assert_eq!(answer.refusal(), (400, "session_expired".into()));
    assert_eq!(answer.json()["msg"], "Invalid Refresh Token: Session Expired");
}

#[tokio::test]
async fn an_unused_session_ends() {
    let server =
        TestServer::with_auth(|auth| auth.sessions.inactivity_timeout = Some(StdDuration::from_secs(3600))).await;
    let session = server.signed_in("ada@example.com", PASSWORD).await;
    server.clock().advance(Duration::minutes(59));
    let session = refresh(&server, &session).await.expect(200).json();
    server.clock().advance(Duration::minutes(59));
    let session = refresh(&server, &session).await.expect(200).json();
    server.clock().advance(Duration::minutes(61));
    assert_eq!(refresh(&server, &session).await.json()["msg"], "Invalid Refresh Token: Session Expired (Inactivity)");
}

#[tokio::test]
async fn someone_with_a_second_factor_has_to_use_it_soon() {
    let server = TestServer::with_auth(|auth| auth.sessions.allow_low_aal = Some(StdDuration::from_secs(600))).await;
    let id = server.account("ada@example.com", PASSWORD).await;
    server
        .execute(&format!(
            "insert into auth.mfa_factors (id, user_id, factor_type, status, created_at, updated_at)
             values (gen_random_uuid(), '{id}', 'totp', 'verified', now(), now())"
        ))
        .await;
    let session = server.sign_in("ada@example.com", PASSWORD).await;
    assert_eq!(session["expires_in"], 600, "the access token does not outlive it");
    assert_eq!(session["user"]["factors"].as_array().unwrap().len(), 1);
    server.clock().advance(Duration::minutes(5));
    let session = refresh(&server, &session).await.expect(200).json();
    assert_eq!(session["expires_in"], 300);
    server.clock().advance(Duration::minutes(6));
    assert_eq!(
        refresh(&server, &session).await.json()["msg"],
        "Invalid Refresh Token: Session Expired (Low AAL: User Needs MFA Verification)"
    );
}

#[tokio::test]
async fn with_one_session_per_person_the_newest_goes_on() {
    let server = TestServer::with_auth(|auth| auth.sessions.single_per_user = true).await;
    let first = server.signed_in("ada@example.com", PASSWORD).await;
    let other = server.signed_in("eve@example.com", PASSWORD).await;
    server.clock().advance(Duration::seconds(5));
    let second = server.sign_in("ada@example.com", PASSWORD).await;
    assert_eq!(
        refresh(&server, &first).await.json()["msg"],
        "Invalid Refresh Token: Session Expired (Revoked by Newer Login)"
    );
    refresh(&server, &second).await.expect(200);
    refresh(&server, &other).await.expect(200);
}

#[tokio::test]
async fn a_person_sees_and_ends_their_own_sessions() {
    let server = TestServer::start().await;
    let first = server.signed_in("ada@example.com", PASSWORD).await;
    server.clock().advance(Duration::seconds(5));
    let second = server.sign_in("ada@example.com", PASSWORD).await;
    let eve = server.signed_in("eve@example.com", PASSWORD).await;

    let list = server.get("/auth/v1/sessions").bearer(access(&first)).send().await.expect(200).json();

    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 2);
    assert_eq!(list[0]["id"], id_of(&second), "last used first");
    assert_eq!((&list[0]["current"], &list[1]["current"]), (&json!(false), &json!(true)));
    assert_eq!(list[1]["aal"], "aal1");
    assert_eq!(list[1]["amr"][0]["method"], "password");
    let names: Vec<&String> = list[0].as_object().unwrap().keys().collect();
    assert_eq!(names, ["id", "created_at", "refreshed_at", "not_after", "aal", "amr", "user_agent", "ip", "current"]);

    let delete = async |id: &str| server.delete(&format!("/auth/v1/sessions/{id}")).bearer(access(&first)).send().await;
    assert_eq!(delete(&id_of(&eve)).await.refusal(), (404, "session_not_found".into()));
    assert_eq!(delete("nonsense").await.refusal(), (404, "session_not_found".into()));
    delete(&id_of(&second)).await.expect(204);
    assert_eq!(delete(&id_of(&second)).await.refusal(), (404, "session_not_found".into()));
    let user = server.get("/auth/v1/user").bearer(access(&second)).send().await;
    assert_eq!(user.refusal(), (403, "session_not_found".into()));
    server.get("/auth/v1/user").bearer(access(&eve)).send().await.expect(200);
    assert_eq!(server.get("/auth/v1/sessions").send().await.refusal(), (401, "no_authorization".into()));
}

#[tokio::test]
async fn what_is_over_is_cleaned_up_and_nothing_else() {
    let server = TestServer::with_auth(|auth| auth.sessions.timebox = Some(StdDuration::from_secs(3600))).await;
    let session = server.signed_in("ada@example.com", PASSWORD).await;
    let session = refresh(&server, &session).await.expect(200).json();
    server.get("/auth/v1/authorize?provider=google").send().await.expect(302);
    server.clean_up().await;
    assert_eq!(server.count("select count(*) from auth.refresh_tokens").await, 2);
    assert_eq!(server.count("select count(*) from auth.flow_state").await, 1);
    server.get("/auth/v1/user").bearer(access(&session)).send().await.expect(200);

    server.clock().advance(Duration::hours(26));
    server.clean_up().await;
    assert_eq!(server.count("select count(*) from auth.sessions").await, 0);
    assert_eq!(server.count("select count(*) from auth.refresh_tokens").await, 0);
    assert_eq!(server.count("select count(*) from auth.flow_state").await, 0);
    assert_eq!(server.count("select count(*) from auth.oauth_client_states").await, 0);
    assert_eq!(server.count("select count(*) from auth.users").await, 1);
}

#[tokio::test]
async fn the_parent_of_the_current_token_outlives_the_clean_up() {
    let server = TestServer::start().await;
    let first = server.signed_in("ada@example.com", PASSWORD).await;
    let second = refresh(&server, &first).await.expect(200).json();
    let third = refresh(&server, &second).await.expect(200).json();
    server.clock().advance(Duration::hours(60));
    server.clean_up().await;
    assert_eq!(refresh(&server, &first).await.refusal(), (400, "refresh_token_not_found".into()));
    let repeated = refresh(&server, &second).await.expect(200).json();
    assert_eq!(repeated["refresh_token"], third["refresh_token"]);
}
