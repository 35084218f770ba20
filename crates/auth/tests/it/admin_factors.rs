//! `/admin/users/{user_id}/factors`.

use portico_mail::MailKind;
use portico_testkit::TestServer;
use serde_json::{Value, json};

use crate::factors::{ADA, EVE, enroll_totp, level, with_totp};

#[tokio::test]
async fn a_lost_factor_is_removed_and_its_sessions_are_lowered() {
    let t = TestServer::start().await;
    let (factor, ada) = with_totp(&t, ADA).await;
    let user = ada.id();
    assert_eq!(level(&ada), "aal2");
    let listed =
        t.operator().calls("GET", &format!("admin/users/{user}/factors"), &Value::Null).await.expect(200).json();
    assert_eq!((&listed[0]["id"], &listed[0]["status"]), (&json!(factor.id), &json!("verified")));
    assert!(listed[0].get("secret").is_none());

    let removed = t
        .operator()
        .calls("DELETE", &format!("admin/users/{user}/factors/{}", factor.id), &Value::Null)
        .await
        .expect(200)
        .json();
    assert_eq!(removed["id"], factor.id.as_str());
    assert_eq!(level(&ada.refreshed().await), "aal1");
    assert_eq!(
        t.operator().calls("GET", &format!("admin/users/{user}/factors"), &Value::Null).await.expect(200).json(),
        json!([])
    );
    let entry = "select count(*) from auth.audit_log_entries
                  where payload->>'action' = 'factor_deleted' and payload->>'actor_username' = 'ada@example.com'";
    assert_eq!(t.count(entry).await, 1);
}

#[tokio::test]
async fn the_owner_is_notified_of_a_factor_that_an_administrator_removes() {
    let t = TestServer::with_auth(|settings| {
        settings.email.notifications = vec![MailKind::MfaFactorUnenrolled];
    })
    .await;
    let (factor, ada) = with_totp(&t, ADA).await;
    let user = ada.id();
    // One that was never proved needs no word
    let draft = enroll_totp(&ada, "draft").await;
    for id in [&draft.id, &factor.id] {
        t.operator().calls("DELETE", &format!("admin/users/{user}/factors/{id}"), &Value::Null).await.expect(200);
    }
    let notice = t.nth_mail_to(ADA, 1).await;
    assert_eq!(notice.subject().as_str(), "A verification method was removed from your account");
    let expected = "A second step was removed from ada@example.com: an authenticator app.";
    assert!(notice.html().contains(expected), "{}", notice.html());
    t.post("/auth/v1/recover").json(&json!({"email": ADA})).send().await.expect(200);
    assert_eq!(t.nth_mail_to(ADA, 2).await.subject().as_str(), "Reset your password", "one notice");
}

#[tokio::test]
async fn a_factor_is_renamed_and_only_a_phone_gets_a_number() {
    let t = TestServer::start().await;
    let ada = t.member(ADA).await;
    let user = ada.id();
    let (first, second) = (enroll_totp(&ada, "one").await, enroll_totp(&ada, "two").await);
    let put = async |id: &str, body: Value| {
        t.operator().calls("PUT", &format!("admin/users/{user}/factors/{id}"), &body).await
    };
    let changed = put(&first.id, json!({"friendly_name": "app", "phone": "+491700000001"})).await.expect(200).json();
    assert_eq!((&changed["friendly_name"], &changed["phone"]), (&json!("app"), &json!("")));
    assert_eq!(
        put(&second.id, json!({"friendly_name": "app"})).await.rejection(),
        (422, "mfa_factor_name_conflict".into())
    );
    assert_eq!(put(&second.id, json!({"friendly_name": "x".repeat(256)})).await.rejection().0, 400);
    assert_eq!(put(&first.id, json!({})).await.expect(200).json()["friendly_name"], "app");

    let id = "22222222-2222-4222-8222-222222222222";
    t.execute(&format!(
        "insert into auth.mfa_factors (id, user_id, friendly_name, factor_type, status, created_at, updated_at, phone)
         values ('{id}', '{user}', 'phone', 'phone', 'verified', now(), now(), '491700000002')"
    ))
    .await;
    let refused = put(id, json!({"phone": "x"})).await;
    assert_eq!(refused.rejection(), (400, "validation_failed".into()));
    assert_eq!(refused.json()["msg"], "Invalid phone number format (E.164 required)");
    assert_eq!(put(id, json!({"phone": "+491700000001"})).await.expect(200).json()["phone"], "491700000001");
    assert_eq!(
        t.count("select count(*) from auth.audit_log_entries where payload->>'action' = 'factor_updated'").await,
        3
    );
}

#[tokio::test]
async fn factors_of_other_accounts_and_odd_ids_are_not_found() {
    let t = TestServer::start().await;
    let (eves, _) = with_totp(&t, EVE).await;
    let ada = t.member(ADA).await;
    let user = ada.id();
    for (id, code, message) in [
        (eves.id.as_str(), "mfa_factor_not_found", "Factor not found"),
        ("7", "validation_failed", "factor_id must be an UUID"),
    ] {
        for method in ["PUT", "DELETE"] {
            let refused = t
                .operator()
                .calls(method, &format!("admin/users/{user}/factors/{id}"), &json!({"friendly_name": "x"}))
                .await;
            assert_eq!(refused.rejection(), (404, code.into()), "{method}");
            assert_eq!(refused.json()["msg"], message);
        }
    }
    let unknown =
        t.operator().calls("GET", "admin/users/11111111-1111-4111-8111-111111111111/factors", &Value::Null).await;
    assert_eq!(unknown.rejection(), (404, "user_not_found".into()));
    assert_eq!(t.count("select count(*) from auth.mfa_factors").await, 1);
}
