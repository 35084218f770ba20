//! Hooks in the flows of passkeys and second factors, busy hooks, and what a rejection costs.

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use portico_auth::settings::HookPoint;
use portico_mail::MailKind;
use portico_testkit::GooglePerson;
use serde_json::{Value, json};

use crate::authenticator::{Authenticator, with_passkeys};
use crate::factors::{self, challenge, challenge_id, code_at, enroll, verify};
use crate::factors_phone::with_phone_factors;
use crate::hook_server::{HookRequest, json_response, refused, server_with_hook, with_tenant};
use crate::passkeys;

const ADA: &str = "ada@example.com";
const PASSWORD: &str = "correct horse";
const PHONE: &str = "15550001111";

#[tokio::test]
async fn a_sign_in_with_a_passkey_has_the_claims_of_the_hook() {
    let (t, hook) = server_with_hook(HookPoint::CustomAccessToken, with_passkeys).await;
    hook.respond(with_tenant);
    let ada = t.member(ADA).await;
    let mut authenticator = Authenticator::new();
    passkeys::register(&ada, &mut authenticator).await;
    let before = hook.requests().len();
    let sessions = "select count(*) from auth.sessions";
    let used = "select count(*) from auth.webauthn_credentials where last_used_at is not null";

    hook.respond(|_| refused(403, "Tenant is suspended"));
    let rejected = passkeys::sign_in(&t, &authenticator).await;
    assert_eq!((rejected.status, &rejected.json()["msg"]), (403, &json!("Tenant is suspended")));
    assert_eq!((t.count(sessions).await, t.count(used).await), (1, 0), "nothing is left of it");

    hook.respond(with_tenant);
    let tokens = ada.with_session_of(passkeys::sign_in(&t, &authenticator).await);
    let claims = tokens.claims();
    assert_eq!((&claims["tenant"], &claims["amr"][0]["method"]), (&json!("acme"), &json!("passkey")));
    let inputs = hook.inputs().split_off(before);
    assert_eq!(inputs.len(), 2, "one call for each sign-in");
    assert_eq!(inputs[1]["authentication_method"], "passkey");
    assert_eq!((t.count(sessions).await, t.count(used).await), (2, 1));
}

#[tokio::test]
async fn a_hook_sends_the_codes_of_phones_as_second_factors() {
    let (t, hook) = server_with_hook(HookPoint::SendSms, with_phone_factors).await;
    let ada = t.member(ADA).await;
    let body = json!({"factor_type": "phone", "friendly_name": "mobile", "phone": PHONE});
    let factor = enroll(&ada, &body).await.expect(200).json()["id"].as_str().unwrap().to_owned();

    hook.respond(|_| refused(402, "No credit"));
    let failed = challenge(&ada, &factor).await;
    assert_eq!(failed.rejection(), (500, "unexpected_failure".into()));
    assert_eq!(failed.json()["msg"], "error invoking hook");
    assert_eq!(t.count("select count(*) from auth.mfa_challenges").await, 0);

    // Without a wait: no message was sent
    hook.respond(|_| json_response(&json!({})));
    let challenge = challenge_id(&ada, &factor).await;
    let inputs = hook.inputs();
    assert_eq!(inputs.len(), 2);
    assert_eq!((&inputs[1]["user"]["id"], &inputs[1]["user"]["email"]), (&json!(ada.id()), &json!(ADA)));
    let sms = inputs[1]["sms"].clone();
    assert_eq!((&sms["phone"], &sms["sms_type"]), (&json!(PHONE), &json!("mfa")));
    let raised = ada.with_session_of(verify(&ada, &factor, &challenge, sms["otp"].as_str().unwrap()).await);
    assert_eq!(factors::level(&raised), "aal2");
    assert!(t.texts_to(PHONE).is_empty());
}

#[tokio::test]
async fn a_busy_hook_is_called_three_times_if_it_names_a_time() {
    let (t, hook) = server_with_hook(HookPoint::CustomAccessToken, |_| {}).await;
    t.account(ADA, PASSWORD).await;
    /// Returns a response of an overloaded server.
    fn busy(status: StatusCode) -> Response {
        (status, [("retry-after", "1")]).into_response()
    }
    let calls = std::sync::atomic::AtomicUsize::new(0);
    hook.respond(move |request| match calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => busy(StatusCode::SERVICE_UNAVAILABLE),
        1 => busy(StatusCode::TOO_MANY_REQUESTS),
        _ => with_tenant(request),
    });
    let ada = t.visitor(ADA).signed_in().await;
    assert_eq!(ada.claims()["tenant"], "acme");
    let ids = |requests: &[HookRequest]| -> Vec<String> {
        requests.iter().map(|request| request.headers["webhook-id"].to_str().unwrap().to_owned()).collect()
    };
    let mut received = ids(&hook.requests());
    received.dedup();
    assert_eq!(received.len(), 3, "each attempt has an id of its own");
    assert_eq!(t.count("select count(*) from auth.sessions").await, 1);

    for (respond, attempts) in [(busy as fn(StatusCode) -> Response, 3), (|status| status.into_response(), 1)] {
        let before = hook.requests().len();
        hook.respond(move |_| respond(StatusCode::SERVICE_UNAVAILABLE));
        let failed = t.visitor(ADA).signs_in().await;
        assert_eq!(failed.rejection(), (500, "unexpected_failure".into()));
        assert_eq!(failed.json()["msg"], "Service currently unavailable due to hook");
        assert_eq!(hook.requests().len() - before, attempts);
    }
    assert_eq!(t.count("select count(*) from auth.sessions").await, 1);
}

