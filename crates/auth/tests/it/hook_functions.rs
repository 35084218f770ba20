//! Hooks that are PostgreSQL functions.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use portico_auth::settings::HookPoint;
use portico_testkit::{TestResponse, TestServer};
use serde_json::{Value, json};

use crate::factors;
use crate::hook_server::function;

const ADA: &str = "ada@example.com";
const PASSWORD: &str = "correct horse";

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
    let missing = t.visitor(ADA).signs_in().await;
    assert_eq!(missing.rejection(), (500, "unexpected_failure".into()));
    assert_eq!(missing.json()["msg"], "Error running hook URI: pg-functions://postgres/public/hook");

    create(&t, "jsonb", "begin return jsonb_set(event, '{claims,tenant}', '\"acme\"'); end").await;
    let mut ada = t.visitor(ADA).signed_in().await;
    assert_eq!(ada.claims()["tenant"], "acme");

    // Replaced while connections are open, also by one with another type
    t.execute("drop function public.hook").await;
    create(&t, "json", "begin return jsonb_set(event::jsonb, '{claims,tenant}', '\"other\"')::json; end").await;
    ada.refreshes().await.expect(200);
    assert_eq!(ada.claims()["tenant"], "other");

    for (body, status, message) in [
        ("begin return null; end", 500, "output claims field is missing"),
        ("begin return '{\"error\": {\"http_code\": 403, \"message\": \"Suspended\"}}'; end", 403, "Suspended"),
        ("begin return to_json(repeat('x', 300000)); end", 422, "Payload size exceeded size limit of 204800 bytes"),
        ("begin return '5'; end", 500, "Error unmarshaling JSON output."),
    ] {
        create(&t, "json", body).await;
        let rejected = t.visitor(ADA).signs_in().await;
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
    let old = t.visitor(ADA).signs_in().await;
    assert_eq!((old.status, &old.json()["code"]), (500, &json!("P0001")));
    assert_eq!((&old.json()["message"], &old.json()["hint"]), (&json!("not today"), &json!("tomorrow")));
    let new = t.visitor(ADA).with_api_version().signs_in().await;
    assert_eq!(new.json(), json!({"code": "unexpected_failure", "message": message}));

    create(&t, "jsonb", "begin perform pg_sleep(60); return event; end").await;
    let slow = t.visitor(ADA).signs_in().await;
    assert_eq!((slow.status, &slow.json()["msg"]), (500, &json!(message)));

    // Connections have their usual time limit again
    create(&t, "jsonb", "begin return event; end").await;
    t.visitor(ADA).signs_in().await.expect(200);
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
    t.visitor(ADA).signs_up().await.expect(200);
    let rows = t.query("select input #>> '{email_data,token}' from public.jobs").await;
    t.visitor(ADA).verifies("email", rows[0].get(0)).await.expect(200);

    // The job and the account are committed together, or not at all
    create(&t, "jsonb", "begin insert into public.jobs values (event); raise exception 'full'; end").await;
    t.visitor("eve@example.com").signs_up().await.expect(500);
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
        let rejected = t.visitor(ADA).with_password("wrong").signs_in().await;
        assert_eq!((rejected.status, &rejected.json()["msg"]), (400, &json!(expected)));
    }
    assert_eq!(t.count("select count(*) from public.failed").await, 3);
    t.visitor(ADA).signs_in().await.expect(200);
}

fn email_of(person: usize) -> String {
    format!("person{person}@example.com")
}

fn phone_of(person: usize) -> String {
    format!("1555000100{person}")
}

fn signs_up(t: &TestServer, person: usize) -> BoxFuture<'_, TestResponse> {
    async move { t.visitor(&email_of(person)).signs_up().await }.boxed()
}

fn requests_text(t: &TestServer, person: usize) -> BoxFuture<'_, TestResponse> {
    async move { t.visitor_with_phone(&phone_of(person)).requests_code().await }.boxed()
}

fn proves_factor(t: &TestServer, person: usize) -> BoxFuture<'_, TestResponse> {
    async move {
        let member = t.member(&email_of(person)).await;
        let factor = factors::enroll_totp(&member, "phone app").await;
        factors::prove(&member, &factor).await
    }
    .boxed()
}

