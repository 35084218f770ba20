//! A one-time token of any kind works once, in any of its forms.

use portico_auth::AuthSettings;
use portico_mail::Email;
use portico_testkit::{Member, Pkce, TestResponse, TestServer, code_in, token_hash_in};
use serde_json::{Value, json};
use time::Duration;

/// A form in which a token is presented.
enum Form<'a> {
    /// `POST /verify`
    Verify(Value),
    /// `GET /verify`
    Link(String),
    /// `POST /token?grant_type=pkce`, with the code of a redirect and its verifier
    Exchange(Box<TestResponse>, String),
    /// `PUT /user` of the member, with the nonce
    Nonce(Member<'a>, String),
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

/// Returns the forms of the token in an email: digits, hash, link.
fn forms(verify_type: &str, address: &str, mail: &Email) -> Vec<Form<'static>> {
    let hash = token_hash_in(mail.html());
    vec![
        Form::Verify(json!({"type": verify_type, "email": address, "token": code_in(mail.html())})),
        Form::Verify(json!({"type": verify_type, "token_hash": hash})),
        Form::Link(format!("/auth/v1/verify?type={verify_type}&token={hash}")),
    ]
}

/// Uses a token, or returns the code of the rejection.
async fn present(t: &TestServer, form: &Form<'_>) -> Result<Outcome, String> {
    match form {
        Form::Verify(body) => {
            let response = t.post("/auth/v1/verify").json(body).send().await;
            match response.status {
                200 if response.json()["access_token"].is_string() => Ok(Session),
                200 => Ok(FirstOfTwo),
                _ => Err(response.rejection().1),
            }
        }
        Form::Link(link) => {
            let response = t.get(link).send().await.expect(303);
            if let Some(code) = response.location_fragment("error_code") {
                return Err(code);
            }
            if response.location_fragment("access_token").is_some() {
                return Ok(Session);
            }
            Ok(if response.location_query("code").is_some() { Code } else { FirstOfTwo })
        }
        Form::Exchange(redirect, verifier) => {
            let response = t.exchange(redirect, verifier).await;
            if response.status == 200 { Ok(Session) } else { Err(response.rejection().1) }
        }
        Form::Nonce(person, nonce) => {
            let password = portico_base::random::alphanumeric(20);
            let response = person.changes_account(&json!({"password": password, "nonce": nonce})).await;
            if response.status == 200 { Ok(Changed) } else { Err(response.rejection().1) }
        }
    }
}

/// Makes a token of a kind for an account of its own.
async fn make<'a>(t: &'a TestServer, kind: &str, number: usize) -> Vec<Form<'a>> {
    let ada = &format!("ada{number}@example.com");
    let new = &format!("lovelace{number}@example.com");
    let phone = &format!("1555{number:07}");
    match kind {
        "signup" | "invite" | "email of a new account" => {
            t.visitor(ada).signs_up().await.expect(200);
            let verify_type = kind.split(' ').next().unwrap();
            if verify_type == "invite" {
                let invite = "update auth.users set invited_at = now(), encrypted_password = '' where email = $1";
                t.query_with(invite, &[ada]).await;
            }
            forms(verify_type, ada, &t.mail_to(ada).await)
        }
        "recovery" | "magiclink" | "email" => {
            t.account(ada, "correct horse").await;
            let requested = match kind {
                "recovery" => t.visitor(ada).requests_recovery().await,
                _ => t.visitor(ada).requests_code().await,
            };
            requested.expect(200);
            forms(kind, ada, &t.nth_mail_to(ada, 1).await)
        }
        "recovery with a proof key" => {
            let key = json!({"code_challenge": Pkce::new().challenge, "code_challenge_method": "s256"});
            t.account(ada, "correct horse").await;
            t.visitor(ada).posts("recover", &key).await.expect(200);
            forms("recovery", ada, &t.nth_mail_to(ada, 1).await)
        }
        "email_change at the new address" | "email_change at the old address" | "second email_change" => {
            t.member(ada).await.changes_account(&json!({"email": new})).await.expect(200);
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
            t.visitor_with_phone(phone).requests_code().await.expect(200);
            let code = t.text_to(phone).await.code;
            vec![Form::Verify(json!({"type": "sms", "phone": phone, "token": code}))]
        }
        "phone_change" => {
            t.member(ada).await.changes_account(&json!({"phone": phone})).await.expect(200);
            let code = t.text_to(phone).await.code;
            vec![Form::Verify(json!({"type": "phone_change", "phone": phone, "token": code}))]
        }
        "code of a proof key" => {
            let pkce = Pkce::new();
            let key = json!({"code_challenge": pkce.challenge, "code_challenge_method": "s256"});
            t.visitor(ada).signs_up_with(&key).await.expect(200);
            let landed = t.visitor(ada).opens_link().await.expect(303);
            vec![Form::Exchange(Box::new(landed), pkce.verifier)]
        }
        "nonce" => {
            let person = t.member(ada).await;
            t.clock().advance(Duration::hours(25));
            person.reauthenticates().await.expect(200);
            let nonce: String = t.nth_mail_to(ada, 1).await.subject().as_str().chars().take(6).collect();
            vec![Form::Nonce(person, nonce)]
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
