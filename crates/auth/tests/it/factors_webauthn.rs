//! Security keys as second factors.

use portico_auth::AuthSettings;
use portico_auth::settings::FactorSwitches;
use portico_mail::MailKind;
use portico_testkit::{Member, TestResponse, TestServer};
use serde_json::{Value, json};
use time::Duration;

use crate::authenticator::{Authenticator, BACKED_UP, ORIGIN, VERIFIED, encoded, with_passkeys};
use crate::factors::{ADA, EVE, challenge, enroll, enroll_totp, level, methods, refusal, refused, unenroll, with_totp};

fn with_keys(settings: &mut AuthSettings) {
    with_passkeys(settings);
    settings.factors.webauthn = FactorSwitches { enroll: true, verify: true };
}

async fn server() -> TestServer {
    TestServer::with_auth(with_keys).await
}

async fn enroll_key(member: &Member<'_>, name: &str) -> String {
    let body = json!({"factor_type": "webauthn", "friendly_name": name});
    let factor = enroll(member, &body).await.expect(200).json();
    assert_eq!(factor, json!({"id": factor["id"], "type": "webauthn", "friendly_name": name}));
    factor["id"].as_str().unwrap().to_owned()
}

/// Returns the body of a proof, as the client sends it.
fn proof(begun: &Value, credential: &Value) -> Value {
    json!({
        "challenge_id": begun["id"],
        "webauthn": {
            "type": begun["webauthn"]["type"],
            "rpId": "app.example",
            "rpOrigins": [ORIGIN],
            "credential_response": credential,
        },
    })
}

fn options(begun: &Value) -> &Value {
    &begun["webauthn"]["credential_options"]["publicKey"]
}

async fn verify(member: &Member<'_>, id: &str, body: &Value) -> TestResponse {
    member.posts(&format!("factors/{id}/verify"), body).await
}

async fn begin(member: &Member<'_>, id: &str) -> Value {
    challenge(member, id).await.expect(200).json()
}

async fn try_to_register(member: &Member<'_>, id: &str, key: &mut Authenticator) -> TestResponse {
    let begun = begin(member, id).await;
    let credential = key.create(options(&begun));
    verify(member, id, &proof(&begun, &credential)).await
}

async fn try_to_prove(member: &Member<'_>, id: &str, key: &Authenticator) -> TestResponse {
    let begun = begin(member, id).await;
    let credential = key.get(options(&begun));
    verify(member, id, &proof(&begun, &credential)).await
}

/// Signs up, and registers a key. Returns the factor and the member at `aal2`.
async fn with_key<'a>(t: &'a TestServer, email: &str, key: &mut Authenticator) -> (String, Member<'a>) {
    let ada = t.member(email).await;
    let id = enroll_key(&ada, "blue key").await;
    let raised = ada.with_session_of(try_to_register(&ada, &id, key).await);
    (id, raised)
}

const REJECTED: (u16, &str, &str) = (422, "mfa_verification_failed", "Failed to validate WebAuthn MFA response");

#[track_caller]
fn assert_rejected(response: &TestResponse, case: &str) {
    assert_eq!(refused(response), refusal(REJECTED.0, REJECTED.1, REJECTED.2), "{case}");
}

