//! Schema changes while requests arrive.

use std::time::Duration;

use serde_json::json;

use super::CinemaServer;

#[tokio::test]
async fn the_next_request_sees_the_objects_of_a_migration() {
    let server = CinemaServer::open().await;
    for number in 0..5 {
        server
            .execute(&format!(
                "create table fresh_{number} (id int primary key, film_id int references films); insert into fresh_{number} values (1, 1);
                 grant all on fresh_{number} to anon"
            ))
            .await;
        let response = server.read(&format!("fresh_{number}?select=id,films(title)")).send().await;
        assert_eq!(response.status, 200, "{}", response.text());
        server.execute(&format!("alter table fresh_{number} add column later text")).await;
        let insert =
            server.post(&format!("/rest/v1/fresh_{number}")).json(&json!({ "id": 2, "later": "x" })).send().await;
        assert_eq!(insert.status, 201, "{}", insert.text());
        server.execute(&format!("create function f_{number}(a int) returns int language sql as 'select a'")).await;
        server.call(&format!("f_{number}"), &json!({ "a": 1 })).send().await.expect(200);
    }
}

#[tokio::test]
async fn a_changed_type_breaks_no_request() {
    let server = CinemaServer::open().await;
    server.execute("create table shifting (id int primary key, value int); grant all on shifting to anon").await;
    for value in ["1", "2"] {
        server.read(&format!("shifting?value=eq.{value}")).send().await.expect(200);
    }
    server.execute("alter table shifting alter column value type text").await;
    server.read("shifting?value=eq.three").send().await.expect(200);
    server.execute("drop table shifting").await;
    let gone = server.read("shifting?value=eq.three").send().await;
    assert_eq!(gone.status, 404, "{}", gone.text());
}

#[tokio::test]
async fn two_hundred_writers_are_not_affected_by_a_schema_change() {
    let server = CinemaServer::open().await;
    server.execute("create table busy (id int primary key, value int); grant all on busy to anon").await;
    server.read("busy").send().await.expect(200);
    let writers = (0..200).map(|writer| {
        let requests: Vec<_> = (0..5)
            .map(|step| server.post("/rest/v1/busy").json(&json!({ "id": writer * 5 + step, "value": step })))
            .collect();
        async move {
            for request in requests {
                let response = request.send().await;
                assert_eq!(response.status, 201, "{}", response.text());
            }
        }
    });
    let changes = async {
        for number in 0..5 {
            server.execute(&format!("alter table busy add column extra_{number} int default 0")).await;
            server.execute(&format!("create index on busy (extra_{number})")).await;
        }
        server.execute("alter table busy alter column value type bigint").await;
    };
    futures_util::future::join(futures_util::future::join_all(writers), changes).await;
    assert_eq!(server.count("select count(*) from busy").await, 1000);
}

#[tokio::test]
async fn an_unreachable_database_is_a_503_until_it_is_back() {
    let server = CinemaServer::open().await;
    let before = server.read("films?select=id").send().await.expect(200);
    server.execute("update pg_database set datallowconn = false where datname = current_database()").await;
    server
        .execute(
            "select pg_terminate_backend(pid) from pg_stat_activity
              where datname = current_database() and pid <> pg_backend_pid()",
        )
        .await;
    let gone = server.read("films?select=id").send().await.expect(503);
    assert_eq!(gone.header("retry-after"), Some("1"));
    assert!(
        ["PGRST000", "PGRST001", "PGRST002", "57P01"].contains(&gone.json()["code"].as_str().unwrap()),
        "{}",
        gone.text()
    );
    server.execute("update pg_database set datallowconn = true where datname = current_database()").await;
    let back = async {
        loop {
            let response = server.read("films?select=id").send().await;
            if response.status == 200 {
                return response;
            }
            tokio::task::yield_now().await;
        }
    };
    let back = tokio::time::timeout(Duration::from_secs(60), back).await.unwrap();
    assert_eq!(back.text(), before.text());
}

/// An external database that was set up without a superuser has no event triggers.
#[tokio::test]
async fn unannounced_changes_are_found_by_polling() {
    let server = CinemaServer::open().await;
    server.execute("drop event trigger pgrst_ddl_watch; drop event trigger pgrst_drop_watch").await;
    server.configure(&[("db_schema_poll", "1")]).await;
    server.execute("create table silent (id int primary key); grant all on silent to anon, service_role").await;
    let patience = tokio::time::Instant::now() + Duration::from_secs(60);
    while server.read("silent").send().await.status != 200 {
        assert!(tokio::time::Instant::now() < patience, "it is never found");
    }
    server.execute("alter table silent add column later int").await;
    while server.read("silent?select=later").send().await.status != 200 {
        assert!(tokio::time::Instant::now() < patience, "the column is never found");
    }
    // Changes in rows of other catalogs
    server.execute("create type temper as enum ('glad'); alter table silent add column temper temper").await;
    for (change, sign) in [
        ("alter type temper add value 'serene'", "serene"),
        ("alter table silent alter column later set default 4711", "4711"),
    ] {
        server.execute(change).await;
        while !server.secret("/").send().await.text().contains(sign) {
            assert!(tokio::time::Instant::now() < patience, "{change} is never found");
        }
    }
}
