//! The ceremonies of passkeys, and everything that may be wrong with a response.

use portico_auth::settings::{CaptchaProvider, CaptchaSettings, RelyingPartySettings};
use portico_testkit::{Member, TestResponse, TestServer, claims_of};
use serde_json::{Value, json};
use time::Duration;

use crate::authenticator::{Authenticator, BACKED_UP, PRESENT, VERIFIED, encoded, with_passkeys};

pub const ADA: &str = "ada@example.com";

/// Starts a server with passkeys.
pub async fn server() -> TestServer {
    TestServer::with_auth(with_passkeys).await
}

/// Sends the response to a challenge of a sign-in.
async fn complete_sign_in(t: &TestServer, body: &Value) -> TestResponse {
    t.post("/auth/v1/passkeys/authentication/verify").json(body).send().await
}

/// Returns the body of a response to a challenge.
pub fn challenge_response(begun: &Value, credential: &Value) -> Value {
    json!({ "challenge_id": begun["challenge_id"], "credential": credential })
}

/// Begins a registration, which may be rejected.
pub async fn try_to_begin_registration(member: &Member<'_>) -> TestResponse {
    member.posts("passkeys/registration/options", &json!({})).await
}

pub async fn begin_registration(member: &Member<'_>) -> Value {
    try_to_begin_registration(member).await.expect(200).json()
}

/// Sends the response to a challenge of a registration.
pub async fn complete_registration(member: &Member<'_>, body: &Value) -> TestResponse {
    member.posts("passkeys/registration/verify", body).await
}

/// Begins a sign-in, which may be rejected.
async fn try_to_begin_sign_in(t: &TestServer, body: &Value) -> TestResponse {
    t.post("/auth/v1/passkeys/authentication/options").json(body).send().await
}

async fn begin_sign_in(t: &TestServer) -> Value {
    try_to_begin_sign_in(t, &json!({})).await.expect(200).json()
}

async fn try_to_register(member: &Member<'_>, authenticator: &mut Authenticator) -> TestResponse {
    let begun = begin_registration(member).await;
    let credential = authenticator.create(&begun["options"]);
    complete_registration(member, &challenge_response(&begun, &credential)).await
}

/// Registers a passkey and returns it.
pub async fn register(member: &Member<'_>, authenticator: &mut Authenticator) -> Value {
    try_to_register(member, authenticator).await.expect(200).json()
}

pub async fn sign_in(t: &TestServer, authenticator: &Authenticator) -> TestResponse {
    let begun = begin_sign_in(t).await;
    complete_sign_in(t, &challenge_response(&begun, &authenticator.get(&begun["options"]))).await
}

const REJECTED: &str = "webauthn_verification_failed";

#[track_caller]
fn assert_rejected(response: &TestResponse, case: &str) {
    assert_eq!(response.rejection(), (400, REJECTED.into()), "{case}");
    assert_eq!(response.json()["msg"], "Credential verification failed", "{case}");
}

