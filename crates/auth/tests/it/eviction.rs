//! The end of sessions ends what was begun in them: links of identities, and changes of contacts.

use portico_auth::AuthSettings;
use portico_testkit::{Pkce, TestResponse, TestServer, claims_of, link_in};
use serde_json::{Value, json};
use time::Duration;
use url::Url;

use crate::assurance::{ADA, FACTOR_IS_VERIFIED, contacts, factor_missing, linking, session_gone};
use crate::factors::{EVE, PASSWORD, access, enroll_totp, prove};

const PHONE: &str = "15550001111";

/// Begins a link in a session, up to the return from the provider. Returns the callback's URL.
async fn at_the_provider(t: &TestServer, session: &Value, pkce: Option<&Pkce>) -> Url {
    let mut target = "/auth/v1/user/identities/authorize?provider=google&skip_http_redirect=true".to_owned();
    if let Some(pkce) = pkce {
        target.push_str(&format!("&code_challenge={}&code_challenge_method=s256", pkce.challenge));
    }
    let begun = t.get(&target).bearer(access(session)).send().await.expect(200).json();
    t.google().decide(&begun["url"].as_str().unwrap().parse().unwrap(), ADA).await
}

/// Returns the error of the redirect to the app.
fn error_code(answer: &TestResponse) -> Option<String> {
    answer.location_query("error_code")
}

#[tokio::test]
async fn a_link_ends_with_the_session_that_began_it() {
    for scope in ["others", "global"] {
        let t = linking().await;
        let owner = t.signed_in(EVE, PASSWORD).await;
        let thief = t.sign_in(EVE, PASSWORD).await;
        let back = at_the_provider(&t, &thief, None).await;
        t.post(&format!("/auth/v1/logout?scope={scope}")).bearer(access(&owner)).send().await.expect(204);
        let answer = t.get(back.as_str()).send().await.expect(302);
        assert_eq!(error_code(&answer).as_deref(), Some("session_not_found"), "{scope}");
        assert_eq!(answer.location_fragment("access_token"), None);
        assert_eq!(t.count("select count(*) from auth.identities").await, 1);
    }
}

#[tokio::test]
async fn a_link_with_a_proof_key_ends_with_the_session_that_began_it() {
    let t = linking().await;
    let owner = t.signed_in(EVE, PASSWORD).await;
    let end_other_sessions = async || {
        let sessions = t.get("/auth/v1/sessions").bearer(access(&owner)).send().await.expect(200).json();
        for other in sessions.as_array().unwrap().iter().filter(|session| session["current"] == false) {
            let path = format!("/auth/v1/sessions/{}", other["id"].as_str().unwrap());
            t.delete(&path).bearer(access(&owner)).send().await.expect(204);
        }
    };
    // Before the return from the provider
    let (thief, pkce) = (t.sign_in(EVE, PASSWORD).await, Pkce::new());
    let back = at_the_provider(&t, &thief, Some(&pkce)).await;
    end_other_sessions().await;
    let answer = t.get(back.as_str()).send().await.expect(302);
    assert_eq!((error_code(&answer).as_deref(), answer.location_query("code")), (Some("session_not_found"), None));

    // Between the return and the exchange of the code
    let exchange = async |answer: &TestResponse, pkce: &Pkce| {
        let body = json!({"auth_code": answer.location_query("code"), "code_verifier": pkce.verifier});
        t.post("/auth/v1/token?grant_type=pkce").json(&body).send().await
    };
    let (thief, pkce) = (t.sign_in(EVE, PASSWORD).await, Pkce::new());
    let back = at_the_provider(&t, &thief, Some(&pkce)).await;
    let answer = t.get(back.as_str()).send().await.expect(302);
    end_other_sessions().await;
    assert_eq!(exchange(&answer, &pkce).await.rejection(), session_gone());
    assert_eq!(t.count("select count(*) from auth.identities").await, 1);
    assert_eq!(t.count("select count(*) from auth.sessions").await, 1, "no session for the thief");

    // A session that is still there finishes its link
    let pkce = Pkce::new();
    let back = at_the_provider(&t, &owner, Some(&pkce)).await;
    let answer = t.get(back.as_str()).send().await.expect(302);
    let linked = exchange(&answer, &pkce).await.expect(200).json();
    assert_eq!(linked["user"]["identities"].as_array().unwrap().len(), 2);
    t.clock().advance(Duration::hours(26));
    t.clean_up().await;
    assert_eq!(t.count("select count(*) from portico.link_sessions").await, 0);
}

