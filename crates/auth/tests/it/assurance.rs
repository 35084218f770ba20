//! Changes of an account's sign-in methods need the second factor of a person who has one, and a
//! session that has not ended meanwhile. Also the helpers of other tests about both.

use portico_testkit::{GooglePerson, Member, TestResponse, TestServer};
use serde_json::json;

use crate::account_rules::linking;
use crate::factors::{EVE, enroll_totp, prove, refusal, refused, with_totp};
use crate::misbehaving::{Provider, server_and};

pub(crate) const ADA: GooglePerson<'static> = GooglePerson::Verified { name: "Ada L", email: "ada@example.com" };
const TEXT: &str = "AAL2 session is required to update email or password when MFA is enabled.";

pub(crate) async fn contacts(t: &TestServer) -> String {
    let sql = "select concat_ws(' ', email, phone, nullif(email_change, ''), nullif(phone_change, '')) from auth.users";
    t.query(sql).await[0].get(0)
}

#[tokio::test]
async fn identities_are_linked_and_unlinked_with_the_second_factor_only() {
    let t = linking(|_| {}).await;
    let (factor, owner) = with_totp(&t, EVE).await;
    assert!(owner.links_google(ADA).await.expect(302).location_fragment("access_token").is_some());
    let thief = t.visitor(EVE).signed_in().await;
    let (email, google) = (thief.identity("email").await, thief.identity("google").await);
    for response in [
        thief.begins_google_link(None).await,
        // Would make the address of the other identity that of the account
        thief.unlinks(&email).await,
        thief.unlinks(&google).await,
    ] {
        assert_eq!(refused(&response), refusal(401, "insufficient_aal", TEXT));
    }
    assert_eq!(contacts(&t).await, EVE);
    assert_eq!(t.count("select count(*) from auth.identities").await, 2);
    assert_eq!(t.count("select count(*) from auth.flow_state").await, 0);

    let proved = thief.with_session_of(prove(&thief, &factor).await);
    proved.unlinks(&google).await.expect(200);
    proved.begins_google_link(None).await.expect(200);
}

/// Links the identity of an id_token.
async fn link_by_id_token(person: &Member<'_>, t: &TestServer, provider: &Provider) -> TestResponse {
    let token = provider.key.sign(&provider.claims(t, None));
    let body = json!({"provider": "google", "id_token": token, "link_identity": true});
    person.posts("token?grant_type=id_token", &body).await
}

#[tokio::test]
async fn an_id_token_links_with_the_second_factor_only() {
    let provider = Provider::start().await;
    let t = server_and("google", &provider, |_| {}).await;
    let (factor, _) = with_totp(&t, EVE).await;
    let thief = t.visitor(EVE).signed_in().await;
    let response = link_by_id_token(&thief, &t, &provider).await;
    assert_eq!(refused(&response), refusal(401, "insufficient_aal", TEXT));
    assert_eq!(t.count("select count(*) from auth.identities").await, 1);
    let proved = thief.with_session_of(prove(&thief, &factor).await);
    link_by_id_token(&proved, &t, &provider).await.expect(200);
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
    let (response, ()) = tokio::join!(request, commit);
    response.rejection()
}

pub(crate) fn session_gone() -> (u16, String) {
    (403, "session_not_found".into())
}

pub(crate) fn factor_missing() -> (u16, String) {
    (401, "insufficient_aal".into())
}

#[tokio::test]
async fn an_unlink_is_checked_again_behind_the_lock_of_the_account() {
    let t = linking(|_| {}).await;
    let eve = t.member(EVE).await;
    eve.links_google(ADA).await.expect(302);
    enroll_totp(&eve, "app").await;
    let email = eve.identity("email").await;
    assert_eq!(meanwhile(&t, FACTOR_IS_VERIFIED, eve.unlinks(&email)).await, factor_missing());
    t.execute("update auth.mfa_factors set status = 'unverified'").await;
    assert_eq!(meanwhile(&t, SESSION_ENDS, eve.unlinks(&email)).await, session_gone());
    assert_eq!(contacts(&t).await, EVE);
    assert_eq!(t.count("select count(*) from auth.identities").await, 2);
}

#[tokio::test]
async fn a_link_by_id_token_is_checked_again_behind_the_lock_of_the_account() {
    let provider = Provider::start().await;
    let t = server_and("google", &provider, |_| {}).await;
    let eve = t.member(EVE).await;
    enroll_totp(&eve, "app").await;
    let link = || link_by_id_token(&eve, &t, &provider);
    assert_eq!(meanwhile(&t, FACTOR_IS_VERIFIED, link()).await, factor_missing());
    t.execute("update auth.mfa_factors set status = 'unverified'").await;
    assert_eq!(meanwhile(&t, SESSION_ENDS, link()).await, session_gone());
    assert_eq!(t.count("select count(*) from auth.identities").await, 1);
}