#[tokio::test]
async fn a_passkey_is_registered_and_signs_in() {
    let t = server().await;
    let ada = t.member(ADA).await;
    let user_id = ada.id();
    t.execute("update auth.users set raw_user_meta_data = '{\"name\": \"Ada\"}'").await;

    let begun = begin_registration(&ada).await;
    let expires = begun["expires_at"].as_i64().unwrap();
    assert_eq!(expires, t.clock().now().unix_timestamp() + 300);
    let options = &begun["options"];
    assert_eq!(options["rp"], json!({"name": "Acme", "id": "app.example"}));
    let user = json!({"name": ADA, "displayName": "Ada", "id": encoded(user_id.as_bytes())});
    assert_eq!(options["user"], user);
    assert_eq!(options["challenge"].as_str().unwrap().len(), 43, "32 bytes in base64url");
    let algorithms: Vec<i64> = options["pubKeyCredParams"]
        .as_array()
        .unwrap()
        .iter()
        .map(|offered| {
            assert_eq!(offered["type"], "public-key");
            offered["alg"].as_i64().unwrap()
        })
        .collect();
    assert_eq!(algorithms, [-7, -35, -36, -257, -258, -259, -37, -38, -39, -8]);
    assert_eq!(options["timeout"], 300_000);
    let selection = json!({"residentKey": "required", "userVerification": "preferred"});
    assert_eq!(options["authenticatorSelection"], selection);
    assert_eq!(options["attestation"], "none");
    assert!(options.get("excludeCredentials").is_none());

    let mut authenticator = Authenticator::new();
    authenticator.aaguid = *b"\xba\xda\x55\x66\xa7\xaa\x40\x1f\xbd\x96\x45\x61\x9a\x55\x12\x0d";
    authenticator.flags |= BACKED_UP;
    let credential = authenticator.create(options);
    let passkey = complete_registration(&ada, &challenge_response(&begun, &credential)).await.expect(200).json();
    assert_eq!(passkey["friendly_name"], "1Password");
    assert_eq!(passkey.as_object().unwrap().len(), 3);
    assert!(passkey["created_at"].is_string());
    let row = &t.query("select credential_id, attestation_type, aaguid::text, sign_count, transports::text, backup_eligible, backed_up, user_id::text from auth.webauthn_credentials").await[0];
    assert_eq!(row.get::<_, Vec<u8>>(0), authenticator.credential_id);
    let stored: (String, String, i64, String) = (row.get(1), row.get(2), row.get(3), row.get(4));
    let expected = ("none", "bada5566-a7aa-401f-bd96-45619a55120d", 1, "[\"hybrid\", \"internal\"]");
    assert_eq!((&*stored.0, &*stored.1, stored.2, &*stored.3), expected);
    assert!(row.get::<_, bool>(5) && row.get::<_, bool>(6));
    assert_eq!(row.get::<_, String>(7), user_id);

    // The next registration excludes it
    let again = begin_registration(&ada).await;
    let excluded = json!([{"type": "public-key", "id": encoded(&authenticator.credential_id)}]);
    assert_eq!(again["options"]["excludeCredentials"], excluded);

    t.clock().advance(Duration::minutes(1));
    let begun = begin_sign_in(&t).await;
    let mut options = begun["options"].clone();
    assert_eq!(options["challenge"].take().as_str().unwrap().len(), 43);
    let expected =
        json!({"challenge": null, "timeout": 300_000, "rpId": "app.example", "userVerification": "preferred"});
    assert_eq!(options, expected);
    authenticator.sign_count = 7;
    let credential = authenticator.get(&begun["options"]);
    let tokens = complete_sign_in(&t, &challenge_response(&begun, &credential)).await.expect(200).json();
    assert_eq!(tokens["user"]["id"], user_id);
    assert_eq!(tokens["token_type"], "bearer");
    assert!(tokens["refresh_token"].is_string() && tokens["expires_in"].is_i64());
    let claims = claims_of(tokens["access_token"].as_str().unwrap());
    assert_eq!((&claims["aal"], &claims["amr"][0]["method"]), (&json!("aal1"), &json!("passkey")));
    assert_eq!(t.count("select sign_count from auth.webauthn_credentials where last_used_at is not null").await, 7);
    assert_eq!(t.actions().await, ["user_confirmation_requested", "login", "passkey_created", "login"]);
    let audited = "select payload->'traits'->>'passkey_id', ip_address from auth.audit_log_entries where payload->'traits'->>'passkey_id' is not null order by created_at";
    let audited = t.query(audited).await;
    assert_eq!(audited.len(), 2);
    assert!(audited.iter().all(|row| row.get::<_, &str>(0) == passkey["id"].as_str().unwrap()));
    assert_eq!((audited[0].get::<_, &str>(1), audited[1].get::<_, &str>(1)), ("127.0.0.1", ""));
    // The session can be refreshed like any other
    let refreshed = t.refresh(&tokens).await.expect(200).json();
    let claims = claims_of(refreshed["access_token"].as_str().unwrap());
    assert_eq!(claims["amr"][0]["method"], "passkey");
}

type Change = fn(&mut Authenticator);