#[tokio::test]
async fn the_user_in_the_input_of_a_hook_is_the_stored_one() {
    let (t, hook) = server_with_hook(HookPoint::SendEmail, |settings| {
        settings.email.notifications = [MailKind::IdentityLinked].into_iter().collect();
    })
    .await;
    let stored = async || {
        let rows = t.query("select id::text from auth.identities order by provider").await;
        rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>()
    };
    let seen = |input: &Value| -> Vec<String> {
        let identities = input["user"]["identities"].as_array().unwrap();
        identities.iter().map(|identity| identity["identity_id"].as_str().unwrap().to_owned()).collect()
    };
    let ada = t.visitor(ADA);
    let user = ada.signs_up().await.expect(200).json();
    let input = hook.inputs().remove(0);
    assert_eq!(input["user"]["id"], user["id"]);
    assert_eq!(seen(&input), stored().await);
    assert_eq!(user["identities"][0]["identity_id"], seen(&input)[0].as_str());

    // A second identity, of which a notification is sent
    ada.verifies("email", input["email_data"]["token"].as_str().unwrap()).await.expect(200);
    t.google().sign_in(GooglePerson::Verified { name: "Ada", email: ADA }).await.expect(302);
    let input = hook.inputs().pop().unwrap();
    assert_eq!(input["email_data"]["email_action_type"], "identity_linked_notification");
    // An operation that does not need the identities itself
    ada.requests_recovery().await.expect(200);
    let recovery = hook.inputs().pop().unwrap();
    assert_eq!(recovery["email_data"]["email_action_type"], "recovery");
    assert_eq!(seen(&recovery).len(), 2);

    let stored = stored().await;
    assert_eq!(stored.len(), 2);
    assert!(seen(&input).iter().all(|id| stored.contains(id)), "{stored:?} {input}");
}

#[tokio::test]
async fn a_rejection_of_the_access_token_hook_is_no_wrong_guess() {
    let (t, hook) = server_with_hook(HookPoint::CustomAccessToken, |settings| {
        (settings.factors.totp.enroll, settings.factors.totp.verify) = (true, true);
    })
    .await;
    hook.respond(with_tenant);
    let ada = t.member(ADA).await;
    let factor = factors::enroll_totp(&ada, "phone app").await;
    let challenge = challenge_id(&ada, &factor.id).await;
    let code = code_at(&factor.secret, t.clock().now());

    // More often than a wrong secret is accepted from one network
    let responses: [fn(&HookRequest) -> Response; 3] =
        [|_| refused(403, "Tenant is suspended"), |_| "plain".into_response(), |_| refused(429, "Later")];
    for round in 0..12 {
        hook.respond(responses[round % responses.len()]);
        let rejected = t.visitor(ADA).signs_in().await;
        assert_eq!(rejected.header("x-ratelimit-name"), None, "round {round}");
        let rejected = verify(&ada, &factor.id, &challenge, &code).await;
        assert_eq!(rejected.header("x-ratelimit-name"), None, "round {round}");
    }
    for _ in 0..10 {
        assert_eq!(
            t.visitor(ADA).with_password("wrong").signs_in().await.rejection(),
            (400, "invalid_credentials".into())
        );
    }
    assert_eq!(
        t.visitor(ADA).with_password("wrong").signs_in().await.rejection(),
        (429, "over_request_rate_limit".into())
    );
}

#[tokio::test]
async fn a_rejection_of_the_password_hook_counts_whether_the_password_is_right_or_wrong() {
    let (t, hook) = server_with_hook(HookPoint::PasswordVerificationAttempt, |_| {}).await;
    t.account(ADA, PASSWORD).await;
    hook.respond(|_| json_response(&json!({"decision": "reject"})));
    for round in 0..10 {
        let password = if round % 2 == 0 { PASSWORD } else { "wrong" };
        assert_eq!(
            t.visitor(ADA).with_password(password).signs_in().await.rejection(),
            (400, "invalid_credentials".into())
        );
    }
    assert_eq!(t.visitor(ADA).signs_in().await.rejection(), (429, "over_request_rate_limit".into()));
}

#[tokio::test]
async fn a_password_hook_that_is_out_of_order_costs_no_guesses() {
    let (t, hook) = server_with_hook(HookPoint::PasswordVerificationAttempt, |_| {}).await;
    t.account(ADA, PASSWORD).await;
    hook.respond(|_| "plain".into_response());
    for _ in 0..12 {
        assert_eq!(t.visitor(ADA).signs_in().await.rejection(), (400, "hook_payload_invalid_content_type".into()));
    }
    hook.respond(|_| json_response(&json!({"decision": "continue"})));
    t.visitor(ADA).signs_in().await.expect(200);
}