/// A point, and what its function and the requests that call it see.
struct FunctionCase {
    point: HookPoint,
    /// Sends a request of a new person.
    request: for<'a> fn(&'a TestServer, usize) -> BoxFuture<'a, TestResponse>,
    /// Returns true if the input is that of the request, from the input and the response.
    fits: fn(&Value, &Value) -> bool,
    /// The output that rejects the request, with the status and the text of its response.
    rejection: (Value, u16, &'static str),
    /// The accounts after an accepted request, a rejected one, and one whose function raises.
    accounts: [i64; 3],
}

fn function_cases() -> [FunctionCase; 4] {
    let error = |status: u16, text: &str| json!({"error": {"http_code": status, "message": text}});
    [
        FunctionCase {
            point: HookPoint::SendSms,
            request: requests_text,
            fits: |input, _| input["user"]["phone"] == phone_of(0) && input["sms"]["phone"] == phone_of(0),
            rejection: (error(402, "No credit"), 402, "No credit"),
            accounts: [1, 1, 1],
        },
        FunctionCase {
            point: HookPoint::MfaVerificationAttempt,
            request: proves_factor,
            fits: |input, session| {
                input["user_id"] == session["user"]["id"]
                    && input["factor_id"] == session["user"]["factors"][0]["id"]
                    && (&input["factor_type"], &input["valid"]) == (&json!("totp"), &json!(true))
            },
            rejection: (json!({"decision": "reject", "message": "Not now"}), 403, "Not now"),
            accounts: [1, 2, 3],
        },
        FunctionCase {
            point: HookPoint::BeforeUserCreated,
            request: signs_up,
            fits: |input, user| input["user"]["id"] == user["id"] && input["user"]["email"] == email_of(0),
            rejection: (error(403, "Staff only"), 403, "Staff only"),
            accounts: [1, 1, 1],
        },
        FunctionCase {
            point: HookPoint::AfterUserCreated,
            request: signs_up,
            fits: |input, user| input["user"]["id"] == user["id"] && input["user"]["email"] == email_of(0),
            // The account stays
            rejection: (error(403, "Staff only"), 500, "Error invoking hook"),
            accounts: [1, 2, 3],
        },
    ]
}

#[tokio::test]
async fn a_function_takes_part_at_every_other_point() {
    for FunctionCase { point, request, fits, rejection: (output, status, text), accounts } in function_cases() {
        let t = TestServer::with_auth(|settings| {
            function(settings, point, "hook");
            settings.sms.enabled = true;
            (settings.factors.totp.enroll, settings.factors.totp.verify) = (true, true);
        })
        .await;
        let name = point.name();
        let accounts_are = async |expected: i64, when: &str| {
            assert_eq!(t.count("select count(*) from auth.users").await, expected, "{name} {when}");
        };
        let proved = async || t.count("select count(*) from auth.mfa_factors where status = 'verified'").await;

        t.execute("create table public.calls (input jsonb); grant all on public.calls to supabase_auth_admin").await;
        create(&t, "jsonb", "begin insert into public.calls values (event); return '{}'; end").await;
        let accepted = request(&t, 0).await.expect(200).json();
        let calls = t.query("select input::text from public.calls").await;
        assert_eq!(calls.len(), 1, "{name}");
        let input: Value = serde_json::from_str(calls[0].get(0)).unwrap();
        assert!(input["metadata"]["name"] == name && fits(&input, &accepted), "{name}: {input} {accepted}");
        accounts_are(accounts[0], "accepts").await;
        let before = proved().await;
        if point == HookPoint::SendSms {
            assert!(t.texts_to(&phone_of(0)).is_empty(), "the function sends it");
            let typed = json!({"type": "sms", "phone": phone_of(0), "token": input["sms"]["otp"]});
            t.post("/auth/v1/verify").json(&typed).send().await.expect(200);
        }

        create(&t, "jsonb", &format!("begin return '{output}'; end")).await;
        let rejected = request(&t, 1).await;
        assert_eq!((rejected.status, &rejected.json()["msg"]), (status, &json!(text)), "{name}");
        accounts_are(accounts[1], "rejects").await;

        create(&t, "jsonb", "begin raise exception 'not today'; end").await;
        assert_eq!(request(&t, 2).await.status, 500, "{name}");
        accounts_are(accounts[2], "raises").await;
        assert_eq!(proved().await, before, "{name}");
    }
}
