//! Hooks over HTTP: access tokens, passwords and new accounts.

use portico_auth::settings::HookPoint;
use portico_testkit::{GooglePerson, TestServer, claims_of};
use serde_json::{Value, json};

use crate::factors;
use crate::hook_server::{HookServer, json_response, refused, server_with_hook, with_tenant};

const ADA: &str = "ada@example.com";
const PASSWORD: &str = "correct horse";

#[tokio::test]
async fn the_hook_replaces_the_claims_of_every_access_token() {
    let (t, hook) = server_with_hook(HookPoint::CustomAccessToken, |_| {}).await;
    hook.respond(with_tenant);
    let id = t.account(ADA, PASSWORD).await;

    let mut ada = t.visitor(ADA).signed_in().await;

    let claims = ada.claims();
    assert_eq!(claims["tenant"], "acme");
    let request = hook.requests().remove(0);
    let metadata = &request.input["metadata"];
    assert_eq!(metadata["name"], "customize-access-token");
    assert_eq!(metadata["ip_address"], "127.0.0.1");
    assert!(metadata["uuid"].as_str().unwrap().len() == 36 && metadata["time"].as_str().unwrap().ends_with('Z'));
    assert_eq!((&request.input["user_id"], &request.input["authentication_method"]), (&json!(id), &json!("password")));
    let sent = &request.input["claims"];
    for claim in ["sub", "aud", "iat", "exp", "iss", "email", "phone", "app_metadata", "user_metadata", "role", "aal"] {
        assert_eq!(sent[claim], claims[claim], "{claim}");
    }
    assert_eq!((&sent["amr"], &sent["is_anonymous"]), (&claims["amr"], &json!(false)));
    // The session of the first run is the one that was committed
    assert_eq!(
        t.count(&format!("select count(*) from auth.sessions where id = '{}'", sent["session_id"].as_str().unwrap()))
            .await,
        1
    );
    assert_eq!(t.count("select count(*) from auth.sessions").await, 1);
    for header in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        assert!(request.headers.contains_key(header), "{header}");
    }
    ada.reads_account().await.expect(200);

    ada.refreshes().await.expect(200);
    assert_eq!(ada.claims()["tenant"], "acme");
    let inputs = hook.inputs();
    assert_eq!(inputs.len(), 2, "one call for each token");
    assert_eq!(inputs[1]["authentication_method"], "token_refresh");
    assert_eq!(t.actions().await.iter().filter(|action| *action == "token_refreshed").count(), 1);
}

#[tokio::test]
async fn a_failed_hook_leaves_nothing_of_a_sign_in() {
    let (t, hook) = server_with_hook(HookPoint::CustomAccessToken, |_| {}).await;
    t.account(ADA, PASSWORD).await;
    let entries = "select count(*) from auth.audit_log_entries where payload->>'action' = 'login'";
    /// A response of a hook, and the status, code and text of the error that it becomes.
    type Case = (fn() -> axum::response::Response, u16, &'static str, &'static str);
    let cases: [Case; 8] = [
        (|| refused(403, "Tenant is suspended"), 403, "unknown", "Tenant is suspended"),
        (|| json_response(&json!({"error": {"message": "Out of order"}})), 500, "unexpected_failure", "Out of order"),
        (|| json_response(&json!({})), 500, "unexpected_failure", "output claims field is missing"),
        (
            || {
                json_response(
                    &json!({"claims": {"aud": "x", "exp": "soon", "iat": 1, "sub": "x", "email": "", "phone": "", "role": "x", "aal": "aal1", "is_anonymous": false}}),
                )
            },
            500,
            "unexpected_failure",
            "output claims do not conform to the expected schema: \n- (root): session_id is required\n- exp: Invalid type. Expected: integer, given: string",
        ),
        (|| json_response(&json!({"claims": 5})), 500, "unexpected_failure", "Error unmarshaling JSON output."),
        (|| json_response(&json!([])), 500, "unexpected_failure", "Error unmarshaling JSON output."),
        (
            || axum::response::IntoResponse::into_response((http::StatusCode::FOUND, [("location", "/elsewhere")])),
            500,
            "unexpected_failure",
            "Unexpected status code returned from hook: 302",
        ),
        (
            || axum::response::IntoResponse::into_response("plain"),
            400,
            "hook_payload_invalid_content_type",
            "Invalid JSON response. Received content-type: text/plain; charset=utf-8",
        ),
    ];
    for (respond, status, code, message) in cases {
        hook.respond(move |_| respond());
        let rejected = t.visitor(ADA).signs_in().await;
        assert_eq!(rejected.rejection(), (status, code.to_owned()), "{message}");
        assert_eq!(rejected.json()["msg"], message);
    }
    hook.respond(|_| {
        axum::response::IntoResponse::into_response(([("content-type", "application/json")], vec![b' '; 5_000_000]))
    });
    assert_eq!(t.visitor(ADA).signs_in().await.rejection(), (422, "hook_payload_over_size_limit".into()));
    assert_eq!(t.count("select count(*) from auth.sessions").await, 0);
    assert_eq!(t.count(entries).await, 0);

    hook.respond(with_tenant);
    t.visitor(ADA).signs_in().await.expect(200);
}

