//! Second factors: their enrolment, list and removal. Also the helpers of the other tests of
//! factors.

use aws_lc_rs::hmac;
use portico_testkit::{Member, TestResponse, TestServer};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

pub(crate) const ADA: &str = "ada@example.com";
pub(crate) const EVE: &str = "eve@example.com";
const UNKNOWN: &str = "00000000-0000-4000-8000-000000000001";

/// Returns the code of a secret at a time (RFC 6238).
pub(crate) fn code_at(secret: &str, at: OffsetDateTime) -> String {
    let key = data_encoding::BASE32_NOPAD.decode(secret.as_bytes()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &key);
    let tag = hmac::sign(&key, &(at.unix_timestamp() / 30).to_be_bytes());
    let offset = usize::from(tag.as_ref()[19] & 15);
    let number = u32::from_be_bytes(tag.as_ref()[offset..offset + 4].try_into().unwrap()) & 0x7fff_ffff;
    format!("{:06}", number % 1_000_000)
}

/// Returns a code that is not accepted now.
pub(crate) fn wrong_code(t: &TestServer, factor: &Totp) -> String {
    let now = t.clock().now();
    let accepted: Vec<String> =
        (-2..=2).map(|step| code_at(&factor.secret, now + Duration::seconds(30 * step))).collect();
    (0..).map(|number| format!("{number:06}")).find(|code| !accepted.contains(code)).unwrap()
}

pub(crate) fn level(member: &Member<'_>) -> String {
    member.claims()["aal"].as_str().unwrap().to_owned()
}

/// Returns the methods in a session's token, sorted.
pub(crate) fn methods(member: &Member<'_>) -> Vec<String> {
    let claims = member.claims();
    let mut methods: Vec<String> =
        claims["amr"].as_array().unwrap().iter().map(|entry| entry["method"].as_str().unwrap().to_owned()).collect();
    methods.sort();
    methods
}

pub(crate) fn refused(response: &TestResponse) -> (u16, String, String) {
    let (status, code) = response.rejection();
    (status, code, response.json()["msg"].as_str().unwrap_or_default().to_owned())
}

pub(crate) fn refusal(status: u16, code: &str, message: &str) -> (u16, String, String) {
    (status, code.to_owned(), message.to_owned())
}

/// An authenticator app.
#[derive(Debug, Clone)]
pub(crate) struct Totp {
    pub(crate) id: String,
    pub(crate) secret: String,
}

pub(crate) async fn enroll(member: &Member<'_>, body: &Value) -> TestResponse {
    member.posts("factors", body).await
}

pub(crate) async fn enroll_totp(member: &Member<'_>, name: &str) -> Totp {
    let body = json!({"factor_type": "totp", "friendly_name": name});
    let factor = enroll(member, &body).await.expect(200).json();
    Totp {
        id: factor["id"].as_str().unwrap().to_owned(),
        secret: factor["totp"]["secret"].as_str().unwrap().to_owned(),
    }
}

pub(crate) async fn challenge(member: &Member<'_>, id: &str) -> TestResponse {
    member.posts(&format!("factors/{id}/challenge"), &json!({})).await
}

pub(crate) async fn challenge_id(member: &Member<'_>, id: &str) -> String {
    challenge(member, id).await.expect(200).json()["id"].as_str().unwrap().to_owned()
}

pub(crate) async fn verify(member: &Member<'_>, id: &str, challenge: &str, code: &str) -> TestResponse {
    member.posts(&format!("factors/{id}/verify"), &json!({"challenge_id": challenge, "code": code})).await
}

/// Proves an authenticator app with its current code. The clock moves on, so that each call has a
/// code of its own.
pub(crate) async fn prove(member: &Member<'_>, factor: &Totp) -> TestResponse {
    let clock = member.server().clock();
    clock.advance(Duration::seconds(30));
    let challenge = challenge_id(member, &factor.id).await;
    verify(member, &factor.id, &challenge, &code_at(&factor.secret, clock.now())).await
}

/// Signs up, and enrolls and verifies an authenticator app. Returns the member at `aal2`.
pub(crate) async fn with_totp<'a>(t: &'a TestServer, email: &str) -> (Totp, Member<'a>) {
    let member = t.member(email).await;
    let factor = enroll_totp(&member, "phone app").await;
    let member = member.with_session_of(prove(&member, &factor).await);
    (factor, member)
}

