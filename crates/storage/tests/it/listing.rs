//! Both forms of listings.

use serde_json::{Value, json};

use super::helper::{Files, assert_error};

const NAMES: [&str; 9] = ["a", "a b", "a-1", "a.txt", "a/x", "b", "Docs/one", "docs/two", "c_d/x"];

async fn files() -> Files {
    let f = Files::with_buckets().await;
    for (n, name) in NAMES.iter().enumerate() {
        f.store(&format!("files/{name}"), "x").await.expect(200);
        f.t.execute(&format!(
            "update storage.objects set created_at = '2026-01-01'::timestamptz + '{n} minutes' where name = '{name}'"
        ))
        .await;
    }
    f
}

impl Files {
    async fn list(&self, body: Value) -> Value {
        self.service(self.post("/object/list/files").json(&body)).send().await.expect(200).json()
    }

    async fn page(&self, body: Value) -> Value {
        self.service(self.post("/object/list-v2/files").json(&body)).send().await.expect(200).json()
    }

    /// Returns the names of all pages of a size, folders with their slash.
    async fn pages(&self, mut body: Value, limit: u64) -> Vec<String> {
        body["limit"] = limit.into();
        let mut names = Vec::new();
        loop {
            let page = self.page(body.clone()).await;
            let mut of_page: Vec<String> = ["folders", "objects"]
                .iter()
                .flat_map(|kind| page[kind].as_array().unwrap())
                .map(|entry| entry["name"].as_str().unwrap().to_owned())
                .collect();
            assert!(of_page.len() as u64 <= limit);
            if limit > 1 {
                of_page.sort();
            }
            names.extend(of_page);
            if page["hasNext"] != json!(true) {
                assert!(page.get("nextCursor").is_none());
                return names;
            }
            body["cursor"] = page["nextCursor"].clone();
        }
    }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_first_form_lists_one_level_below_a_prefix() {
    let f = files().await;
    let listed = f.list(json!({ "prefix": "a" })).await;
    let mut object = listed[0].clone();
    let keys: Vec<&String> = object.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["name", "id", "updated_at", "created_at", "last_accessed_at", "metadata"]);
    assert_eq!((object["name"].take(), listed[0]["created_at"].as_str().unwrap().len()), (json!("x"), 24));
    let top = f
        .list(json!({ "prefix": "", "limit": 100, "offset": 0, "sortBy": { "column": "name", "order": "asc" } }))
        .await;
    assert_eq!(names(&top)[..6], ["a", "a b", "a-1", "a.txt", "a", "b"]);
    assert_eq!(
        top[4],
        json!({ "name": "a", "id": null, "updated_at": null, "created_at": null, "last_accessed_at": null, "metadata": null })
    );
    let searched = f.list(json!({ "prefix": "", "search": "A." })).await;
    assert_eq!(names(&searched), ["a.txt"]);
    let paged = f.list(json!({ "prefix": "", "limit": 2, "offset": 1 })).await;
    assert_eq!(names(&paged), ["a b", "a-1"]);
    let by_time = f.list(json!({ "prefix": "", "sortBy": { "column": "created_at", "order": "desc" } })).await;
    assert_eq!(names(&by_time).last(), Some(&"a"));
    let unknown = f.service(f.post("/object/list/nothing").json(&json!({ "prefix": "" }))).send().await.expect(200);
    assert_eq!(unknown.json(), json!([]));
    for (body, message) in [
        (json!({}), "body must have required property 'prefix'"),
        (json!({ "prefix": "", "limit": 0 }), "body/limit must be >= 1"),
        (json!({ "prefix": "", "offset": -1 }), "body/offset must be >= 0"),
        (
            json!({ "prefix": "", "sortBy": { "column": "id" } }),
            "body/sortBy/column must be equal to one of the allowed values",
        ),
        (json!({ "prefix": "", "sortBy": {} }), "body/sortBy must have required property 'column'"),
    ] {
        let refused = f.service(f.post("/object/list/files").json(&body)).send().await;
        assert_error(&refused, 400, "400", "InvalidRequest", message);
    }
}