/// Circumstances that are wrong in both ceremonies.
const WRONG: [(&str, Change); 8] = [
    ("another origin", |it| it.origin = "https://evil.example".into()),
    ("an origin without encryption", |it| it.origin = "http://app.example".into()),
    ("an origin that only begins alike", |it| it.origin = "https://app.example.evil.example".into()),
    ("a page of this machine", |it| it.origin = "http://localhost:3000".into()),
    ("another relying party", |it| it.rp_id = "evil.example".into()),
    ("another challenge", |it| it.challenge = Some(encoded(&[1; 32]))),
    ("an absent person", |it| it.flags = VERIFIED),
    ("a payment", |it| it.ceremony = Some("payment.get")),
];

#[tokio::test]
async fn a_wrong_response_registers_nothing() {
    let t = server().await;
    let ada = t.member(ADA).await;
    for (case, change) in WRONG {
        let mut authenticator = Authenticator::new();
        change(&mut authenticator);
        assert_rejected(&try_to_register(&ada, &mut authenticator).await, case);
    }
    let mut assertion = Authenticator::new();
    assertion.ceremony = Some("webauthn.get");
    assert_rejected(&try_to_register(&ada, &mut assertion).await, "an assertion");
    assert_eq!(t.count("select count(*) from auth.webauthn_credentials").await, 0);
    assert_eq!(t.count("select count(*) from auth.webauthn_challenges").await, 0, "each challenge was used");
}

#[tokio::test]
async fn a_wrong_response_does_not_sign_in() {
    let t = server().await;
    let ada = t.member(ADA).await;
    let mut own = Authenticator::new();
    register(&ada, &mut own).await;
    let sessions = t.count("select count(*) from auth.sessions").await;
    for (case, change) in WRONG {
        let (origin, rp_id, flags) = (own.origin.clone(), own.rp_id.clone(), own.flags);
        change(&mut own);
        assert_rejected(&sign_in(&t, &own).await, case);
        (own.origin, own.rp_id, own.flags, own.challenge, own.ceremony) = (origin, rp_id, flags, None, None);
    }
    // Another key under the same name, an unknown credential, and handles that name no account
    let mut other = Authenticator::new();
    other.user_handle = own.user_handle.clone();
    assert_rejected(&sign_in(&t, &other).await, "an unknown credential");
    other.credential_id.clone_from(&own.credential_id);
    assert_rejected(&sign_in(&t, &other).await, "another key");
    let handle = own.user_handle.take();
    for wrong in [None, Some(""), Some("AAAA"), Some("MDAwMDAwMDAtMDAwMC0wMDAwLTAwMDAtMDAwMDAwMDAwMDAw")] {
        own.user_handle = wrong.map(str::to_owned);
        assert_rejected(&sign_in(&t, &own).await, "a handle of no account");
    }
    own.user_handle = handle;
    // The eligibility for backups was another one at the registration
    own.flags |= BACKED_UP;
    assert_rejected(&sign_in(&t, &own).await, "another eligibility");
    own.flags = PRESENT | VERIFIED;
    assert_eq!(t.count("select count(*) from auth.sessions").await, sessions);
    let failed = "select count(*) from auth.audit_log_entries where payload->>'action' = 'login_failed' and payload->'traits'->>'provider' = 'passkey'";
    assert!(t.count(failed).await >= 10);
    sign_in(&t, &own).await.expect(200);
}

#[tokio::test]
async fn a_passkey_signs_in_to_the_account_of_its_owner_only() {
    let t = server().await;
    let (mut of_ada, mut of_eve) = (Authenticator::new(), Authenticator::new());
    let ada = t.member(ADA).await;
    let eve = t.member("eve@example.com").await;
    register(&ada, &mut of_ada).await;
    register(&eve, &mut of_eve).await;
    // Eve's key with the handle of Ada
    let own = of_eve.user_handle.clone();
    of_eve.user_handle.clone_from(&of_ada.user_handle);
    assert_rejected(&sign_in(&t, &of_eve).await, "another person's handle");
    // Eve's key under the name of Ada's credential
    let id = std::mem::replace(&mut of_eve.credential_id, of_ada.credential_id.clone());
    assert_rejected(&sign_in(&t, &of_eve).await, "another person's credential");
    (of_eve.user_handle, of_eve.credential_id) = (own, id);
    let signed_in = sign_in(&t, &of_eve).await.expect(200).json();
    assert_eq!(signed_in["user"]["email"], "eve@example.com");

    // A credential is registered once, and the challenge of another account is not one's own
    of_eve.credential_id.clone_from(&of_ada.credential_id);
    let taken = try_to_register(&eve, &mut of_eve).await;
    assert_eq!(taken.rejection(), (422, "webauthn_credential_exists".into()));
    let begun = begin_registration(&ada).await;
    let credential = Authenticator::new().create(&begun["options"]);
    let foreign = complete_registration(&eve, &challenge_response(&begun, &credential)).await;
    assert_eq!(foreign.rejection(), (400, "webauthn_challenge_not_found".into()));
    complete_registration(&ada, &challenge_response(&begun, &credential)).await.expect(200);
    assert_eq!(t.count("select count(*) from auth.webauthn_credentials").await, 3);
}