pub(crate) async fn unenroll(member: &Member<'_>, id: &str) -> TestResponse {
    member.sends(member.server().delete(&format!("/auth/v1/factors/{id}"))).send().await
}

#[tokio::test]
async fn the_routes_need_a_person_with_a_session_and_a_factor_of_their_own() {
    let t = TestServer::with_auth(|settings| settings.anonymous_users = true).await;
    let (eves, eve) = with_totp(&t, EVE).await;
    let ada = t.member(ADA).await;
    let anonymous = t.anonymous_member().await;
    let without_session = t.keys().ring.sign(&json!({
        "sub": ada.id(), "aud": "authenticated", "role": "authenticated",
        "exp": t.clock().now().unix_timestamp() + 3600,
    }));
    let without_session = without_session.unwrap();
    let routes = |id: &str| {
        [
            ("POST", "factors".to_owned()),
            ("POST", format!("factors/{id}/challenge")),
            ("POST", format!("factors/{id}/verify")),
            ("DELETE", format!("factors/{id}")),
        ]
    };
    let send = async |(method, path): &(&str, String), token: Option<&str>| {
        let request = t.request(method.parse().unwrap(), &format!("/auth/v1/{path}")).json(&json!({}));
        match token {
            Some(token) => request.bearer(token).send().await,
            None => request.send().await,
        }
    };
    for route in &routes(&eves.id) {
        let bare = send(route, None).await;
        let needed = "This endpoint requires a valid Bearer token";
        assert_eq!(refused(&bare), refusal(401, "no_authorization", needed), "{route:?}");
        assert_eq!(send(route, Some("a.b.c")).await.rejection(), (403, "bad_jwt".into()), "{route:?}");
        let message = "Anonymous user not allowed to perform these actions";
        let response = send(route, Some(anonymous.access_token())).await;
        assert_eq!(refused(&response), refusal(403, "no_authorization", message), "{route:?}");
    }
    for route in &routes(&eves.id)[1..] {
        let response = send(route, Some(ada.access_token())).await;
        assert_eq!(refused(&response), refusal(404, "mfa_factor_not_found", "Factor not found"), "{route:?}");
    }
    for route in routes(UNKNOWN).iter().skip(1) {
        assert_eq!(
            send(route, Some(eve.access_token())).await.rejection(),
            (404, "mfa_factor_not_found".into()),
            "{route:?}"
        );
    }
    for id in ["7", "x", "%20", "00000000-0000-4000-8000-00000000000g"] {
        for route in &routes(id)[1..] {
            let response = send(route, Some(eve.access_token())).await;
            assert_eq!(refused(&response), refusal(404, "validation_failed", "factor_id must be an UUID"), "{route:?}");
        }
    }
    let response = send(&routes(UNKNOWN)[0], Some(&without_session)).await;
    assert_eq!(response.rejection(), (500, "unexpected_failure".into()));
    assert_eq!(t.count("select count(*) from auth.mfa_factors").await, 1);
}

#[tokio::test]
async fn an_authenticator_app_gets_a_secret_a_uri_and_a_picture() {
    let t = TestServer::with_auth(|settings| settings.site_url = "https://app.acme.example:8443/home".into()).await;
    let ada = t.member(ADA).await;
    let body = json!({"factor_type": "totp", "friendly_name": "phone app", "unknown": [1]});
    let factor = enroll(&ada, &body).await.expect(200).json();
    let keys: Vec<&String> = factor.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["id", "type", "friendly_name", "totp"]);
    assert_eq!((&factor["type"], &factor["friendly_name"]), (&json!("totp"), &json!("phone app")));
    let secret = factor["totp"]["secret"].as_str().unwrap();
    assert_eq!(secret.len(), 32);
    assert_eq!(
        factor["totp"]["uri"],
        format!(
            "otpauth://totp/app.acme.example%3A8443:ada@example.com?algorithm=SHA1&digits=6\
             &issuer=app.acme.example%3A8443&period=30&secret={secret}"
        )
    );
    let picture = factor["totp"]["qr_code"].as_str().unwrap();
    assert!(picture.starts_with("<?xml") && !picture.contains('#'), "{picture}");

    let listed = ada.account().await["factors"].clone();
    let mut keys: Vec<String> = listed[0].as_object().unwrap().keys().cloned().collect();
    keys.sort();
    let expected =
        ["created_at", "factor_type", "friendly_name", "id", "last_challenged_at", "phone", "status", "updated_at"];
    assert_eq!(keys, expected);
    let shown = (&listed[0]["id"], &listed[0]["status"], &listed[0]["phone"], &listed[0]["last_challenged_at"]);
    assert_eq!(shown, (&factor["id"], &json!("unverified"), &json!(""), &Value::Null));
    let entry = t
        .query("select payload::text, ip_address from auth.audit_log_entries where payload->>'action' = 'factor_in_progress'")
        .await;
    let payload: Value = serde_json::from_str(entry[0].get(0)).unwrap();
    assert_eq!((&payload["log_type"], &payload["traits"]), (&json!("factor"), &json!({"factor_id": factor["id"]})));
    assert!(!entry[0].get::<_, String>(1).is_empty());
}

