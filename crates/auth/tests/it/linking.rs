//! Links of identities: only the person who started a link can finish it, not a victim of a forged
//! one.

use portico_testkit::{GooglePerson, Member, Pkce, TestResponse, TestServer, google_page};
use serde_json::json;
use url::Url;

use crate::account_rules::linking;

const PASSWORD: &str = "correct horse";
const ADA: GooglePerson<'static> = GooglePerson::Verified { name: "Ada L", email: "ada@example.com" };
const UNVERIFIED: GooglePerson<'static> = GooglePerson::Unverified { name: "Ada L", email: "new@example.com" };
const EVES: &str = "192.0.2.66";
const ADAS: &str = "198.51.100.7";

/// Starts a link from the address `from`. Returns the URL at the provider.
async fn begin_link(person: &Member<'_>, pkce: Option<&Pkce>, from: &str) -> Url {
    google_page(&person.clone().from_address(from).begins_google_link(pkce).await.expect(200))
}

/// Follows the flow in a browser at the address `from` that has no cookies of this server.
async fn return_to(server: &TestServer, url: &Url, person: GooglePerson<'_>, from: &str) -> TestResponse {
    let back = server.google().decide(url, person).await;
    server.get(back.as_str()).from_another_browser().header("x-forwarded-for", from).send().await
}

async fn google_identities(server: &TestServer) -> i64 {
    server.count("select count(*) from auth.identities where provider = 'google'").await
}