#[tokio::test]
async fn the_error_of_the_access_token_hook_is_masked_for_anonymous_users() {
    let hook = HookServer::start().await;
    let t = TestServer::with_auth(|settings| {
        settings.anonymous_users = true;
        hook.serve(settings, HookPoint::CustomAccessToken);
    })
    .await;
    hook.respond(|_| refused(403, "No"));
    let rejected = t.post("/auth/v1/signup").json(&json!({})).send().await;
    assert_eq!(rejected.rejection(), (500, "unexpected_failure".into()));
    assert_eq!(rejected.json()["msg"], "Database error creating anonymous user");
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
}

#[tokio::test]
async fn a_hook_that_is_slow_or_gone_ends_in_time() {
    let (t, hook) = server_with_hook(HookPoint::CustomAccessToken, |_| {}).await;
    t.account(ADA, PASSWORD).await;
    hook.respond_later(|_| std::future::pending());
    let gone = TestServer::with_auth(|settings| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap());
        let hook = portico_auth::settings::HookSettings { uri, secrets: "".into() };
        settings.hooks.insert(HookPoint::CustomAccessToken, hook);
    })
    .await;
    gone.account(ADA, PASSWORD).await;
    let (ada, ada_of_gone) = (t.visitor(ADA), gone.visitor(ADA));
    let (slow, gone) = tokio::join!(ada.signs_in(), ada_of_gone.signs_in());
    assert_eq!(slow.rejection(), (422, "hook_timeout".into()));
    assert_eq!(slow.json()["msg"], "Failed to reach hook within maximum time of 5.000000 seconds");
    assert_eq!(gone.rejection(), (422, "hook_timeout_after_retry".into()));
    assert_eq!(gone.json()["msg"], "Failed to reach hook after maximum retries");
}

#[tokio::test]
async fn no_connection_waits_for_a_hook() {
    let hook = HookServer::start().await;
    let t = TestServer::with(|settings| {
        hook.serve(&mut settings.auth, HookPoint::CustomAccessToken);
        settings.pool.role_connections = 2;
    })
    .await;
    hook.respond(with_tenant);
    let ada = t.member(ADA).await;
    let open = hook.respond_when_open(with_tenant);
    const WAITING: usize = 8;
    let sign_ins = futures_util::future::join_all((0..WAITING).map(|_| ada.visitor().signs_in()));
    let meanwhile = async {
        hook.wait_for(1 + WAITING).await;
        for _ in 0..4 {
            ada.reads_account().await.expect(200);
            t.visitor("new@example.com").signs_up().await.expect(200);
        }
        open.send(true).unwrap();
    };
    let (responses, ()) = tokio::join!(sign_ins, meanwhile);
    for response in responses {
        response.expect(200);
    }
    assert_eq!(t.count("select count(*) from auth.sessions").await, 1 + WAITING as i64);
}

#[tokio::test]
async fn the_hook_is_asked_again_when_the_account_was_changed_meanwhile() {
    let (t, hook) = server_with_hook(HookPoint::CustomAccessToken, |_| {}).await;
    t.account(ADA, PASSWORD).await;
    let open = hook.respond_when_open(with_tenant);
    let meanwhile = async {
        hook.wait_for(1).await;
        t.execute("update auth.users set raw_app_meta_data = raw_app_meta_data || '{\"plan\": \"pro\"}'").await;
        open.send(true).unwrap();
    };
    let ada = t.visitor(ADA);
    let (session, ()) = tokio::join!(ada.signs_in(), meanwhile);
    let claims = claims_of(session.expect(200).json()["access_token"].as_str().unwrap());
    assert_eq!((&claims["app_metadata"]["plan"], &claims["tenant"]), (&json!("pro"), &json!("acme")));
    assert_eq!(hook.requests().len(), 2);
}

