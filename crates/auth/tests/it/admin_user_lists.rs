//! `GET /admin/users`: pages, orders and filters.

use portico_testkit::{TestResponse, TestServer};
use serde_json::{Value, json};
use time::Duration;
use time::format_description::well_known::Rfc3339;

use crate::admin_users::{create, id_of};

#[tokio::test]
async fn a_cursor_leads_through_all_accounts_in_both_orders() {
    let t = TestServer::with_auth(|settings| settings.cursor_pagination = true).await;
    for number in 0..7 {
        create(&t, json!({"email": format!("u{number}@example.com"), "user_metadata": {"full_name": "Dr. U"}})).await;
        // Several have the same time, to the microsecond
        if number % 3 == 0 {
            t.clock().advance(Duration::microseconds(1));
        }
    }
    // As a seed file inserts them
    let bare = "insert into auth.users (instance_id, id, aud, role, email) select '00000000-0000-0000-0000-000000000000',
                gen_random_uuid(), 'authenticated', 'authenticated', 'bare' || n || '@example.com' from generate_series(1, 3) n";
    t.execute(bare).await;
    let list =
        async |query: &str| t.operator().calls("GET", &format!("admin/users?{query}"), &Value::Null).await.expect(200);
    let key = |user: &Value| {
        let created_at = time::OffsetDateTime::parse(user["created_at"].as_str().unwrap(), &Rfc3339).unwrap();
        (created_at, id_of(user).to_owned())
    };
    for (sort, limit) in [("", 1), ("", 3), ("sort=created_at+asc&", 1), ("sort=created_at+asc&", 4)] {
        let mut seen: Vec<Value> = Vec::new();
        let mut query = format!("{sort}limit={limit}&page=&per_page=");
        loop {
            let page = list(&query).await;
            assert_eq!(page.header("x-total-count"), None);
            let body = page.json();
            assert_eq!(body["aud"], "authenticated");
            let users = body["users"].as_array().unwrap();
            assert!(users.len() <= limit && users.iter().all(|user| user["identities"].is_null()));
            seen.extend(users.iter().cloned());
            let pagination = &body["pagination"];
            if pagination["has_more"] == false {
                assert_eq!((pagination.get("next_cursor"), page.header("link")), (None, None));
                break;
            }
            let cursor = pagination["next_cursor"].as_str().unwrap();
            let link = page.header("link").unwrap();
            query = link.strip_prefix("</admin/users?").unwrap().strip_suffix(">; rel=\"next\"").unwrap().to_owned();
            assert_eq!(query.strip_prefix("cursor=").unwrap().split('&').next(), Some(cursor));
        }
        let ids: std::collections::BTreeSet<_> = seen.iter().map(|user| user["id"].to_string()).collect();
        assert_eq!((seen.len(), ids.len()), (10, 10), "{sort} {limit}");
        let mut timed: Vec<_> =
            seen.iter().filter(|user| user["email"].as_str().unwrap().starts_with('u')).map(key).collect();
        if sort.is_empty() {
            timed.reverse();
        }
        assert!(timed.is_sorted(), "{timed:?}");
    }

    // An account that is added, and one that is deleted, move no other account to another page
    let first = list("limit=4&filter=%40example.com&sort=created_at+desc").await.json();
    create(&t, json!({"email": "newest@example.com"})).await;
    let last = first["users"][3]["id"].as_str().unwrap();
    t.operator().calls("DELETE", &format!("admin/users/{last}"), &Value::Null).await.expect(200);
    let cursor = first["pagination"]["next_cursor"].as_str().unwrap();
    let rest = list(&format!("cursor={cursor}")).await.json();
    let ids =
        |page: &Value| page["users"].as_array().unwrap().iter().map(|user| user["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&rest).len(), 6);
    assert!(ids(&rest).iter().all(|id| !ids(&first).contains(id)));

    // A page by its number is as ever, and so is a list of a server without the setting
    let numbered = list("page=1&limit=1").await;
    assert_eq!((numbered.header("x-total-count"), numbered.json().get("pagination").is_none()), (Some("10"), true));
    for wrong in ["limit=0", "limit=x", "cursor=x", "cursor=e30", "sort=email"] {
        let refused = t.operator().calls("GET", &format!("admin/users?{wrong}"), &Value::Null).await;
        assert_eq!(refused.rejection(), (400, "validation_failed".into()), "{wrong}");
    }
    let other = TestServer::start().await;
    create(&other, json!({"email": "ada@example.com"})).await;
    let list = other.operator().calls("GET", "admin/users?limit=0&cursor=x", &Value::Null).await.expect(200);
    assert_eq!((list.header("x-total-count"), list.json().get("pagination").is_none()), (Some("1"), true));
}

#[tokio::test]
async fn the_list_has_pages_an_order_and_a_filter() {
    let t = TestServer::start().await;
    for (number, name) in ["ann", "a_n", "ben", "cleo", "dora"].into_iter().enumerate() {
        create(&t, json!({"email": format!("{name}@example.com"), "user_metadata": {"full_name": format!("Dr. {name} {number}")}}))
            .await;
        t.clock().advance(Duration::minutes(1));
    }
    let emails = |response: &TestResponse| {
        let body = response.json();
        assert_eq!(body["aud"], "authenticated");
        let users = body["users"].as_array().unwrap().clone();
        assert!(users.iter().all(|user| user["identities"].is_null() && user.get("factors").is_none()));
        users
            .iter()
            .map(|user| user["email"].as_str().unwrap().split('@').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let list =
        async |query: &str| t.operator().calls("GET", &format!("admin/users?{query}"), &Value::Null).await.expect(200);
    let first = list("page=1&per_page=2").await;
    assert_eq!(emails(&first), ["dora", "cleo"]);
    assert_eq!(first.header("x-total-count"), Some("5"));
    assert_eq!(
        first.header("link"),
        Some(r#"</admin/users?page=2&per_page=2>; rel="next", </admin/users?page=3&per_page=2>; rel="last""#)
    );
    assert_eq!(emails(&list("page=3&per_page=2").await), ["ann"]);
    // As the client sends it without options
    let all = list("page=&per_page=").await;
    assert_eq!(emails(&all), ["dora", "cleo", "ben", "a_n", "ann"]);
    assert_eq!(all.header("link"), Some(r#"</admin/users?page=1&per_page=>; rel="last""#));
    assert_eq!(emails(&list("sort=created_at%20asc&per_page=1").await), ["ann"]);
    assert!(emails(&list("page=9").await).is_empty());
    assert_eq!(emails(&list("filter=a_n").await), ["a_n"]);
    assert_eq!(emails(&list("filter=DR.%20BEN").await), ["ben"]);
    assert!(emails(&list("filter=DORA%40").await).is_empty());
    assert_eq!(list("filter=nobody").await.header("x-total-count"), Some("0"));
    for (query, text) in [
        ("sort=email", "Bad Sort Parameters: bad field for sort 'email'"),
        ("page=one", r#"Bad Pagination Parameters: strconv.ParseUint: parsing "one": invalid syntax"#),
    ] {
        let refused = t.operator().calls("GET", &format!("admin/users?{query}"), &Value::Null).await;
        assert_eq!((refused.rejection().0, &refused.json()["msg"]), (400, &json!(text)));
    }
    let others = t.get("/auth/v1/admin/users").key(t.api_keys().secret()).header("x-jwt-aud", "others").send().await;
    assert_eq!(others.expect(200).json(), json!({"users": [], "aud": "others"}));
}
