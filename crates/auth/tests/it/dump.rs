//! Accounts, identities, sessions and tokens of a hosted project, loaded from a dump.
//!
//! Rows of many years: some tokens are empty texts and some NULL, some people have no identity, no
//! password, no metadata or no date, some sessions lack what later versions added. No account is
//! lost, and nothing fails with an internal error.

use portico_auth::session::refresh_token::SessionKey;
use portico_testkit::{TestServer, claims_of};
use serde_json::json;
use uuid::Uuid;

const COUNTED_SESSION: &str = "5e551000-0000-4000-8000-000000000002";
const SESSION_KEY: [u8; 32] = [3; 32];

/// `id` is two hexadecimal digits.
fn user_id(id: &str) -> String {
    format!("00000000-0000-4000-a000-0000000000{id}")
}

/// Returns the dump. The hash with `$2y$` comes from PHP; the other two come from other services.
fn dump() -> String {
    let bcrypt = bcrypt::hash_with_result("bcrypt word", 4).unwrap().format_for_version(bcrypt::Version::TwoY);
    let key = SessionKey::from_column(&base64_of(&SESSION_KEY)).unwrap().to_column();
    DUMP.replace("{argon2}", &argon2_of("hunter42")).replace("{bcrypt}", &bcrypt).replace("{key}", &key)
}

/// Returns a hash in the form of other services, with little memory: the test is about the form.
fn argon2_of(password: &str) -> String {
    use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, Version};
    let salt = argon2::password_hash::SaltString::from_b64("c29tZXNhbHRzYWx0").unwrap();
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::new(1024, 2, 1, None).unwrap());
    argon2.hash_password(password.as_bytes(), &salt).unwrap().to_string()
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