#[tokio::test]
async fn an_account_that_was_banned_meanwhile_is_not_signed_in() {
    let (t, hook) = server_with_hook(HookPoint::CustomAccessToken, |_| {}).await;
    t.account(ADA, PASSWORD).await;
    let open = hook.respond_when_open(with_tenant);
    let meanwhile = async {
        hook.wait_for(1).await;
        t.execute("update auth.users set banned_until = now() + interval '1 day'").await;
        open.send(true).unwrap();
    };
    let ada = t.visitor(ADA);
    let (rejected, ()) = tokio::join!(ada.signs_in(), meanwhile);
    assert_eq!(rejected.rejection(), (400, "invalid_credentials".into()));
    assert_eq!(t.count("select count(*) from auth.sessions").await, 0);
}

#[tokio::test]
async fn a_hook_decides_about_attempts_at_a_password() {
    let (t, hook) = server_with_hook(HookPoint::PasswordVerificationAttempt, |_| {}).await;
    let id = t.account(ADA, PASSWORD).await;
    t.visitor(ADA).signs_in().await.expect(200);
    assert_eq!(t.visitor(ADA).with_password("wrong").signs_in().await.json()["msg"], "Invalid login credentials");
    assert_eq!(hook.inputs(), [json!({"user_id": id, "valid": true}), json!({"user_id": id, "valid": false})]);
    t.visitor("nobody@example.com").signs_in().await.expect(400);
    assert_eq!(hook.requests().len(), 2, "no call for an unknown account");

    hook.respond(|_| json_response(&json!({"decision": "reject"})));
    let rejected = t.visitor(ADA).signs_in().await;
    assert_eq!(rejected.rejection(), (400, "invalid_credentials".into()));
    assert_eq!(rejected.json()["msg"], "Further password verification attempts will be rejected.");
    assert_eq!(t.count("select count(*) from auth.sessions").await, 1);

    hook.respond(|_| json_response(&json!({"decision": "reject", "message": "Locked", "should_logout_user": true})));
    let rejected = t.visitor(ADA).signs_in().await;
    assert_eq!((rejected.status, &rejected.json()["msg"]), (400, &json!("Locked")));
    assert_eq!(t.count("select count(*) from auth.sessions").await, 0);

    hook.respond(|_| json_response(&json!({"decision": "continue", "should_logout_user": true})));
    t.visitor(ADA).signs_in().await.expect(200);
    t.execute("update auth.users set banned_until = now() + interval '1 day'").await;
    let before = hook.requests().len();
    assert_eq!(t.visitor(ADA).signs_in().await.rejection(), (400, "user_banned".into()));
    assert_eq!(hook.requests().len(), before, "no call for a banned account");
}

#[tokio::test]
async fn a_hook_may_reject_new_accounts() {
    let hook = HookServer::start().await;
    let t = TestServer::with_auth(|settings| {
        settings.anonymous_users = true;
        hook.serve(settings, HookPoint::BeforeUserCreated);
    })
    .await;
    hook.respond(|_| refused(422, "Only members of the club"));
    let ada = t.visitor(ADA);
    let data = json!({"data": {"name": "Ada"}});
    let rejected = ada.signs_up_with(&data).await;
    assert_eq!((rejected.status, &rejected.json()["msg"]), (422, &json!("Only members of the club")));
    assert_eq!(t.post("/auth/v1/signup").json(&json!({})).send().await.status, 422);
    assert_eq!(ada.requests_code().await.status, 422);
    let google = t.google().sign_in(GooglePerson::Verified { name: "Ada", email: ADA }).await;
    assert_eq!(google.location_query("error_description").as_deref(), Some("Only members of the club"));
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
    assert!(t.mails().is_empty());
    let inputs = hook.inputs();
    assert_eq!(inputs.len(), 4);
    assert_eq!(
        (&inputs[0]["user"]["email"], &inputs[0]["user"]["user_metadata"]["name"]),
        (&json!(ADA), &json!("Ada"))
    );
    assert_eq!(inputs[1]["user"]["is_anonymous"], true);
    assert_eq!(inputs[3]["user"]["app_metadata"]["provider"], "google");

    hook.respond(|_| axum::response::IntoResponse::into_response(http::StatusCode::NO_CONTENT));
    let user = ada.signs_up_with(&data).await.expect(200).json();
    assert_eq!(user["id"], hook.inputs()[4]["user"]["id"]);
    // A repeated sign-up makes no account
    ada.signs_up_with(&data).await.expect(200);
    assert_eq!(hook.requests().len(), 5);
}