#[tokio::test]
async fn pages_of_every_size_have_every_entry_once() {
    let f = files().await;
    let mut objects: Vec<&str> = NAMES.to_vec();
    objects.sort_unstable();
    let mut entries = vec!["a", "a b", "a-1", "a.txt", "a/", "b", "Docs/", "docs/", "c_d/"];
    entries.sort_unstable();
    for limit in 1..=10 {
        assert_eq!(f.pages(json!({}), limit).await, objects, "{limit}");
        assert_eq!(f.pages(json!({ "with_delimiter": true }), limit).await, entries, "{limit}");
    }
    for limit in [1, 3, 4] {
        for column in ["name", "created_at", "updated_at"] {
            let body = json!({ "with_delimiter": true, "sortBy": { "column": column, "order": "desc" } });
            let mut found = f.pages(body, limit).await;
            if limit == 1 && column == "name" {
                let reversed: Vec<_> = entries.iter().rev().copied().collect();
                assert_eq!(found, reversed);
            }
            found.sort();
            assert_eq!(found, entries, "{column} {limit}");
        }
    }
    assert_eq!(f.pages(json!({ "prefix": "a_" }), 5).await, Vec::<String>::new(), "an underscore is no wildcard");
    assert_eq!(f.pages(json!({ "prefix": "c_d/", "sortBy": { "column": "created_at" } }), 5).await, ["c_d/x"]);
}

#[tokio::test]
async fn a_page_has_keys_folders_and_an_opaque_cursor() {
    let f = files().await;
    let page = f.page(json!({ "prefix": "a", "with_delimiter": true, "limit": 5 })).await;
    assert_eq!(page["hasNext"], false);
    assert_eq!(
        page["folders"],
        json!([{ "key": "a", "name": "a/", "id": null, "updated_at": null, "created_at": null, "last_accessed_at": null, "metadata": null }])
    );
    assert_eq!((&page["objects"][3]["key"], &page["objects"][3]["name"]), (&json!("a.txt"), &json!("a.txt")));
    assert_eq!(page["objects"][3]["metadata"]["size"], 1);
    let by_time =
        f.page(json!({ "prefix": "", "with_delimiter": true, "sortBy": { "column": "created_at" }, "limit": 1 })).await;
    assert_eq!((&by_time["objects"][0]["name"], &by_time["nextCursorKey"]), (&json!("a"), &json!("a")));
    let flat = f.page(json!({ "prefix": "a/" })).await;
    assert!(flat["objects"][0].get("key").is_none() && flat["folders"] == json!([]));
    let refused = f.service(f.post("/object/list-v2/files").json(&json!({ "cursor": "x" }))).send().await;
    assert_error(&refused, 400, "400", "InvalidParameter", "Invalid Parameter continuation token");
}

/// Stores rows as no upload makes them: with odd names, times and metadata.
async fn odd_rows() -> Files {
    let f = Files::with_buckets().await;
    f.t.execute(
        r#"insert into storage.objects (bucket_id, name, created_at, updated_at, last_accessed_at, metadata)
           select 'files', 'times/' || n, time::timestamptz, nullif(time, 'infinity')::timestamptz, '2026-01-01', '{}'
             from unnest(array[null, 'infinity', '-infinity', '2026-08-01 09:00:00.123999', '2000-01-01', '1999-12-31 23:59:59.999999',
                               '2000-02-29 12:00', '1900-02-28 23:59:59.0009', '1900-03-01', '2100-12-31', '0001-01-01', '0001-12-31 BC',
                               '0044-03-15 01:02:03.456 BC', '0005-02-29 BC', '4713-01-01 BC', '10000-01-01', '12345-06-07 08:09:10.011',
                               '294276-12-31 23:59:59.999999']) with ordinality as times (time, n);
           insert into storage.objects (bucket_id, name, metadata)
           select 'files', 'metadata/' || n, metadata::jsonb
             from unnest(array[null, 'null', '[]', '"x"', '{"a": [1, {"b": null}], "": true}', '{"n": 123456789012345678901234567890.1200, "e": 1e400}',
                               '{"t": "\"\\\/\b\f\n\r\t\u0001\u007f ä 💚"}', '{"size": 12, "mimetype": "text/plain"}']) with ordinality as rows (metadata, n);
           insert into storage.objects (bucket_id, name)
           select 'files', 'names/' || name
             from unnest(array['plain', 'a "quoted" name', 'back\slash', 'ä 💚 名', e'\u0001\u001f\u007f', e'\b\f\n\r\t', 'a/folder', '💚/x', 'C/x']) as name"#,
    )
    .await;
    f
}

