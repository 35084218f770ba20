//! Hooks that are PostgreSQL functions.

use portico_auth::settings::HookPoint;
use portico_testkit::{TestResponse, TestServer, claims_of};
use serde_json::json;

use crate::hook_server::function;

const ADA: &str = "ada@example.com";
const PASSWORD: &str = "correct horse";

async fn sign_in(t: &TestServer, password: &str) -> TestResponse {
    t.visitor(ADA).with_password(password).signs_in().await
}

/// Creates the hook `hook(event)` with a body in PL/pgSQL, as a migration of a project would.
async fn create(t: &TestServer, argument: &str, body: &str) {
    t.migrate(&format!(
        "create or replace function public.hook(event {argument}) returns {argument} language plpgsql as $hook$ {body} $hook$;
         grant usage on schema public to supabase_auth_admin;
         grant execute on function public.hook to supabase_auth_admin;
         revoke execute on function public.hook from authenticated, anon, public;"
    ))
    .await;
}

#[tokio::test]
async fn a_function_replaces_the_claims() {
    let t = TestServer::with_auth(|settings| function(settings, HookPoint::CustomAccessToken, "hook")).await;
    t.account(ADA, PASSWORD).await;
    let missing = sign_in(&t, PASSWORD).await;
    assert_eq!(missing.refusal(), (500, "unexpected_failure".into()));
    assert_eq!(missing.json()["msg"], "Error running hook URI: pg-functions://postgres/public/hook");

    create(&t, "jsonb", "begin return jsonb_set(event, '{claims,tenant}', '\"acme\"'); end").await;
    let session = sign_in(&t, PASSWORD).await.expect(200).json();
    let claims = claims_of(session["access_token"].as_str().unwrap());
    assert_eq!(claims["tenant"], "acme");

    // Replaced while connections are open, also by one with another type
    t.execute("drop function public.hook").await;
    create(&t, "json", "begin return jsonb_set(event::jsonb, '{claims,tenant}', '\"other\"')::json; end").await;
    let refreshed = t.refresh(&session).await.expect(200).json();
    assert_eq!(claims_of(refreshed["access_token"].as_str().unwrap())["tenant"], "other");

    for (body, status, message) in [
        ("begin return null; end", 500, "output claims field is missing"),
        ("begin return '{\"error\": {\"http_code\": 403, \"message\": \"Suspended\"}}'; end", 403, "Suspended"),
        ("begin return to_json(repeat('x', 300000)); end", 422, "Payload size exceeded size limit of 204800 bytes"),
        ("begin return '5'; end", 500, "Error unmarshaling JSON output."),
    ] {
        create(&t, "json", body).await;
        let rejected = sign_in(&t, PASSWORD).await;
        assert_eq!((rejected.status, &rejected.json()["msg"]), (status, &json!(message)));
    }
    assert_eq!(t.count("select count(*) from auth.sessions").await, 1);
}

#[tokio::test]
async fn a_function_that_raises_or_is_slow_fails_the_operation_only() {
    let t = TestServer::with_auth(|settings| function(settings, HookPoint::CustomAccessToken, "hook")).await;
    t.account(ADA, PASSWORD).await;
    let message = "Error running hook URI: pg-functions://postgres/public/hook";
    create(&t, "jsonb", "begin raise exception 'not today' using hint = 'tomorrow'; end").await;
    let old = sign_in(&t, PASSWORD).await;
    assert_eq!((old.status, &old.json()["code"]), (500, &json!("P0001")));
    assert_eq!((&old.json()["message"], &old.json()["hint"]), (&json!("not today"), &json!("tomorrow")));
    let body = json!({"email": ADA, "password": PASSWORD});
    let request = t.post("/auth/v1/token?grant_type=password").header("x-supabase-api-version", "2024-01-01");
    let new = request.json(&body).send().await;
    assert_eq!(new.json(), json!({"code": "unexpected_failure", "message": message}));

    create(&t, "jsonb", "begin perform pg_sleep(60); return event; end").await;
    let slow = sign_in(&t, PASSWORD).await;
    assert_eq!((slow.status, &slow.json()["msg"]), (500, &json!(message)));

    // Connections have their usual time limit again
    create(&t, "jsonb", "begin return event; end").await;
    sign_in(&t, PASSWORD).await.expect(200);
    let limit: String = t
        .database()
        .pool(portico_auth::ROLE_PROFILE)
        .client()
        .await
        .unwrap()
        .query_one("show statement_timeout", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(limit, "30s");
}

#[tokio::test]
async fn a_function_sends_mails_in_the_transaction() {
    let t = TestServer::with_auth(|settings| function(settings, HookPoint::SendEmail, "hook")).await;
    t.execute("create table public.jobs (input jsonb); grant all on public.jobs to supabase_auth_admin").await;
    create(&t, "jsonb", "begin insert into public.jobs values (event); return '{}'; end").await;
    let body = json!({"email": ADA, "password": PASSWORD});
    t.post("/auth/v1/signup").json(&body).send().await.expect(200);
    let rows = t.query("select input #>> '{email_data,token}' from public.jobs").await;
    let verify = json!({"type": "email", "email": ADA, "token": rows[0].get::<_, String>(0)});
    t.post("/auth/v1/verify").json(&verify).send().await.expect(200);

    // The job and the account are committed together, or not at all
    create(&t, "jsonb", "begin insert into public.jobs values (event); raise exception 'full'; end").await;
    let other = json!({"email": "eve@example.com", "password": PASSWORD});
    t.post("/auth/v1/signup").json(&other).send().await.expect(500);
    assert_eq!(t.count("select count(*) from public.jobs").await, 1);
    assert_eq!(t.count("select count(*) from auth.users").await, 1);
    assert!(t.mails().is_empty());
}

#[tokio::test]
async fn a_function_counts_attempts_at_a_password_and_the_count_stays() {
    let t = TestServer::with_auth(|settings| function(settings, HookPoint::PasswordVerificationAttempt, "hook")).await;
    t.account(ADA, PASSWORD).await;
    t.execute("create table public.failed (id uuid); grant all on public.failed to supabase_auth_admin").await;
    create(
        &t,
        "jsonb",
        "begin
           if (event ->> 'valid')::boolean then return '{\"decision\": \"continue\"}'; end if;
           insert into public.failed values ((event ->> 'user_id')::uuid);
           if (select count(*) from public.failed) < 3 then return '{\"decision\": \"continue\"}'; end if;
           return '{\"decision\": \"reject\", \"message\": \"Wait an hour\"}';
         end",
    )
    .await;
    for expected in ["Invalid login credentials", "Invalid login credentials", "Wait an hour"] {
        let rejected = sign_in(&t, "wrong").await;
        assert_eq!((rejected.status, &rejected.json()["msg"]), (400, &json!(expected)));
    }
    assert_eq!(t.count("select count(*) from public.failed").await, 3);
    sign_in(&t, PASSWORD).await.expect(200);
}