#[tokio::test]
async fn a_link_that_began_before_the_second_factor_needs_it() {
    let t = linking().await;
    let session = t.signed_in(EVE, PASSWORD).await;
    let factor = enroll_totp(&t, &session, "app").await;
    let pkce = Pkce::new();
    let back = at_the_provider(&t, &session, None).await;
    let other = at_the_provider(&t, &session, Some(&pkce)).await;
    let answer = t.get(other.as_str()).send().await.expect(302);
    t.execute(FACTOR_IS_VERIFIED).await;
    assert_eq!(error_code(&t.get(back.as_str()).send().await.expect(302)).as_deref(), Some("insufficient_aal"));
    let body = json!({"auth_code": answer.location_query("code"), "code_verifier": pkce.verifier});
    let exchange = async || t.post("/auth/v1/token?grant_type=pkce").json(&body).send().await;
    assert_eq!(exchange().await.rejection(), factor_missing());
    assert_eq!(t.count("select count(*) from auth.identities").await, 1);
    // The same session has proved it now
    prove(&t, &session, &factor).await.expect(200);
    exchange().await.expect(200);
}

/// Requests changes of the address and the number in a session, and returns how to confirm them.
async fn begin_changes(t: &TestServer, session: &Value) -> (Url, Value) {
    let change = async |body: Value| t.put("/auth/v1/user").bearer(access(session)).json(&body).send().await;
    change(json!({"email": "new@example.com"})).await.expect(200);
    change(json!({"phone": PHONE})).await.expect(200);
    let code = t.text_to(PHONE).await.code;
    let typed = json!({"type": "phone_change", "phone": PHONE, "token": code});
    (link_in(t.mail_to("new@example.com").await.html()), typed)
}

/// Confirms the changes, and returns the contacts of the account then.
async fn confirm_changes(t: &TestServer, (link, typed): (Url, Value)) -> String {
    t.post("/auth/v1/verify").json(&typed).send().await;
    t.get(link.as_str()).send().await;
    contacts(t).await
}

fn changing(settings: &mut AuthSettings) {
    settings.sms.enabled = true;
    settings.email.secure_change = false;
}

/// Ends sessions by a request of the owner while changes wait that the thief began.
async fn end_with_changes(request: &str) -> (TestServer, (Url, Value)) {
    let t = TestServer::with_auth(changing).await;
    let owner = t.signed_in(EVE, PASSWORD).await;
    let thief = t.sign_in(EVE, PASSWORD).await;
    let begun = begin_changes(&t, &thief).await;
    let id = |session: &Value| claims_of(access(session))["session_id"].as_str().unwrap().to_owned();
    let (verb, path) = request.split_once(' ').unwrap();
    let path = path.replace("thief", &id(&thief)).replace("owner", &id(&owner));
    let request = t.request(verb.parse().unwrap(), &format!("/auth/v1/{path}"));
    request.bearer(access(&owner)).send().await.expect(204);
    (t, begun)
}

#[tokio::test]
async fn changes_that_wait_end_with_the_sessions_of_others() {
    for request in ["POST logout?scope=others", "POST logout?scope=global", "DELETE sessions/thief"] {
        let (t, begun) = end_with_changes(request).await;
        assert_eq!(confirm_changes(&t, begun).await, EVE, "{request}");
    }
}