#[tokio::test]
async fn a_challenge_is_used_once_for_its_ceremony_and_in_time() {
    let t = server().await;
    let ada = t.member(ADA).await;
    let mut authenticator = Authenticator::new();
    let begun = begin_registration(&ada).await;
    let response = challenge_response(&begun, &authenticator.create(&begun["options"]));
    complete_registration(&ada, &response).await.expect(200);
    let unknown = (400, "webauthn_challenge_not_found".to_owned());
    let repeated = complete_registration(&ada, &response).await;
    assert_eq!(repeated.rejection(), unknown);
    assert_eq!(repeated.json()["msg"], "Challenge not found or already used");

    // The response to a sign-in, repeated, and twice at the same time
    let begun = begin_sign_in(&t).await;
    let response = challenge_response(&begun, &authenticator.get(&begun["options"]));
    let (one, other) = tokio::join!(complete_sign_in(&t, &response), complete_sign_in(&t, &response));
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 400]);
    assert_eq!(complete_sign_in(&t, &response).await.rejection(), unknown);

    // A rejected response uses the challenge as well
    let begun = begin_sign_in(&t).await;
    let mut changed = Authenticator::new();
    changed.user_handle.clone_from(&authenticator.user_handle);
    assert_rejected(&complete_sign_in(&t, &challenge_response(&begun, &changed.get(&begun["options"]))).await, "");
    let response = challenge_response(&begun, &authenticator.get(&begun["options"]));
    assert_eq!(complete_sign_in(&t, &response).await.rejection(), unknown);

    // A challenge of the other ceremony
    let begun = begin_registration(&ada).await;
    let response = challenge_response(&begun, &authenticator.get(&begun["options"]));
    assert_eq!(complete_sign_in(&t, &response).await.rejection(), unknown);
    let begun = begin_sign_in(&t).await;
    let mut next = Authenticator::new();
    let registration = json!({"challenge": begun["options"]["challenge"], "user": {"id": "AAAA"}});
    let response = challenge_response(&begun, &next.create(&registration));
    assert_eq!(complete_registration(&ada, &response).await.rejection(), unknown);

    // Too late
    let begun = begin_sign_in(&t).await;
    let registration = begin_registration(&ada).await;
    t.clock().advance(Duration::seconds(300));
    let response = challenge_response(&begun, &authenticator.get(&begun["options"]));
    let late = complete_sign_in(&t, &response).await;
    assert_eq!(late.rejection(), (400, "webauthn_challenge_expired".into()));
    assert_eq!(late.json()["msg"], "Challenge has expired");
    let response = challenge_response(&registration, &next.create(&registration["options"]));
    let late = complete_registration(&ada, &response).await;
    assert_eq!(late.rejection(), (400, "webauthn_challenge_expired".into()));
    t.clean_up().await;
    t.clock().advance(Duration::seconds(1));
    t.clean_up().await;
    assert_eq!(t.count("select count(*) from auth.webauthn_challenges").await, 0);
    sign_in(&t, &authenticator).await.expect(200);
}