#[tokio::test]
async fn a_hook_is_called_after_a_new_account_is_committed() {
    let (t, hook) = server_with_hook(HookPoint::AfterUserCreated, |_| {}).await;
    let user = t.visitor(ADA).signs_up().await.expect(200).json();
    let inputs = hook.inputs();
    assert_eq!(inputs.len(), 1);
    assert_eq!((&inputs[0]["user"]["id"], &inputs[0]["user"]["email"]), (&user["id"], &json!(ADA)));
    t.visitor(ADA).signs_up().await.expect(200);
    assert_eq!(hook.requests().len(), 1, "no call without a new account");

    hook.respond(|_| refused(403, "No"));
    let failed = t.visitor("eve@example.com").signs_up().await;
    assert_eq!((failed.status, &failed.json()["msg"]), (500, &json!("Error invoking hook")));
    assert_eq!(t.count("select count(*) from auth.users").await, 2);
}

#[tokio::test]
async fn a_hook_decides_about_attempts_at_a_second_factor() {
    let hook = HookServer::start().await;
    let t = TestServer::with_auth(|settings| {
        hook.serve(settings, HookPoint::MfaVerificationAttempt);
        hook.serve(settings, HookPoint::CustomAccessToken);
        settings.factors.totp.enroll = true;
        settings.factors.totp.verify = true;
    })
    .await;
    hook.respond(|request| match request.input.get("claims") {
        Some(_) => with_tenant(request),
        None => json_response(&json!({"decision": "continue"})),
    });
    let (factor, ada) = factors::with_totp(&t, ADA).await;
    assert_eq!(ada.claims()["tenant"], "acme");
    let attempts = || hook.inputs().into_iter().filter(|input| input.get("claims").is_none()).collect::<Vec<_>>();
    let first = attempts().remove(0);
    assert_eq!(first["factor_id"], factor.id.as_str());
    assert_eq!((&first["factor_type"], &first["valid"]), (&json!("totp"), &json!(true)));
    assert_eq!(hook.inputs().pop().unwrap()["authentication_method"], "totp");

    let challenge = factors::challenge_id(&ada, &factor.id).await;
    let wrong = factors::wrong_code(&t, &factor);
    let rejected = factors::verify(&ada, &factor.id, &challenge, &wrong).await;
    assert_eq!(rejected.rejection(), (422, "mfa_verification_failed".into()));
    assert_eq!(attempts().pop().unwrap()["valid"], false);

    hook.respond(|_| json_response(&json!({"decision": "reject"})));
    let rejected = factors::verify(&ada, &factor.id, &challenge, &wrong).await;
    assert_eq!(rejected.rejection(), (403, "mfa_verification_rejected".into()));
    assert_eq!(rejected.json()["msg"], "Further MFA verification attempts will be rejected.");
    assert_eq!(t.count("select count(*) from auth.sessions").await, 0);
}

#[tokio::test]
async fn invitations_call_the_hooks_and_accounts_of_administrators_do_not() {
    let hook = HookServer::start().await;
    let t = TestServer::with_auth(|settings| {
        hook.serve(settings, HookPoint::BeforeUserCreated);
        hook.serve(settings, HookPoint::SendEmail);
    })
    .await;
    let operator = t.api_keys().service_role_jwt();
    let post = async |path: &str, body: Value| {
        t.post(&format!("/auth/v1/{path}")).bearer(operator).json(&body).send().await.expect(200).json()
    };
    let invited = post("invite", json!({"email": ADA})).await;
    let inputs = hook.inputs();
    assert_eq!(inputs.len(), 2);
    assert_eq!((&inputs[0]["user"]["id"], &inputs[1]["user"]["id"]), (&invited["id"], &invited["id"]));
    let data = &inputs[1]["email_data"];
    assert_eq!(data["email_action_type"], "invite");
    let body = json!({"type": "invite", "token_hash": data["token_hash"]});
    t.post("/auth/v1/verify").json(&body).send().await.expect(200);

    let link = json!({"type": "signup", "email": "eve@example.com", "password": PASSWORD});
    post("admin/generate_link", link).await;
    assert_eq!(hook.inputs().len(), 3, "a generated link sends no mail");
    post("admin/users", json!({"email": "bob@example.com"})).await;
    assert_eq!(hook.inputs().len(), 3);
}
