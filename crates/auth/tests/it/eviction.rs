//! The end of sessions ends what was begun in them: links of identities, and changes of contacts.

use portico_auth::AuthSettings;
use portico_testkit::{Member, Pkce, TestResponse, TestServer, google_page, link_in};
use serde_json::json;
use time::Duration;
use url::Url;

use crate::account_rules::linking;
use crate::assurance::{ADA, FACTOR_IS_VERIFIED, contacts, factor_missing, session_gone};
use crate::factors::{EVE, enroll_totp, prove};

const PHONE: &str = "15550001111";

/// Begins a link in a session, up to the return from the provider. Returns the callback's URL.
async fn at_the_provider(t: &TestServer, person: &Member<'_>, pkce: Option<&Pkce>) -> Url {
    let begun = person.begins_google_link(pkce).await.expect(200);
    t.google().decide(&google_page(&begun), ADA).await
}

/// Returns the error of the redirect to the app.
fn error_code(response: &TestResponse) -> Option<String> {
    response.location_query("error_code")
}

#[tokio::test]
async fn a_link_ends_with_the_session_that_began_it() {
    for scope in ["others", "global"] {
        let t = linking(|_| {}).await;
        let owner = t.member(EVE).await;
        let thief = owner.on_another_device().await;
        let back = at_the_provider(&t, &thief, None).await;
        owner.signs_out(scope).await.expect(204);
        let response = t.get(back.as_str()).send().await.expect(302);
        assert_eq!(error_code(&response).as_deref(), Some("session_not_found"), "{scope}");
        assert_eq!(response.location_fragment("access_token"), None);
        assert_eq!(t.count("select count(*) from auth.identities").await, 1);
    }
}

#[tokio::test]
async fn a_link_with_a_proof_key_ends_with_the_session_that_began_it() {
    let t = linking(|_| {}).await;
    let owner = t.member(EVE).await;
    let end_other_sessions = async || {
        let sessions = owner.sends(t.get("/auth/v1/sessions")).send().await.expect(200).json();
        for other in sessions.as_array().unwrap().iter().filter(|session| session["current"] == false) {
            let path = format!("/auth/v1/sessions/{}", other["id"].as_str().unwrap());
            owner.sends(t.delete(&path)).send().await.expect(204);
        }
    };
    // Before the return from the provider
    let (thief, pkce) = (owner.on_another_device().await, Pkce::new());
    let back = at_the_provider(&t, &thief, Some(&pkce)).await;
    end_other_sessions().await;
    let response = t.get(back.as_str()).send().await.expect(302);
    assert_eq!((error_code(&response).as_deref(), response.location_query("code")), (Some("session_not_found"), None));

    // Between the return and the exchange of the code
    let (thief, pkce) = (owner.on_another_device().await, Pkce::new());
    let back = at_the_provider(&t, &thief, Some(&pkce)).await;
    let response = t.get(back.as_str()).send().await.expect(302);
    end_other_sessions().await;
    assert_eq!(t.exchange(&response, &pkce.verifier).await.rejection(), session_gone());
    assert_eq!(t.count("select count(*) from auth.identities").await, 1);
    assert_eq!(t.count("select count(*) from auth.sessions").await, 1, "no session for the thief");

    // A session that is still there finishes its link
    let pkce = Pkce::new();
    let back = at_the_provider(&t, &owner, Some(&pkce)).await;
    let response = t.get(back.as_str()).send().await.expect(302);
    let linked = t.exchange(&response, &pkce.verifier).await.expect(200).json();
    assert_eq!(linked["user"]["identities"].as_array().unwrap().len(), 2);
    t.clock().advance(Duration::hours(26));
    t.clean_up().await;
    assert_eq!(t.count("select count(*) from portico.link_sessions").await, 0);
}

#[tokio::test]
async fn a_link_that_began_before_the_second_factor_needs_it() {
    let t = linking(|_| {}).await;
    let eve = t.member(EVE).await;
    let factor = enroll_totp(&eve, "app").await;
    let pkce = Pkce::new();
    let back = at_the_provider(&t, &eve, None).await;
    let other = at_the_provider(&t, &eve, Some(&pkce)).await;
    let response = t.get(other.as_str()).send().await.expect(302);
    t.execute(FACTOR_IS_VERIFIED).await;
    assert_eq!(error_code(&t.get(back.as_str()).send().await.expect(302)).as_deref(), Some("insufficient_aal"));
    assert_eq!(t.exchange(&response, &pkce.verifier).await.rejection(), factor_missing());
    assert_eq!(t.count("select count(*) from auth.identities").await, 1);
    // The same session has proved it now
    prove(&eve, &factor).await.expect(200);
    t.exchange(&response, &pkce.verifier).await.expect(200);
}

