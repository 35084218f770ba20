//! A one-time token of any kind works once, in any of its forms.

use portico_auth::AuthSettings;
use portico_mail::Email;
use portico_testkit::{Pkce, TestResponse, TestServer, code_in, link_in};
use serde_json::{Value, json};
use time::Duration;

/// A form in which a token is presented.
enum Form {
    /// `POST /verify`
    Verify(Value),
    /// `GET /verify`
    Link(String),
    /// `POST /token?grant_type=pkce`
    Exchange(Value),
    /// `PUT /user` of the bearer, with the nonce
    Nonce(String, String),
}

/// The result of a use.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Outcome {
    Session,
    Code,
    FirstOfTwo,
    Changed,
}
use Outcome::{Changed, Code, FirstOfTwo, Session};

fn settings(settings: &mut AuthSettings) {
    settings.sms.enabled = true;
    settings.sms.max_frequency = std::time::Duration::ZERO;
    settings.rate_limits.emails = None;
    settings.rate_limits.texts = None;
    settings.password_change_needs_reauthentication = true;
    settings.jwt.expiry = std::time::Duration::from_secs(7 * 86_400);
}

async fn post(t: &TestServer, path: &str, body: Value) -> TestResponse {
    t.post(&format!("/auth/v1/{path}")).json(&body).send().await
}

async fn put(t: &TestServer, tokens: &Value, body: Value) -> TestResponse {
    t.put("/auth/v1/user").bearer(tokens["access_token"].as_str().unwrap()).json(&body).send().await
}

/// Returns the forms of the token in an email: digits, hash, link.
fn forms(verify_type: &str, address: &str, mail: &Email) -> Vec<Form> {
    let hash = link_in(mail.html()).query_pairs().find(|(name, _)| name == "token").unwrap().1.into_owned();
    vec![
        Form::Verify(json!({"type": verify_type, "email": address, "token": code_in(mail.html())})),
        Form::Verify(json!({"type": verify_type, "token_hash": hash})),
        Form::Link(format!("/auth/v1/verify?type={verify_type}&token={hash}")),
    ]
}

/// Uses a token, or returns the code of the rejection.
async fn present(t: &TestServer, form: &Form) -> Result<Outcome, String> {
    match form {
        Form::Verify(body) => {
            let answer = post(t, "verify", body.clone()).await;
            match answer.status {
                200 if answer.json()["access_token"].is_string() => Ok(Session),
                200 => Ok(FirstOfTwo),
                _ => Err(answer.rejection().1),
            }
        }
        Form::Link(link) => {
            let answer = t.get(link).send().await.expect(303);
            if let Some(code) = answer.location_fragment("error_code") {
                return Err(code);
            }
            if answer.location_fragment("access_token").is_some() {
                return Ok(Session);
            }
            Ok(if answer.location_query("code").is_some() { Code } else { FirstOfTwo })
        }
        Form::Exchange(body) => {
            let answer = post(t, "token?grant_type=pkce", body.clone()).await;
            if answer.status == 200 { Ok(Session) } else { Err(answer.rejection().1) }
        }
        Form::Nonce(token, nonce) => {
            let password = portico_base::random::alphanumeric(20);
            let body = json!({"password": password, "nonce": nonce});
            let answer = t.put("/auth/v1/user").bearer(token).json(&body).send().await;
            if answer.status == 200 { Ok(Changed) } else { Err(answer.rejection().1) }
        }
    }
}

