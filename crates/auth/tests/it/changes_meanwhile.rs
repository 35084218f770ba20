//! `PUT /user` whose session ends, or whose person verifies a second factor, while the request is
//! in progress.

use portico_auth::settings::HookPoint;
use portico_testkit::TestServer;
use serde_json::{Value, json};

use crate::assurance::{FACTOR_IS_VERIFIED, SESSION_ENDS, contacts, factor_missing, meanwhile, session_gone};
use crate::factors::{EVE, enroll_totp};
use crate::hook_server::{HookServer, json_response};

#[tokio::test]
async fn an_update_is_checked_again_behind_the_lock_of_the_account() {
    let t = TestServer::start().await;
    let eve = t.member(EVE).await;
    enroll_totp(&eve, "app").await;
    let update = async |body: Value| eve.changes_account(&body).await;
    for body in [json!({"email": "new@example.com"}), json!({"password": "another-password"})] {
        assert_eq!(meanwhile(&t, FACTOR_IS_VERIFIED, update(body)).await, factor_missing());
        t.execute("update auth.mfa_factors set status = 'unverified'").await;
    }
    let bodies = [
        json!({"data": {"name": "Eve"}}),
        json!({"email": "new@example.com"}),
        json!({"password": "another-password"}),
    ];
    for body in bodies {
        let eve = t.visitor(EVE).signed_in().await;
        let update = eve.changes_account(&body);
        assert_eq!(meanwhile(&t, SESSION_ENDS, update).await, session_gone(), "{body}");
    }
    assert_eq!(contacts(&t).await, EVE);
    assert_eq!(t.count("select count(*) from auth.users where raw_user_meta_data ? 'name'").await, 0);
    t.visitor(EVE).signed_in().await;
}

#[tokio::test]
async fn a_session_that_ends_while_a_hook_is_called_changes_nothing() {
    let hook = HookServer::start().await;
    let t = TestServer::with_auth(|settings| hook.serve(settings, HookPoint::SendEmail)).await;
    t.visitor(EVE).signs_up().await.expect(200);
    t.execute("update auth.users set email_confirmed_at = now()").await;
    let eve = t.visitor(EVE).signed_in().await;
    let open = hook.respond_when_open(|_| json_response(&json!({})));
    let change = json!({"email": "new@example.com"});
    let update = eve.changes_account(&change);
    let evict = async {
        hook.wait_for(2).await;
        t.execute(SESSION_ENDS).await;
        open.send(true).unwrap();
    };
    let (response, ()) = tokio::join!(update, evict);
    assert_eq!(response.rejection(), session_gone());
    assert_eq!(contacts(&t).await, EVE);
}