/// Requests changes of the address and the number in a session, and returns how to confirm them.
async fn begin_changes(t: &TestServer, person: &Member<'_>) -> (Url, String) {
    person.changes_account(&json!({"email": "new@example.com"})).await.expect(200);
    person.changes_account(&json!({"phone": PHONE})).await.expect(200);
    let code = t.text_to(PHONE).await.code;
    (link_in(t.mail_to("new@example.com").await.html()), code)
}

/// Confirms the changes, and returns the contacts of the account then.
async fn confirm_changes(t: &TestServer, (link, code): (Url, String)) -> String {
    t.visitor_with_phone(PHONE).verifies("phone_change", &code).await;
    t.get(link.as_str()).send().await;
    contacts(t).await
}

fn changing(settings: &mut AuthSettings) {
    settings.sms.enabled = true;
    settings.email.secure_change = false;
}

/// Ends sessions by a request of the owner while changes wait that the thief began.
async fn end_with_changes(request: &str) -> (TestServer, (Url, String)) {
    let t = TestServer::with_auth(changing).await;
    let owner = t.member(EVE).await;
    let thief = owner.on_another_device().await;
    let begun = begin_changes(&t, &thief).await;
    let (verb, path) = request.split_once(' ').unwrap();
    let path = path.replace("thief", &thief.session_id()).replace("owner", &owner.session_id());
    let request = t.request(verb.parse().unwrap(), &format!("/auth/v1/{path}"));
    owner.sends(request).send().await.expect(204);
    drop((owner, thief));
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
    let owner = t.member(EVE).await;
    let (link, _) = begin_changes(&t, &owner).await;
    owner.sends(t.post("/auth/v1/logout")).send().await.expect(204);
    t.get(link.as_str()).send().await.expect(303);
    assert_eq!(contacts(&t).await, format!("new@example.com {PHONE}"));
}

#[tokio::test]
async fn a_sign_out_of_one_device_leaves_the_changes_that_wait() {
    for request in ["POST logout?scope=local", "DELETE sessions/owner"] {
        let (t, (link, code)) = end_with_changes(request).await;
        t.get(link.as_str()).send().await.expect(303);
        assert_eq!(contacts(&t).await, format!("new@example.com {PHONE}"), "{request}");
        // A confirmation makes the other tokens of the account invalid
        let late = t.visitor_with_phone(PHONE).verifies("phone_change", &code).await;
        assert_eq!(late.status, 403, "{request}");
    }
}

#[tokio::test]
async fn changes_that_wait_end_with_the_first_second_factor() {
    let t = TestServer::with_auth(changing).await;
    let owner = t.member(EVE).await;
    let thief = owner.on_another_device().await;
    let begun = begin_changes(&t, &thief).await;
    let factor = enroll_totp(&owner, "app").await;
    let owner = owner.with_session_of(prove(&owner, &factor).await);
    assert_eq!(owner.session()["user"].get("new_email"), None);
    assert_eq!(confirm_changes(&t, begun).await, EVE);

    // Later proofs leave those of the owner
    t.clock().advance(Duration::minutes(2));
    owner.changes_account(&json!({"email": "new@example.com"})).await.expect(200);
    prove(&owner, &factor).await.expect(200);
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
        let mut eve = t.member(EVE).await;
        let first = eve.refresh_token().to_owned();
        // An older token than the last is reuse, the last may have been lost on its way
        for _ in 0..2 {
            eve.refreshes().await.expect(200);
        }
        let begun = begin_changes(&t, &eve).await;
        t.clock().advance(Duration::seconds(11));
        assert_eq!(eve.refreshes_with(&first).await.rejection(), (400, "refresh_token_already_used".into()));
        assert_eq!(confirm_changes(&t, begun).await, EVE, "version {version}");
    }
}

#[tokio::test]
async fn an_anonymous_account_keeps_the_change_that_gives_it_an_address() {
    let t = TestServer::with_auth(|settings| settings.anonymous_users = true).await;
    let guest = t.anonymous_member().await;
    guest.changes_account(&json!({"email": "new@example.com"})).await.expect(200);
    guest.sends(t.post("/auth/v1/logout")).send().await.expect(204);
    let link = link_in(t.mail_to("new@example.com").await.html());
    let opened = t.get(link.as_str()).send().await;
    assert!(opened.location_fragment("access_token").is_some(), "{opened:?}");
}
