//! Hooks that send emails and text messages.

use portico_auth::settings::{HookPoint, SendLimit};
use portico_mail::MailKind;
use portico_testkit::TestServer;
use serde_json::{Value, json};

use crate::hook_server::{HookServer, answered, refused};

const ADA: &str = "ada@example.com";
const PHONE: &str = "15550001111";
const PASSWORD: &str = "correct horse";

async fn mailing(change: impl FnOnce(&mut portico_auth::AuthSettings)) -> (TestServer, HookServer) {
    let hook = HookServer::start().await;
    let t = TestServer::with_auth(|settings| {
        hook.serve(settings, HookPoint::SendEmail);
        change(settings);
    })
    .await;
    (t, hook)
}

async fn sign_up(t: &TestServer) -> portico_testkit::TestResponse {
    t.post("/auth/v1/signup").json(&json!({"email": ADA, "password": PASSWORD})).send().await
}

fn text<'a>(data: &'a Value, name: &str) -> &'a str {
    data[name].as_str().unwrap()
}

#[tokio::test]
async fn a_hook_sends_the_mails() {
    let (t, hook) = mailing(|settings| settings.rate_limits.emails = Some(SendLimit::PerHour(2))).await;
    let user = sign_up(&t).await.expect(200).json();
    let inputs = hook.inputs();
    assert_eq!(inputs.len(), 1);
    assert_eq!((&inputs[0]["user"]["id"], &inputs[0]["user"]["email"]), (&user["id"], &json!(ADA)));
    let data = &inputs[0]["email_data"];
    assert_eq!(text(data, "email_action_type"), "signup");
    assert_eq!(text(data, "site_url"), format!("{}/auth/v1", t.base()));
    assert!(!text(data, "redirect_to").is_empty());
    for empty in ["token_new", "token_hash_new", "old_email", "old_phone", "provider", "factor_type"] {
        assert_eq!(text(data, empty), "", "{empty}");
    }
    assert_eq!(t.count("select count(*) from portico.mail_outbox").await, 0);

    // The code of the call is the one that was committed
    let body = json!({"type": "email", "email": ADA, "token": data["token"]});
    t.post("/auth/v1/verify").json(&body).send().await.expect(200);

    // Each email counts once
    t.post("/auth/v1/recover").json(&json!({"email": ADA})).send().await.expect(200);
    let data = hook.inputs().remove(1)["email_data"].take();
    assert_eq!(text(&data, "email_action_type"), "recovery");
    let limited = t.post("/auth/v1/recover").json(&json!({"email": ADA})).send().await;
    assert_eq!(limited.rejection(), (429, "over_email_send_rate_limit".into()));
    assert_eq!(hook.requests().len(), 2);
    let body = json!({"type": "recovery", "token_hash": data["token_hash"]});
    t.post("/auth/v1/verify").json(&body).send().await.expect(200);
    assert!(t.mails().is_empty());
}

#[tokio::test]
async fn a_mail_that_the_hook_rejects_leaves_nothing() {
    let (t, hook) = mailing(|_| {}).await;
    hook.answer(|_| refused(403, "No mails to this domain"));
    let rejected = sign_up(&t).await;
    assert_eq!(rejected.rejection(), (403, "unknown".into()));
    assert_eq!(rejected.json()["msg"], "No mails to this domain");
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
    hook.answer(|_| answered(&json!({})));
    sign_up(&t).await.expect(200);
}

#[tokio::test]
async fn a_change_of_address_is_one_call_with_crossed_tokens() {
    let (t, hook) = mailing(|settings| settings.email.secure_change = true).await;
    let session = t.signed_in(ADA, PASSWORD).await;
    let token = session["access_token"].as_str().unwrap();
    let before = hook.requests().len();

    let change = json!({"email": "new@example.com"});
    t.put("/auth/v1/user").bearer(token).json(&change).send().await.expect(200);

    let inputs = hook.inputs().split_off(before);
    assert_eq!(inputs.len(), 1);
    let data = &inputs[0]["email_data"];
    assert_eq!(text(data, "email_action_type"), "email_change");
    assert_eq!(
        (&inputs[0]["user"]["email"], &inputs[0]["user"]["new_email"]),
        (&json!(ADA), &json!("new@example.com"))
    );
    // `token` is the code for the current address, `token_new` that for the new one
    let verify = async |email: &str, code: &str| {
        let body = json!({"type": "email_change", "email": email, "token": code});
        t.post("/auth/v1/verify").json(&body).send().await
    };
    assert_eq!(verify("new@example.com", text(data, "token")).await.status, 403);
    verify(ADA, text(data, "token")).await.expect(200);
    verify("new@example.com", text(data, "token_new")).await.expect(200);
    assert_eq!(t.count("select count(*) from auth.users where email = 'new@example.com'").await, 1);

    // The links are crossed: `token_hash` is that of the new address
    let change = json!({"email": "third@example.com"});
    let session = t.sign_in("new@example.com", PASSWORD).await;
    let token = session["access_token"].as_str().unwrap();
    t.put("/auth/v1/user").bearer(token).json(&change).send().await.expect(200);
    let data = hook.inputs().pop().unwrap()["email_data"].take();
    let sql = "select relates_to from auth.one_time_tokens where token_hash = $1";
    for (hash, address) in [("token_hash", "third@example.com"), ("token_hash_new", "new@example.com")] {
        let rows = t.query_with(sql, &[&text(&data, hash)]).await;
        assert_eq!(rows[0].get::<_, String>(0), address);
    }
}

#[tokio::test]
async fn a_notification_that_fails_does_not_fail_the_change() {
    let (t, hook) =
        mailing(|settings| settings.email.notifications = [MailKind::PasswordChanged].into_iter().collect()).await;
    let session = t.signed_in(ADA, PASSWORD).await;
    let before = hook.requests().len();
    hook.answer(|_| refused(500, "No"));
    let body = json!({"password": "another horse"});
    let token = session["access_token"].as_str().unwrap();
    t.put("/auth/v1/user").bearer(token).json(&body).send().await.expect(200);
    let inputs = hook.inputs().split_off(before);
    assert_eq!(inputs.len(), 1);
    assert_eq!(text(&inputs[0]["email_data"], "email_action_type"), "password_changed_notification");
    t.sign_in(ADA, "another horse").await;
}

#[tokio::test]
async fn a_hook_sends_the_text_messages() {
    let hook = HookServer::start().await;
    let t = TestServer::with_auth(|settings| {
        settings.sms.enabled = true;
        settings.sms.max_frequency = std::time::Duration::ZERO;
        hook.serve(settings, HookPoint::SendSms);
    })
    .await;
    hook.answer(|_| refused(402, "No credit"));
    let otp =
        async |channel: &str| t.post("/auth/v1/otp").json(&json!({"phone": PHONE, "channel": channel})).send().await;
    let rejected = otp("sms").await;
    assert_eq!((rejected.status, &rejected.json()["msg"]), (402, &json!("No credit")));
    assert_eq!(t.count("select count(*) from auth.users").await, 0, "nobody could use the account");

    hook.answer(|_| answered(&json!({})));
    otp("whatsapp").await.expect(200);
    let input = hook.inputs().remove(1);
    assert_eq!((&input["user"]["phone"], &input["sms"]["phone"]), (&json!(PHONE), &json!(PHONE)));
    assert!(input["sms"].get("sms_type").is_none());
    let body = json!({"type": "sms", "phone": PHONE, "token": input["sms"]["otp"]});
    t.post("/auth/v1/verify").json(&body).send().await.expect(200);
    assert!(t.texts_to(PHONE).is_empty());
}