#[tokio::test]
async fn a_list_is_the_json_that_postgresql_would_make() {
    let f = odd_rows().await;
    let time = |column: &str| format!(r#"to_char(o.{column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"#);
    let (updated, created, accessed) = (time("updated_at"), time("created_at"), time("last_accessed_at"));
    for (prefix, rows) in [("times/", 18), ("metadata/", 8), ("names/", 9), ("", 3), ("nothing/", 0)] {
        let levels = prefix.split('/').count();
        let made: String = f
            .t
            .query(&format!(
                "select '[' || coalesce(string_agg(json_build_object('name', o.name, 'id', o.id, 'updated_at', {updated},
                   'created_at', {created}, 'last_accessed_at', {accessed}, 'metadata', o.metadata)::text, ',' order by place), '') || ']'
                   from storage.search('{prefix}', 'files', 100, {levels}) with ordinality
                     as o (name, id, updated_at, created_at, last_accessed_at, metadata, place)"
            ))
            .await[0]
            .get(0);
        let list = f.service(f.post("/object/list/files").json(&json!({ "prefix": prefix }))).send().await.expect(200);
        assert_eq!(list.text(), made);
        assert_eq!(made.matches(r#""last_accessed_at" : "#).count(), rows, "{prefix}");
    }
}

#[tokio::test]
async fn the_times_of_a_page_are_those_that_postgresql_would_write() {
    let f = odd_rows().await;
    let made =
        f.t.query(
            r#"select id::text, to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
                 from storage.objects where starts_with(name, 'times/')"#,
        )
        .await;
    let mut made: Vec<(String, Option<String>)> = made.iter().map(|row| (row.get(0), row.get(1))).collect();
    made.sort();
    for column in ["name", "created_at"] {
        let page = f.page(json!({ "prefix": "times/", "sortBy": { "column": column } })).await;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let object = |object: &Value| (text(&object["id"]).unwrap(), text(&object["created_at"]));
        let mut found: Vec<_> = page["objects"].as_array().unwrap().iter().map(object).collect();
        found.sort();
        assert_eq!(found, made, "{column}");
    }
}

#[tokio::test]
async fn a_page_reads_no_objects_beyond_its_prefix_with_any_plan() {
    let f = Files::with_buckets().await;
    f.t.execute(
        "do $$ begin execute format('alter database %I set plan_cache_mode = force_generic_plan', current_database()); end $$;
         insert into storage.objects (bucket_id, name) select 'files', 'a/' || n from generate_series(1, 5) as n;
         insert into storage.objects (bucket_id, name) select 'files', 'b/' || n from generate_series(1, 5000) as n;
         analyze storage.objects",
    )
    .await;
    // The end of a session reports what it has read
    let end_sessions = "select pg_terminate_backend(pid, 60000) from pg_stat_activity \
        where usename = 'authenticator' and datname = current_database()";
    let read = "select seq_tup_read + idx_tup_fetch from pg_stat_user_tables where relid = 'storage.objects'::regclass";
    for body in [
        json!({ "prefix": "a/", "with_delimiter": true }),
        json!({ "prefix": "a/", "sortBy": { "column": "name", "order": "desc" } }),
        json!({ "prefix": "a/", "sortBy": { "column": "created_at" } }),
    ] {
        f.t.query(end_sessions).await;
        let before = f.t.count(read).await;
        let page = f.page(body.clone()).await;
        assert_eq!((page["objects"].as_array().unwrap().len(), &page["hasNext"]), (5, &json!(false)));
        f.t.query(end_sessions).await;
        let read = f.t.count(read).await - before;
        assert!(read < 100, "{read} objects: {body}");
    }
}