#[tokio::test]
async fn a_counter_that_goes_back_is_reported_and_not_stored() {
    let t = server().await;
    let ada = t.member(ADA).await;
    let mut authenticator = Authenticator::new();
    authenticator.sign_count = 5;
    register(&ada, &mut authenticator).await;
    let reported = "select count(*) from auth.audit_log_entries where payload->'traits'->>'counter_went_back' = 'true'";
    for (counter, stored, back) in [(6, 6, 0), (6, 6, 1), (3, 6, 2), (0, 6, 3), (9, 9, 3)] {
        authenticator.sign_count = counter;
        t.clock().advance(Duration::seconds(1));
        sign_in(&t, &authenticator).await.expect(200);
        assert_eq!(t.count("select sign_count from auth.webauthn_credentials").await, stored);
        assert_eq!(t.count(reported).await, back, "{counter}");
    }
    // Authenticators without a counter report 0 always
    let mut without = Authenticator::new();
    without.sign_count = 0;
    register(&ada, &mut without).await;
    sign_in(&t, &without).await.expect(200);
    assert_eq!(t.count(reported).await, 3);
}

#[tokio::test]
async fn an_unverified_person_is_rejected_where_verification_is_required() {
    let t = server().await;
    let ada = t.member(ADA).await;
    let mut authenticator = Authenticator::new();
    authenticator.flags = PRESENT;
    register(&ada, &mut authenticator).await;
    sign_in(&t, &authenticator).await.expect(200);

    let t = TestServer::with_auth(|settings| {
        with_passkeys(settings);
        settings.passkeys.require_user_verification = true;
    })
    .await;
    let ada = t.member(ADA).await;
    let begun = begin_registration(&ada).await;
    assert_eq!(begun["options"]["authenticatorSelection"]["userVerification"], "required");
    assert_eq!(begin_sign_in(&t).await["options"]["userVerification"], "required");
    assert_rejected(&try_to_register(&ada, &mut authenticator).await, "a registration");
    authenticator.flags = PRESENT | VERIFIED;
    register(&ada, &mut authenticator).await;
    authenticator.flags = PRESENT;
    assert_rejected(&sign_in(&t, &authenticator).await, "a sign-in");
    authenticator.flags = PRESENT | VERIFIED;
    sign_in(&t, &authenticator).await.expect(200);
}

#[tokio::test]
async fn malformed_responses_have_their_texts() {
    let t = server().await;
    let ada = t.member(ADA).await;
    let id = "6f0c0c3e-65b5-4f3c-8a4c-6b8d54b3f1a0";
    for (body, text) in [
        (json!({}), "challenge_id is required"),
        (json!({"credential": {}}), "challenge_id is required"),
        (json!({"challenge_id": id}), "credential is required"),
        (json!({"challenge_id": "x"}), "credential is required"),
        (json!({"challenge_id": id, "credential": null}), "credential is required"),
        (json!({"challenge_id": "x", "credential": {}}), "challenge_id must be a valid UUID"),
    ] {
        for path in ["registration/verify", "authentication/verify"] {
            let response = ada.posts(&format!("passkeys/{path}"), &body).await;
            assert_eq!(response.rejection(), (400, "validation_failed".into()), "{path} {body}");
            assert_eq!(response.json()["msg"], text, "{path} {body}");
        }
    }
    let unknown = json!({"challenge_id": id, "credential": {}});
    let respond_to = async |path: &str| ada.posts(&format!("passkeys/{path}"), &unknown).await.rejection();
    for path in ["registration/verify", "authentication/verify"] {
        assert_eq!(respond_to(path).await, (400, "webauthn_challenge_not_found".into()));
    }
    for wrong in [
        json!({}),
        json!("text"),
        json!([1]),
        json!({"id": "AAAA", "rawId": "AAAA", "type": "password", "response": {}}),
        json!({"id": "*", "rawId": "AAAA", "type": "public-key", "response": {"clientDataJSON": "AAAA"}}),
    ] {
        let begun = begin_registration(&ada).await;
        let response = complete_registration(&ada, &challenge_response(&begun, &wrong)).await;
        assert_eq!(response.rejection(), (400, REJECTED.into()), "{wrong}");
        assert_eq!(response.json()["msg"], "Invalid credential response", "{wrong}");
        let begun = begin_sign_in(&t).await;
        let response = complete_sign_in(&t, &challenge_response(&begun, &wrong)).await;
        assert_eq!(response.json()["msg"], "Invalid credential response", "{wrong}");
    }
    let empty = t.post("/auth/v1/passkeys/authentication/verify").body("").send().await;
    assert_eq!(empty.rejection(), (400, "bad_json".into()));
    let typed = complete_sign_in(&t, &json!({"challenge_id": 1})).await;
    assert_eq!(typed.rejection(), (400, "bad_json".into()));
}