/// Makes a token of a kind for an account of its own.
async fn make(t: &TestServer, kind: &str, number: usize) -> Vec<Form> {
    let ada = &format!("ada{number}@example.com");
    let new = &format!("lovelace{number}@example.com");
    let phone = &format!("1555{number:07}");
    let password = "correct-horse";
    match kind {
        "signup" | "invite" | "email of a new account" => {
            post(t, "signup", json!({"email": ada, "password": password})).await.expect(200);
            let verify_type = kind.split(' ').next().unwrap();
            if verify_type == "invite" {
                let invite = "update auth.users set invited_at = now(), encrypted_password = '' where email = $1";
                t.query_with(invite, &[ada]).await;
            }
            forms(verify_type, ada, &t.mail_to(ada).await)
        }
        "recovery" | "magiclink" | "email" => {
            t.account(ada, password).await;
            let path = if kind == "recovery" { "recover" } else { "otp" };
            post(t, path, json!({"email": ada})).await.expect(200);
            forms(kind, ada, &t.nth_mail_to(ada, 1).await)
        }
        "recovery with a proof key" => {
            t.account(ada, password).await;
            let body = json!({"email": ada, "code_challenge": Pkce::new().challenge, "code_challenge_method": "s256"});
            post(t, "recover", body).await.expect(200);
            forms("recovery", ada, &t.nth_mail_to(ada, 1).await)
        }
        "email_change at the new address" | "email_change at the old address" | "second email_change" => {
            let tokens = t.signed_in(ada, password).await;
            put(t, &tokens, json!({"email": new})).await.expect(200);
            let (to_new, to_old) = (t.mail_to(new).await, t.nth_mail_to(ada, 1).await);
            if kind.ends_with("old address") {
                return forms("email_change", ada, &to_old);
            }
            if kind.starts_with("second") {
                let first = forms("email_change", ada, &to_old).remove(0);
                assert_eq!(present(t, &first).await, Ok(FirstOfTwo));
            }
            forms("email_change", new, &to_new)
        }
        "sms" => {
            post(t, "otp", json!({"phone": phone})).await.expect(200);
            let code = t.text_to(phone).await.code;
            vec![Form::Verify(json!({"type": "sms", "phone": phone, "token": code}))]
        }
        "phone_change" => {
            let tokens = t.signed_in(ada, password).await;
            put(t, &tokens, json!({"phone": phone})).await.expect(200);
            let code = t.text_to(phone).await.code;
            vec![Form::Verify(json!({"type": "phone_change", "phone": phone, "token": code}))]
        }
        "code of a proof key" => {
            let pkce = Pkce::new();
            let body = json!({"email": ada, "password": password,
                              "code_challenge": pkce.challenge, "code_challenge_method": "s256"});
            post(t, "signup", body).await.expect(200);
            let landed = t.get(link_in(t.mail_to(ada).await.html()).as_str()).send().await.expect(303);
            let code = landed.location_query("code").unwrap();
            vec![Form::Exchange(json!({"auth_code": code, "code_verifier": pkce.verifier}))]
        }
        "nonce" => {
            let tokens = t.signed_in(ada, password).await;
            t.clock().advance(Duration::hours(25));
            let token = tokens["access_token"].as_str().unwrap();
            t.get("/auth/v1/reauthenticate").bearer(token).send().await.expect(200);
            let nonce: String = t.nth_mail_to(ada, 1).await.subject().as_str().chars().take(6).collect();
            vec![Form::Nonce(token.to_owned(), nonce)]
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn every_kind_of_token_in_every_form_works_once() {
    let t = TestServer::with_auth(settings).await;
    let mut number = 0;
    for (kind, worth, refusal) in [
        ("signup", [Session, Session, Session], "otp_expired"),
        ("invite", [Session, Session, Session], "otp_expired"),
        ("email of a new account", [Session, Session, Session], "otp_expired"),
        ("recovery", [Session, Session, Session], "otp_expired"),
        ("recovery with a proof key", [Session, Session, Code], "otp_expired"),
        ("magiclink", [Session, Session, Session], "otp_expired"),
        ("email", [Session, Session, Session], "otp_expired"),
        ("email_change at the new address", [FirstOfTwo, FirstOfTwo, FirstOfTwo], "otp_expired"),
        ("email_change at the old address", [FirstOfTwo, FirstOfTwo, FirstOfTwo], "otp_expired"),
        ("second email_change", [Session, Session, Session], "otp_expired"),
        ("sms", [Session, Session, Session], "otp_expired"),
        ("phone_change", [Session, Session, Session], "otp_expired"),
        ("code of a proof key", [Session, Session, Session], "flow_state_not_found"),
        // Last, since it moves the clock
        ("nonce", [Changed, Changed, Changed], "reauthentication_not_valid"),
    ] {
        for (used, expected) in worth.into_iter().enumerate() {
            number += 1;
            let forms = make(&t, kind, number).await;
            let Some(first) = forms.get(used) else { break };
            assert_eq!(present(&t, first).await, Ok(expected), "{kind}, form {used}");
            let sessions = t.count("select count(*) from auth.sessions").await;
            for (again, form) in forms.iter().enumerate() {
                assert_eq!(present(&t, form).await, Err(refusal.to_owned()), "{kind}: form {used}, then {again}");
            }
            assert_eq!(t.count("select count(*) from auth.sessions").await, sessions, "{kind}, form {used}");
        }
    }
}
