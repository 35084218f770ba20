//! Function calls in every form, on a real database.

use crate::request_log::{RequestLog, request};

#[tokio::test]
async fn functions_are_called_by_their_arguments() {
    let mut steps = RequestLog::begin().await;
    for each in [
        request("GET rpc/hello"),
        request("POST rpc/hello"),
        request("GET rpc/add_them?a=1&b=2"),
        request("GET rpc/add_them?a=1&b=2&b=5"),
        request("GET rpc/add_them?a=1"),
        request("GET rpc/add_them?a=x&b=2"),
        request("GET rpc/add_them?a=1&b=eq.2"),
        request("POST rpc/add_them").body(r#"{"b":2,"a":1}"#),
        request("POST rpc/add_them").body(r#"[{"b":2,"a":1},{"b":3,"a":1}]"#),
        request("POST rpc/add_them?columns=a,b").body(r#"{"b":2,"a":1,"c":3}"#),
        request("POST rpc/add_them").body(r#"{"a":null,"b":1}"#),
        request("POST rpc/add_them").typed("text/csv", b"a,b\n3,4"),
        request("POST rpc/add_them").typed("application/x-www-form-urlencoded", b"a=5&b=6"),
        request("POST rpc/add_them").body(r#"{"a":1,"c":2}"#),
        request("GET rpc/greet"),
        request("GET rpc/greet?greeting=Hi"),
        request("POST rpc/greet").body(r#"{"name":"Ann"}"#),
        request("GET rpc/sum_of"),
        request("GET rpc/sum_of?numbers=1&numbers=2"),
        request("POST rpc/sum_of").body(r#"{"numbers":[1,2,3]}"#),
        request("POST rpc/sum_of").typed("application/x-www-form-urlencoded", b"numbers=5&numbers=6"),
        request("GET rpc/lists?numbers={1,2}&words={a,\"b c\"}"),
        request("POST rpc/lists").body(r#"{"numbers":[1,2],"words":["a","b"]}"#),
        request("POST rpc/whole_json").body(r#"{"b": 1,  "a": 2}"#),
        request("POST rpc/whole_json").body(r#"[1, "x"]"#),
        request("POST rpc/whole_jsonb").body(r#"{"b": 1,  "a": 2}"#),
        request("POST rpc/whole_text").typed("text/plain", b"it's text"),
        request("POST rpc/whole_xml").typed("text/xml", b"<a>x</a>"),
        request("POST rpc/whole_bytes").typed("application/octet-stream", b"\x00\xff'"),
        request("POST rpc/two_wholes").body("{}"),
        request("POST rpc/overloaded").body("{}"),
        request("GET rpc/overloaded?a=1"),
        request("GET rpc/overloaded?a=1&b=2"),
        request("POST rpc/overloaded").body(r#"{"a":"1","b":"2","c":"3"}"#),
        request("GET rpc/ambiguous?arg=1"),
        request("POST rpc/short_arguments").body(r#"{"c":"long","v":"long","b":"11110"}"#),
        request("GET rpc/short_arguments?c=long&v=long&b=11110"),
        request("GET rpc/floor_of?place=(x,3)"),
        request("POST rpc/floor_of").body(r#"{"place":{"name":"x","floor":4}}"#),
        request("GET rpc/anything?value=1"),
        request("POST rpc/anything").body(r#"{"value":1}"#),
        request("GET rpc/Odd Name?First Argument=x"),
        request("POST rpc/Odd Name").body(r#"{"First Argument":"y","second\"arg":2}"#),
        request("GET rpc/unnamed_number?=1"),
        request("GET rpc/helo"),
        request("GET rpc/forbidden").role("anon"),
        request("GET rpc/a_procedure"),
        request("GET rpc/an_aggregate"),
    ] {
        steps.send(each).await;
    }
    insta::assert_snapshot!(steps.log());
}

#[tokio::test]
async fn results_have_the_shape_of_their_type() {
    let mut steps = RequestLog::begin().await;
    for each in [
        request("GET rpc/no_value"),
        request("POST rpc/nothing"),
        request("GET rpc/a_price"),
        request("GET rpc/a_mood?m=calm"),
        request("GET rpc/a_sale_point"),
        request("GET rpc/with_out?a=2"),
        request("GET rpc/with_inout?a=2"),
        request("GET rpc/one_out?a=2"),
        request("GET rpc/numbers_as_set?up_to=3"),
        request("GET rpc/numbers_as_set?up_to=0"),
        request("GET rpc/numbers_as_table?up_to=2"),
        request("GET rpc/any_record"),
        request("GET rpc/any_records"),
        request("GET rpc/film_by_id?id=1&select=id,title"),
        request("GET rpc/no_film?select=id,title"),
        request("GET rpc/films_since?since=2015&select=title"),
        request("GET rpc/films_since?since=2000&year=lt.2015&select=title&order=title.desc"),
        request("GET rpc/films_since?since=2000&select=title,directors(last_name)&order=id&limit=2"),
        request("GET rpc/films_since?since=2000&select=title,age_in_years,maker(last_name)&order=id&limit=1"),
        request("POST rpc/films_since?select=title,roles(character)&order=id&limit=1").body(r#"{"since":2000}"#),
        request("POST rpc/film_list_since?select=title,directors(last_name)&order=id&limit=1")
            .body(r#"{"since":2000}"#),
        request("GET rpc/films_since?since=2000&select=id&limit=1&offset=1").prefer("count=exact"),
        request("GET rpc/films_since?since=2000&select=title,directors(last_name)&order=id&limit=2&offset=1"),
        request(
            "GET rpc/films_since?since=2000&select=*,maker(last_name),roles(character)&order=year&limit=1&offset=2",
        ),
        request("GET rpc/films_since?since=2000&select=age_in_years,maker(last_name)&order=id&offset=3"),
        request("POST rpc/films_since?select=title,...directors(last_name)&order=id&limit=1&offset=1")
            .prefer("count=exact")
            .body(r#"{"since":2000}"#),
        request("GET rpc/numbers_as_table?up_to=5&limit=2&offset=2"),
        request("GET rpc/films_since?since=2000&select=id,age_in_years,maker(last_name)&limit=1").prefer("count=exact"),
        request("GET rpc/films_since?since=2000&select=id").prefer("count=exact"),
        request("GET rpc/numbers_as_set?up_to=5&limit=2").prefer("count=exact"),
        request("GET rpc/add_them?a=1&b=2").prefer("count=exact"),
        request("POST rpc/films_since?select=id&limit=1&year=gt.2005").prefer("count=exact").body(r#"{"since":2000}"#),
        request("GET rpc/hello?name=eq.x"),
        request("GET rpc/hello?select=nothing"),
        request("GET rpc/numbers_as_table?up_to=2&select=n,directors(*)"),
        request("GET rpc/numbers_as_table?up_to=3&select=squared&n=gte.2"),
    ] {
        steps.send(each).await;
    }
    insta::assert_snapshot!(steps.log());
}

#[tokio::test]
async fn results_can_have_other_media_types() {
    let mut steps = RequestLog::begin().await;
    for each in [
        request("GET rpc/hello").accept("text/csv"),
        request("GET rpc/hello").accept("application/vnd.pgrst.object+json"),
        request("GET rpc/hello").accept("text/plain"),
        request("GET rpc/numbers_as_table?up_to=2").accept("text/csv"),
        request("GET rpc/films_since?since=2020&order=id").accept("text/html"),
        request("GET rpc/film_by_id?id=1").accept("text/html"),
        request("GET rpc/films_since?since=2020&select=title").accept("application/vnd.cinema.film"),
        request("GET rpc/add_them?a=1&b=2").accept("application/vnd.cinema.film"),
        request("GET rpc/film_by_id?id=4&select=id,year,mood")
            .accept("application/vnd.pgrst.object+json;nulls=stripped"),
        request("GET rpc/films_since?since=2020&select=id,mood&order=id")
            .accept("application/vnd.pgrst.array+json;nulls=stripped"),
        request("GET rpc/welcome").accept("text/html"),
        request("GET rpc/welcome"),
        request("GET rpc/welcome").accept("image/png"),
        request("GET rpc/logo").accept("application/json"),
        request("GET rpc/logo").accept("image/png"),
        request("GET rpc/logo").accept("image/png, */*;q=0.1"),
    ] {
        steps.send(each).await;
    }
    insta::assert_snapshot!(steps.log());
}

#[tokio::test]
async fn only_posted_volatile_functions_write() {
    let mut steps = RequestLog::begin().await;
    let arguments = r#"{"entry":"hello","guest":"Zed"}"#;
    for each in [
        request("GET rpc/book_guest?entry=a&guest=b"),
        request("POST rpc/book_guest").body(arguments),
        request("POST rpc/book_guest").prefer("count=exact").body(arguments),
        request("DELETE guest_book?guest=eq.Zed").prefer("count=exact"),
    ] {
        steps.send(each).await;
    }
    insta::assert_snapshot!(steps.log());
}