#[tokio::test]
async fn issuers_are_escaped_and_bounded() {
    let t = TestServer::start().await;
    let ada = t.member(ADA).await;
    for (number, (issuer, written)) in [
        ("Acme & Söhne: #1", Some("Acme%20%26%20S%C3%B6hne%3A%20%231")),
        ("a/b?c=d&secret=AAAA", Some("a%2Fb%3Fc%3Dd%26secret%3DAAAA")),
        ("</svg><script>", Some("%3C%2Fsvg%3E%3Cscript%3E")),
        ("line\r\nbreak", Some("line%0D%0Abreak")),
        ("東京", Some("%E6%9D%B1%E4%BA%AC")),
        (&"x".repeat(5000), None),
    ]
    .into_iter()
    .enumerate()
    {
        let body = json!({"factor_type": "totp", "friendly_name": number.to_string(), "issuer": issuer});
        let response = enroll(&ada, &body).await;
        let Some(written) = written else {
            assert_eq!(response.rejection(), (400, "validation_failed".into()));
            continue;
        };
        let factor = response.expect(200).json();
        let uri = factor["totp"]["uri"].as_str().unwrap();
        assert!(uri.starts_with(&format!("otpauth://totp/{written}:ada@example.com?")), "{uri}");
        assert_eq!(url::Url::parse(uri).unwrap().query_pairs().filter(|(name, _)| name == "secret").count(), 1);
        assert!(!factor["totp"]["qr_code"].as_str().unwrap().contains("script"));
    }
}

#[tokio::test]
async fn an_account_without_an_address_is_named_by_its_number() {
    let t = TestServer::with_auth(|settings| {
        settings.sms.enabled = true;
        settings.sms.autoconfirm = true;
    })
    .await;
    let ada = t.member_with(t.visitor_with_phone("15550001111").signs_up().await.expect(200).json());
    let factor = enroll(&ada, &json!({"factor_type": "totp", "issuer": "Acme"})).await.expect(200).json();
    let uri = factor["totp"]["uri"].as_str().unwrap();
    assert!(uri.starts_with("otpauth://totp/Acme:15550001111?"), "{uri}");
    assert_eq!(factor["friendly_name"], "");
}

