//! `PUT /user` whose session ends, or whose person verifies a second factor, while the request is
//! in progress.

use portico_auth::settings::HookPoint;
use portico_testkit::TestServer;
use serde_json::{Value, json};

use crate::assurance::{FACTOR_IS_VERIFIED, SESSION_ENDS, contacts, factor_missing, meanwhile, session_gone};
use crate::factors::{EVE, PASSWORD, access, enroll_totp};
use crate::hook_server::{HookServer, json_response};

#[tokio::test]
async fn an_update_is_checked_again_behind_the_lock_of_the_account() {
    let t = TestServer::start().await;
    let session = t.signed_in(EVE, PASSWORD).await;
    enroll_totp(&t, &session, "app").await;
    let update = |body: Value| t.put("/auth/v1/user").bearer(access(&session)).json(&body).send();
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
        let session = t.sign_in(EVE, PASSWORD).await;
        let update = t.put("/auth/v1/user").bearer(access(&session)).json(&body).send();
        assert_eq!(meanwhile(&t, SESSION_ENDS, update).await, session_gone(), "{body}");
    }
    assert_eq!(contacts(&t).await, EVE);
    assert_eq!(t.count("select count(*) from auth.users where raw_user_meta_data ? 'name'").await, 0);
    t.sign_in(EVE, PASSWORD).await;
}

#[tokio::test]
async fn a_session_that_ends_while_a_hook_is_called_changes_nothing() {
    let hook = HookServer::start().await;
    let t = TestServer::with_auth(|settings| hook.serve(settings, HookPoint::SendEmail)).await;
    let signed_up = json!({"email": EVE, "password": PASSWORD});
    t.post("/auth/v1/signup").json(&signed_up).send().await.expect(200);
    t.execute("update auth.users set email_confirmed_at = now()").await;
    let session = t.sign_in(EVE, PASSWORD).await;
    let (open, opened) = tokio::sync::watch::channel(false);
    hook.respond_later(move |_| {
        let mut opened = opened.clone();
        async move {
            opened.wait_for(|is_open| *is_open).await.unwrap();
            json_response(&json!({}))
        }
    });
    let update = t.put("/auth/v1/user").bearer(access(&session)).json(&json!({"email": "new@example.com"})).send();
    let evict = async {
        hook.wait_for(2).await;
        t.execute(SESSION_ENDS).await;
        open.send(true).unwrap();
    };
    let (answer, ()) = tokio::join!(update, evict);
    assert_eq!(answer.rejection(), session_gone());
    assert_eq!(contacts(&t).await, EVE);
}
