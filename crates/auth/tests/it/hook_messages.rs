//! Hooks that send emails and text messages.

use portico_auth::settings::{HookPoint, SendLimit};
use portico_mail::MailKind;
use serde_json::{Value, json};

use crate::hook_server::{json_response, refused, server_with_hook};
use crate::phone::with_phones;

const ADA: &str = "ada@example.com";
const PHONE: &str = "15550001111";

fn text<'a>(data: &'a Value, name: &str) -> &'a str {
    data[name].as_str().unwrap()
}

#[tokio::test]
async fn a_hook_sends_the_mails() {
    let (t, hook) = server_with_hook(HookPoint::SendEmail, |settings| {
        settings.rate_limits.emails = Some(SendLimit::PerHour(2));
    })
    .await;
    let user = t.visitor(ADA).signs_up().await.expect(200).json();
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
    let ada = t.visitor(ADA);
    ada.verifies("email", text(data, "token")).await.expect(200);

    // Each email counts once
    ada.requests_recovery().await.expect(200);
    let data = hook.inputs().remove(1)["email_data"].take();
    assert_eq!(text(&data, "email_action_type"), "recovery");
    let limited = ada.requests_recovery().await;
    assert_eq!(limited.rejection(), (429, "over_email_send_rate_limit".into()));
    assert_eq!(hook.requests().len(), 2);
    let body = json!({"type": "recovery", "token_hash": data["token_hash"]});
    t.post("/auth/v1/verify").json(&body).send().await.expect(200);
    assert!(t.mails().is_empty());
}

#[tokio::test]
async fn a_mail_that_the_hook_rejects_leaves_nothing() {
    let (t, hook) = server_with_hook(HookPoint::SendEmail, |_| {}).await;
    hook.respond(|_| refused(403, "No mails to this domain"));
    let rejected = t.visitor(ADA).signs_up().await;
    assert_eq!(rejected.rejection(), (403, "unknown".into()));
    assert_eq!(rejected.json()["msg"], "No mails to this domain");
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
    hook.respond(|_| json_response(&json!({})));
    t.visitor(ADA).signs_up().await.expect(200);
}

#[tokio::test]
async fn a_change_of_address_is_one_call_with_crossed_tokens() {
    let (t, hook) = server_with_hook(HookPoint::SendEmail, |settings| settings.email.secure_change = true).await;
    let ada = t.member(ADA).await;
    let before = hook.requests().len();

    ada.changes_account(&json!({"email": "new@example.com"})).await.expect(200);

    let inputs = hook.inputs().split_off(before);
    assert_eq!(inputs.len(), 1);
    let data = &inputs[0]["email_data"];
    assert_eq!(text(data, "email_action_type"), "email_change");
    assert_eq!(
        (&inputs[0]["user"]["email"], &inputs[0]["user"]["new_email"]),
        (&json!(ADA), &json!("new@example.com"))
    );
    // `token` is the code for the current address, `token_new` that for the new one
    let verify = async |email: &str, code: &str| t.visitor(email).verifies("email_change", code).await;
    assert_eq!(verify("new@example.com", text(data, "token")).await.status, 403);
    verify(ADA, text(data, "token")).await.expect(200);
    verify("new@example.com", text(data, "token_new")).await.expect(200);
    assert_eq!(t.count("select count(*) from auth.users where email = 'new@example.com'").await, 1);

    // The links are crossed: `token_hash` is that of the new address
    let ada = t.visitor("new@example.com").signed_in().await;
    ada.changes_account(&json!({"email": "third@example.com"})).await.expect(200);
    let data = hook.inputs().pop().unwrap()["email_data"].take();
    let sql = "select relates_to from auth.one_time_tokens where token_hash = $1";
    for (hash, address) in [("token_hash", "third@example.com"), ("token_hash_new", "new@example.com")] {
        let rows = t.query_with(sql, &[&text(&data, hash)]).await;
        assert_eq!(rows[0].get::<_, String>(0), address);
    }
}

#[tokio::test]
async fn a_notification_that_fails_does_not_fail_the_change() {
    let (t, hook) = server_with_hook(HookPoint::SendEmail, |settings| {
        settings.email.notifications = [MailKind::PasswordChanged].into_iter().collect();
    })
    .await;
    let ada = t.member(ADA).await;
    let before = hook.requests().len();
    hook.respond(|_| refused(500, "No"));
    ada.changes_account(&json!({"password": "another horse"})).await.expect(200);
    let inputs = hook.inputs().split_off(before);
    assert_eq!(inputs.len(), 1);
    assert_eq!(text(&inputs[0]["email_data"], "email_action_type"), "password_changed_notification");
    t.sign_in(ADA, "another horse").await;
}

#[tokio::test]
async fn a_hook_sends_the_text_messages() {
    let (t, hook) = server_with_hook(HookPoint::SendSms, with_phones).await;
    let ada = t.visitor_with_phone(PHONE);
    hook.respond(|_| refused(402, "No credit"));
    let otp = async |channel: &str| ada.posts("otp", &json!({"channel": channel})).await;
    let rejected = otp("sms").await;
    assert_eq!((rejected.status, &rejected.json()["msg"]), (402, &json!("No credit")));
    assert_eq!(t.count("select count(*) from auth.users").await, 0, "nobody could use the account");

    hook.respond(|_| json_response(&json!({})));
    otp("whatsapp").await.expect(200);
    let input = hook.inputs().remove(1);
    assert_eq!((&input["user"]["phone"], &input["sms"]["phone"]), (&json!(PHONE), &json!(PHONE)));
    assert!(input["sms"].get("sms_type").is_none());
    ada.verifies("sms", text(&input["sms"], "otp")).await.expect(200);
    assert!(t.texts_to(PHONE).is_empty());
}