#[tokio::test]
async fn an_enrolment_is_checked_in_order() {
    let t = TestServer::with_auth(|settings| {
        settings.factors.max_enrolled = 3;
        settings.factors.max_verified = 2;
    })
    .await;
    let ada = t.member(ADA).await;
    let unknown = "factor_type needs to be totp, phone, or webauthn";
    for body in [json!({}), json!({"factor_type": "sms"}), json!({"factor_type": "TOTP"}), json!({"factor_type": null})]
    {
        let response = enroll(&ada, &body).await;
        assert_eq!(refused(&response), refusal(400, "validation_failed", unknown), "{body}");
    }
    assert_eq!(enroll(&ada, &json!({"factor_type": 1})).await.rejection(), (400, "bad_json".into()));
    let phone = enroll(&ada, &json!({"factor_type": "phone"})).await;
    let off = refusal(422, "mfa_phone_enroll_not_enabled", "MFA enroll is disabled for Phone");
    assert_eq!(refused(&phone), off);
    let webauthn = enroll(&ada, &json!({"factor_type": "webauthn"})).await;
    let off = refusal(422, "mfa_webauthn_enroll_not_enabled", "MFA enroll is disabled for WebAuthn");
    assert_eq!(refused(&webauthn), off);
    let long = json!({"factor_type": "totp", "friendly_name": "x".repeat(256)});
    assert_eq!(enroll(&ada, &long).await.rejection(), (400, "validation_failed".into()));

    let first = enroll_totp(&ada, "x").await;
    let again = enroll(&ada, &json!({"factor_type": "totp", "friendly_name": "x"})).await;
    let message = "A factor with the friendly name \"x\" for this user already exists";
    assert_eq!(refused(&again), refusal(422, "mfa_factor_name_conflict", message));
    enroll_totp(&ada, "").await;
    let unnamed = enroll(&ada, &json!({"factor_type": "totp"})).await;
    assert_eq!(unnamed.rejection(), (422, "mfa_factor_name_conflict".into()));
    enroll_totp(&ada, "z").await;
    let too_many = "Maximum number of verified factors reached, unenroll to continue";
    let body = json!({"factor_type": "totp", "friendly_name": "w"});
    let response = enroll(&ada, &body).await;
    assert_eq!(refused(&response), refusal(422, "too_many_enrolled_mfa_factors", too_many));

    // A verified factor replaces the other enrolments of its type
    let strong = ada.with_session_of(prove(&ada, &first).await);
    let weak = t.visitor(ADA).signed_in().await;
    let response = enroll(&weak, &body).await;
    assert_eq!(refused(&response), refusal(403, "insufficient_aal", "AAL2 required to enroll a new factor"));
    let same_name = json!({"factor_type": "totp", "friendly_name": "x"});
    assert_eq!(enroll(&weak, &same_name).await.rejection(), (422, "mfa_factor_name_conflict".into()));
    let second = enroll_totp(&strong, "w").await;
    let strong = strong.with_session_of(prove(&strong, &second).await);
    let body = json!({"factor_type": "totp", "friendly_name": "v"});
    let response = enroll(&strong, &body).await;
    assert_eq!(response.rejection(), (422, "too_many_enrolled_mfa_factors".into()));
}

#[tokio::test]
async fn an_enrolment_that_was_not_continued_makes_room_for_the_next() {
    let t = TestServer::start().await;
    let ada = t.member(ADA).await;
    let body = json!({"factor_type": "totp", "friendly_name": "x"});
    let abandoned = enroll_totp(&ada, "x").await;
    t.clock().advance(Duration::seconds(299));
    assert_eq!(enroll(&ada, &body).await.rejection(), (422, "mfa_factor_name_conflict".into()));
    t.clock().advance(Duration::seconds(2));
    let next = enroll_totp(&ada, "x").await;
    assert_eq!(challenge(&ada, &abandoned.id).await.rejection(), (404, "mfa_factor_not_found".into()));
    // One that was challenged stays
    challenge(&ada, &next.id).await.expect(200);
    t.clock().advance(Duration::seconds(301));
    assert_eq!(enroll(&ada, &body).await.rejection(), (422, "mfa_factor_name_conflict".into()));
}

#[tokio::test]
async fn concurrent_enrolments_do_not_exceed_the_limit() {
    let t = TestServer::with_auth(|settings| settings.factors.max_enrolled = 3).await;
    let ada = t.member(ADA).await;
    let bodies: Vec<Value> =
        (0..8).map(|number| json!({"factor_type": "totp", "friendly_name": number.to_string()})).collect();
    let responses = futures_util::future::join_all(bodies.iter().map(|body| enroll(&ada, body))).await;
    assert_eq!(responses.iter().filter(|response| response.status == 200).count(), 3);
    assert_eq!(t.count("select count(*) from auth.mfa_factors").await, 3);
}

