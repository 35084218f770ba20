//! The actors do what their methods say.

use portico_testkit::TestServer;

#[tokio::test]
async fn a_visitor_signs_up_and_signs_in_after_opening_the_link() {
    let server = TestServer::start().await;
    let ada = server.visitor("ada@example.com");
    ada.signs_up().await.expect(200);
    assert_eq!(ada.signs_in().await.rejection(), (400, "email_not_confirmed".into()));
    ada.opens_link().await.expect(303);
    let ada = ada.signed_in().await;
    assert_eq!(ada.reads_account().await.expect(200).json()["id"], ada.id());
}

#[tokio::test]
async fn a_member_that_refreshes_has_new_tokens() {
    let server = TestServer::start().await;
    let mut ada = server.member("ada@example.com").await;
    let before = ada.refresh_token().to_owned();
    ada.refreshes().await.expect(200);
    assert_ne!(ada.refresh_token(), before);
    ada.refreshes().await.expect(200);
}

#[tokio::test]
async fn a_banned_member_cannot_sign_in_until_the_ban_is_lifted() {
    let server = TestServer::start().await;
    let (operator, ada) = (server.operator(), server.member("ada@example.com").await);
    operator.bans(&ada).await;
    assert_eq!(ada.visitor().signs_in().await.rejection(), (400, "user_banned".into()));
    operator.unbans(&ada).await;
    ada.visitor().signs_in().await.expect(200);
}

#[tokio::test]
async fn a_member_that_signs_out_has_no_session() {
    let server = TestServer::start().await;
    let mut ada = server.member("ada@example.com").await;
    ada.signs_out("global").await.expect(204);
    assert_eq!(ada.refreshes().await.rejection(), (400, "refresh_token_not_found".into()));
}
