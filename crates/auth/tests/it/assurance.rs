//! Changes of an account's sign-in methods need the second factor of a person who has one, and a
//! session that has not ended meanwhile. Also the helpers of other tests about both.

use portico_testkit::{GooglePerson, TestResponse, TestServer};
use serde_json::{Value, json};
use url::Url;

use crate::factors::{EVE, PASSWORD, access, account, enroll_totp, prove, refusal, refused, with_totp};
use crate::misbehaving::{Provider, server_and};

pub(crate) const ADA: GooglePerson<'static> = GooglePerson::Verified { name: "Ada L", email: "ada@example.com" };
const TEXT: &str = "AAL2 session is required to update email or password when MFA is enabled.";

pub(crate) async fn linking() -> TestServer {
    TestServer::with_auth(|auth| auth.manual_linking = true).await
}

async fn begin_link(t: &TestServer, session: &Value) -> TestResponse {
    let target = "/auth/v1/user/identities/authorize?provider=google&skip_http_redirect=true";
    t.get(target).bearer(access(session)).send().await
}

async fn link(t: &TestServer, session: &Value) -> TestResponse {
    let url: Url = begin_link(t, session).await.expect(200).json()["url"].as_str().unwrap().parse().unwrap();
    t.google().answer(&url, ADA).await.expect(302)
}

async fn unlink(t: &TestServer, session: &Value, id: &str) -> TestResponse {
    t.delete(&format!("/auth/v1/user/identities/{id}")).bearer(access(session)).send().await
}

async fn identity_id(t: &TestServer, session: &Value, provider: &str) -> String {
    let account = account(t, session).await;
    let identities = account["identities"].as_array().unwrap();
    let found = identities.iter().find(|identity| identity["provider"] == provider).unwrap();
    found["identity_id"].as_str().unwrap().to_owned()
}

pub(crate) async fn contacts(t: &TestServer) -> String {
    let sql = "select concat_ws(' ', email, phone, nullif(email_change, ''), nullif(phone_change, '')) from auth.users";
    t.query(sql).await[0].get(0)
}

#[tokio::test]
async fn identities_are_linked_and_unlinked_with_the_second_factor_only() {
    let t = linking().await;
    let (factor, owner) = with_totp(&t, EVE).await;
    assert!(link(&t, &owner).await.location_fragment("access_token").is_some());
    let thief = t.sign_in(EVE, PASSWORD).await;
    let email = identity_id(&t, &thief, "email").await;
    let google = identity_id(&t, &thief, "google").await;
    for answer in [
        begin_link(&t, &thief).await,
        // Would make the address of the other identity that of the account
        unlink(&t, &thief, &email).await,
        unlink(&t, &thief, &google).await,
    ] {
        assert_eq!(refused(&answer), refusal(401, "insufficient_aal", TEXT));
    }
    assert_eq!(contacts(&t).await, EVE);
    assert_eq!(t.count("select count(*) from auth.identities").await, 2);
    assert_eq!(t.count("select count(*) from auth.flow_state").await, 0);

    let proved = prove(&t, &thief, &factor).await.expect(200).json();
    unlink(&t, &proved, &google).await.expect(200);
    begin_link(&t, &proved).await.expect(200);
}

fn body_of_link(t: &TestServer, provider: &Provider) -> Value {
    let token = provider.key.sign(&provider.claims(t, None));
    json!({"provider": "google", "id_token": token, "link_identity": true})
}

async fn link_by_id_token(t: &TestServer, session: &Value, body: &Value) -> TestResponse {
    t.post("/auth/v1/token?grant_type=id_token").bearer(access(session)).json(body).send().await
}

#[tokio::test]
async fn an_id_token_links_with_the_second_factor_only() {
    let provider = Provider::start().await;
    let t = server_and("google", &provider, |_| {}).await;
    let (factor, _) = with_totp(&t, EVE).await;
    let thief = t.sign_in(EVE, PASSWORD).await;
    let answer = link_by_id_token(&t, &thief, &body_of_link(&t, &provider)).await;
    assert_eq!(refused(&answer), refusal(401, "insufficient_aal", TEXT));
    assert_eq!(t.count("select count(*) from auth.identities").await, 1);
    let proved = prove(&t, &thief, &factor).await.expect(200).json();
    link_by_id_token(&t, &proved, &body_of_link(&t, &provider)).await.expect(200);
}

/// A change that is committed between the check of a request's token and its transaction.
pub(crate) const SESSION_ENDS: &str = "delete from auth.sessions";
pub(crate) const FACTOR_IS_VERIFIED: &str = "update auth.mfa_factors set status = 'verified'";

/// Sends a request while the account is locked. Commits `change` when the request waits for the
/// lock.
pub(crate) async fn meanwhile(
    t: &TestServer,
    change: &str,
    request: impl Future<Output = TestResponse>,
) -> (u16, String) {
    let other = portico_database::scratch::connect(t.endpoint()).await.unwrap();
    other.batch_execute(&format!("begin; select from auth.users for no key update; {change}")).await.unwrap();
    let commit = async {
        let waits = "select count(*) from pg_stat_activity
                      where datname = current_database() and wait_event_type = 'Lock' and query like '%for no key update'";
        while t.count(waits).await == 0 {
            tokio::task::yield_now().await;
        }
        other.batch_execute("commit").await.unwrap();
    };
    let (answer, ()) = tokio::join!(request, commit);
    answer.rejection()
}

pub(crate) fn session_gone() -> (u16, String) {
    (403, "session_not_found".into())
}

pub(crate) fn factor_missing() -> (u16, String) {
    (401, "insufficient_aal".into())
}

#[tokio::test]
async fn an_unlink_is_checked_again_behind_the_lock_of_the_account() {
    let t = linking().await;
    let session = t.signed_in(EVE, PASSWORD).await;
    link(&t, &session).await;
    enroll_totp(&t, &session, "app").await;
    let email = identity_id(&t, &session, "email").await;
    assert_eq!(meanwhile(&t, FACTOR_IS_VERIFIED, unlink(&t, &session, &email)).await, factor_missing());
    t.execute("update auth.mfa_factors set status = 'unverified'").await;
    assert_eq!(meanwhile(&t, SESSION_ENDS, unlink(&t, &session, &email)).await, session_gone());
    assert_eq!(contacts(&t).await, EVE);
    assert_eq!(t.count("select count(*) from auth.identities").await, 2);
}

#[tokio::test]
async fn a_link_by_id_token_is_checked_again_behind_the_lock_of_the_account() {
    let provider = Provider::start().await;
    let t = server_and("google", &provider, |_| {}).await;
    let session = t.signed_in(EVE, PASSWORD).await;
    enroll_totp(&t, &session, "app").await;
    let body = body_of_link(&t, &provider);
    assert_eq!(meanwhile(&t, FACTOR_IS_VERIFIED, link_by_id_token(&t, &session, &body)).await, factor_missing());
    t.execute("update auth.mfa_factors set status = 'unverified'").await;
    assert_eq!(meanwhile(&t, SESSION_ENDS, link_by_id_token(&t, &session, &body)).await, session_gone());
    assert_eq!(t.count("select count(*) from auth.identities").await, 1);
}
