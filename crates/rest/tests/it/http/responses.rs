//! Status, headers and bodies.

use serde_json::{Value, json};

use super::CinemaServer;

#[tokio::test]
async fn a_page_has_its_location() {
    let server = CinemaServer::open().await;
    let response = server
        .read("items?order=id&limit=2&offset=2&select=id")
        .header("prefer", "count=exact")
        .send()
        .await
        .expect(206);
    assert_eq!(response.text(), "[{\"id\":3}, \n {\"id\":4}]");
    assert_eq!(response.header("content-range"), Some("2-3/15"));
    assert_eq!(response.header("content-location"), Some("/items?limit=2&offset=2&order=id&select=id"));
    assert_eq!(response.header("content-type"), Some("application/json; charset=utf-8"));
    assert_eq!(response.header("preference-applied"), Some("count=exact"));
    assert_eq!(response.header("content-profile"), Some("public"));
    let beyond = server.read("items?offset=100").header("prefer", "count=exact").send().await.expect(416);
    assert_eq!(beyond.header("content-range"), Some("*/15"));
    assert_eq!(beyond.json()["details"], "An offset of 100 was requested, but there are only 15 rows.");
    let unknown = server.read("items?offset=100").send().await.expect(200);
    assert_eq!((unknown.text().as_str(), unknown.header("content-range")), ("[]", Some("*/*")));
    let by_header = server.read("items?order=id").header("range", "1-2").send().await.expect(200);
    assert_eq!(by_header.header("content-range"), Some("1-2/*"));
    server.read("items").header("range", "2-1").send().await.expect(416);
    server.read("items?limit=-1").send().await.expect(416);
}

#[tokio::test]
async fn a_location_that_is_too_long_is_left_out() {
    let server = CinemaServer::open().await;
    let many: Vec<_> = (0..1000).map(|id| id.to_string()).collect();
    let response = server.read(&format!("items?id=in.({})&limit=1", many.join(","))).send().await.expect(200);
    assert_eq!(response.header("content-location"), None);
}

/// PostGIS is not installed here: a function of its name and kind makes a feature of any row.
#[tokio::test]
async fn geojson_is_produced_if_postgis_is_installed() {
    let server = CinemaServer::open().await;
    let geo = |resource: &str| server.read(resource).header("accept", "application/geo+json");
    // The media type is supported, so the request is acceptable: the function is missing
    let missing = geo("films?select=id").send().await.expect(404);
    assert_eq!(missing.json()["code"], "42883");
    server
        .execute(
            "create function extensions.st_asgeojson(feature record, geom_column text default '', decimals int default 9,
               pretty bool default false) returns text language plpgsql immutable as $$ begin
                 return json_build_object('type', 'Feature', 'geometry', to_jsonb(feature) -> 'place',
                                          'properties', to_jsonb(feature) - 'place');
               end $$",
        )
        .await;
    let feature = |id: i64, title: &str| json!({ "type": "Feature", "geometry": null, "properties": { "id": id, "title": title } });
    let response = geo("films?select=id,title&order=id&limit=2").send().await.expect(200);
    assert_eq!(response.header("content-type"), Some("application/geo+json; charset=utf-8"));
    let features = [feature(1, "The Long Night"), feature(2, "Sunrise Again")];
    assert_eq!(response.json(), json!({ "type": "FeatureCollection", "features": features }));
    let none = geo("films?id=eq.99").send().await.expect(200);
    assert_eq!(none.json(), json!({ "type": "FeatureCollection", "features": [] }));
    let embedded = geo("films?select=title,directors(last_name)&id=eq.1").send().await.expect(200).json();
    assert_eq!(embedded["features"][0]["properties"]["directors"], json!({ "last_name": "Lang" }));
    let called = geo("rpc/films_since?since=2015&select=id&order=id").send().await.expect(200).json();
    assert_eq!(called["features"].as_array().unwrap().len(), 2);
    let written = server.write("PATCH", "films?id=eq.1&select=id", &json!({ "year": 2000 }));
    let written = written.header("accept", "application/geo+json").header("prefer", "return=representation");
    assert_eq!(written.send().await.expect(200).json()["features"][0]["properties"], json!({ "id": 1 }));
}

