//! The life of sessions, and the list of a person's own sessions.

use std::time::Duration as StdDuration;

use portico_testkit::{Member, TestServer};
use serde_json::{Value, json};
use time::Duration;

const ADA: &str = "ada@example.com";
const PASSWORD: &str = "correct horse";

#[tokio::test]
async fn a_time_box_ends_a_session_in_use() {
    let server = TestServer::with_auth(|auth| auth.sessions.timebox = Some(StdDuration::from_secs(7200))).await;
    let mut ada = server.member(ADA).await;
    for _ in 0..2 {
        server.clock().advance(Duration::minutes(59));
        ada.refreshes().await.expect(200);
    }
    server.clock().advance(Duration::minutes(3));
    let response = ada.refreshes().await;
    assert_eq!(response.rejection(), (400, "session_expired".into()));
    assert_eq!(response.json()["msg"], "Invalid Refresh Token: Session Expired");
}

#[tokio::test]
async fn an_unused_session_ends() {
    let server =
        TestServer::with_auth(|auth| auth.sessions.inactivity_timeout = Some(StdDuration::from_secs(3600))).await;
    let mut ada = server.member(ADA).await;
    server.clock().advance(Duration::minutes(59));
    ada.refreshes().await.expect(200);
    server.clock().advance(Duration::minutes(59));
    ada.refreshes().await.expect(200);
    server.clock().advance(Duration::minutes(61));
    assert_eq!(ada.refreshes().await.json()["msg"], "Invalid Refresh Token: Session Expired (Inactivity)");
}

#[tokio::test]
async fn a_session_without_the_second_factor_of_its_user_ends_early() {
    let server = TestServer::with_auth(|auth| auth.sessions.allow_low_aal = Some(StdDuration::from_secs(600))).await;
    let id = server.account(ADA, PASSWORD).await;
    server
        .execute(&format!(
            "insert into auth.mfa_factors (id, user_id, factor_type, status, created_at, updated_at)
             values (gen_random_uuid(), '{id}', 'totp', 'verified', now(), now())"
        ))
        .await;
    let session = server.sign_in(ADA, PASSWORD).await;
    assert_eq!(session["expires_in"], 600, "the access token does not outlive it");
    assert_eq!(session["user"]["factors"].as_array().unwrap().len(), 1);
    server.clock().advance(Duration::minutes(5));
    let session = server.refresh(&session).await.expect(200).json();
    assert_eq!(session["expires_in"], 300);
    server.clock().advance(Duration::minutes(6));
    assert_eq!(
        server.refresh(&session).await.json()["msg"],
        "Invalid Refresh Token: Session Expired (Low AAL: User Needs MFA Verification)"
    );
}

#[tokio::test]
async fn with_one_session_per_person_the_newest_continues() {
    let server = TestServer::with_auth(|auth| auth.sessions.single_per_user = true).await;
    let mut first = server.member(ADA).await;
    let mut eve = server.member("eve@example.com").await;
    server.clock().advance(Duration::seconds(5));
    let mut second = first.on_another_device().await;
    assert_eq!(
        first.refreshes().await.json()["msg"],
        "Invalid Refresh Token: Session Expired (Revoked by Newer Login)"
    );
    second.refreshes().await.expect(200);
    eve.refreshes().await.expect(200);
}

#[tokio::test]
async fn a_person_sees_and_ends_their_own_sessions() {
    let server = TestServer::start().await;
    let first = server.member(ADA).await;
    server.clock().advance(Duration::seconds(5));
    let second = first.on_another_device().await;
    let eve = server.member("eve@example.com").await;

    let list = first.sends(server.get("/auth/v1/sessions")).send().await.expect(200).json();

    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 2);
    assert_eq!(list[0]["id"], second.session_id(), "last used first");
    assert_eq!((&list[0]["current"], &list[1]["current"]), (&json!(false), &json!(true)));
    assert_eq!(list[1]["aal"], "aal1");
    assert_eq!(list[1]["amr"][0]["method"], "password");
    let names: Vec<&String> = list[0].as_object().unwrap().keys().collect();
    assert_eq!(names, ["id", "created_at", "refreshed_at", "not_after", "aal", "amr", "user_agent", "ip", "current"]);

    let delete = async |id: &str| first.sends(server.delete(&format!("/auth/v1/sessions/{id}"))).send().await;
    assert_eq!(delete(&eve.session_id()).await.rejection(), (404, "session_not_found".into()));
    assert_eq!(delete("nonsense").await.rejection(), (404, "session_not_found".into()));
    delete(&second.session_id()).await.expect(204);
    assert_eq!(delete(&second.session_id()).await.rejection(), (404, "session_not_found".into()));
    assert_eq!(second.reads_account().await.rejection(), (403, "session_not_found".into()));
    eve.reads_account().await.expect(200);
    assert_eq!(server.get("/auth/v1/sessions").send().await.rejection(), (401, "no_authorization".into()));
}