#[tokio::test]
async fn a_key_is_registered_by_its_first_proof_and_raises_later_sessions() {
    let t = TestServer::with_auth(|settings| {
        with_keys(settings);
        settings.email.notifications = vec![MailKind::MfaFactorEnrolled];
    })
    .await;
    let ada = t.member(ADA).await;
    let user_id = ada.id();
    let id = enroll_key(&ada, "blue key").await;
    let begun = begin(&ada, &id).await;
    assert_eq!((&begun["type"], &begun["webauthn"]["type"]), (&json!("webauthn"), &json!("create")));
    assert_eq!(begun["expires_at"], t.clock().now().unix_timestamp() + 300);
    let mut shown = options(&begun).clone();
    assert_eq!(shown["challenge"].take().as_str().unwrap().len(), 43);
    assert_eq!(shown["pubKeyCredParams"].take().as_array().unwrap().len(), 10);
    let expected = json!({
        "rp": {"id": "app.example", "name": "Acme"},
        "user": {"id": encoded(user_id.as_bytes()), "name": ADA, "displayName": ADA},
        "challenge": null, "pubKeyCredParams": null, "timeout": 300_000, "authenticatorSelection": {},
    });
    assert_eq!(shown, expected);

    let mut key = Authenticator::new();
    key.aaguid = [7; 16];
    let credential = key.create(options(&begun));
    let raised = ada.with_session_of(verify(&ada, &id, &proof(&begun, &credential)).await);
    assert_eq!((level(&raised), methods(&raised)), ("aal2".into(), vec!["mfa/webauthn".into(), "password".into()]));
    let factor = &raised.account().await["factors"][0];
    assert_eq!((&factor["status"], &factor["factor_type"]), (&json!("verified"), &json!("webauthn")));
    assert_eq!(factor["web_authn_aaguid"], "07070707-0707-0707-0707-070707070707");
    assert!(t.nth_mail_to(ADA, 1).await.html().contains("verification method"));
    let actions = t.actions().await;
    assert!(actions.contains(&"verification_attempted".to_owned()));
    assert!(!actions.contains(&"challenge_created".to_owned()));

    t.clock().advance(Duration::minutes(1));
    let ada = t.visitor(ADA).signed_in().await;
    let begun = begin(&ada, &id).await;
    assert_eq!(begun["webauthn"]["type"], "request");
    let mut shown = options(&begun).clone();
    assert_eq!(shown["challenge"].take().as_str().unwrap().len(), 43);
    let listed = json!([{
        "type": "public-key", "id": encoded(&key.credential_id), "transports": ["hybrid", "internal"],
    }]);
    let expected = json!({"challenge": null, "timeout": 300_000, "rpId": "app.example", "allowCredentials": listed});
    assert_eq!(shown, expected);
    let credential = key.get(options(&begun));
    let raised = ada.with_session_of(verify(&ada, &id, &proof(&begun, &credential)).await);
    assert_eq!(level(&raised), "aal2");
    assert_eq!(t.count("select count(*) from auth.mfa_challenges").await, 0, "used challenges are deleted");

    // A second key excludes the first, and either proves the person
    let other = enroll_key(&raised, "red key").await;
    let begun = begin(&raised, &other).await;
    assert_eq!(options(&begun)["excludeCredentials"], listed);
    let mut red = Authenticator::new();
    red.user_handle = None;
    try_to_register(&raised, &other, &mut red).await.expect(200);
    red.user_handle = None;
    let ada = t.visitor(ADA).signed_in().await;
    try_to_prove(&ada, &id, &red).await.expect(200);
    let ada = t.visitor(ADA).signed_in().await;
    let raised = ada.with_session_of(try_to_prove(&ada, &other, &key).await);
    unenroll(&raised, &other).await.expect(200);
    let ada = t.visitor(ADA).signed_in().await;
    assert_rejected(&try_to_prove(&ada, &id, &red).await, "a removed key");
}

type Change = fn(&mut Authenticator);

#[tokio::test]
async fn a_wrong_response_neither_registers_nor_proves_a_key() {
    let changes: [(&str, Change); 6] = [
        ("another origin", |it| it.origin = "https://evil.example".into()),
        ("another relying party", |it| it.rp_id = "evil.example".into()),
        ("another challenge", |it| it.challenge = Some(encoded(&[1; 32]))),
        ("an absent person", |it| it.flags = VERIFIED),
        ("a payment", |it| it.ceremony = Some("payment.get")),
        ("a damaged flag", |it| it.flags |= 1 << 4),
    ];
    let t = server().await;
    let ada = t.member(ADA).await;
    let id = enroll_key(&ada, "blue key").await;
    for (case, change) in changes {
        let mut key = Authenticator::new();
        change(&mut key);
        assert_rejected(&try_to_register(&ada, &id, &mut key).await, case);
    }
    // The challenge stays usable after a rejection
    let begun = begin(&ada, &id).await;
    let mut key = Authenticator::new();
    key.origin = "https://evil.example".into();
    let wrong = proof(&begun, &key.create(options(&begun)));
    assert_rejected(&verify(&ada, &id, &wrong).await, "");
    key.origin = ORIGIN.into();
    let right = proof(&begun, &key.create(options(&begun)));
    let raised = ada.with_session_of(verify(&ada, &id, &right).await);
    // It is used by the proof
    let unknown = refusal(422, "mfa_factor_not_found", "MFA factor with the provided challenge ID not found");
    assert_eq!(refused(&verify(&raised, &id, &right).await), unknown);

    let ada = t.visitor(ADA).signed_in().await;
    for (case, change) in changes {
        let (origin, rp_id, flags) = (key.origin.clone(), key.rp_id.clone(), key.flags);
        change(&mut key);
        assert_rejected(&try_to_prove(&ada, &id, &key).await, case);
        (key.origin, key.rp_id, key.flags, key.challenge, key.ceremony) = (origin, rp_id, flags, None, None);
    }
    key.flags |= BACKED_UP;
    assert_rejected(&try_to_prove(&ada, &id, &key).await, "another eligibility for backups");
    key.flags &= !BACKED_UP;
    let mut other = Authenticator::new();
    other.credential_id.clone_from(&key.credential_id);
    assert_rejected(&try_to_prove(&ada, &id, &other).await, "another key");
    assert_eq!(level(&ada), "aal1");
    assert_eq!(t.count("select count(*) from auth.sessions where aal = 'aal2'").await, 1);
    try_to_prove(&ada, &id, &key).await.expect(200);
}