#[tokio::test]
async fn head_has_the_headers_of_get_without_the_body() {
    let server = CinemaServer::open().await;
    let head = |target: &str| server.request("HEAD".parse().unwrap(), &format!("/rest/v1/{target}"));
    let response = head("items?limit=3").header("prefer", "count=exact").send().await.expect(206);
    assert_eq!(response.header("content-range"), Some("0-2/15"));
    assert_eq!(response.header("content-length"), None);
    assert!(response.body.is_empty());
    let refused = head("not_there").send().await.expect(404);
    assert_eq!(refused.header("proxy-status"), Some("PostgREST; error=PGRST205"));
}

#[tokio::test]
async fn a_result_without_exactly_one_row_is_rejected_and_rolled_back() {
    let server = CinemaServer::open().await;
    let single = "application/vnd.pgrst.object+json";
    let response = server.read("films?id=eq.1&select=id").header("accept", single).send().await.expect(200);
    assert_eq!(response.text(), "{\"id\":1}");
    assert_eq!(response.header("content-type"), Some("application/vnd.pgrst.object+json; charset=utf-8"));
    let none = server.read("films?id=eq.99").header("accept", single).send().await.expect(406);
    assert_eq!(
        none.json(),
        json!({
            "code": "PGRST116",
            "details": "The result contains 0 rows",
            "hint": null,
            "message": "Cannot coerce the result to a single JSON object",
        })
    );
    let many = server.write("PATCH", "items?id=lt.3", &json!({ "id": 900 }));
    many.header("accept", single).send().await.expect(409);
    let two = server.write("POST", "stations", &json!([{ "id": 8 }, { "id": 9 }]));
    let refused = two.header("accept", single).send().await.expect(406);
    assert_eq!(refused.json()["details"], "The result contains 2 rows");
    assert_eq!(server.count("select count(*) from stations where id in (8, 9)").await, 0);
}

#[tokio::test]
async fn writes_have_the_documented_status_and_headers() {
    let server = CinemaServer::open().await;
    let shape = |response: &portico_testkit::TestResponse| {
        (response.status, response.text(), response.header("content-range").map(str::to_owned))
    };
    let row = |id: i32| json!({ "id": id, "name": "n" });
    let created = server.write("POST", "stations", &row(10)).send().await;
    assert_eq!(shape(&created), (201, String::new(), Some("*/*".into())));
    assert_eq!((created.header("content-length"), created.header("content-type")), (Some("0"), None));
    let located = server.write("POST", "stations", &row(11)).header("prefer", "return=headers-only").send().await;
    assert_eq!((located.status, located.header("location")), (201, Some("/stations?id=eq.11")));
    let shown =
        server.write("POST", "stations?select=id", &row(12)).header("prefer", "return=representation, count=exact");
    let shown = shown.send().await;
    assert_eq!(shape(&shown), (201, "[{\"id\":12}]".into(), Some("*/1".into())));
    assert_eq!(shown.header("preference-applied"), Some("return=representation, count=exact"));
    let changed = server.write("PATCH", "stations?id=gte.10", &json!({ "name": "m" })).send().await;
    assert_eq!(shape(&changed), (204, String::new(), Some("0-2/*".into())));
    assert_eq!((changed.header("content-type"), changed.header("content-length")), (None, None));
    let nothing = server.write("PATCH", "stations?id=eq.99", &json!({ "name": "m" })).send().await;
    assert_eq!(shape(&nothing), (204, String::new(), Some("*/*".into())));
    let merged =
        server.write("POST", "stations", &row(10)).header("prefer", "resolution=merge-duplicates").send().await;
    assert_eq!((merged.status, merged.header("preference-applied")), (200, Some("resolution=merge-duplicates")));
    let ignored =
        server.write("POST", "stations", &row(10)).header("prefer", "resolution=ignore-duplicates").send().await;
    assert_eq!(ignored.status, 201);
    server.write("PUT", "stations?id=eq.20", &row(20)).send().await.expect(204);
    let put = server.write("PUT", "stations?id=eq.21", &row(21)).header("prefer", "return=representation").send().await;
    assert_eq!((put.status, put.header("content-range")), (201, None));
    let other = server.write("PUT", "stations?id=eq.22", &row(23)).send().await.expect(400);
    assert_eq!(other.json()["code"], "PGRST115");
    assert_eq!(server.count("select count(*) from stations where id in (22, 23)").await, 0);
    let removed = server.write("DELETE", "stations?id=gte.10", &json!({})).header("prefer", "count=exact").send().await;
    assert_eq!(shape(&removed), (204, String::new(), Some("*/5".into())));
}

