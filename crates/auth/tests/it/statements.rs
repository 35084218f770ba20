//! Every statement fits the schema, which the compiler cannot check.

use portico_testkit::TestServer;

#[tokio::test]
async fn every_statement_prepares() {
    let t = TestServer::start().await;
    let client = t.database().pool(portico_auth::ROLE_PROFILE).client().await.unwrap();
    let mut names = std::collections::HashSet::new();
    for (name, sql) in portico_auth::sql::all() {
        assert!(names.insert(name), "{name} is listed twice");
        if let Err(error) = client.prepare(sql).await {
            panic!("{name}: {error:?}\n{sql}");
        }
    }
    assert!(names.len() > 40);
}
