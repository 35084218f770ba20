use std::fmt::Write as _;

use proptest::prelude::{prop_assert_eq, proptest};
use regex::Regex;

use super::*;
use crate::plan::ResultShape;
use crate::plan::write_tests::{WriteRequest, request};
use crate::request::WriteAction::{Delete, Insert, Put, Update};
use crate::request::preferences::{Resolution, ReturnPreference};
use crate::schema::testing::cinema;

const JSON: BodyFormat = BodyFormat::Json { shape: ResultShape::Set, strip_nulls: false };

/// Returns the statement of a request and its parameters.
fn shown(request: WriteRequest<'_>, count: RowCount) -> String {
    let cache = cinema();
    let plan = request.plan(&cache).unwrap();
    let sql = write(&plan, count, &JSON);
    let mut text = format!("{:?} {} {}\n{}\n", request.action, request.url, request.body, sql.text());
    for (at, param) in sql.params().iter().enumerate() {
        let _ = writeln!(text, "  ${} = {}", at + 1, String::from_utf8_lossy(param.as_bytes()));
    }
    text
}

fn all(requests: &[WriteRequest<'_>]) -> String {
    requests.iter().map(|request| shown(*request, RowCount::None)).collect::<Vec<_>>().join("\n")
}

#[test]
fn inserts_take_their_rows_from_the_body() {
    insta::assert_snapshot!(all(&[
        request(Insert, "films", r#"{"year":1,"title":"x"}"#),
        request(Insert, "films", r#"[{"year":1},{"year":2}]"#),
        request(Insert, "films", "{}"),
        request(Insert, "films", "[{},{}]"),
        request(Insert, "films", "[]"),
        request(Insert, "films?columns=title,year", "[]"),
        request(Insert, "films?select=title,directors(last_name)&order=year", r#"{"year":1}"#)
            .returning(ReturnPreference::Representation),
        request(Insert, "films?select=title", r#"{"year":1}"#).returning(ReturnPreference::HeadersOnly),
        request(Insert, "roles", r#"{"film_id":1}"#).returning(ReturnPreference::HeadersOnly),
        request(Insert, "guest_book", r#"{"guest":1}"#).returning(ReturnPreference::HeadersOnly),
    ]));
}

#[test]
fn missing_values_become_defaults() {
    insta::assert_snapshot!(all(&[
        request(Insert, "tickets?columns=number,holder", "[{}]").with_defaults(),
        request(Insert, "tickets", r#"{"number":7}"#).with_defaults(),
        request(Insert, "directors?columns=id", "[{}]").with_defaults(),
        request(Insert, "tickets", "[{},{}]").with_defaults(),
        request(Update, "tickets?number=eq.1&columns=holder", "{}").with_defaults(),
    ]));
}

#[test]
fn upserts_have_a_conflict_clause() {
    let merge = Resolution::MergeDuplicates;
    let ignore = Resolution::IgnoreDuplicates;
    insta::assert_snapshot!(all(&[
        request(Insert, "films", r#"{"id":1,"title":"x"}"#).resolving(merge),
        request(Insert, "films", r#"[{"id":1,"title":"x"}]"#)
            .resolving(merge)
            .returning(ReturnPreference::Representation),
        request(Insert, "films?on_conflict=title", r#"[{"id":1,"title":"x"}]"#).resolving(ignore),
        request(Insert, "films", "{}").resolving(merge),
        request(Insert, "guest_book", r#"{"guest":"x"}"#).resolving(merge),
        request(Put, "roles?film_id=eq.1&actor_id=eq.2", r#"{"film_id":1,"actor_id":2,"character":"x"}"#),
        request(Put, "films?id=eq.1", r#"[{"title":"x"}]"#).returning(ReturnPreference::Representation),
        request(Put, "films?id=eq.1", "{}"),
    ]));
}

#[test]
fn updates_are_limited_by_their_conditions() {
    insta::assert_snapshot!(all(&[
        request(Update, "films?id=eq.1", r#"{"title":"x","year":null}"#),
        request(Update, "films?or=(id.eq.1,title.like.a*)&order=title", r#"{"title":"x"}"#)
            .returning(ReturnPreference::Representation),
        request(Update, "films?id=in.(1,2)&limit=1&select=title,roles(character)&roles.limit=1", r#"{"year":1}"#)
            .returning(ReturnPreference::Representation),
        request(Update, "films?id=eq.1", r#"[{"year":1}]"#),
        request(Update, "films", "{}"),
        request(Update, "films?select=id", "{}").returning(ReturnPreference::Representation),
        request(Update, "people?id=eq.1&select=children_of(name)", r#"{"name":"x"}"#)
            .returning(ReturnPreference::Representation),
    ]));
}

#[test]
fn deletes_are_limited_by_their_conditions() {
    insta::assert_snapshot!(all(&[
        request(Delete, "films?id=eq.1", ""),
        request(Delete, "films", ""),
        request(Delete, "films?meta->budget=gt.1&select=title", "").returning(ReturnPreference::Representation),
        request(Delete, "films?id=eq.1&select=title", "").returning(ReturnPreference::HeadersOnly),
    ]));
}

#[test]
fn representations_and_names_that_need_quotes() {
    insta::assert_snapshot!(all(&[
        request(Insert, "paints", r##"[{"id":1,"color":"#ffffff"}]"##).returning(ReturnPreference::Representation),
        request(Update, "paints?color=eq.%23ffffff", r##"{"color":"#ffffff"}"##),
        request(Insert, "Odd Table?columns=\"dot.ted\",\"quo\\\"ted\"", "[]"),
        request(Update, "Odd Table?\"quo\\\"ted\"=eq.\"", r#"{"quo\"ted":1}"#),
    ]));
}

#[test]
fn writes_have_no_envelope_where_none_is_needed() {
    let plain = |request: WriteRequest<'_>| {
        let (sql, yields) = crate::sql::plain_write(&request.plan(&cinema()).unwrap(), &JSON)?;
        Some(format!("{:?} {} {}\n{}\n  {yields:?}\n", request.action, request.url, request.body, sql.text()))
    };
    let requests = [
        request(Insert, "films", r#"{"year":1}"#),
        request(Insert, "films?select=title,directors(last_name)&order=year", r#"{"year":1}"#)
            .returning(ReturnPreference::Representation),
        request(Insert, "films", "[]"),
        request(Update, "films?id=eq.1", r#"{"year":1}"#),
        request(Delete, "films?id=eq.1", "").returning(ReturnPreference::Representation),
    ];
    insta::assert_snapshot!(requests.map(|request| plain(request).unwrap()).join("\n"));
    let counting = request(Insert, "films", r#"{"id":1,"year":1}"#).resolving(Resolution::MergeDuplicates);
    let located = request(Insert, "films", r#"{"year":1}"#).returning(ReturnPreference::HeadersOnly);
    assert_eq!([plain(counting), plain(located)], [None, None]);
}

#[test]
fn counts_of_writes_follow_the_return_preference() {
    let minimal = request(Delete, "films?id=eq.1", "");
    let full = minimal.returning(ReturnPreference::Representation);
    let texts = [minimal, full].map(|request| shown(request, RowCount::Exact));
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn more_defaults_than_a_function_takes_arguments() {
    let columns: Vec<_> = (0..120)
        .map(|at| AssignedColumn {
            name: format!("c{at}"),
            sql_type: "integer".into(),
            from_json: None,
            default: Some(at.to_string()),
        })
        .collect();
    let mut sql = Sql::new();
    payload::from_item(&mut sql, &JsonBody { json: "{}".into(), is_object: true }, &columns, true);
    assert_eq!(sql.text().matches("jsonb_build_object(").count(), 3);
    assert_eq!(sql.params().len(), 121);
}

/// Returns a quoted name of a query string.
fn quoted(name: &str) -> String {
    let escaped = format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
    percent_encoding::utf8_percent_encode(&escaped, percent_encoding::NON_ALPHANUMERIC).to_string()
}

proptest! {
    #[test]
    fn names_and_values_never_reach_the_text_but_as_identifiers(name in "[^\\x00]{1,20}", value in ".{0,20}") {
        let identifiers = Regex::new(r#""(?:[^"]|"")*""#).unwrap();
        let cache = cinema();
        let bare = |name: &str, value: &str| {
            let value = percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC).to_string();
            let insert = format!("films?on_conflict={}", quoted(name));
            let update = format!("films?{}=eq.{value}", quoted(name));
            let body_format = BodyFormat::Json { shape: ResultShape::Set, strip_nulls: false };
            [
                request(Insert, &insert, r#"{"year":1}"#).resolving(Resolution::MergeDuplicates),
                request(Update, &update, r#"{"year":1}"#).returning(ReturnPreference::Representation),
                request(Delete, &update, "").returning(ReturnPreference::HeadersOnly),
            ]
            .map(|request| {
                let sql = write(&request.plan(&cache).unwrap(), RowCount::Exact, &body_format);
                identifiers.replace_all(sql.text(), "NAME").into_owned()
            })
        };
        prop_assert_eq!(bare(&name, &value), bare("year", "1"));
    }
}