#[tokio::test]
async fn a_put_of_several_rows_writes_the_one_of_its_url() {
    let server = CinemaServer::open().await;
    let put = |resource: &str, rows: Value| {
        let request = server.write("PUT", resource, &rows).header("prefer", "return=representation");
        async move { request.send().await }
    };
    let rows = json!([{ "id": 30, "name": "a" }, { "id": 31, "name": "b" }]);
    let new = put("stations?id=eq.31&select=id,name", rows.clone()).await.expect(201);
    assert_eq!(new.json(), json!([{ "id": 31, "name": "b" }]));
    let there = put("stations?id=eq.31&select=id,name", json!([{ "id": 31, "name": "c" }, { "id": 32, "name": "d" }]));
    assert_eq!(there.await.expect(200).json(), json!([{ "id": 31, "name": "c" }]));
    for none in [json!([{ "id": 33, "name": "a" }, { "id": 34, "name": "b" }]), json!([])] {
        assert_eq!(put("stations?id=eq.40", none).await.expect(400).json()["code"], "PGRST115");
    }
    let twice = put("stations?id=eq.40", json!([{ "id": 40, "name": "a" }, { "id": 40, "name": "b" }])).await;
    assert_eq!((twice.status, twice.json()["code"].clone()), (500, json!("21000")));
    let uneven = put("stations?id=eq.40", json!([{ "id": 40, "name": "a" }, { "id": 41 }])).await.expect(400);
    assert_eq!(uneven.json()["message"], "All object keys must match");
    assert_eq!(server.count("select count(*) from stations where id between 30 and 49").await, 1);
}

#[tokio::test]
async fn a_location_has_every_key_that_a_view_shows() {
    let server = CinemaServer::open().await;
    server
        .execute(
            "create table makers (id int primary key, name text);
             create table parts (code text, lot int, maker_id int references makers, primary key (lot, code));
             create view parts_with_makers as
               select p.code, m.id as maker, p.lot, m.name, p.code as code_again from parts as p left join makers as m on m.id = p.maker_id;
             create view makers_only as select id as maker_id, name from makers;
             create function enter() returns trigger language plpgsql as $$ begin
               if new.lot is not null then insert into parts values (new.code, new.lot, new.maker); end if;
               return new;
             end $$;
             create trigger enter instead of insert on parts_with_makers for each row execute function enter();
             grant all on makers, parts, parts_with_makers, makers_only to service_role; notify pgrst",
        )
        .await;
    server.read("not_there").send().await.expect(404);
    let location = async |resource: &str, row: Value| {
        let request = server.write("POST", resource, &row).header("prefer", "return=headers-only");
        request.send().await.expect(201).header("location").map(str::to_owned)
    };
    let at = |location: &str| Some(location.to_owned());
    assert_eq!(location("makers_only", json!({ "maker_id": 1 })).await, at("/makers_only?maker_id=eq.1"));
    // In the order of the view's columns, or of their names if some are selected
    let row = |lot: Value, maker: Value| json!({ "code": "a b&c", "lot": lot, "maker": maker });
    let keys = location("parts_with_makers", row(json!(7), json!(1))).await;
    assert_eq!(keys, at("/parts_with_makers?code=eq.a%20b%26c&maker=eq.1&lot=eq.7"));
    let keys = location("parts_with_makers?select=name", row(json!(8), json!(1))).await;
    assert_eq!(keys, at("/parts_with_makers?code=eq.a%20b%26c&lot=eq.8&maker=eq.1"));
    let keys = location("parts_with_makers", row(json!(9), Value::Null)).await;
    assert_eq!(keys, at("/parts_with_makers?code=eq.a%20b%26c&maker=is.null&lot=eq.9"));
    let keys = location("parts_with_makers", json!({ "code": "null" })).await;
    assert_eq!(keys, at("/parts_with_makers?code=eq.null&maker=is.null&lot=is.null"));
    assert_eq!(location("parts", json!({ "lot": 1, "code": "x" })).await, at("/parts?code=eq.x&lot=eq.1"));
    assert_eq!(location("parts", json!([{ "lot": 2, "code": "x" }, { "lot": 3, "code": "x" }])).await, None);
}

