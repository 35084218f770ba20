use std::fmt::Write as _;

use super::*;
use crate::config::PlanSettings;
use crate::plan::ArgumentSource;
use crate::plan::call_tests::{Sent, plan};
use crate::schema::testing::cinema;

fn shown(url: &str, sent: Sent, count: RowCount, body: bool) -> String {
    let settings = PlanSettings { max_rows: None, ..PlanSettings::default() };
    let plan = plan(&cinema(), url, sent, &settings).unwrap();
    let body_format =
        if body { BodyFormat::Json { shape: plan.shape(), strip_nulls: false } } else { BodyFormat::Nothing };
    let sql = call(&plan, count, &body_format);
    let mut text = format!("{url} {sent:?}\n{}\n", sql.text());
    for (at, param) in sql.params().iter().enumerate() {
        let _ = writeln!(text, "  ${} = {}", at + 1, String::from_utf8_lossy(param.as_bytes()));
    }
    text
}

fn all(calls: &[(&str, Sent)]) -> String {
    calls.iter().map(|(url, sent)| shown(url, *sent, RowCount::None, true)).collect::<Vec<_>>().join("\n")
}

#[test]
fn calls_that_return_a_value_are_one_statement() {
    insta::assert_snapshot!(all(&[
        ("hello", Sent::Get),
        ("add_them?a=1&b=2", Sent::Get),
        ("add_them", Sent::Json(r#"{"b":2,"a":1}"#)),
        ("add_them", Sent::Json(r#"[{"b":2,"a":1}]"#)),
        ("greet", Sent::Json("{}")),
        ("greet", Sent::Form(&[("name", "x")])),
        ("sum_of?numbers=1&numbers=2", Sent::Get),
        ("sum_of", Sent::Json(r#"{"numbers":[1,2]}"#)),
        ("whole_json", Sent::Json("[1]")),
        ("whole_bytes", Sent::Raw(ArgumentSource::Binary, "ab")),
        ("numbers_as_set?up_to=3", Sent::Get),
        ("any_record", Sent::Get),
        ("short_arguments", Sent::Json(r#"{"c":"long","v":"long","b":"1111"}"#)),
    ]));
}

#[test]
fn calls_that_return_rows_are_read_like_tables() {
    insta::assert_snapshot!(all(&[
        ("with_out?a=1", Sent::Get),
        ("film_by_id?id=1", Sent::Get),
        ("films_since?since=2000&title=like.*a*&select=title,directors(last_name)&order=title&limit=1", Sent::Get),
        ("films_since", Sent::Json(r#"{"since":2000}"#)),
    ]));
}

#[test]
fn counts_call_once() {
    insta::assert_snapshot!(
        [
            shown("films_since?since=2000&limit=1&year=gt.1", Sent::Get, RowCount::Exact, true),
            shown("films_since?limit=1", Sent::Json(r#"{"since":2000}"#), RowCount::UpTo(10), true),
            shown("films_since?since=2000", Sent::Get, RowCount::Exact, true),
        ]
        .join("\n")
    );
}

#[test]
fn a_call_without_a_body_is_executed() {
    insta::assert_snapshot!(
        [
            shown("hello", Sent::Get, RowCount::None, false),
            shown("nothing", Sent::Json("{}"), RowCount::None, false),
            shown("films_since?since=2000", Sent::Get, RowCount::None, false),
        ]
        .join("\n")
    );
}