#[tokio::test]
async fn a_global_sign_out_of_the_only_session_leaves_the_changes_that_wait() {
    let t = TestServer::with_auth(changing).await;
    let owner = t.signed_in(EVE, PASSWORD).await;
    let (link, _) = begin_changes(&t, &owner).await;
    t.post("/auth/v1/logout").bearer(access(&owner)).send().await.expect(204);
    t.get(link.as_str()).send().await.expect(303);
    assert_eq!(contacts(&t).await, format!("new@example.com {PHONE}"));
}

#[tokio::test]
async fn a_sign_out_of_one_device_leaves_the_changes_that_wait() {
    for request in ["POST logout?scope=local", "DELETE sessions/owner"] {
        let (t, (link, typed)) = end_with_changes(request).await;
        t.get(link.as_str()).send().await.expect(303);
        assert_eq!(contacts(&t).await, format!("new@example.com {PHONE}"), "{request}");
        // A confirmation makes the other tokens of the account invalid
        assert_eq!(t.post("/auth/v1/verify").json(&typed).send().await.status, 403, "{request}");
    }
}

#[tokio::test]
async fn changes_that_wait_end_with_the_first_second_factor() {
    let t = TestServer::with_auth(changing).await;
    let owner = t.signed_in(EVE, PASSWORD).await;
    let thief = t.sign_in(EVE, PASSWORD).await;
    let begun = begin_changes(&t, &thief).await;
    let factor = enroll_totp(&t, &owner, "app").await;
    let owner = prove(&t, &owner, &factor).await.expect(200).json();
    assert_eq!(owner["user"].get("new_email"), None);
    assert_eq!(confirm_changes(&t, begun).await, EVE);

    // Later proofs leave those of the owner
    let change = json!({"email": "new@example.com"});
    t.clock().advance(Duration::minutes(2));
    t.put("/auth/v1/user").bearer(access(&owner)).json(&change).send().await.expect(200);
    prove(&t, &owner, &factor).await.expect(200);
    let link = link_in(t.nth_mail_to("new@example.com", 1).await.html());
    t.get(link.as_str()).send().await;
    assert_eq!(contacts(&t).await, "new@example.com");
}

#[tokio::test]
async fn changes_that_wait_end_with_the_reuse_of_a_refresh_token() {
    for version in [1, 2] {
        let t = TestServer::with_auth(|settings| {
            changing(settings);
            settings.refresh.algorithm_version = version;
        })
        .await;
        let stolen = t.signed_in(EVE, PASSWORD).await;
        let refresh = async |token: &str| {
            let body = json!({"refresh_token": token});
            t.post("/auth/v1/token?grant_type=refresh_token").json(&body).send().await
        };
        let first = stolen["refresh_token"].as_str().unwrap().to_owned();
        let mut newest = first.clone();
        // An older token than the last is reuse, the last may have been lost on its way
        for _ in 0..2 {
            let refreshed = refresh(&newest).await.expect(200).json();
            newest = refreshed["refresh_token"].as_str().unwrap().to_owned();
        }
        let begun = begin_changes(&t, &stolen).await;
        t.clock().advance(Duration::seconds(11));
        assert_eq!(refresh(&first).await.rejection(), (400, "refresh_token_already_used".into()));
        assert_eq!(confirm_changes(&t, begun).await, EVE, "version {version}");
    }
}

#[tokio::test]
async fn an_anonymous_account_keeps_the_change_that_gives_it_an_address() {
    let t = TestServer::with_auth(|settings| settings.anonymous_users = true).await;
    let session = t.post("/auth/v1/signup").json(&json!({})).send().await.expect(200).json();
    let change = json!({"email": "new@example.com"});
    t.put("/auth/v1/user").bearer(access(&session)).json(&change).send().await.expect(200);
    t.post("/auth/v1/logout").bearer(access(&session)).send().await.expect(204);
    let link = link_in(t.mail_to("new@example.com").await.html());
    let opened = t.get(link.as_str()).send().await;
    assert!(opened.location_fragment("access_token").is_some(), "{opened:?}");
}