#[tokio::test]
async fn an_upsert_counts_only_rows_that_triggers_accept() {
    let server = CinemaServer::open().await;
    server
        .execute(
            "create table guarded (id integer primary key, body text);
             create function skip() returns trigger language plpgsql as
               $$ begin return case when new.body = 'skipped' then null else new end; end $$;
             create trigger skip before insert on guarded for each row execute function skip();
             create trigger unchanged before update on guarded for each row
               execute function suppress_redundant_updates_trigger();
             grant all on guarded to service_role; notify pgrst",
        )
        .await;
    let merge = |rows: Value| {
        let request = server.write("POST", "guarded", &rows).header("prefer", "resolution=merge-duplicates");
        async move { request.send().await.status }
    };
    let skipped = json!({ "id": 1, "body": "skipped" });
    assert_eq!(merge(skipped.clone()).await, 200);
    assert_eq!(merge(json!([skipped, { "id": 3, "body": "skipped" }])).await, 200);
    assert_eq!(merge(json!([skipped, { "id": 2, "body": "a" }])).await, 201);
    assert_eq!(merge(json!([{ "id": 2, "body": "a" }])).await, 200);
    assert_eq!(merge(json!([{ "id": 2, "body": "a" }, { "id": 4, "body": "b" }])).await, 201);
    assert_eq!(merge(json!([{ "id": 2, "body": "b" }, { "id": 4, "body": "c" }])).await, 200);
    assert_eq!(server.count("select count(*) from guarded").await, 2);
}

#[tokio::test]
async fn all_rows_at_once_are_neither_changed_nor_deleted() {
    let server = CinemaServer::open().await;
    for (method, verb) in [("PATCH", "UPDATE"), ("DELETE", "DELETE")] {
        let refused = server.write(method, "stations", &json!({ "name": "x" })).send().await.expect(400);
        assert_eq!(refused.json()["code"], "21000");
        assert_eq!(refused.json()["message"], format!("{verb} requires a WHERE clause"));
    }
    assert_eq!(server.count("select count(*) from stations where name = 'x'").await, 0);
}

#[tokio::test]
async fn the_profile_header_of_the_method_selects_the_schema() {
    let server = CinemaServer::open().await;
    let archived = server.read("films?select=title").header("accept-profile", "archive").send().await.expect(200);
    assert_eq!(archived.json(), json!([{ "title": "Lost Reel" }]));
    assert_eq!(archived.header("content-profile"), Some("archive"));
    let refused = server.read("films").header("accept-profile", "private").send().await.expect(406);
    assert_eq!(refused.json()["message"], "Invalid schema: private");
    assert_eq!(refused.json()["hint"], "Only the following schemas are exposed: public, archive, Qu\"oted schéma");
    let odd = server.read("ta%22ble%20%C3%BCn%C3%AF").header("accept-profile", "Qu\"oted schéma").send().await;
    assert_eq!(odd.status, 200, "{}", odd.text());
    let called = server.call("hello", &json!({})).header("content-profile", "archive").send().await.expect(200);
    assert_eq!(called.json(), "archived");
}

#[tokio::test]
async fn options_names_the_methods_without_a_query() {
    let server = CinemaServer::open().await;
    let allow = |resource: &str| {
        let request = server.request("OPTIONS".parse().unwrap(), &format!("/rest/v1/{resource}"));
        async move { request.send().await.expect(200).header("allow").unwrap().to_owned() }
    };
    assert_eq!(allow("films").await, "OPTIONS,GET,HEAD,POST,PUT,PATCH,DELETE");
    assert_eq!(allow("film_list").await, "OPTIONS,GET,HEAD,POST,PUT,PATCH,DELETE");
    assert_eq!(allow("grouped_films").await, "OPTIONS,GET,HEAD");
    assert_eq!(allow("rpc/nothing").await, "OPTIONS,POST");
    assert_eq!(allow("rpc/add_them?a=1&b=2").await, "OPTIONS,GET,HEAD,POST");
    assert_eq!(allow("").await, "OPTIONS,GET,HEAD");
    server.request("OPTIONS".parse().unwrap(), "/rest/v1/not_there").send().await.expect(404);
}