const DUMP: &str = r#"
SET session_replication_role = replica;
SET statement_timeout = 0;
SET standard_conforming_strings = on;
SET client_min_messages = warning;
SET row_security = off;
INSERT INTO "auth"."users" ("instance_id", "id", "aud", "role", "email", "encrypted_password", "email_confirmed_at", "invited_at", "confirmation_token", "confirmation_sent_at", "recovery_token", "recovery_sent_at", "email_change_token_new", "email_change", "email_change_sent_at", "last_sign_in_at", "raw_app_meta_data", "raw_user_meta_data", "is_super_admin", "created_at", "updated_at", "phone", "phone_confirmed_at", "phone_change", "phone_change_token", "phone_change_sent_at", "email_change_token_current", "email_change_confirm_status", "banned_until", "reauthentication_token", "reauthentication_sent_at", "is_sso_user", "deleted_at", "is_anonymous") VALUES
    ('00000000-0000-0000-0000-000000000000', '00000000-0000-4000-a000-0000000000a1', 'authenticated', 'authenticated', 'bcrypt@example.com', '{bcrypt}', '2024-02-01 10:00:00.123456+00', NULL, '', '2024-02-01 09:59:00+00', '', NULL, '', '', NULL, '2024-05-01 10:00:00+00', '{"provider": "email", "providers": ["email"]}', '{"name": "Ada", "big": 12345678901234567890}', NULL, '2024-02-01 09:59:00+00', '2024-05-01 10:00:00+00', NULL, NULL, '', '', NULL, '', 0, NULL, '', NULL, false, NULL, false),
    ('00000000-0000-0000-0000-000000000000', '00000000-0000-4000-a000-0000000000a2', 'authenticated', 'authenticated', 'argon@example.com', '{argon2}', '2021-01-01 00:00:00+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, false),
    ('00000000-0000-0000-0000-000000000000', '00000000-0000-4000-a000-0000000000a3', 'authenticated', 'authenticated', 'firebase@example.com', '$fbscrypt$v=1,n=14,r=8,p=1,ss=Bw==,sk=jxspr8Ki0RYycVU8zykbdLGjFQ3McFUH0uiiTvC8pVMXAn210wjLNmdZJzxUECKbm0QsEmYUSDzZvpjeJ9WmXA==$42xEC+ixf3L2lw==$lSrfV15cpx95/sZS2W9c9Kp6i/LVgQNDNC/qzrCnh1SAyZvqmZqAjTdn3aoItz+VHjoZilo78198JAdRuid5lQ==', '2022-01-01 00:00:00+00', NULL, '', NULL, '', NULL, '', '', NULL, NULL, '{}', 'null', false, '2022-01-01 00:00:00+00', '2022-01-01 00:00:00+00', '', NULL, '', '', NULL, '', 0, NULL, '', NULL, false, NULL, false),
    ('00000000-0000-0000-0000-000000000000', '00000000-0000-4000-a000-0000000000a4', 'authenticated', 'authenticated', NULL, '{bcrypt}', NULL, NULL, '', NULL, '', NULL, '', '', NULL, NULL, '{"provider": "phone", "providers": ["phone"]}', '{}', NULL, '2023-01-01 00:00:00+00', '2023-01-01 00:00:00+00', '15551234567', '2023-01-01 00:00:00+00', '', '', NULL, '', 0, NULL, '', NULL, false, NULL, false),
    ('00000000-0000-0000-0000-000000000000', '00000000-0000-4000-a000-0000000000a5', 'authenticated', 'authenticated', 'waiting@example.com', '{bcrypt}', NULL, NULL, '', '2023-01-01 00:00:00+00', '', NULL, '', '', NULL, NULL, '{"provider": "email", "providers": ["email"]}', '{}', NULL, '2023-01-01 00:00:00+00', '2023-01-01 00:00:00+00', NULL, NULL, '', '', NULL, '', 0, NULL, '', NULL, false, NULL, false),
    ('00000000-0000-0000-0000-000000000000', '00000000-0000-4000-a000-0000000000a6', 'authenticated', 'authenticated', 'google@example.com', NULL, '2023-01-01 00:00:00+00', NULL, '', NULL, '', NULL, '', '', NULL, '2023-06-01 00:00:00+00', '{"provider": "google", "providers": ["google"]}', '{"iss": "https://accounts.google.com", "sub": "1093", "name": "Gus", "email": "google@example.com", "email_verified": true}', NULL, '2023-01-01 00:00:00+00', '2023-06-01 00:00:00+00', NULL, NULL, '', '', NULL, '', 0, NULL, '', NULL, false, NULL, false),
    ('00000000-0000-0000-0000-000000000000', '00000000-0000-4000-a000-0000000000a7', 'authenticated', 'authenticated', '', '', NULL, NULL, '', NULL, '', NULL, '', '', NULL, NULL, '{}', '{}', NULL, '2023-01-01 00:00:00+00', '2023-06-01 00:00:00+00', NULL, NULL, '', '', NULL, '', 0, '2500-01-01 00:00:00+00', '', NULL, false, '2023-06-01 00:00:00+00', false),
    ('00000000-0000-0000-0000-000000000000', '00000000-0000-4000-a000-0000000000a8', 'authenticated', 'authenticated', NULL, '', NULL, NULL, '', NULL, '', NULL, '', '', NULL, NULL, '{}', '{}', NULL, '2024-01-01 00:00:00+00', '2024-01-01 00:00:00+00', NULL, NULL, '', '', NULL, '', 0, NULL, '', NULL, false, NULL, true),
    ('00000000-0000-0000-0000-000000000000', '00000000-0000-4000-a000-0000000000a9', '', '', 'bare@example.com', '', NULL, '2024-01-01 00:00:00+00', '', NULL, '', NULL, '', '', NULL, NULL, NULL, '[]', NULL, NULL, NULL, NULL, NULL, '', '', NULL, '', 0, NULL, '', NULL, false, NULL, false);
INSERT INTO "auth"."identities" ("provider_id", "user_id", "identity_data", "provider", "last_sign_in_at", "created_at", "updated_at", "id") VALUES
    ('00000000-0000-4000-a000-0000000000a1', '00000000-0000-4000-a000-0000000000a1', '{"sub": "00000000-0000-4000-a000-0000000000a1", "email": "bcrypt@example.com", "email_verified": false, "phone_verified": false}', 'email', '2024-02-01 09:59:00+00', '2024-02-01 09:59:00+00', '2024-02-01 09:59:00+00', '1d000000-0000-4000-8000-000000000001'),
    ('00000000-0000-4000-a000-0000000000a3', '00000000-0000-4000-a000-0000000000a3', '{"sub": "00000000-0000-4000-a000-0000000000a3"}', 'email', NULL, NULL, NULL, '1d000000-0000-4000-8000-000000000003'),
    ('1093', '00000000-0000-4000-a000-0000000000a6', '{"iss": "https://accounts.google.com", "sub": "1093", "name": "Gus", "email": "google@example.com", "email_verified": true}', 'google', '2023-06-01 00:00:00+00', '2023-01-01 00:00:00+00', '2023-06-01 00:00:00+00', '1d000000-0000-4000-8000-000000000006');
INSERT INTO "auth"."sessions" ("id", "user_id", "created_at", "updated_at", "factor_id", "aal", "not_after", "refreshed_at", "user_agent", "ip", "tag", "oauth_client_id", "refresh_token_hmac_key", "refresh_token_counter", "scopes") VALUES
    ('5e551000-0000-4000-8000-000000000001', '00000000-0000-4000-a000-0000000000a1', '2024-05-01 10:00:00+00', '2024-05-01 10:00:00+00', NULL, 'aal1', NULL, NULL, 'Mozilla/5.0', '203.0.113.7', NULL, NULL, NULL, NULL, NULL),
    ('5e551000-0000-4000-8000-000000000002', '00000000-0000-4000-a000-0000000000a1', '2024-05-01 10:00:00+00', '2024-05-01 10:00:00+00', NULL, 'aal1', NULL, '2024-05-01 11:00:00.5', 'node', '2001:db8::7', NULL, NULL, '{key}', 41, NULL),
    ('5e551000-0000-4000-8000-000000000003', '00000000-0000-4000-a000-0000000000a2', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    ('5e551000-0000-4000-8000-000000000004', '00000000-0000-4000-a000-0000000000a8', '2024-05-01 10:00:00+00', '2024-05-01 10:00:00+00', NULL, 'aal1', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    ('5e551000-0000-4000-8000-000000000005', '00000000-0000-4000-a000-0000000000a6', '2024-05-01 10:00:00+00', '2024-05-01 10:00:00+00', NULL, 'aal1', NULL, NULL, NULL, NULL, NULL, NULL, 'not a key', 3, NULL);
INSERT INTO "auth"."mfa_amr_claims" ("session_id", "created_at", "updated_at", "authentication_method", "id") VALUES
    ('5e551000-0000-4000-8000-000000000001', '2024-05-01 10:00:00+00', '2024-05-01 10:00:00+00', 'password', 'a3000000-0000-4000-8000-000000000001'),
    ('5e551000-0000-4000-8000-000000000004', '2024-05-01 10:00:00+00', '2024-05-01 10:00:00+00', 'anonymous', 'a3000000-0000-4000-8000-000000000002');
INSERT INTO "auth"."refresh_tokens" ("instance_id", "id", "token", "user_id", "revoked", "created_at", "updated_at", "parent", "session_id") VALUES
    ('00000000-0000-0000-0000-000000000000', 1, 'parentparent', '00000000-0000-4000-a000-0000000000a1', true, '2024-05-01 10:00:00+00', '2024-05-01 11:00:00+00', NULL, '5e551000-0000-4000-8000-000000000001'),
    ('00000000-0000-0000-0000-000000000000', 2, 'currentcurre', '00000000-0000-4000-a000-0000000000a1', false, '2024-05-01 11:00:00+00', '2024-05-01 11:00:00+00', 'parentparent', '5e551000-0000-4000-8000-000000000001'),
    (NULL, 3, 'bareofeveryt', '00000000-0000-4000-a000-0000000000a2', NULL, NULL, NULL, NULL, '5e551000-0000-4000-8000-000000000003'),
    ('00000000-0000-0000-0000-000000000000', 4, 'nosessiontok', '00000000-0000-4000-a000-0000000000a1', false, '2021-05-01 10:00:00+00', '2021-05-01 10:00:00+00', '', NULL),
    ('00000000-0000-0000-0000-000000000000', 5, 'twentytwocharacterslng', '00000000-0000-4000-a000-0000000000a1', false, '2021-05-01 10:00:00+00', '2021-05-01 10:00:00+00', '', NULL),
    ('00000000-0000-0000-0000-000000000000', 6, 'anonymoustok', '00000000-0000-4000-a000-0000000000a8', false, '2024-05-01 10:00:00+00', '2024-05-01 10:00:00+00', '', '5e551000-0000-4000-8000-000000000004'),
    ('00000000-0000-0000-0000-000000000000', 7, 'withbadkeyto', '00000000-0000-4000-a000-0000000000a6', false, '2024-05-01 10:00:00+00', '2024-05-01 10:00:00+00', '', '5e551000-0000-4000-8000-000000000005');
SELECT pg_catalog.setval('"auth"."refresh_tokens_id_seq"', 7, true);
RESET ALL;
"#;

async fn imported() -> TestServer {
    let server = TestServer::with_auth(|auth| {
        auth.sms.enabled = true;
        auth.email.autoconfirm = false;
        auth.anonymous_users = true;
    })
    .await;
    server.execute(&dump()).await;
    server
}

#[tokio::test]
async fn every_form_of_password_signs_in_and_the_account_can_be_changed() {
    let server = imported().await;
    for (id, person) in [
        ("a1", server.visitor("bcrypt@example.com").with_password("bcrypt word")),
        ("a2", server.visitor("argon@example.com").with_password("hunter42")),
        ("a3", server.visitor("Firebase@example.com").with_password("user1password")),
        ("a4", server.visitor_with_phone("+1 555 123 4567").with_password("bcrypt word")),
    ] {
        let wrong = person.clone().with_password("wrong password").signs_in().await;
        assert_eq!(wrong.rejection(), (400, "invalid_credentials".into()), "{id}");
        let session = person.signs_in().await;
        assert_eq!(session.status, 200, "{id} {session:?}");
        let session = session.json();
        let user = &session["user"];
        assert_eq!(user["id"], user_id(id));
        for field in ["app_metadata", "user_metadata"] {
            assert!(user[field].is_object(), "{id}: {field} is {}", user[field]);
        }
        assert!(user["identities"].is_array() && user["phone"].is_string() && user["email"].is_string());
        assert!(user["confirmed_at"].is_string(), "{user}");

        let mut member = server.member_with(session);
        member.refreshes().await.expect(200);
        let changed = member.changes_account(&json!({"data": {"moved": true}})).await.expect(200).json();
        assert_eq!(changed["user_metadata"]["moved"], true);
        member.changes_account(&json!({"password": "a new password"})).await.expect(200);
        member.changes_account(&json!({"email": format!("new-{id}@example.com")})).await.expect(200);
        member.reads_account().await.expect(200);
        person.with_password("a new password").signs_in().await.expect(200);
        member.sends(server.post("/auth/v1/logout")).send().await.expect(204);
    }
}

#[tokio::test]
async fn stored_tokens_stay_valid() {
    let server = imported().await;
    let parent = server.refresh_with("parentparent").await.expect(200).json();
    assert_eq!(parent["refresh_token"], "currentcurre", "whoever lost the answer gets it again");
    let claims = claims_of(parent["access_token"].as_str().unwrap());
    assert_eq!(claims["session_id"], "5e551000-0000-4000-8000-000000000001");
    assert_eq!(claims["amr"][0]["method"], "password");
    let next = server.refresh_with("currentcurre").await.expect(200).json();
    server.refresh_with(next["refresh_token"].as_str().unwrap()).await.expect(200);

    let bare = server.refresh_with("bareofeveryt").await.expect(200).json();
    let claims = claims_of(bare["access_token"].as_str().unwrap());
    assert_eq!((claims["aal"].as_str(), &claims["amr"]), (Some("aal1"), &json!([])));
    server.refresh_with(bare["refresh_token"].as_str().unwrap()).await.expect(200);

    let anonymous = server.refresh_with("anonymoustok").await.expect(200).json();
    assert_eq!(anonymous["user"]["is_anonymous"], true);
    server.refresh_with("withbadkeyto").await.expect(200);

    assert_eq!(server.refresh_with("nosessiontok").await.rejection(), (400, "session_not_found".into()));
    assert_eq!(server.refresh_with("nosessiontok").await.rejection(), (400, "refresh_token_not_found".into()));
    assert_eq!(server.refresh_with("twentytwocharacterslng").await.rejection(), (400, "validation_failed".into()));
}

#[tokio::test]
async fn counted_tokens_stay_valid() {
    let server = imported().await;
    let key = SessionKey::from_column(&base64_of(&SESSION_KEY)).unwrap();
    let session = Uuid::parse_str(COUNTED_SESSION).unwrap();
    let next = server.refresh_with(&key.token(session, 41)).await.expect(200).json();
    assert_eq!(next["refresh_token"], key.token(session, 42));
    assert_eq!(server.refresh_with(&key.token(session, 43)).await.rejection(), (400, "validation_failed".into()));
    // After the reuse interval
    server.clock().advance(time::Duration::minutes(1));
    assert_eq!(
        server.refresh_with(&key.token(session, 7)).await.rejection(),
        (400, "refresh_token_already_used".into())
    );
    let bad = Uuid::parse_str("5e551000-0000-4000-8000-000000000005").unwrap();
    assert_eq!(server.refresh_with(&key.token(bad, 3)).await.rejection(), (400, "refresh_token_not_found".into()));
}

#[tokio::test]
async fn no_row_causes_an_internal_error() {
    let server = imported().await;
    let waiting = server.visitor("waiting@example.com").with_password("bcrypt word").signs_in().await;
    assert_eq!(waiting.rejection(), (400, "email_not_confirmed".into()));
    for email in ["google@example.com", "bare@example.com", ""] {
        let response = server.visitor(email).with_password("").signs_in().await;
        assert_eq!(response.status, 400, "{email:?} {response:?}");
    }
    for email in ["bcrypt", "argon", "firebase", "waiting", "google", "bare", "nobody"] {
        let person = server.visitor(&format!("{email}@example.com"));
        for path in ["recover", "otp", "resend", "signup"] {
            let response = person.posts(path, &json!({"password": "chosen now", "type": "signup"})).await;
            assert!(response.status < 500, "{email} {path} {response:?}");
        }
    }
    for id in ["a1", "a2", "a3", "a4", "a5", "a6", "a8", "a9"] {
        // A token without a session, as the hosted service signed it
        let claims = json!({"sub": user_id(id), "aud": "authenticated", "role": "authenticated",
                            "exp": (server.clock().now() + time::Duration::hours(1)).unix_timestamp()});
        let token =
            portico_tokens::KeyRing::hs256(&portico_tokens::development::JWT_SECRET.into()).sign(&claims).unwrap();
        let member = server.member_with(json!({ "access_token": token }));
        let user = member.account().await;
        assert!(user["user_metadata"].is_object() && user["app_metadata"].is_object(), "{user}");
        for body in [
            json!({"data": {"a": 1}}),
            json!({"password": "chosen later"}),
            json!({"email": format!("later-{id}@example.com")}),
        ] {
            let response = member.changes_account(&body).await;
            assert!(response.status < 500, "{id} {body} {response:?}");
        }
    }
    server.clock().advance(time::Duration::days(400));
    server.clean_up().await;
}

#[tokio::test]
async fn an_imported_google_account_is_found_by_its_identity() {
    let server = imported().await;
    let person = server.visitor("google@example.com");
    person.requests_code().await.expect(200);
    let code = portico_testkit::code_in(server.mail_to("google@example.com").await.html());
    let session = person.verifies("email", &code).await.expect(200).json();
    assert_eq!(session["user"]["id"], user_id("a6"));
    assert_eq!(session["user"]["identities"][0]["id"], "1093");
    assert_eq!(session["user"]["app_metadata"]["provider"], "google");
}

#[tokio::test]
async fn a_ban_is_reported_before_the_state_of_the_session() {
    let server = imported().await;
    let ban = |until: &str| format!("update auth.users set banned_until = {until} where id = '{}'", user_id("a1"));
    server.execute(&ban("'2500-01-01'")).await;
    for _ in 0..2 {
        assert_eq!(server.refresh_with("nosessiontok").await.rejection(), (400, "user_banned".into()));
    }
    server.execute(&ban("null")).await;
    assert_eq!(server.refresh_with("nosessiontok").await.rejection(), (400, "session_not_found".into()));
}

#[tokio::test]
async fn imported_second_factors_are_listed() {
    let server = imported().await;
    server
        .execute(&format!(
            "insert into auth.mfa_factors (id, user_id, friendly_name, factor_type, status, created_at, updated_at, phone,
                 last_challenged_at)
             values ('fac70000-0000-4000-8000-000000000001', '{id}', 'Mine', 'phone', 'verified', '2024-02-01 10:00:00+00',
                 '2024-02-02 10:00:00+00', '15550001111', '2024-05-01 10:00:00.25+00'),
                ('fac70000-0000-4000-8000-000000000002', '{id}', '', 'totp', 'unverified', '2024-02-03 10:00:00+00',
                 '2024-02-03 10:00:00+00', null, null)",
            id = user_id("a1")
        ))
        .await;
    let user = server.visitor("bcrypt@example.com").with_password("bcrypt word").signed_in().await.account().await;
    assert_eq!(
        user["factors"],
        json!([
            {"id": "fac70000-0000-4000-8000-000000000001", "created_at": "2024-02-01T10:00:00Z",
             "updated_at": "2024-02-02T10:00:00Z", "status": "verified", "friendly_name": "Mine", "factor_type": "phone",
             "phone": "15550001111", "last_challenged_at": "2024-05-01T10:00:00.25Z"},
            {"id": "fac70000-0000-4000-8000-000000000002", "created_at": "2024-02-03T10:00:00Z",
             "updated_at": "2024-02-03T10:00:00Z", "status": "unverified", "factor_type": "totp", "phone": "",
             "last_challenged_at": null},
        ])
    );
}