#[tokio::test]
async fn an_owner_who_may_not_sign_in_is_rejected_with_the_reason() {
    let t = server().await;
    let ada = t.member(ADA).await;
    let mut authenticator = Authenticator::new();
    register(&ada, &mut authenticator).await;
    for (state, code, text) in [
        ("banned_until = now() + interval '1 day'", "user_banned", "User is banned"),
        ("phone = '15550001111', banned_until = null", "phone_not_confirmed", "Phone not confirmed"),
        ("email_confirmed_at = null", "email_not_confirmed", "Email not confirmed"),
    ] {
        t.execute(&format!("update auth.users set {state}")).await;
        let response = sign_in(&t, &authenticator).await;
        assert_eq!(response.rejection(), (403, code.into()));
        assert_eq!(response.json()["msg"], text);
    }
    t.execute("update auth.users set email_confirmed_at = now(), phone = null").await;
    sign_in(&t, &authenticator).await.expect(200);
}

#[tokio::test]
async fn sign_ins_are_limited_and_need_the_captcha() {
    let t = TestServer::with_auth(|settings| {
        with_passkeys(settings);
        settings.rate_limits.per_address = true;
        settings.rate_limits.passkeys = 1;
    })
    .await;
    for _ in 0..30 {
        begin_sign_in(&t).await;
    }
    let limited = try_to_begin_sign_in(&t, &json!({})).await;
    assert_eq!(limited.rejection(), (429, "over_request_rate_limit".into()));
    assert_eq!(limited.header("x-ratelimit-name"), Some("passkey-sign-in"));
    t.clock().advance(Duration::seconds(301));
    begin_sign_in(&t).await;

    let t = TestServer::with_auth(|settings| {
        with_passkeys(settings);
        settings.captcha = Some(CaptchaSettings {
            provider: CaptchaProvider::Turnstile,
            secret: "secret".into(),
            timeout: std::time::Duration::from_secs(1),
            verify_url: None,
        });
    })
    .await;
    let body = json!({"gotrue_meta_security": {"captcha_token": null}});
    let refused = try_to_begin_sign_in(&t, &body).await;
    assert_eq!(refused.rejection(), (400, "captcha_failed".into()));
    assert_eq!(t.count("select count(*) from auth.webauthn_challenges").await, 0);
}

#[tokio::test]
async fn passkeys_without_a_relying_party_fail_at_their_use() {
    let t = TestServer::with_auth(|settings| settings.passkeys.enabled = true).await;
    let ada = t.member(ADA).await;
    let failed = try_to_begin_registration(&ada).await.expect(500);
    assert_eq!(failed.json()["msg"], "Failed to initialize WebAuthn");
    try_to_begin_sign_in(&t, &json!({})).await.expect(500);
}

#[tokio::test]
async fn in_development_pages_of_localhost_use_passkeys_at_any_port() {
    let t = TestServer::with_auth(|settings| {
        with_passkeys(settings);
        let of_site = RelyingPartySettings::of_site("http://127.0.0.1:3000", &[]).unwrap();
        settings.relying_party = Some(RelyingPartySettings { any_port_of_localhost: true, ..of_site });
    })
    .await;
    let ada = t.member(ADA).await;
    let mut authenticator = Authenticator::new();
    authenticator.rp_id = "localhost".into();
    for (origin, status) in
        [("http://localhost:5173", 200), ("http://127.0.0.1:5173", 400), ("https://evil.example", 400)]
    {
        authenticator.origin = origin.into();
        authenticator.credential_id = portico_base::random::bytes::<16>().to_vec();
        try_to_register(&ada, &mut authenticator).await.expect(status);
    }
}