#[tokio::test]
async fn sql_sets_status_and_headers() {
    let server = CinemaServer::open().await;
    let headers = r#"[{"Cache-Control":"no-store"},{"Set-Cookie":"a=1"},{"Set-Cookie":"b=2"}]"#;
    let response = server.call("set_status", &json!({ "status": "418", "headers": headers })).send().await.expect(418);
    assert_eq!(response.header("cache-control"), Some("no-store"));
    assert_eq!(response.headers.get_all("set-cookie").iter().count(), 2);
    let bad = server.call("set_status", &json!({ "status": "", "headers": "{}" })).send().await.expect(500);
    assert_eq!(bad.json()["code"], "PGRST111");
    let bad = server.call("set_status", &json!({ "status": "x", "headers": "[]" })).send().await.expect(500);
    assert_eq!(bad.json()["code"], "PGRST112");
}

#[tokio::test]
async fn sql_raises_its_own_errors() {
    let server = CinemaServer::open().await;
    let raise = |code: &str, message: &str, detail: &str, hint: &str| {
        server.call("raise_it", &json!({ "code": code, "message": message, "detail": detail, "hint": hint })).send()
    };
    let plain = raise("P0001", "no", "why", "how").await.expect(400);
    assert_eq!(plain.json(), json!({ "code": "P0001", "details": "why", "hint": "how", "message": "no" }));
    assert_eq!(raise("PT402", "Payment wanted", "", "").await.status, 402);
    assert_eq!(raise("23505", "twice", "", "").await.status, 409);
    let message = r#"{"code":"123","message":"m","details":"d","hint":"h"}"#;
    let whole = raise("PGRST", message, r#"{"status":402,"headers":{"X-A":"b"}}"#, "").await.expect(402);
    assert_eq!((whole.json()["code"].clone(), whole.header("x-a")), (json!("123"), Some("b")));
    assert_eq!(raise("PGRST", "x", "{}", "").await.json()["code"], "PGRST121");
}

#[tokio::test]
async fn media_types_of_every_kind() {
    let server = CinemaServer::open().await;
    let csv = server.read("stations?order=id").header("accept", "text/csv").send().await.expect(200);
    assert_eq!(csv.text(), "id,name\n1,roof\n2,cellar");
    let stripped = "application/vnd.pgrst.array+json;nulls=stripped";
    let response = server.read("roles?character=is.null").header("accept", stripped).send().await.expect(200);
    assert_eq!(response.json(), json!([{ "film_id": 3, "actor_id": 3 }]));
    assert_eq!(response.header("content-type"), Some("application/vnd.pgrst.array+json;nulls=stripped; charset=utf-8"));
    let refused = server.read("films").header("accept", "image/webp").send().await.expect(406);
    assert_eq!(refused.json()["message"], "None of these media types are available: image/webp");
    let image = server.read("rpc/logo").header("accept", "image/png").send().await.expect(200);
    assert_eq!((image.header("content-type"), image.body.as_ref()), (Some("image/png"), &b"\x89PNG"[..]));
    let bytes = server.post("/rest/v1/rpc/whole_bytes").header("content-type", "application/octet-stream");
    assert_eq!(bytes.body(b"\x00\xff".to_vec()).send().await.expect(200).json(), "\\x00ff");
    let plan = "application/vnd.pgrst.plan+json; for=\"application/json\"; options=analyze|verbose;";
    server.read("films").header("accept", plan).send().await.expect(406);
    server.configure(&[("db_plan_enabled", "true")]).await;
    let plan = server.read("films?id=eq.1").header("accept", plan).send().await.expect(200);
    assert!(plan.json()[0]["Plan"]["Actual Rows"].is_number(), "{}", plan.text());
    assert_eq!(
        plan.header("content-type"),
        Some("application/vnd.pgrst.plan+json; for=\"application/json\"; options=analyze|verbose; charset=utf-8")
    );
}

#[tokio::test]
async fn a_long_body_is_parsed_like_any_other() {
    let server = CinemaServer::open().await;
    let text = "ä".repeat(400_000);
    let call =
        |body: String| server.post("/rest/v1/rpc/whole_json").header("content-type", "application/json").body(body);
    let rows = json!([{ "text": text }]);
    assert_eq!(call(rows.to_string()).send().await.expect(200).json(), rows);
    let refused = call(format!("[{{\"text\":\"{text}\"")).send().await.expect(400);
    assert_eq!(refused.json()["code"], "PGRST102", "{}", refused.text());
}

#[tokio::test]
async fn errors_of_paths_and_methods_have_a_fixed_order() {
    let server = CinemaServer::open().await;
    for (method, path, status, code) in [
        ("GET", "films/", 404, "PGRST125"),
        ("GET", "rpc/f/x", 404, "PGRST125"),
        ("PUT", "rpc/hello", 405, "PGRST101"),
        ("TRACE", "films", 405, "PGRST117"),
        ("POST", "", 405, "PGRST117"),
        ("GET", "films?order=id.asc.nullslasttt", 400, "PGRST100"),
        ("GET", "films?select=nothing(*)", 400, "PGRST200"),
        ("GET", "orders?select=addresses(*)", 300, "PGRST201"),
        ("GET", "films?actors.id=eq.1", 400, "PGRST108"),
        ("GET", "films?select=rating.avg()", 400, "PGRST123"),
        ("GET", "films?select=nope", 400, "42703"),
        ("GET", "films?id=like.1*", 404, "42883"),
        ("GET", "rpc/ambiguous?arg=1", 300, "PGRST203"),
        ("GET", "rpc/add_them?a=1", 404, "PGRST202"),
        ("GET", "rpc/stable_writer", 204, ""),
        ("GET", "rpc/book_guest?entry=a&guest=b", 405, "25006"),
    ] {
        let response = server.request(method.parse().unwrap(), &format!("/rest/v1/{path}")).send().await;
        assert_eq!(response.status, status, "{method} {path}: {}", response.text());
        if !code.is_empty() {
            assert_eq!(response.json()["code"], code, "{method} {path}");
            assert_eq!(response.header("proxy-status"), Some(format!("PostgREST; error={code}").as_str()));
        }
    }
    let columns = server.write("POST", "stations", &json!({ "nam": 1 })).send().await.expect(400);
    assert_eq!(columns.json()["message"], "Could not find the 'nam' column of 'stations' in the schema cache");
    let body =
        server.post("/rest/v1/stations").header("content-type", "application/json").body("{").send().await.expect(400);
    assert_eq!(body.json()["message"], "Empty or invalid json");
}

#[tokio::test]
async fn a_counted_call_with_a_body_has_the_function_s_columns_and_no_others() {
    let server = CinemaServer::open().await;
    server
        .execute(
            "create function pairs(a int, y text) returns table (x int, y text) language sql as
               'select a + n, $2 from generate_series(0, 2) as n';
             create function pair(a int, out x int, out y text) language sql as 'select a, a::text';
             create function numbers_of(a int) returns setof int language sql as 'select a union all select a + 1'",
        )
        .await;
    for (function, arguments, expected, range) in [
        (
            "pairs",
            json!({ "a": 1, "y": "z" }),
            json!([{ "x": 1, "y": "z" }, { "x": 2, "y": "z" }, { "x": 3, "y": "z" }]),
            "0-2/3",
        ),
        ("pairs?limit=1", json!({ "a": 1, "y": "z" }), json!([{ "x": 1, "y": "z" }]), "0-0/3"),
        ("pairs?offset=2", json!({ "a": 1, "y": "z" }), json!([{ "x": 3, "y": "z" }]), "2-2/3"),
        ("pairs?select=x&limit=1", json!({ "a": 1, "y": "z" }), json!([{ "x": 1 }]), "0-0/3"),
        ("pair?limit=1", json!({ "a": 1 }), json!({ "x": 1, "y": "1" }), "0-0/1"),
        ("numbers_of?limit=1", json!({ "a": 1 }), json!([1]), "0-0/2"),
    ] {
        let response = server.call(function, &arguments).header("prefer", "count=exact").send().await;
        assert!(response.status == 200 || response.status == 206, "{function}: {}", response.text());
        assert_eq!(response.json(), expected, "{function}");
        assert_eq!(response.header("content-range"), Some(range), "{function}");
    }
}
