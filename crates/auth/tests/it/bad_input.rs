//! Malformed requests to factors, passkeys, wallets and the routes of administrators: each has a
//! clear error, and none leaves anything behind.

use portico_auth::AuthSettings;
use portico_testkit::{Member, TestServer};
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;

use crate::authenticator::with_passkeys;
use crate::factors::{ADA, EVE, challenge_id, code_at, prove, verify, with_totp};
use crate::factors_phone::with_phone_factors;

const UNKNOWN: &str = "00000000-0000-4000-8000-000000000001";

/// The caller of a request.
#[derive(Debug, Clone, Copy)]
enum Sender {
    /// A visitor without a token.
    Visitor,
    /// Ada, at `aal2`.
    Ada,
    /// An administrator.
    Administrator,
}
use Sender::{Ada, Administrator, Visitor};

/// The sender, method and path of a request, its body, and the status and code of its error.
type Case = (Sender, &'static str, String, Vec<u8>, (u16, &'static str));

fn with_everything(settings: &mut AuthSettings) {
    with_passkeys(settings);
    settings.site_url = "https://app.example".into();
    with_phone_factors(settings);
    let factors = &mut settings.factors;
    (factors.webauthn.enroll, factors.webauthn.verify) = (true, true);
    (settings.web3.ethereum, settings.web3.solana) = (true, true);
}

/// Returns every row of the account service but the counters of guesses and the audit entries of
/// failed sign-ins, as one text.
pub async fn all_rows(t: &TestServer) -> String {
    let tables = t
        .query(
            "select format('%I.%I', schemaname, tablename) from pg_tables
             where schemaname in ('auth', 'portico') and tablename not in ('audit_log_entries', 'attempts')
             order by 1",
        )
        .await;
    let mut rows = String::new();
    let own = "(select * from auth.audit_log_entries where payload ->> 'action' <> 'login_failed')".to_owned();
    for table in tables.iter().map(|row| row.get::<_, String>(0)).chain([own]) {
        let sql = format!(
            "select count(*) || ' ' || coalesce(md5(string_agg(t::text, '|' order by t::text)), '') from {table} t"
        );
        rows.push_str(&format!("{table} {}\n", t.query(&sql).await[0].get::<_, String>(0)));
    }
    rows
}