#[tokio::test]
async fn a_key_proves_its_owner_only_and_a_factor_keeps_its_key() {
    let t = server().await;
    let (mut adas, mut eves) = (Authenticator::new(), Authenticator::new());
    let (ada_factor, _) = with_key(&t, ADA, &mut adas).await;
    let (eve_factor, eve) = with_key(&t, EVE, &mut eves).await;
    let ada = t.visitor(ADA).signed_in().await;
    assert_rejected(&try_to_prove(&ada, &ada_factor, &eves).await, "another person's key");
    // The same credential with the handle of another account
    let own = adas.user_handle.replace(eves.user_handle.clone().unwrap());
    assert_rejected(&try_to_prove(&ada, &ada_factor, &adas).await, "another person's handle");
    adas.user_handle = own;
    // A challenge of another factor
    let begun = begin(&eve, &eve_factor).await;
    let foreign = verify(&ada, &ada_factor, &proof(&begun, &adas.get(options(&begun)))).await;
    assert_eq!(foreign.rejection(), (422, "mfa_factor_not_found".into()));
    // A stranger with the password cannot replace the key of a verified factor
    let begun = begin(&ada, &ada_factor).await;
    let mut own = Authenticator::new();
    let mut registration = options(&begun).clone();
    registration["user"] = json!({"id": "AAAA"});
    let mut body = proof(&begun, &own.create(&registration));
    body["webauthn"]["type"] = json!("create");
    assert_rejected(&verify(&ada, &ada_factor, &body).await, "a new key");
    try_to_prove(&ada, &ada_factor, &adas).await.expect(200);
}

#[tokio::test]
async fn a_challenge_of_a_key_expires_and_is_bound_to_its_state() {
    let t = server().await;
    let ada = t.member(ADA).await;
    let id = enroll_key(&ada, "blue key").await;
    // Two registrations that begin at the same time: the second one finds a verified factor
    let (first, second) = (begin(&ada, &id).await, begin(&ada, &id).await);
    let (mut key, mut other) = (Authenticator::new(), Authenticator::new());
    let raised = ada.with_session_of(verify(&ada, &id, &proof(&first, &key.create(options(&first)))).await);
    let late = verify(&raised, &id, &proof(&second, &other.create(options(&second)))).await;
    assert_rejected(&late, "a second registration");
    let begun = begin(&raised, &id).await;
    t.clock().advance(Duration::seconds(301));
    let late = verify(&raised, &id, &proof(&begun, &key.get(options(&begun)))).await;
    assert_eq!(late.rejection(), (422, "mfa_challenge_expired".into()));
}

#[tokio::test]
async fn malformed_proofs_of_a_key_have_their_texts() {
    let t = server().await;
    let ada = t.member(ADA).await;
    let id = enroll_key(&ada, "blue key").await;
    let begun = begin(&ada, &id).await;
    for (webauthn, text) in [
        (Value::Null, "WebAuthn config required"),
        (json!({}), "WebAuthn type must be create or request"),
        (json!({"type": "get"}), "WebAuthn type must be create or request"),
        (json!({"type": "create"}), "credential_response required"),
        (json!({"type": "create", "credential_response": null}), "credential_response required"),
        (json!({"type": "create", "credential_response": {}}), "Invalid credential_response"),
        (json!({"type": "request", "credential_response": "x"}), "Invalid credential_response"),
    ] {
        let body = json!({"challenge_id": begun["id"], "webauthn": webauthn});
        let response = verify(&ada, &id, &body).await;
        assert_eq!(refused(&response), refusal(400, "validation_failed", text), "{webauthn}");
    }
    let empty = ada.sends(t.post(&format!("/auth/v1/factors/{id}/challenge"))).body("");
    assert_eq!(empty.send().await.rejection(), (400, "bad_json".into()));
}

#[tokio::test]
async fn keys_that_are_switched_off_are_rejected_and_others_stay_usable() {
    let t = TestServer::with_auth(with_passkeys).await;
    let ada = t.member(ADA).await;
    let off = enroll(&ada, &json!({"factor_type": "webauthn"})).await;
    assert_eq!(refused(&off), refusal(422, "mfa_webauthn_enroll_not_enabled", "MFA enroll is disabled for WebAuthn"));
    enroll_totp(&ada, "phone app").await;

    // A person with another factor adds a key with it only
    let t = server().await;
    let (_, raised) = with_totp(&t, ADA).await;
    let low = t.visitor(ADA).signed_in().await;
    let refused_at_low = enroll(&low, &json!({"factor_type": "webauthn", "friendly_name": "key"})).await;
    assert_eq!(refused_at_low.rejection(), (403, "insufficient_aal".into()));
    let id = enroll_key(&raised, "key").await;
    let begun = challenge(&low, &id).await;
    assert_eq!(begun.rejection(), (403, "insufficient_aal".into()));
    try_to_register(&raised, &id, &mut Authenticator::new()).await.expect(200);
}
