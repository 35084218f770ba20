//! Failed sign-ins in the audit log, and the budget of their entries.

use portico_testkit::{TestResponse, TestServer};
use serde_json::{Value, json};
use time::Duration;

const ADA: &str = "ada@example.com";
const PASSWORD: &str = "correct-horse";

/// Signs in with a wrong password from this IP address.
async fn fails_from(t: &TestServer, email: &str, address: &str) -> TestResponse {
    t.visitor(email).with_password("battery-staple").from_address(address).signs_in().await
}

/// Returns the payloads and client addresses of failed sign-ins, oldest first.
async fn failures(t: &TestServer) -> Vec<(Value, String)> {
    let rows = t
        .query(
            "select payload::text, ip_address from auth.audit_log_entries
              where payload ->> 'action' = 'login_failed' order by created_at, ctid",
        )
        .await;
    rows.iter().map(|row| (serde_json::from_str(row.get(0)).unwrap(), row.get(1))).collect()
}

#[tokio::test]
async fn a_failed_sign_in_is_recorded_with_the_account_if_there_is_one() {
    let t = TestServer::start().await;
    let id = t.account(ADA, PASSWORD).await;
    fails_from(&t, ADA, "192.0.2.1").await.expect(400);
    fails_from(&t, "my-password-in-the-wrong-field", "192.0.2.2").await.expect(400);
    t.visitor(ADA).from_address("192.0.2.3").verifies("email", "000000").await.expect(403);
    let of_account = |error: &str| {
        json!({
            "actor_id": id, "actor_via_sso": false, "actor_username": ADA, "action": "login_failed",
            "log_type": "account", "traits": {"provider": "email", "error_code": error},
        })
    };
    let unknown = json!({
        "actor_id": "00000000-0000-0000-0000-000000000000", "actor_via_sso": false, "actor_username": "",
        "action": "login_failed", "log_type": "account",
        "traits": {"provider": "email", "error_code": "invalid_credentials"},
    });
    let expected = [
        (of_account("invalid_credentials"), "192.0.2.1".to_owned()),
        (unknown, "192.0.2.2".to_owned()),
        (of_account("otp_expired"), "192.0.2.3".to_owned()),
    ];
    assert_eq!(failures(&t).await, expected);
    let secret = "select count(*) from auth.audit_log_entries where payload::text ~ 'battery|my-password'";
    assert_eq!(t.count(secret).await, 0);
}

#[tokio::test]
async fn a_flood_of_failures_neither_fills_the_log_nor_hides_others() {
    let t = TestServer::with_auth(|settings| settings.rate_limits.passwords = false).await;
    t.account(ADA, PASSWORD).await;
    for number in 0..60 {
        fails_from(&t, &format!("nobody{number}@example.com"), "192.0.2.1").await.expect(400);
    }
    assert_eq!(failures(&t).await.len(), 20);
    fails_from(&t, ADA, "192.0.2.2").await.expect(400);
    let all = failures(&t).await;
    assert_eq!(all.len(), 21);
    assert_eq!(all[20].0["actor_username"], ADA);
    assert_eq!(all[20].0["traits"]["omitted"], 40);

    // The same for a flood from many networks
    for number in 0..600 {
        fails_from(&t, ADA, &format!("2001:db8:0:{number:x}::1")).await.expect(400);
    }
    assert_eq!(failures(&t).await.len(), 500);
    t.clock().advance(Duration::minutes(1));
    fails_from(&t, ADA, "192.0.2.3").await.expect(400);
    fails_from(&t, ADA, "192.0.2.4").await.expect(400);
    fails_from(&t, ADA, "192.0.2.5").await.expect(400);
    assert_eq!(failures(&t).await.len(), 502, "two a minute");
}

#[tokio::test]
async fn nothing_is_recorded_when_the_audit_log_is_disabled() {
    let t = TestServer::with_auth(|settings| settings.audit_log_disabled = true).await;
    t.account(ADA, PASSWORD).await;
    fails_from(&t, ADA, "192.0.2.1").await.expect(400);
    assert!(failures(&t).await.is_empty());
}
