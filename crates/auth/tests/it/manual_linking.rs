//! Linking and unlinking identities by a signed-in user.

use futures_util::future::join_all;
use portico_testkit::{Member, TestServer, claims_of};
use serde_json::json;

use crate::account_rules::linking;
use crate::oauth::{ADA, authorize, count, error_of};

#[tokio::test]
async fn a_signed_in_user_links_and_unlinks() {
    let server = TestServer::with_auth(|auth| auth.manual_linking = true).await;
    let eve = server.member("eve@example.com").await;
    let linked = eve.links_google(ADA).await.expect(302);
    assert!(linked.location_fragment("access_token").is_some(), "{linked:?}");
    let user = eve.account().await;
    assert_eq!(user["identities"].as_array().unwrap().len(), 2);
    assert_eq!(user["email"], "eve@example.com");
    assert_eq!(user["user_metadata"].get("full_name"), None, "linking does not merge metadata");
    assert_eq!(user["app_metadata"]["providers"], json!(["email", "google"]));

    // Already linked, to this account and to another
    let again = eve.links_google(ADA).await.expect(302);
    assert_eq!(error_of(&again).1.as_deref(), Some("identity_already_exists"));
    assert_eq!(again.location_query("error_description").as_deref(), Some("Identity is already linked"));
    let bob = server.member("bob@example.com").await;
    let elsewhere = bob.links_google(ADA).await.expect(302);
    assert_eq!(
        elsewhere.location_query("error_description").as_deref(),
        Some("Identity is already linked to another user")
    );

    let (google, email) = (&eve.identity("google").await, &eve.identity("email").await);
    assert_eq!(eve.unlinks("nonsense").await.rejection(), (404, "validation_failed".into()));
    let unknown = eve.unlinks("0f6b3f6e-8f0c-4f6b-9a53-0b8f1d4f7a10").await;
    assert_eq!(unknown.rejection(), (422, "identity_not_found".into()));
    assert_eq!(bob.unlinks(google).await.rejection(), (422, "single_identity_not_deletable".into()));
    assert_eq!(eve.unlinks(google).await.expect(200).json(), json!({}));
    assert_eq!(eve.unlinks(email).await.rejection(), (422, "single_identity_not_deletable".into()));
    let actions = server.actions().await;
    assert!(actions.contains(&"identity_unlinked".to_owned()));
}

#[tokio::test]
async fn unlinking_the_identity_of_the_address_promotes_another_address() {
    let server = TestServer::with_auth(|auth| auth.manual_linking = true).await;
    let eve = server.member("eve@example.com").await;
    eve.links_google(ADA).await.expect(302);
    eve.unlinks(&eve.identity("email").await).await.expect(200);
    let user = eve.account().await;
    assert_eq!(user["email"], "ada@example.com");
    assert!(user["email_confirmed_at"].is_string());
    assert_eq!(user["app_metadata"], json!({"provider": "google", "providers": ["google"]}));
}

#[tokio::test]
async fn an_anonymous_user_becomes_permanent_by_linking() {
    let server = linking(|_| {}).await;
    let guest = server.anonymous_member().await;
    guest.links_google(ADA).await.expect(302);
    let user = guest.account().await;
    assert_eq!(user["id"], guest.id());
    assert_eq!((&user["is_anonymous"], &user["email"]), (&json!(false), &json!("ada@example.com")));
    assert!(user["email_confirmed_at"].is_string());
}

#[tokio::test]
async fn manual_linking_is_disabled_by_default() {
    let server = TestServer::start().await;
    let eve = server.member("eve@example.com").await;
    assert_eq!(eve.begins_google_link(None).await.rejection(), (404, "manual_linking_disabled".into()));
    let response = eve.unlinks(&eve.identity("email").await).await;
    assert_eq!(response.rejection(), (404, "manual_linking_disabled".into()));
    let body = json!({"provider": "google", "id_token": "x", "link_identity": true});
    let response = eve.posts("token?grant_type=id_token", &body).await;
    assert_eq!(response.rejection(), (404, "manual_linking_disabled".into()));
}

/// Creates an account with an email and a linked Google identity.
async fn with_two_identities(server: &TestServer) -> Member<'_> {
    let eve = server.member("eve@example.com").await;
    eve.links_google(ADA).await.expect(302);
    eve
}

#[tokio::test]
async fn concurrent_unlinks_leave_one_identity() {
    let server = TestServer::with_auth(|auth| auth.manual_linking = true).await;
    let eve = with_two_identities(&server).await;
    let (email, google) = (eve.identity("email").await, eve.identity("google").await);
    let responses = join_all([&email, &google, &email, &google].map(|id| eve.unlinks(id))).await;
    assert_eq!(responses.iter().filter(|response| response.status == 200).count(), 1);
    for response in responses.iter().filter(|response| response.status != 200) {
        assert_eq!(response.rejection(), (422, "single_identity_not_deletable".into()));
    }
    assert_eq!(count(&server, "identities").await, 1);
}

#[tokio::test]
async fn a_sign_in_with_an_identity_that_is_being_unlinked_creates_another_account() {
    let server = TestServer::with_auth(|auth| auth.manual_linking = true).await;
    let google = with_two_identities(&server).await.identity("google").await;
    let back = server.google().decide(&authorize(&server, "").await, ADA).await;
    // The unlink has locked the account when the sign-in starts
    let other = portico_database::scratch::connect(server.endpoint()).await.unwrap();
    other
        .batch_execute(&format!(
            "begin; select 1 from auth.users for no key update; delete from auth.identities where id = '{google}'"
        ))
        .await
        .unwrap();
    let finish = async {
        let waits =
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%for no key update'";
        while server.count(waits).await == 0 {
            tokio::task::yield_now().await;
        }
        other.batch_execute("commit").await.unwrap();
    };
    let (response, ()) = tokio::join!(server.get(back.as_str()).send(), finish);
    assert_eq!(claims_of(server.member_of(&response).access_token())["email"], "ada@example.com");
    assert_eq!(count(&server, "users").await, 2);
}

#[tokio::test]
async fn owners_are_notified_of_linked_and_unlinked_identities() {
    let server = TestServer::with_auth(|auth| {
        auth.manual_linking = true;
        auth.email.notifications =
            vec![portico_mail::MailKind::IdentityLinked, portico_mail::MailKind::IdentityUnlinked];
        auth.email.security_page = Some("https://app.example/app/security".into());
    })
    .await;
    let eve = with_two_identities(&server).await;
    // The first is the confirmation of the account
    let linked = server.nth_mail_to("eve@example.com", 1).await;
    assert_eq!(linked.subject().as_str(), "A new sign-in method was linked to your account");
    assert!(linked.html().contains("with Google."), "{}", linked.html());
    assert!(linked.html().contains("href=\"https://app.example/app/security\""), "{}", linked.html());
    eve.unlinks(&eve.identity("email").await).await.expect(200);
    // To the address that the account had until now
    let unlinked = server.nth_mail_to("eve@example.com", 2).await;
    assert_eq!(unlinked.subject().as_str(), "A sign-in method was removed from your account");
    assert!(server.mails_to("ada@example.com").is_empty());
}