/// Sends requests, and checks the error of each and that none wrote a row or sent a message.
async fn assert_rejected(t: &TestServer, ada: &Member<'_>, cases: Vec<Case>) {
    let before = all_rows(t).await;
    let mails = t.mails().len();
    let mut wrong = Vec::new();
    for (sender, method, path, body, expected) in cases {
        let request = t.request(method.parse().unwrap(), &format!("/auth/v1/{path}"));
        let request = match sender {
            Visitor => request,
            Ada => ada.sends(request),
            Administrator => request.bearer(t.api_keys().service_role_jwt()),
        };
        let shown = String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned();
        let response = request.body(body).send().await;
        let text = response.json()["msg"].as_str().unwrap_or_default().to_owned();
        let received = match response.json().get("error") {
            Some(error) => (response.status, error.as_str().unwrap_or_default().to_owned()),
            None => response.rejection(),
        };
        if received != (expected.0, expected.1.to_owned()) {
            wrong.push(format!("{sender:?} {method} {path} {shown}: {received:?} {text:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(all_rows(t).await, before);
    assert_eq!(t.mails().len(), mails);
}

fn case(sender: Sender, method: &'static str, path: &str, body: Value, expected: (u16, &'static str)) -> Case {
    (sender, method, path.to_owned(), body.to_string().into(), expected)
}

fn raw(sender: Sender, path: &str, body: &[u8], expected: (u16, &'static str)) -> Case {
    (sender, "POST", path.to_owned(), body.to_vec(), expected)
}

#[tokio::test]
async fn malformed_requests_about_factors_are_rejected() {
    const INVALID: (u16, &str) = (400, "validation_failed");
    const NOT_JSON: (u16, &str) = (400, "bad_json");
    let t = TestServer::with_auth(with_everything).await;
    let (hers, eve) = with_totp(&t, EVE).await;
    let (own, ada) = with_totp(&t, ADA).await;
    let ada = ada.with_session_of(prove(&ada, &own).await);
    let theirs = challenge_id(&eve, &hers.id).await;
    let used = challenge_id(&ada, &own.id).await;
    t.clock().advance(time::Duration::seconds(30));
    let ada = ada.with_session_of(verify(&ada, &own.id, &used, &code_at(&own.secret, t.clock().now())).await);
    let open = challenge_id(&ada, &own.id).await;
    let late = challenge_id(&eve, &hers.id).await;
    let to = |id: &str, step: &str| format!("factors/{id}/{step}");
    let proof = |challenge: &str, code: &str| json!({"challenge_id": challenge, "code": code});

    let enrolments = [
        (json!({}), INVALID),
        (json!({"factor_type": 5}), NOT_JSON),
        (json!({"factor_type": "TOTP"}), INVALID),
        (json!({"factor_type": "sms"}), INVALID),
        (json!({"factor_type": "totp", "friendly_name": "x".repeat(256)}), INVALID),
        (json!({"factor_type": "totp", "friendly_name": "x", "issuer": "x".repeat(3000)}), INVALID),
        (json!({"factor_type": "totp", "friendly_name": "x", "issuer": {}}), NOT_JSON),
        (json!({"factor_type": "totp", "friendly_name": "phone app"}), (422, "mfa_factor_name_conflict")),
        (json!({"factor_type": "phone", "friendly_name": "x"}), INVALID),
        (json!({"factor_type": "phone", "friendly_name": "x", "phone": "call me"}), INVALID),
        (json!({"factor_type": "phone", "friendly_name": "x", "phone": "+0123456789"}), INVALID),
        (json!({"factor_type": "phone", "friendly_name": "x", "phone": "१५५५०००११११"}), INVALID),
    ];
    let mut cases: Vec<Case> =
        enrolments.into_iter().map(|(body, error)| case(Ada, "POST", "factors", body, error)).collect();
    for body in ["", "[]", "{", "\"totp\"", r#"{"factor_type":"totp","friendly_name":"a\u0000b"}"#, r#"{"a":"\ud800"}"#]
    {
        cases.push(raw(Ada, "factors", body.as_bytes(), NOT_JSON));
    }
    cases.push(raw(Ada, "factors", &vec![b' '; 1_100_000], (413, "request_entity_too_large")));

    let of_another = (404, "mfa_factor_not_found");
    let not_uuid = (404, "validation_failed");
    for id in [hers.id.as_str(), UNKNOWN] {
        cases.push(case(Ada, "POST", &to(id, "challenge"), json!({}), of_another));
        cases.push(case(Ada, "POST", &to(id, "verify"), proof(&theirs, "123456"), of_another));
        cases.push(case(Ada, "DELETE", &format!("factors/{id}"), json!({}), of_another));
    }
    for id in ["1", "x%00y", "..%2fusers", "%F0%9F%94%91"] {
        cases.push(case(Ada, "POST", &to(id, "challenge"), json!({}), not_uuid));
        cases.push(case(Ada, "DELETE", &format!("factors/{id}"), json!({}), not_uuid));
    }
    let verify_own = to(&own.id, "verify");
    for (body, error) in [
        (json!({}), INVALID),
        (proof(&open, ""), INVALID),
        (json!({"challenge_id": open, "code": 123456}), NOT_JSON),
        (json!({"challenge_id": "x", "code": "123456"}), NOT_JSON),
        (json!({"code": "123456"}), (422, "mfa_factor_not_found")),
        (proof(&theirs, "123456"), (422, "mfa_factor_not_found")),
        (proof(UNKNOWN, "123456"), (422, "mfa_factor_not_found")),
        (proof(&used, "123456"), (422, "mfa_ip_address_mismatch")),
    ] {
        cases.push(case(Ada, "POST", &verify_own, body, error));
    }
    let long = "1".repeat(100_000);
    for code in ["12345", "1234567", "abcdef", "１２３４５６", "12 456", "\u{202e}123456", &long] {
        cases.push(case(Ada, "POST", &verify_own, proof(&open, code), (422, "mfa_verification_failed")));
    }
    cases.push(case(Visitor, "POST", "factors", json!({"factor_type": "totp"}), (401, "no_authorization")));
    cases.push(case(Visitor, "POST", &verify_own, proof(&open, "123456"), (401, "no_authorization")));
    let recover = "factors/recovery-codes/verify";
    cases.push(case(Ada, "POST", recover, json!({}), INVALID));
    cases.push(case(Ada, "POST", recover, json!({"code": []}), NOT_JSON));
    cases.push(case(Ada, "POST", recover, json!({"code": "abcd-efgh-ijkl-mnop"}), (422, "mfa_verification_failed")));
    assert_rejected(&t, &ada, cases).await;

    t.clock().advance(time::Duration::seconds(300));
    let code = code_at(&hers.secret, t.clock().now());
    let response = eve.posts(&to(&hers.id, "verify"), &proof(&late, &code)).await;
    assert_eq!(response.rejection(), (422, "mfa_challenge_expired".into()));
}

#[tokio::test]
async fn malformed_requests_about_passkeys_are_rejected() {
    const INVALID: (u16, &str) = (400, "validation_failed");
    const NOT_FOUND: (u16, &str) = (400, "webauthn_challenge_not_found");
    let t = TestServer::with_auth(with_everything).await;
    let ada = t.member(ADA).await;
    let begun = ada.posts("passkeys/registration/options", &json!({})).await.expect(200).json();
    let (registration, verify) = (&begun["challenge_id"], "passkeys/registration/verify");
    let sign_in = "passkeys/authentication/verify";
    let mut cases = Vec::new();
    for (sender, path) in [(Ada, verify), (Visitor, sign_in)] {
        for (body, error) in [
            (json!({}), INVALID),
            (json!({"challenge_id": "", "credential": {}}), INVALID),
            (json!({"challenge_id": UNKNOWN}), INVALID),
            (json!({"challenge_id": UNKNOWN, "credential": null}), INVALID),
            (json!({"challenge_id": "x", "credential": {}}), INVALID),
            (json!({"challenge_id": 5, "credential": {}}), (400, "bad_json")),
            (json!({"challenge_id": UNKNOWN, "credential": {}}), NOT_FOUND),
            (json!({"challenge_id": UNKNOWN, "credential": [1]}), NOT_FOUND),
        ] {
            cases.push(case(sender, "POST", path, body, error));
        }
        cases.push(raw(sender, path, b"[]", (400, "bad_json")));
    }
    // A challenge of another ceremony
    cases.push(case(Visitor, "POST", sign_in, json!({"challenge_id": registration, "credential": {}}), NOT_FOUND));
    cases.push(case(Visitor, "POST", verify, json!({"challenge_id": registration}), (401, "no_authorization")));
    let name = |name: &str| json!({"friendly_name": name});
    for (method, id, body, error) in [
        ("PATCH", "x", name("phone"), (404, "validation_failed")),
        ("PATCH", UNKNOWN, name("phone"), (404, "validation_failed")),
        ("PATCH", UNKNOWN, name(""), INVALID),
        ("PATCH", UNKNOWN, name(&"é".repeat(61)), INVALID),
        ("PATCH", UNKNOWN, json!({"friendly_name": 1}), (400, "bad_json")),
        ("DELETE", "x", json!({}), (404, "validation_failed")),
        ("DELETE", UNKNOWN, json!({}), (404, "validation_failed")),
    ] {
        cases.push(case(Ada, method, &format!("passkeys/{id}"), body, error));
    }
    assert_rejected(&t, &ada, cases).await;
}

#[tokio::test]
async fn malformed_messages_of_wallets_are_rejected() {
    const INVALID: (u16, &str) = (400, "validation_failed");
    let t = TestServer::with_auth(with_everything).await;
    let ada = t.member(ADA).await;
    let now = t.clock().now().format(&Rfc3339).unwrap();
    let ethereum = format!(
        "app.example wants you to sign in with your Ethereum account:\n0x{}\n\nWelcome\n\nURI: https://app.example/\n\
         Version: 1\nChain ID: 1\nIssued At: {now}",
        "1".repeat(40)
    );
    let solana = ethereum
        .replace("Ethereum", "Solana")
        .replace(&format!("0x{}", "1".repeat(40)), &"1".repeat(44))
        .replace("Chain ID: 1", "Chain ID: solana:mainnet");
    let (hex, base64) = (format!("0x{}", "1b".repeat(65)), "A".repeat(86));
    let with = |chain: &str, message: &str, signature: &str| json!({"chain": chain, "message": message, "signature": signature});
    let changed = |from: &str, to: &str| ethereum.replace(from, to);
    let mut cases = Vec::new();
    let mut rejected = |body: Value, error: (u16, &'static str)| {
        cases.push(case(Visitor, "POST", "token?grant_type=web3", body, error));
    };
    rejected(json!({}), (400, "web3_unsupported_chain"));
    rejected(json!({"chain": 5}), (400, "bad_json"));
    rejected(json!({"chain": "Ethereum"}), (400, "web3_unsupported_chain"));
    for message in [
        String::new(),
        "x".repeat(63),
        "x".repeat(20_481),
        "x\n".repeat(40),
        ethereum.replace('\n', "\r\n"),
        ethereum.replace('\n', "\r"),
        changed("app.example wants", "https://app.example wants"),
        changed("app.example wants", "127.0.0.1 wants"),
        changed("app.example wants", " wants"),
        changed("0x1111", "0x111"),
        changed("0x1111", "0xg111"),
        changed("\n\nWelcome", "\nWelcome"),
        changed("URI: https://app.example/", "URI: app"),
        changed("URI: https://app.example/\n", ""),
        changed("Version: 1", "Version: 2"),
        changed("Version: 1\n", ""),
        changed("Chain ID: 1", "Chain ID: 0"),
        changed("Chain ID: 1", "Chain ID: solana:mainnet"),
        changed("Chain ID: 1", "no colon"),
        changed("Issued At", "Issued"),
        changed(&now, "yesterday"),
        changed(&now, "2026-01-01 00:00"),
        format!("{ethereum}\nExpiration Time: 2000-01-01T00:00:00Z"),
        format!("{ethereum}\nExpiration Time: 9999-01-01T00:00:00Z\nNot Before: 9999-01-02T00:00:00Z"),
        format!("{ethereum}\nResources:\n- nothing"),
    ] {
        rejected(with("ethereum", &message, &hex), INVALID);
    }
    for message in [solana.replace("1111", "111!"), solana.replace("mainnet", "moon"), ethereum.clone()] {
        rejected(with("solana", &message, &base64), INVALID);
    }
    for signature in ["", "0x", "1b", &hex[..130], &format!("{hex}00")] {
        rejected(with("ethereum", &ethereum, signature), INVALID);
    }
    for signature in ["", &base64[..85], &"!".repeat(86), &hex] {
        rejected(with("solana", &solana, signature), INVALID);
    }
    // Of the right form, by another wallet or by none
    for signature in [hex.clone(), "1b".repeat(65), format!("0x{}", "zz".repeat(65)), format!("0x{}", "00".repeat(65))]
    {
        rejected(with("ethereum", &ethereum, &signature), (400, "invalid_grant"));
    }
    for address in ["1".repeat(44), "0".repeat(44), "z".repeat(32)] {
        rejected(with("solana", &solana.replace(&"1".repeat(44), &address), &base64), (400, "invalid_grant"));
    }
    cases.push(raw(
        Visitor,
        "token?grant_type=web3",
        br#"{"chain":"ethereum","message":"a\u0000b","signature":"x"}"#,
        (400, "bad_json"),
    ));
    assert_rejected(&t, &ada, cases).await;
}

#[tokio::test]
async fn malformed_requests_of_administrators_are_rejected() {
    const INVALID: (u16, &str) = (400, "validation_failed");
    let t = TestServer::with_auth(with_everything).await;
    let (own, ada) = with_totp(&t, ADA).await;
    let (hers, eve) = with_totp(&t, EVE).await;
    let id = ada.id();
    let not_json = (400, "bad_json");
    let mut cases = Vec::new();
    let mut rejected = |method: &'static str, path: &str, body: Value, error: (u16, &'static str)| {
        cases.push(case(Administrator, method, path, body, error));
    };
    for (body, error) in [
        (json!({}), INVALID),
        (json!({"email": 5}), not_json),
        (json!({"email": "ada"}), INVALID),
        (json!({"email": ADA}), (422, "email_exists")),
        (json!({"phone": "x"}), INVALID),
        (json!({"email": "new@example.com", "password": "a", "password_hash": "b"}), INVALID),
        (json!({"email": "new@example.com", "password": "x".repeat(73)}), INVALID),
        (json!({"email": "new@example.com", "id": "x"}), INVALID),
        (json!({"email": "new@example.com", "id": "00000000-0000-0000-0000-000000000000"}), INVALID),
        (json!({"email": "new@example.com", "ban_duration": "a while"}), INVALID),
        (json!({"email": "new@example.com", "role": "x".repeat(256)}), INVALID),
        (json!({"email": "new@example.com", "user_metadata": []}), not_json),
        (json!({"email": "new@example.com", "app_metadata": "x"}), not_json),
    ] {
        rejected("POST", "admin/users", body, error);
    }
    let this = format!("admin/users/{id}");
    rejected("GET", "admin/users/x", json!({}), (404, "validation_failed"));
    rejected("GET", &format!("admin/users/{UNKNOWN}"), json!({}), (404, "user_not_found"));
    rejected("PUT", &format!("admin/users/{UNKNOWN}"), json!({}), (404, "user_not_found"));
    rejected("DELETE", &format!("admin/users/{UNKNOWN}"), json!({}), (404, "user_not_found"));
    rejected("PUT", &this, json!({"password": ""}), (422, "weak_password"));
    rejected("PUT", &this, json!({"email": "x"}), INVALID);
    rejected("PUT", &this, json!({"ban_duration": "-"}), INVALID);
    rejected("PUT", &this, json!({"email_confirm": "yes"}), not_json);
    rejected("DELETE", &this, json!({"should_soft_delete": "yes"}), not_json);
    for query in ["page=x", "per_page=-1", "page=99999999999999999999", "sort=email", "sort=created_at+up"] {
        rejected("GET", &format!("admin/users?{query}"), json!({}), INVALID);
    }
    for query in ["query=x:y", "query=author", "page=x"] {
        rejected("GET", &format!("admin/audit?{query}"), json!({}), INVALID);
    }
    for (kind, error) in [
        (json!({}), INVALID),
        (json!({"type": "magiclink"}), INVALID),
        (json!({"type": "phone_change", "email": ADA}), INVALID),
        (json!({"type": "recovery", "email": "new@example.com"}), (404, "user_not_found")),
        (json!({"type": "signup", "email": "new@example.com"}), INVALID),
        (json!({"type": "signup", "email": "new@example.com", "password": "x"}), (422, "weak_password")),
        (json!({"type": "invite", "email": ADA}), (422, "email_exists")),
        (json!({"type": "email_change_new", "email": ADA, "new_email": "x"}), INVALID),
        (json!({"type": "email_change_new", "email": ADA, "new_email": EVE}), (422, "email_exists")),
        (json!({"type": "magiclink", "email": ADA, "data": 5}), not_json),
    ] {
        rejected("POST", "admin/generate_link", kind, error);
    }
    rejected("POST", "invite", json!({}), INVALID);
    rejected("POST", "invite", json!({"email": ADA}), (422, "email_exists"));
    let factor = |id: &str| format!("{this}/factors/{id}");
    rejected("DELETE", &factor("x"), json!({}), (404, "validation_failed"));
    rejected("DELETE", &factor(&hers.id), json!({}), (404, "mfa_factor_not_found"));
    rejected("PUT", &factor(&hers.id), json!({"friendly_name": "x"}), (404, "mfa_factor_not_found"));
    rejected("PUT", &factor(&own.id), json!({"friendly_name": "x".repeat(256)}), INVALID);
    rejected("DELETE", &format!("{this}/passkeys/x"), json!({}), (404, "validation_failed"));
    rejected("DELETE", &format!("{this}/passkeys/{UNKNOWN}"), json!({}), (404, "validation_failed"));
    rejected("GET", "admin/users/x/passkeys", json!({}), (404, "validation_failed"));
    rejected("POST", "admin/custom-providers", json!({}), INVALID);
    rejected("GET", "admin/custom-providers/custom:none", json!({}), (404, "custom_provider_not_found"));
    for (sender, error) in [(Ada, (403, "not_admin")), (Visitor, (401, "no_authorization"))] {
        for (method, path) in [("GET", "admin/users"), ("DELETE", &*this), ("POST", "invite"), ("GET", "admin/audit")] {
            cases.push(case(sender, method, path, json!({}), error));
        }
    }
    assert_rejected(&t, &ada, cases).await;
    eve.reads_account().await.expect(200);
}
