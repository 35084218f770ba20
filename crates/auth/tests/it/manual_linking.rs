//! Linking and unlinking identities by a signed-in user.

use futures_util::future::join_all;
use portico_testkit::{TestResponse, TestServer, claims_of};
use serde_json::json;
use url::Url;

use crate::oauth::{ADA, PASSWORD, authorize, count, error_of};

async fn begin_link(server: &TestServer, token: &str) -> TestResponse {
    let target = "/auth/v1/user/identities/authorize?provider=google&skip_http_redirect=true";
    server.get(target).bearer(token).send().await
}

#[tokio::test]
async fn a_signed_in_user_links_and_unlinks() {
    let server = TestServer::with_auth(|auth| auth.manual_linking = true).await;
    let session = server.signed_in("eve@example.com", PASSWORD).await;
    let token = session["access_token"].as_str().unwrap();
    let url: Url = begin_link(&server, token).await.expect(200).json()["url"].as_str().unwrap().parse().unwrap();
    let linked = server.google().answer(&url, ADA).await.expect(302);
    assert!(linked.location_fragment("access_token").is_some(), "{linked:?}");
    let user = server.get("/auth/v1/user").bearer(token).send().await.expect(200).json();
    assert_eq!(user["identities"].as_array().unwrap().len(), 2);
    assert_eq!(user["email"], "eve@example.com");
    assert_eq!(user["user_metadata"].get("full_name"), None, "linking does not merge metadata");
    assert_eq!(user["app_metadata"]["providers"], json!(["email", "google"]));

    // Already linked, to this account and to another
    let url: Url = begin_link(&server, token).await.json()["url"].as_str().unwrap().parse().unwrap();
    let again = server.google().answer(&url, ADA).await.expect(302);
    assert_eq!(error_of(&again).1.as_deref(), Some("identity_already_exists"));
    assert_eq!(again.location_query("error_description").as_deref(), Some("Identity is already linked"));
    let other = server.signed_in("bob@example.com", PASSWORD).await;
    let url: Url = begin_link(&server, other["access_token"].as_str().unwrap()).await.json()["url"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let elsewhere = server.google().answer(&url, ADA).await.expect(302);
    assert_eq!(
        elsewhere.location_query("error_description").as_deref(),
        Some("Identity is already linked to another user")
    );

    let unlink = async |id: &str, token: &str| {
        server.delete(&format!("/auth/v1/user/identities/{id}")).bearer(token).send().await
    };
    let identity_of = |provider: &str| {
        let identities = user["identities"].as_array().unwrap();
        let found = identities.iter().find(|identity| identity["provider"] == provider).unwrap();
        found["identity_id"].as_str().unwrap().to_owned()
    };
    let (google, email) = (&identity_of("google"), &identity_of("email"));
    assert_eq!(unlink("nonsense", token).await.rejection(), (404, "validation_failed".into()));
    assert_eq!(
        unlink("0f6b3f6e-8f0c-4f6b-9a53-0b8f1d4f7a10", token).await.rejection(),
        (422, "identity_not_found".into())
    );
    assert_eq!(
        unlink(google, other["access_token"].as_str().unwrap()).await.rejection(),
        (422, "single_identity_not_deletable".into())
    );
    assert_eq!(unlink(google, token).await.expect(200).json(), json!({}));
    assert_eq!(unlink(email, token).await.rejection(), (422, "single_identity_not_deletable".into()));
    let actions = server.actions().await;
    assert!(actions.contains(&"identity_unlinked".to_owned()));
}

#[tokio::test]
async fn unlinking_the_identity_of_the_address_promotes_another_address() {
    let server = TestServer::with_auth(|auth| auth.manual_linking = true).await;
    let session = server.signed_in("eve@example.com", PASSWORD).await;
    let token = session["access_token"].as_str().unwrap();
    let url: Url = begin_link(&server, token).await.json()["url"].as_str().unwrap().parse().unwrap();
    server.google().answer(&url, ADA).await.expect(302);
    let email = session["user"]["identities"][0]["identity_id"].as_str().unwrap();
    server.delete(&format!("/auth/v1/user/identities/{email}")).bearer(token).send().await.expect(200);
    let user = server.get("/auth/v1/user").bearer(token).send().await.expect(200).json();
    assert_eq!(user["email"], "ada@example.com");
    assert!(user["email_confirmed_at"].is_string());
    assert_eq!(user["app_metadata"], json!({"provider": "google", "providers": ["google"]}));
}

#[tokio::test]
async fn an_anonymous_user_becomes_permanent_by_linking() {
    let server = TestServer::with_auth(|auth| {
        auth.manual_linking = true;
        auth.anonymous_users = true;
    })
    .await;
    let session = server.post("/auth/v1/signup").json(&json!({})).send().await.expect(200).json();
    let token = session["access_token"].as_str().unwrap();
    let url: Url = begin_link(&server, token).await.expect(200).json()["url"].as_str().unwrap().parse().unwrap();
    server.google().answer(&url, ADA).await.expect(302);
    let user = server.get("/auth/v1/user").bearer(token).send().await.expect(200).json();
    assert_eq!(user["id"], session["user"]["id"]);
    assert_eq!((&user["is_anonymous"], &user["email"]), (&json!(false), &json!("ada@example.com")));
    assert!(user["email_confirmed_at"].is_string());
}

#[tokio::test]
async fn manual_linking_is_disabled_by_default() {
    let server = TestServer::start().await;
    let session = server.signed_in("eve@example.com", PASSWORD).await;
    let token = session["access_token"].as_str().unwrap();
    assert_eq!(begin_link(&server, token).await.rejection(), (404, "manual_linking_disabled".into()));
    let id = session["user"]["identities"][0]["identity_id"].as_str().unwrap();
    let answer = server.delete(&format!("/auth/v1/user/identities/{id}")).bearer(token).send().await;
    assert_eq!(answer.rejection(), (404, "manual_linking_disabled".into()));
    let body = json!({"provider": "google", "id_token": "x", "link_identity": true});
    let answer = server.post("/auth/v1/token?grant_type=id_token").bearer(token).json(&body).send().await;
    assert_eq!(answer.rejection(), (404, "manual_linking_disabled".into()));
}

/// Creates an account with an email and a linked Google identity. Returns its token and the ids of
/// both.
async fn with_two_identities(server: &TestServer) -> (String, String, String) {
    let session = server.signed_in("eve@example.com", PASSWORD).await;
    let token = session["access_token"].as_str().unwrap().to_owned();
    let url: Url = begin_link(server, &token).await.expect(200).json()["url"].as_str().unwrap().parse().unwrap();
    server.google().answer(&url, ADA).await.expect(302);
    let user = server.get("/auth/v1/user").bearer(&token).send().await.expect(200).json();
    let identity_of = |provider: &str| {
        let identities = user["identities"].as_array().unwrap();
        let found = identities.iter().find(|identity| identity["provider"] == provider).unwrap();
        found["identity_id"].as_str().unwrap().to_owned()
    };
    (token, identity_of("email"), identity_of("google"))
}

#[tokio::test]
async fn concurrent_unlinks_leave_one_identity() {
    let server = TestServer::with_auth(|auth| auth.manual_linking = true).await;
    let (token, email, google) = with_two_identities(&server).await;
    let unlink = |id: &str| server.delete(&format!("/auth/v1/user/identities/{id}")).bearer(&token).send();
    let answers = join_all([&email, &google, &email, &google].map(|id| unlink(id))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(answer.rejection(), (422, "single_identity_not_deletable".into()));
    }
    assert_eq!(count(&server, "identities").await, 1);
}

#[tokio::test]
async fn a_sign_in_with_an_identity_that_is_being_unlinked_creates_another_account() {
    let server = TestServer::with_auth(|auth| auth.manual_linking = true).await;
    let (_, _, google) = with_two_identities(&server).await;
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
    let (answer, ()) = tokio::join!(server.get(back.as_str()).send(), finish);
    let token = answer.location_fragment("access_token").unwrap_or_else(|| panic!("{answer:?}"));
    assert_eq!(claims_of(&token)["email"], "ada@example.com");
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
    let (token, email, _) = with_two_identities(&server).await;
    // The first is the confirmation of the account
    let linked = server.nth_mail_to("eve@example.com", 1).await;
    assert_eq!(linked.subject().as_str(), "A new sign-in method was linked to your account");
    assert!(linked.html().contains("with Google."), "{}", linked.html());
    assert!(linked.html().contains("href=\"https://app.example/app/security\""), "{}", linked.html());
    server.delete(&format!("/auth/v1/user/identities/{email}")).bearer(&token).send().await.expect(200);
    // To the address that the account had until now
    let unlinked = server.nth_mail_to("eve@example.com", 2).await;
    assert_eq!(unlinked.subject().as_str(), "A sign-in method was removed from your account");
    assert!(server.mails_to("ada@example.com").is_empty());
}