#[tokio::test]
async fn the_clean_up_deletes_expired_rows_only() {
    let server = TestServer::with_auth(|auth| auth.sessions.timebox = Some(StdDuration::from_secs(3600))).await;
    let mut ada = server.member(ADA).await;
    ada.refreshes().await.expect(200);
    server.get("/auth/v1/authorize?provider=google").send().await.expect(302);
    server.clean_up().await;
    assert_eq!(server.count("select count(*) from auth.refresh_tokens").await, 2);
    assert_eq!(server.count("select count(*) from auth.flow_state").await, 1);
    ada.reads_account().await.expect(200);

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
    let mut ada = server.member(ADA).await;
    let first = ada.refresh_token().to_owned();
    ada.refreshes().await.expect(200);
    let second = ada.refresh_token().to_owned();
    ada.refreshes().await.expect(200);
    server.clock().advance(Duration::hours(60));
    server.clean_up().await;
    assert_eq!(ada.refreshes_with(&first).await.rejection(), (400, "refresh_token_not_found".into()));
    let repeated = ada.refreshes_with(&second).await.expect(200).json();
    assert_eq!(repeated["refresh_token"], ada.refresh_token());
}

#[tokio::test]
async fn an_imported_session_that_was_used_is_not_cleaned_up() {
    let server =
        TestServer::with_auth(|auth| auth.sessions.inactivity_timeout = Some(StdDuration::from_secs(3600))).await;
    let mut ada = server.member(ADA).await;
    // As in an old dump: used a moment ago, which the row of the session does not show
    server.execute("update auth.sessions set created_at = now() - interval '9 days', refreshed_at = null").await;
    server.clean_up().await;
    ada.refreshes().await.expect(200);
    server.clock().advance(Duration::days(3));
    server.clean_up().await;
    assert_eq!(server.count("select count(*) from auth.sessions").await, 0);
}

#[tokio::test]
async fn the_clean_up_skips_locked_rows_and_delays_no_request() {
    let server = TestServer::with_auth(|auth| {
        auth.anonymous_users = true;
        auth.sessions.timebox = Some(StdDuration::from_secs(3600));
    })
    .await;
    let over = server.member(ADA).await;
    let in_use = over.on_another_device().await;
    let anonymous = server.post("/auth/v1/signup").json(&json!({})).send().await.expect(200).json();
    server
        .execute(
            "insert into auth.mfa_factors (id, user_id, factor_type, status, created_at, updated_at)
             select gen_random_uuid(), id, 'totp', status::auth.factor_status, '2000-01-01', '2000-01-01'
               from auth.users, unnest(array['verified', 'unverified']) as status where email = 'ada@example.com';
             insert into auth.mfa_challenges (id, factor_id, created_at, ip_address)
             select gen_random_uuid(), id, '2000-01-01', '127.0.0.1' from auth.mfa_factors where status = 'verified';
             insert into auth.webauthn_challenges (challenge_type, session_data, expires_at) values ('signup', '{}', '2000-01-01');",
        )
        .await;
    server.clock().advance(Duration::days(31));
    let other = portico_database::scratch::connect(server.endpoint()).await.unwrap();

    // A row of each kind is locked: the clean-up skips it, and deletes the others
    let (kept, user) = (in_use.session_id(), anonymous["user"]["id"].as_str().unwrap());
    let locks = format!(
        "begin; select 1 from auth.sessions where id = '{kept}' for update; select 1 from auth.users where id = '{user}' for no key update"
    );
    other.batch_execute(&locks).await.unwrap();
    server.clean_up().await;
    let left = "select id::text from auth.sessions order by created_at";
    let left: Vec<String> = server.query(left).await.iter().map(|row| row.get(0)).collect();
    assert!(left.contains(&kept) && !left.contains(&over.session_id()), "{left:?}");
    assert_eq!(server.count("select count(*) from auth.users where is_anonymous").await, 1);
    assert_eq!(server.count("select count(*) from auth.mfa_factors").await, 1);
    assert_eq!(server.count("select count(*) from auth.mfa_challenges").await, 0);
    assert_eq!(server.count("select count(*) from auth.webauthn_challenges").await, 0);
    other.batch_execute("rollback").await.unwrap();

    // A row that a deletion would cascade to is locked: the clean-up keeps the user
    let session =
        "insert into auth.sessions (id, user_id, created_at) values (gen_random_uuid(), $1::text::uuid, '2000-01-01')";
    server.query_with(session, &[&user]).await;
    let lock = format!("begin; select 1 from auth.sessions where user_id = '{user}' for update");
    other.batch_execute(&lock).await.unwrap();
    server.clean_up().await;
    assert_eq!(server.count("select count(*) from auth.users where is_anonymous").await, 1);
    other.batch_execute("rollback").await.unwrap();
    server.clean_up().await;
    assert_eq!(server.count("select count(*) from auth.users where is_anonymous").await, 0);
    assert_eq!(server.count("select count(*) from auth.sessions").await, 0);
}

