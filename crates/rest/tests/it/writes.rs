//! Writes in every form, on a real database.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::request_log::{OWNER, RequestLog, request};

const ROWS: &str = "return=representation";

#[tokio::test]
async fn rows_are_inserted() {
    let mut steps = RequestLog::begin().await;
    for each in [
        request("POST films").body(r#"{"title":"A","year":2024}"#),
        request("POST films?select=id,title").body(r#"{"title":"B"}"#).prefer(ROWS),
        request("POST films?select=id,title,language,tags").body(r#"[{"title":"C"},{"title":"D"}]"#).prefer(ROWS),
        request("POST films?select=title&order=title.desc").body(r#"[{"title":"E"},{"title":"F"}]"#).prefer(ROWS),
        request("POST items").body("{}").prefer(ROWS),
        request("POST items").body("[{},{}]").prefer(ROWS),
        request("POST items").body("[]").prefer(ROWS),
        request("POST items").body("null").prefer(ROWS),
        request("POST films").body(r#"{"title":"G"}"#).prefer("return=headers-only"),
        request("POST films").body(r#"[{"title":"H"},{"title":"I"}]"#).prefer("return=headers-only"),
        request("POST roles").body(r#"{"film_id":5,"actor_id":3}"#).prefer("return=headers-only, count=exact"),
        request("POST guest_book").body(r#"{"entry":"x"}"#).prefer("return=headers-only"),
        request("POST films?columns=title,year&select=title,year,language")
            .body(r#"[{"title":"J","ignored":1},{"year":2000,"title":"K"}]"#)
            .prefer(ROWS),
        request("POST films?columns=title").body(r#"[{"year":2000}]"#),
        request("POST films?select=title,directors(last_name)").body(r#"{"title":"L","director_id":2}"#).prefer(ROWS),
        request("POST films?select=title,maker(last_name)").body(r#"{"title":"M","director_id":2}"#).prefer(ROWS),
        request("POST films?select=title,age_in_years&order=age_in_years")
            .body(r#"[{"title":"N","year":2000},{"title":"O","year":2020}]"#)
            .prefer(ROWS),
        request("POST films?select=title,directors!inner(last_name)")
            .body(r#"[{"title":"P","director_id":1},{"title":"Q","director_id":null}]"#)
            .prefer("return=representation, count=exact"),
        request("POST trigger_people?select=name").body(r#"{"id":70,"name":"by a trigger"}"#).prefer(ROWS),
        request("POST film_list?select=title,directors(last_name)")
            .body(r#"{"title":"R","director_id":3}"#)
            .prefer(ROWS),
        request("POST measurements").body(r#"{"id":1,"day":"1999-01-01"}"#),
        request("POST directors").body(r#"{"id":1,"first_name":"x","last_name":"y"}"#),
        request("POST films").body(r#"{"year":"no number"}"#),
        request("POST films").body(r#"{"titel":"x"}"#),
        request("POST films").body(r#"[{"title":"x"},{"year":1}]"#),
    ] {
        steps.send(each).await;
    }
    insta::assert_snapshot!(steps.log());
}

#[tokio::test]
async fn values_of_all_types_are_parsed() {
    let mut steps = RequestLog::begin().await;
    for each in [
        request("POST events?select=*").prefer(ROWS).body(
            r#"{"id":10,"name":"x","during":"[2024-01-01,2024-01-02)","seats":"[1,5)","day":"2024-02-29","keywords":["a","b"],"scores":"{1,2}","place":{"name":"n","floor":2}}"#,
        ),
        request("POST documents?select=id,data,raw").prefer(ROWS).body(r#"{"id":10,"data":"text","raw":{"b":1,"a":2}}"#),
        request("POST documents?select=id,data").prefer(ROWS).body(r#"{"id":11,"data":null}"#),
        request("POST articles?select=name,code,bits,price,gross,label,active")
            .prefer(ROWS)
            .body(r#"{"name":"n","code":"ab","bits":"101","price":1.5,"label":"l","active":"yes"}"#),
        request("POST articles?columns=name,price").body(r#"[{"name":"n"}]"#),
        request("POST articles").body(r#"{"price":-1}"#),
        request("POST articles").body(r#"{"name":"more than twenty characters"}"#),
        request("POST articles").body(r#"{"gross":1}"#),
        request("POST articles").body(r#"{"id":1}"#),
        request("POST articles").body(r#"{"nickname":"more than nine"}"#),
        request("POST films").body(r#"{"title":"x","mood":"angry"}"#),
        request("POST films").body(r#"{"title":"x","tags":1}"#),
        request("POST paints").prefer(ROWS).body(r##"{"id":10,"name":"white","color":"#ffffff"}"##),
        request("POST paints?columns=id,color").prefer(ROWS).body(r#"[{"id":11,"color":null},{"id":12}]"#),
        request("PATCH paints?color=eq.%23ffffff&select=color").prefer(ROWS).body(r##"{"color":"#000001"}"##),
        request("PUT paints?id=eq.10&select=id,color").prefer(ROWS).body(r##"{"id":10,"color":"#000002"}"##),
        request("POST Odd Table?select=\"dot.ted\",\"quo\\\"ted\"")
            .prefer(ROWS)
            .body(r#"{"Id":9,"dot.ted":"d","quo\"ted":"q","back\\slash":"b","order":1}"#),
        request("POST measurements?select=id,value").prefer(ROWS).body(r#"{"id":9,"day":"2024-07-01","value":"Infinity"}"#),
    ] {
        steps.send(each).await;
    }
    insta::assert_snapshot!(steps.log());
}

#[tokio::test]
async fn other_bodies_are_rows_too() {
    let mut steps = RequestLog::begin().await;
    for each in [
        request("POST directors?select=*")
            .prefer(ROWS)
            .typed("text/csv", b"id,first_name,last_name,born\n10,Al,\"Bo, Cy\",NULL\n11,,x,2000-01-01"),
        request("POST directors?select=id,first_name")
            .prefer(ROWS)
            .typed("application/x-www-form-urlencoded", b"id=12&first_name=A+B&last_name=C%26D"),
        request("PATCH directors?id=eq.12&select=last_name")
            .prefer(ROWS)
            .typed("application/x-www-form-urlencoded", b"last_name=E"),
        request("POST directors").typed("text/plain", b"x"),
        request("POST directors").body("no json"),
    ] {
        steps.send(each).await;
    }
    insta::assert_snapshot!(steps.log());
}

#[tokio::test]
async fn missing_values_are_null_or_defaults() {
    let mut steps = RequestLog::begin().await;
    let defaults = "missing=default, return=representation";
    for each in [
        request("POST tickets?columns=number,holder,sold_at").prefer(ROWS).body("[{}]"),
        request("POST tickets?columns=number,holder,sold_at")
            .prefer(defaults)
            .body(r#"[{},{"holder":"x"},{"holder":null}]"#),
        // A value is given, and the sequence still advances
        request("POST tickets?columns=number").prefer(defaults).body(r#"[{"number":77}]"#),
        request("POST tickets?columns=number").prefer(defaults).body("[{}]"),
        request("POST tickets").prefer(defaults).body(r#"{"holder":"y"}"#),
        request("POST articles?columns=name,price,label&select=name,price,label,active")
            .prefer(defaults)
            .body(r#"[{"name":"n"},{"price":3}]"#),
        request("POST films?columns=id,title,language&select=id,title,language")
            .prefer(defaults)
            .body(r#"[{"title":"t"}]"#),
        request("PATCH tickets?number=eq.1&columns=holder").prefer(defaults).body("{}"),
        request("PATCH tickets?number=eq.2&columns=holder,sold_at").prefer(ROWS).body(r#"{"holder":"z"}"#),
    ] {
        steps.send(each).await;
    }
    insta::assert_snapshot!(steps.log());
}

#[tokio::test]
async fn rows_are_updated() {
    let mut steps = RequestLog::begin().await;
    for each in [
        request("PATCH films?id=eq.1").body(r#"{"year":1}"#),
        request("PATCH films?id=eq.1&select=id,year,title").prefer(ROWS).body(r#"{"year":2,"title":"new"}"#),
        request("PATCH films?id=in.(1,2,3)&select=id,year&order=id.desc&limit=1").prefer(ROWS).body(r#"{"year":3}"#),
        request("PATCH films?or=(id.eq.4,title.like.Sun*)&select=id,rating&order=id")
            .prefer(ROWS)
            .body(r#"{"rating":5}"#),
        request("PATCH films?id=eq.99").prefer("return=representation, count=exact").body(r#"{"year":1}"#),
        request("PATCH films?id=eq.1").prefer(ROWS).body("{}"),
        request("PATCH films").body("{}"),
        request("PATCH films?id=eq.1&select=year").prefer(ROWS).body(r#"[{"year":9}]"#),
        request("PATCH films?id=eq.1").prefer("return=headers-only").body(r#"{"year":9}"#),
        request("PATCH films?id=eq.1&select=id,directors(last_name),roles(character)&roles.character=eq.Nora")
            .prefer(ROWS)
            .body(r#"{"director_id":2}"#),
        // An embed sees the state before
        request("PATCH people?manager_id=eq.1&select=name,children_of(name)&order=name")
            .prefer(ROWS)
            .body(r#"{"name":"x"}"#),
        request("PATCH films").body(r#"{"year":1}"#),
        request("PATCH films?id=eq.1").body(r#"{"nam":1}"#),
        request("PATCH films?nam=eq.1").body(r#"{"year":1}"#),
        request("PATCH film_list?id=eq.2&select=title,year").prefer(ROWS).body(r#"{"year":5}"#),
        request("PATCH measurements?id=eq.1&select=id,day").prefer(ROWS).body(r#"{"day":"2024-12-31"}"#),
        request("PATCH films?meta->crew->>size=eq.12&select=id,language")
            .prefer(ROWS)
            .body(r#"{"language":"klingon"}"#),
        request("PATCH films?age_in_years=gt.1000&select=id&order=id").prefer(ROWS).body(r#"{"language":"old"}"#),
    ] {
        steps.send(each).await;
    }
    steps.settings.safe_update = false;
    steps.send(request("PATCH films").prefer("count=exact").body(r#"{"year":1}"#)).await;
    insta::assert_snapshot!(steps.log());
}

#[tokio::test]
async fn rows_are_deleted() {
    let mut steps = RequestLog::begin().await;
    for each in [
        request("DELETE guest_book?guest=eq.Ann"),
        request("DELETE guest_book?guest=eq.Ann").prefer(ROWS),
        request("DELETE guest_book?guest=eq.Ben").prefer("return=representation, count=exact"),
        request("DELETE items?id=gt.13&order=id.desc&limit=1").prefer(ROWS),
        request("DELETE items?or=(id.eq.1,id.eq.2)&select=id").prefer("return=headers-only, count=exact"),
        request("DELETE films?id=eq.5&select=title,directors(last_name)").prefer(ROWS),
        request("DELETE directors?id=eq.1"),
        request("DELETE films"),
    ] {
        steps.send(each).await;
    }
    steps.settings.safe_update = false;
    steps.send(request("DELETE roles")).await;
    insta::assert_snapshot!(steps.log());
}

#[tokio::test]
async fn existing_rows_are_merged_or_skipped() {
    let mut steps = RequestLog::begin().await;
    let merge = "resolution=merge-duplicates, return=representation";
    let ignore = "resolution=ignore-duplicates, return=representation";
    let one = r#"[{"id":1,"city":"X"},{"id":9,"city":"Y"}]"#;
    let first = r#"[{"id":1,"city":"Z"}]"#;
    for each in [
        request("POST addresses?select=id,city,street").prefer(merge).body(one),
        request("POST addresses?select=id,city").prefer(merge).body(first),
        request("POST addresses").prefer("resolution=merge-duplicates").body(r#"{"id":1,"city":"W"}"#),
        request("POST addresses").prefer("resolution=merge-duplicates").body(r#"{"id":10,"city":"W"}"#),
        request("POST addresses").prefer(merge).body("[]"),
        request("POST addresses").prefer(ignore).body(r#"[{"id":1,"city":"V"},{"id":11,"city":"V"}]"#),
        // Missing values overwrite
        request("POST addresses?columns=id,street").prefer(merge).body(first),
        request("POST technical_details?on_conflict=film_id&select=id,film_id,camera")
            .prefer(merge)
            .body(r#"{"id":1,"film_id":1,"camera":"New"}"#),
        request("POST roles").prefer(merge).body(r#"{"film_id":1,"actor_id":1,"character":"N"}"#),
        request("POST guest_book").prefer(merge).body(r#"{"entry":"nice"}"#),
        request("POST addresses").prefer(merge).body(r#"[{"id":1,"city":"A"},{"id":1,"city":"B"}]"#),
        request("POST addresses?on_conflict=city").prefer(merge).body(first),
        request("POST addresses?on_conflict=town").prefer(merge).body(first),
        // No system column tells which rows are new
        request("POST measurements?select=id,value")
            .prefer(merge)
            .body(r#"[{"id":1,"day":"2023-05-01","value":1},{"id":8,"day":"2023-05-01","value":2}]"#),
        request("POST writable_people").prefer(merge).body(r#"[{"id":1,"name":"R"},{"id":50,"name":"S"}]"#),
        request("POST items").prefer(merge).body("{}"),
        request("POST tickets?columns=number,holder")
            .prefer("resolution=merge-duplicates, missing=default, return=representation")
            .body(r#"[{"number":1},{"number":500,"holder":"h"}]"#),
    ] {
        steps.send(each).await;
    }
    insta::assert_snapshot!(steps.log());
}

#[tokio::test]
async fn a_put_writes_the_row_of_its_url() {
    let mut steps = RequestLog::begin().await;
    for each in [
        request("PUT addresses?id=eq.1").prefer(ROWS).body(r#"{"id":1,"city":"P"}"#),
        request("PUT addresses?id=eq.20").prefer(ROWS).body(r#"{"id":20,"city":"Q"}"#),
        request("PUT addresses?id=eq.20").prefer(ROWS).body(r#"[{"id":20,"city":"R"}]"#),
        request("PUT addresses?id=eq.20").body(r#"{"id":20,"city":"S"}"#),
        request("PUT roles?film_id=eq.1&actor_id=eq.1").prefer(ROWS).body(r#"{"film_id":1,"actor_id":1}"#),
        // Another row, no row, or several rows: nothing is written
        request("PUT addresses?id=eq.1").prefer(ROWS).body(r#"{"id":2,"city":"T"}"#),
        request("PUT addresses?id=eq.1").prefer(ROWS).body(r#"{"city":"T"}"#),
        request("PUT addresses?id=eq.1").prefer(ROWS).body("{}"),
        request("PUT addresses?id=eq.1").prefer(ROWS).body("[]"),
        request("PUT addresses?id=eq.1").prefer(ROWS).body(r#"[{"id":1,"city":"T"},{"id":2,"city":"U"}]"#),
        request("PUT addresses?id=eq.1").prefer(ROWS).body(r#"[{"id":1,"city":"T"},{"id":1,"city":"U"}]"#),
        // The columns of a PUT are those of its body; `columns` has no effect
        request("PUT addresses?id=eq.20&columns=city").prefer(ROWS).body(r#"{"id":20,"street":"here"}"#),
        request("PUT addresses?id=eq.1&limit=1").body(r#"{"id":1}"#),
        request("PUT addresses").body(r#"{"id":1}"#),
        request("DELETE addresses?id=eq.2&city=eq.U").prefer(ROWS),
    ] {
        steps.send(each).await;
    }
    insta::assert_snapshot!(steps.log());
}

#[tokio::test]
async fn privileges_and_policies_hold() {
    let mut steps = RequestLog::begin().await;
    let hidden = r#"{"id":12,"film_id":1,"owner":"00000000-0000-4000-8000-00000000000b","stars":1,"public":false}"#;
    for each in [
        // Privileges on some columns only: without rows to return, no more are needed
        request("POST partly_secret").role("anon").body(r#"{"id":5,"name":"n"}"#),
        request("POST partly_secret").role("anon").prefer(ROWS).body(r#"{"id":6,"name":"n"}"#),
        request("POST partly_secret?select=name").role("anon").prefer(ROWS).body(r#"{"id":6,"name":"n"}"#),
        request("POST partly_secret").role("anon").prefer("return=headers-only").body(r#"{"id":7,"name":"n"}"#),
        request("POST partly_secret?select=id")
            .role("anon")
            .prefer("return=headers-only")
            .body(r#"{"id":7,"name":"n"}"#),
        request("POST partly_secret").role("anon").body(r#"{"id":8,"secret":"s"}"#),
        request("PATCH partly_secret?id=eq.1").role("anon").body(r#"{"name":"x"}"#),
        request("DELETE partly_secret?id=eq.1").role("anon"),
        request("POST secrets").role("anon").body(r#"{"id":9}"#),
        // Policies
        request("POST reviews?select=id,owner")
            .role("authenticated")
            .prefer(ROWS)
            .body(r#"{"id":10,"film_id":1,"stars":4}"#),
        request("POST reviews").role("authenticated").body(hidden),
        request("POST reviews").role("anon").body(r#"{"id":13,"film_id":1}"#),
        request("PATCH reviews?film_id=eq.1&select=id,stars&order=id")
            .role("authenticated")
            .prefer(ROWS)
            .body(r#"{"stars":3}"#),
        request("PATCH reviews?id=eq.2").role("authenticated").prefer("count=exact").body(r#"{"stars":1}"#),
        request("PATCH reviews?id=eq.1")
            .role("authenticated")
            .body(r#"{"owner":"00000000-0000-4000-8000-00000000000b"}"#),
        request("DELETE reviews?id=gt.0&select=id&order=id").role("authenticated").prefer(ROWS),
        request("DELETE reviews?id=gt.0").role("anon"),
        request("POST reviews")
            .role("authenticated")
            .prefer("resolution=merge-duplicates")
            .body(r#"{"id":2,"stars":1}"#),
        request("POST notes?select=body,owner").role("authenticated").prefer(ROWS).body(r#"{"body":"mine"}"#),
        request("PATCH notes?body=like.*&select=body&order=body")
            .role("authenticated")
            .prefer(ROWS)
            .body(r#"{"body":"changed"}"#),
    ] {
        steps.send(each).await;
    }
    let client = steps.cinema.administrator().await;
    let others =
        client.query_one("select count(*) from reviews where owner <> $1::text::uuid and stars = 2", &[&OWNER]);
    assert_eq!(others.await.unwrap().get::<_, i64>(0), 1);
    insta::assert_snapshot!(steps.log());
}

#[tokio::test]
async fn results_of_writes_can_have_other_media_types() {
    let mut steps = RequestLog::begin().await;
    for each in [
        request("PATCH directors?id=lt.3&select=id,last_name&order=id")
            .prefer(ROWS)
            .accept("text/csv")
            .body(r#"{"born":null}"#),
        request("PATCH directors?id=eq.1")
            .prefer(ROWS)
            .accept("application/vnd.pgrst.object+json;nulls=stripped")
            .body(r#"{"born":null}"#),
        request("PATCH directors?id=lt.3&select=id,born&order=id")
            .prefer(ROWS)
            .accept("application/vnd.pgrst.array+json;nulls=stripped")
            .body(r#"{"born":null}"#),
        request("PATCH films?id=lt.3&order=id").prefer(ROWS).accept("text/html").body(r#"{"year":1}"#),
        request("DELETE items?id=lt.4").prefer(ROWS).accept("application/vnd.cinema.film"),
        request("DELETE items?id=eq.5").accept("image/png"),
        request("DELETE posters?id=eq.1").prefer(ROWS).accept("image/png"),
        request("DELETE posters?id=eq.1").prefer(ROWS),
    ] {
        steps.send(each).await;
    }
    insta::assert_snapshot!(steps.log());
}

/// Generates a PATCH, DELETE, PUT or upsert of reviews.
fn a_write_of_reviews() -> impl Strategy<Value = (String, String, &'static str)> {
    let filter = prop::sample::select(vec![
        ("id", "eq.2"),
        ("id", "gt.0"),
        ("id", "in.(1,2,3,20,21)"),
        ("id", "eq(any).{1,2,3,41}"),
        ("id", "isdistinct.7"),
        ("film_id", "neq.7"),
        ("film_id", "is.null"),
        ("film_id", "not.is.null"),
        ("stars", "lt.100"),
        ("body", "like.*"),
        ("body", "is.null"),
        ("public", "is.true"),
        ("public", "is.false"),
        ("public", "eq.false"),
        ("owner", "eq.00000000-0000-4000-8000-00000000000b"),
        ("owner", "neq.00000000-0000-4000-8000-00000000000a"),
        ("body->>x", "is.null"),
        ("id", "eq.x"),
    ]);
    let term = filter.clone().prop_map(|(column, operation)| format!("{column}.{operation}"));
    let group = (prop::sample::select(vec!["or", "and", "not.or"]), prop::collection::vec(term, 1..4))
        .prop_map(|(logic, terms)| format!("{logic}=({})", terms.join(",")));
    let condition = prop_oneof![filter.prop_map(|(column, operation)| format!("{column}={operation}")), group];
    let conditions = prop::collection::vec(condition, 1..3).prop_map(|conditions| conditions.join("&"));
    let body = prop::sample::select(vec![
        r#"{"stars":1}"#,
        r#"{"public":true}"#,
        r#"{"public":false,"body":"taken"}"#,
        r#"{"owner":"00000000-0000-4000-8000-00000000000a"}"#,
        r#"{"id":2,"owner":"00000000-0000-4000-8000-00000000000a","stars":1,"film_id":1}"#,
        r#"[{"id":20,"stars":1},{"id":21,"stars":2}]"#,
    ]);
    let prefer = prop::sample::select(vec![
        "",
        ROWS,
        "return=headers-only",
        "resolution=merge-duplicates",
        "resolution=ignore-duplicates, return=representation",
        "missing=default, return=representation",
    ]);
    (prop::sample::select(vec!["PATCH", "DELETE", "POST", "PUT"]), conditions, body, prefer).prop_map(
        |(method, conditions, body, prefer)| {
            let query = if method == "PUT" { "id=eq.2" } else { &conditions };
            (format!("{method} reviews?{query}"), body.to_owned(), prefer)
        },
    )
}

#[tokio::test]
async fn no_write_changes_a_row_that_a_policy_hides() {
    let steps = RequestLog::begin().await;
    let client = steps.cinema.administrator().await;
    client
        .batch_execute(
            "insert into reviews select i, 1, '00000000-0000-4000-8000-00000000000b', 3, 'theirs', i % 2 = 0 from generate_series(20, 29) i",
        )
        .await
        .unwrap();
    let ours = "insert into reviews select i, 1, '00000000-0000-4000-8000-00000000000a', 3, 'ours', i % 2 = 0
                from generate_series(40, 44) i on conflict (id) do nothing";
    let theirs = async || {
        let row = client.query_one(
            "select string_agg(r::text, E'\\n' order by id) from reviews r where owner <> $1::text::uuid",
            &[&OWNER],
        );
        row.await.unwrap().get::<_, String>(0)
    };
    let before = theirs().await;
    let mut runner = TestRunner::deterministic();
    let mut written = 0;
    for _ in 0..300 {
        let (line, body, prefer) = a_write_of_reviews().new_tree(&mut runner).unwrap().current();
        client.batch_execute(ours).await.unwrap();
        let request = request(&line).role("authenticated").prefer(prefer).body(&body);
        let response = steps.response_to(request).await;
        written += usize::from(response.starts_with("rows ") && !response.starts_with("rows 0"));
        // Private rows of others are not returned either
        assert!(
            !response.contains("theirs") || !response.contains(r#""public":false"#),
            "{line} {body} {prefer}: {response}"
        );
        assert_eq!(theirs().await, before, "{line} {body} {prefer}: {response}");
    }
    assert!(written > 50, "only {written} of the requests wrote anything");
}