#[tokio::test]
async fn with_pkce_nothing_is_linked_before_the_exchange() {
    let server = linking(|_| {}).await;
    let eve = server.member("eve@example.com").await;
    let pkce = Pkce::new();
    // Eve gives her URL to Ada, whose browser returns with a code that Ada cannot exchange
    let url = begin_link(&eve, Some(&pkce), EVES).await;
    let ada = return_to(&server, &url, ADA, ADAS).await.expect(302);
    assert_eq!(google_identities(&server).await, 0);
    let refused = server.exchange(&ada, &Pkce::new().verifier).await;
    assert_eq!(refused.rejection().1, "bad_code_verifier");
    assert_eq!(google_identities(&server).await, 0);
    // Ada's own sign-in creates her account
    let own = server.google().sign_in(ADA).await.expect(302);
    let own = server.member_of(&own).account().await;
    assert_eq!(own["email"], "ada@example.com");

    // Then the identity is taken, so that the exchange with the verifier is rejected as well
    let late = server.exchange(&ada, &pkce.verifier).await;
    assert_eq!(late.rejection(), (422, "identity_already_exists".into()));
    assert_eq!(eve.account().await["identities"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn with_pkce_the_exchange_links_and_signs_in_once() {
    let server = linking(|_| {}).await;
    let guest = server.anonymous_member().await;
    let pkce = Pkce::new();
    let url = begin_link(&guest, Some(&pkce), ADAS).await;
    // The network does not matter: the verifier proves the app
    let response = return_to(&server, &url, ADA, EVES).await.expect(302);
    let session = server.exchange(&response, &pkce.verifier).await.expect(200).json();
    assert!(session["provider_token"].is_string());
    let user = &session["user"];
    assert_eq!(user["id"], guest.account().await["id"]);
    assert_eq!((&user["is_anonymous"], &user["email"]), (&json!(false), &json!("ada@example.com")));
    assert_eq!(user["app_metadata"]["providers"], json!(["google"]));
    assert_eq!(user["user_metadata"].get("full_name"), None, "linking does not merge metadata");
    assert!(server.actions().await.contains(&"identity_linked".to_owned()));
    let again = server.exchange(&response, &pkce.verifier).await;
    assert_eq!(again.rejection(), (404, "flow_state_not_found".into()));
    for table in ["flow_state", "oauth_client_states"] {
        assert_eq!(server.count(&format!("select count(*) from auth.{table}")).await, 0, "{table}");
    }
}

#[tokio::test]
async fn with_pkce_errors_are_reported_by_the_callback_and_an_unverified_address_by_the_exchange() {
    let server = linking(|_| {}).await;
    let pkce = Pkce::new();
    let guest = server.anonymous_member().await;
    server.account("ada@example.com", PASSWORD).await;
    let taken = begin_link(&guest, Some(&pkce), ADAS).await;
    let taken = return_to(&server, &taken, ADA, ADAS).await.expect(302);
    assert_eq!(taken.location_query("error_code").as_deref(), Some("email_exists"));

    let url = begin_link(&guest, Some(&pkce), ADAS).await;
    let response = return_to(&server, &url, UNVERIFIED, ADAS).await.expect(302);
    assert!(server.mails_to("new@example.com").is_empty(), "no mail before the exchange");
    let waiting = server.exchange(&response, &pkce.verifier).await;
    assert_eq!(waiting.rejection(), (422, "email_not_confirmed".into()));
    let user = guest.account().await;
    assert_eq!((&user["email"], &user["new_email"]), (&json!(""), &json!("new@example.com")));
    assert_eq!(user["identities"][0]["provider"], "google", "kept");
    server.mail_to("new@example.com").await;
    assert_eq!(server.exchange(&response, &pkce.verifier).await.rejection().1, "flow_state_not_found");
}

#[tokio::test]
async fn concurrent_exchanges_link_an_identity_to_one_account() {
    let server = linking(|_| {}).await;
    let mut ways = Vec::new();
    for email in ["eve@example.com", "bob@example.com"] {
        let (person, pkce) = (server.member(email).await, Pkce::new());
        let url = begin_link(&person, Some(&pkce), ADAS).await;
        ways.push((return_to(&server, &url, ADA, ADAS).await.expect(302), pkce));
    }
    let exchanges = ways.iter().map(|(response, pkce)| server.exchange(response, &pkce.verifier));
    let responses = futures_util::future::join_all(exchanges).await;
    let (linked, refused): (Vec<_>, Vec<_>) = responses.iter().partition(|response| response.status == 200);
    assert_eq!((linked.len(), refused.len()), (1, 1), "{responses:?}");
    assert_eq!(refused[0].rejection(), (422, "identity_already_exists".into()));
    assert_eq!(google_identities(&server).await, 1);
}

#[tokio::test]
async fn without_pkce_a_link_is_finished_where_it_started() {
    let server = linking(|_| {}).await;
    let eve = server.member("eve@example.com").await;
    let url = begin_link(&eve, None, EVES).await;
    let back = server.google().decide(&url, ADA).await;
    let tricked = server.get(back.as_str()).from_another_browser().header("x-forwarded-for", ADAS);
    let tricked = tricked.send().await.expect(303);
    assert_eq!(tricked.location_query("error_code").as_deref(), Some("bad_oauth_state"));
    assert_eq!(tricked.location_fragment("access_token"), None);
    assert_eq!(google_identities(&server).await, 0);
    // The flow can still be finished by the right browser
    let response = return_to(&server, &url, ADA, EVES).await.expect(302);
    assert!(response.location_fragment("access_token").is_some(), "{response:?}");
    assert_eq!(google_identities(&server).await, 1);

    // The IPv6 addresses of one network change
    let bob = server.member("bob@example.com").await;
    let url = begin_link(&bob, None, "2001:db8:1:2::1").await;
    let other = GooglePerson::Verified { name: "Bob", email: "other@example.com" };
    let response = return_to(&server, &url, other, "2001:db8:1:2:ffff::9").await.expect(302);
    assert!(response.location_fragment("access_token").is_some(), "{response:?}");
}

/// Links to Eve's account an identity with Ada's address, unverified.
async fn eve_claims_adas_address(server: &TestServer, eve: &Member<'_>) {
    let ada = GooglePerson::Unverified { name: "Eve", email: "ada@example.com" };
    let url = begin_link(eve, None, EVES).await;
    return_to(server, &url, ada, EVES).await.expect(302);
}

#[tokio::test]
async fn an_unverified_address_of_an_identity_stays_available_to_its_owner() {
    let server = linking(|_| {}).await;
    let eve = server.member("eve@example.com").await;
    eve_claims_adas_address(&server, &eve).await;
    let claims = "select count(*) from auth.identities where email = 'ada@example.com' and provider = 'google'";
    assert_eq!(server.count(claims).await, 1);

    let ada = server.account("ada@example.com", PASSWORD).await;
    assert_ne!(eve.account().await["id"], ada);
    server.sign_in("ada@example.com", PASSWORD).await;

    // It is also available to a change of address
    let other = GooglePerson::Unverified { name: "Eve", email: "new@example.com" };
    let bob = server.member("bob@example.com").await;
    return_to(&server, &begin_link(&eve, None, EVES).await, other, EVES).await.expect(302);
    bob.changes_account(&json!({"email": "new@example.com"})).await.expect(200);
}

#[tokio::test]
async fn an_account_with_a_number_loses_only_its_unverified_address() {
    let server = linking(|_| {}).await;
    let eve = server.anonymous_member().await;
    eve_claims_adas_address(&server, &eve).await;
    // The number is confirmed and the address is not, as other servers store it
    server
        .execute(
            "update auth.users set email = 'ada@example.com', phone = '15550001111', phone_confirmed_at = now(),
                    is_anonymous = false",
        )
        .await;
    let claimant = eve.account().await;
    assert_eq!((&claimant["email"], claimant.get("email_confirmed_at")), (&json!("ada@example.com"), None));

    server.clock().advance(time::Duration::minutes(2));
    let ada = server.account("ada@example.com", PASSWORD).await;
    assert_ne!(claimant["id"], ada);
    let session = server.sign_in("ada@example.com", PASSWORD).await;
    assert_eq!(session["user"]["phone"], "");
    let row = &server.query("select email, phone, encrypted_password from auth.users where phone is not null").await[0];
    assert_eq!(row.get::<_, Option<String>>(0), None);
    assert_eq!(row.get::<_, Option<String>>(1).as_deref(), Some("15550001111"));
    assert_eq!(row.get::<_, Option<String>>(2).as_deref(), Some(""), "nobody gives it a password");
}