#[tokio::test]
async fn a_type_that_is_off_can_neither_be_added_nor_used() {
    let t = TestServer::with_auth(|settings| settings.factors.totp.enroll = false).await;
    let ada = t.member(ADA).await;
    let response = enroll(&ada, &json!({"factor_type": "totp"})).await;
    assert_eq!(refused(&response), refusal(422, "mfa_totp_enroll_not_enabled", "MFA enroll is disabled for TOTP"));
    let t = TestServer::with_auth(|settings| settings.factors.totp.verify = false).await;
    let ada = t.member(ADA).await;
    let factor = enroll_totp(&ada, "x").await;
    let off = refusal(422, "mfa_totp_verify_not_enabled", "MFA verification is disabled for TOTP");
    assert_eq!(refused(&challenge(&ada, &factor.id).await), off);
    assert_eq!(refused(&verify(&ada, &factor.id, UNKNOWN, "123456").await), off);
    let empty = verify(&ada, &factor.id, UNKNOWN, "").await;
    assert_eq!(refused(&empty), refusal(400, "validation_failed", "Code needs to be non-empty"));
}

#[tokio::test]
async fn secrets_are_encrypted_where_a_key_is_configured() {
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
    let t = TestServer::with_auth(|settings| {
        settings.encryption.current = Some("k1".into());
        settings.encryption.keys.insert("k1".into(), key.into());
    })
    .await;
    let (factor, ada) = with_totp(&t, ADA).await;
    let stored = t.query("select secret from auth.mfa_factors").await[0].get::<_, String>(0);
    assert!(stored.contains("aes-gcm-hkdf") && !stored.contains(&factor.secret), "{stored}");
    // A plain secret of a dump is read, and stored encrypted
    t.execute(&format!("update auth.mfa_factors set secret = '{}'", factor.secret)).await;
    prove(&ada, &factor).await.expect(200);
    let stored = t.query("select secret from auth.mfa_factors").await[0].get::<_, String>(0);
    assert!(stored.contains("aes-gcm-hkdf"), "{stored}");
}

#[tokio::test]
async fn a_verified_factor_is_removed_at_aal2_only_and_lowers_the_sessions_that_it_raised() {
    let t = TestServer::start().await;
    let (factor, strong) = with_totp(&t, ADA).await;
    let other = t.visitor(ADA).signed_in().await;
    let other = other.with_session_of(prove(&other, &factor).await);
    let weak = t.visitor(ADA).signed_in().await;
    let response = unenroll(&weak, &factor.id).await;
    assert_eq!(refused(&response), refusal(422, "insufficient_aal", "AAL2 required to unenroll verified factor"));

    assert_eq!(unenroll(&strong, &factor.id).await.expect(200).json(), json!({"id": factor.id}));
    assert!(strong.account().await.get("factors").is_none());
    for member in [&strong, &other] {
        let next = member.refreshed().await;
        assert_eq!((level(&next), methods(&next)), ("aal1".into(), vec!["password".to_owned()]));
    }
    let raised = "select count(*) from auth.sessions where aal <> 'aal1' or factor_id is not null";
    assert_eq!(t.count(raised).await, 0);
    assert_eq!(unenroll(&strong, &factor.id).await.rejection(), (404, "mfa_factor_not_found".into()));
    let entry = t
        .query("select payload::text from auth.audit_log_entries where payload->>'action' = 'factor_unenrolled'")
        .await;
    let payload: Value = serde_json::from_str(entry[0].get(0)).unwrap();
    let session_id = strong.claims()["session_id"].clone();
    let traits = json!({"factor_id": factor.id, "factor_status": "verified", "session_id": session_id});
    assert_eq!(payload["traits"], traits);
}

#[tokio::test]
async fn an_unverified_factor_is_removed_at_any_level() {
    let t = TestServer::start().await;
    let ada = t.member(ADA).await;
    let factor = enroll_totp(&ada, "x").await;
    unenroll(&ada, &factor.id).await.expect(200);
    assert_eq!(t.count("select count(*) from auth.mfa_factors").await, 0);
    enroll_totp(&ada, "x").await;
}

#[tokio::test]
async fn a_session_keeps_its_level_while_another_factor_of_it_remains() {
    let t = TestServer::start().await;
    let (first, ada) = with_totp(&t, ADA).await;
    let second = enroll_totp(&ada, "second").await;
    let ada = ada.with_session_of(prove(&ada, &second).await);
    // The session is bound to the second factor
    unenroll(&ada, &first.id).await.expect(200);
    let ada = ada.refreshed().await;
    assert_eq!((level(&ada), methods(&ada)), ("aal2".into(), vec!["password".to_owned(), "totp".to_owned()]));
    unenroll(&ada, &second.id).await.expect(200);
    assert_eq!(level(&ada.refreshed().await), "aal1");
}
