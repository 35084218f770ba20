//! A server starts on a database of its own, and restarts whole.

use portico_testkit::TestServer;

#[tokio::test]
async fn a_server_answers_on_a_database_of_its_own() {
    let (first, second) = tokio::join!(TestServer::start(), TestServer::start());
    first.execute("create table public.only_here (id int)").await;
    assert_eq!(second.count("select count(*) from pg_tables where tablename = 'only_here'").await, 0);
    let health = first.get("/auth/v1/health").send().await.expect(200);
    assert!(health.json()["name"].is_string());
}

#[tokio::test]
async fn a_restarted_server_keeps_its_address_and_its_database() {
    let mut server = TestServer::start().await;
    let address = server.base().to_owned();
    let tokens = server.member("ada@example.com").await.session().clone();
    server.restart().await;
    assert_eq!(server.base(), address);
    let token = tokens["access_token"].as_str().unwrap();
    let account = server.get("/auth/v1/user").bearer(token).send().await.expect(200);
    assert_eq!(account.json()["email"], "ada@example.com");
    let page = server.get("/auth/v1/authorize?provider=google").send().await.expect(302).location();
    assert!(page.as_str().starts_with(&address), "the emulated Google is at the same address: {page}");
}

#[tokio::test]
async fn a_peer_shares_the_database() {
    let server = TestServer::start().await;
    let ada = server.member("ada@example.com").await;
    let peer = server.peer().await;
    ada.sends(server.get(&peer.url("/auth/v1/user"))).send().await.expect(200);
}