#[tokio::test]
async fn a_sign_in_succeeds_while_the_clean_up_is_blocked() {
    let server = TestServer::with_auth(|auth| auth.sessions.timebox = Some(StdDuration::from_secs(3600))).await;
    let ada = server.member(ADA).await;
    server.clock().advance(Duration::days(2));
    // A trigger that waits for a lock blocks the clean-up after it has locked and deleted its rows
    server
        .execute(
            "create function public.stop() returns trigger language plpgsql as $$
             begin
               set local lock_timeout = 0;
               perform pg_advisory_xact_lock(42);
               return old;
             end $$;
             create trigger stop after delete on auth.sessions for each row execute function public.stop()",
        )
        .await;
    let other = portico_database::scratch::connect(server.endpoint()).await.unwrap();
    other.batch_execute("begin; select pg_advisory_xact_lock(42)").await.unwrap();
    let cleaning = server.clean_up();
    let people = async {
        let stopped = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
        while server.count(stopped).await == 0 {
            tokio::task::yield_now().await;
        }
        // The same person, whose old session is being deleted, and a new person
        let mut ada = ada.on_another_device().await;
        ada.refreshes().await.expect(200);
        ada.sends(server.get("/auth/v1/sessions")).send().await.expect(200);
        server.member("eve@example.com").await;
        other.batch_execute("commit").await.unwrap();
    };
    tokio::join!(cleaning, people);
    assert_eq!(server.count("select count(*) from auth.sessions").await, 2);
}

#[tokio::test]
async fn an_imported_session_counts_as_used_at_the_time_of_its_token() {
    let server = TestServer::with_auth(|auth| {
        auth.sessions.inactivity_timeout = Some(StdDuration::from_secs(3600));
        auth.sessions.single_per_user = true;
    })
    .await;
    let mut imported = server.member(ADA).await;
    let mut here = imported.on_another_device().await;
    // As in an old dump: used a minute after the other one began, which its row does not show
    server
        .execute(&format!(
            "update auth.sessions set created_at = now() - interval '9 days', refreshed_at = null where id = '{id}';
             update auth.refresh_tokens set updated_at = now() + interval '1 minute' where session_id = '{id}'",
            id = imported.session_id()
        ))
        .await;
    server.clock().advance(Duration::minutes(2));
    let list = async |member: &Member<'_>| -> Vec<String> {
        let list = member.sends(server.get("/auth/v1/sessions")).send().await.expect(200).json();
        list.as_array().unwrap().iter().map(|shown| shown["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(list(&here).await, [imported.session_id(), here.session_id()]);
    assert_eq!(here.refreshes().await.json()["msg"], "Invalid Refresh Token: Session Expired (Revoked by Newer Login)");
    imported.refreshes().await.expect(200);
}

#[tokio::test]
async fn anonymous_accounts_are_deleted_after_a_period_without_use() {
    for version in [1, 2] {
        let server = TestServer::with_auth(|auth| {
            auth.anonymous_users = true;
            auth.refresh.algorithm_version = version;
        })
        .await;
        let sign_up = async || server.post("/auth/v1/signup").json(&json!({})).send().await.expect(200).json();
        let mut refreshed = sign_up().await;
        let gone = sign_up().await;
        let left = async || -> Vec<String> {
            let rows = server.query("select id::text from auth.users order by created_at, id").await;
            rows.iter().map(|row| row.get(0)).collect()
        };
        let id = |session: &Value| session["user"]["id"].as_str().unwrap().to_owned();
        // Older than the period, and in use all the time
        for _ in 0..3 {
            server.clock().advance(Duration::days(20));
            refreshed = server.refresh(&refreshed).await.expect(200).json();
            server.clean_up().await;
        }
        assert_eq!(left().await, [id(&refreshed)], "version {version}");
        assert_ne!(id(&gone), id(&refreshed));

        // A sign-in counts as well, although its session has ended
        server.execute("delete from auth.sessions").await;
        server.query_with("update auth.users set last_sign_in_at = $1", &[&server.clock().now()]).await;
        server.clock().advance(Duration::days(29));
        server.clean_up().await;
        assert_eq!(left().await, [id(&refreshed)]);
        server.clock().advance(Duration::days(2));
        server.clean_up().await;
        assert_eq!(left().await, Vec::<String>::new());
    }
}
