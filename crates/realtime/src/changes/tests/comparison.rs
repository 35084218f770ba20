//! Conditions that the server evaluates, compared with what PostgreSQL says.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::changes::entries::column_test::{AfterCheck, ColumnFacts, Compilation, FieldValue, Test, compile, complete};
use crate::changes::entries::filter::{FilterCondition, FilterOperator};
use crate::fixture::ScratchDatabase;

/// Types with the oid, and texts of values.
fn values(type_name: &str) -> BoxedStrategy<String> {
    let integers = prop_oneof![
        Just("0".to_owned()),
        Just("-0".to_owned()),
        Just("+7".to_owned()),
        Just(" 7 ".to_owned()),
        Just("007".to_owned()),
        (-20_i16..20).prop_map(|number| number.to_string()),
        any::<i16>().prop_map(|number| number.to_string()),
    ];
    match type_name {
        "int2" | "int4" | "int8" => integers.boxed(),
        "bool" => prop::sample::select(vec!["t", "f", "true", "false", "TRUE", "yes", "off", "1"])
            .prop_map(str::to_owned)
            .boxed(),
        "uuid" => {
            let digits = prop::sample::select(vec![
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
                "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
                "a0eebc999c0b4ef8bb6d6bb9bd380a11",
                "00000000-0000-0000-0000-000000000000",
            ]);
            digits.prop_map(str::to_owned).boxed()
        }
        "bytea" => prop::sample::select(vec!["\\x", "\\xdead", "\\xDEAD", "\\xdeadbeef", "\\x00"])
            .prop_map(str::to_owned)
            .boxed(),
        _ => "[ab \\\\\"{},é]{0,3}".boxed(),
    }
}

fn facts(type_name: &str, oid: u32) -> ColumnFacts {
    ColumnFacts {
        name: "c".into(),
        type_oid: oid,
        type_sql: format!("pg_catalog.{type_name}").into(),
        type_text: type_name.into(),
        type_kind: "b".into(),
        category: if matches!(type_name, "text" | "varchar") { "S" } else { "U" }.into(),
        collation: None,
        is_deterministic: true,
        is_readable: true,
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns the condition in SQL, of a value that may be null.
fn sql(condition: &FilterCondition, type_name: &str) -> String {
    let symbol = match condition.operator {
        FilterOperator::Eq => "=",
        FilterOperator::Neq => "<>",
        FilterOperator::Lt => "<",
        FilterOperator::Lte => "<=",
        FilterOperator::Gt => ">",
        FilterOperator::Gte => ">=",
        FilterOperator::IsDistinct => "is distinct from",
        FilterOperator::In => {
            return negated(condition, &format!("$1::text::{type_name} = any ($2::text::{type_name}[])"));
        }
        FilterOperator::Is => return negated(condition, &format!("$1::text::{type_name} is {}", condition.value)),
        _ => unreachable!(),
    };
    negated(condition, &format!("$1::text::{type_name} {symbol} $2::text::{type_name}"))
}

fn negated(condition: &FilterCondition, sql: &str) -> String {
    if condition.is_negated { format!("not ({sql})") } else { sql.to_owned() }
}

#[tokio::test]
async fn the_server_compares_as_postgresql_does() {
    let database = ScratchDatabase::new().await;
    let types = [
        ("int2", 21),
        ("int4", 23),
        ("int8", 20),
        ("bool", 16),
        ("uuid", 2950),
        ("text", 25),
        ("varchar", 1043),
        ("bytea", 17),
    ];
    let operators = prop::sample::select(vec![
        FilterOperator::Eq,
        FilterOperator::Neq,
        FilterOperator::Lt,
        FilterOperator::Lte,
        FilterOperator::Gt,
        FilterOperator::Gte,
        FilterOperator::In,
        FilterOperator::Is,
        FilterOperator::IsDistinct,
    ]);
    let mut runner = TestRunner::default();
    let mut draw = |type_name: &str| {
        let element = prop_oneof![4 => values(type_name).prop_map(Some), 1 => Just(None)];
        let case = (
            operators.clone(),
            any::<bool>(),
            values(type_name),
            prop::collection::vec(element, 0..4),
            prop::option::of(values(type_name)),
            prop::sample::select(vec!["null", "true", "false", "unknown"]),
            any::<bool>(),
        );
        case.new_tree(&mut runner).unwrap().current()
    };
    let mut evaluated = 0;
    for round in 0..100 {
        for (type_name, oid) in types {
            let (operator, is_negated, operand, list, value, is, plain) = draw(type_name);
            if operator == FilterOperator::Is && is != "null" && type_name != "bool" {
                continue;
            }
            let operand = match operator {
                FilterOperator::Is => is.to_owned(),
                FilterOperator::In => {
                    let element = |item: &Option<String>| match item {
                        None => "NULL".to_owned(),
                        Some(text)
                            if plain
                                && text.chars().all(|character| character.is_alphanumeric())
                                && !text.is_empty() =>
                        {
                            text.clone()
                        }
                        Some(text) => quoted(text),
                    };
                    format!("{{{}}}", list.iter().map(element).collect::<Vec<_>>().join(","))
                }
                _ => operand,
            };
            let condition =
                FilterCondition { column: "c".into(), operator, value: operand.as_str().into(), is_negated };
            let facts = facts(type_name, oid);
            let test = match compile(&condition, &facts).unwrap() {
                Compilation::Ready(test) => test,
                Compilation::Check(check) => {
                    let types =
                        [(&operand as &(dyn tokio_postgres::types::ToSql + Sync), tokio_postgres::types::Type::TEXT)];
                    let rows = database.sql.query_typed(&check.sql, &types).await.unwrap();
                    let texts: Vec<Option<Box<str>>> = serde_json::from_str(&rows[0].get::<_, String>(0)).unwrap();
                    match check.then {
                        AfterCheck::Canonical(local) => complete(&condition, local, texts).unwrap(),
                        AfterCheck::Database(test) | AfterCheck::Pattern(test) => Test::Database(test),
                    }
                }
            };
            // The text form of a value, as the stream has it
            let form = format!("select format('%s', $1::text::{type_name})");
            let text: Option<String> = match &value {
                Some(value) => Some(database.sql.query_one(&form, &[value]).await.unwrap().get(0)),
                None => None,
            };
            let field = text.as_deref().map_or(FieldValue::Null, |text| FieldValue::of_text(oid, text));
            let expected = match (&text, operator.accepts_null()) {
                (None, false) => false,
                _ => expected(&database, &condition, type_name, &text, &operand).await,
            };
            evaluated += 1;
            if let Test::Database(test) = &test {
                let sql = format!(
                    "select coalesce(({}), false) from (values ($1::text, $2::text)) as item (value, literal)",
                    test.expression
                );
                let holds: bool = database.sql.query_one(&sql, &[&text, &&*test.literal]).await.unwrap().get(0);
                assert_eq!(holds, expected, "round {round}: {type_name} {condition} {text:?}");
                continue;
            }
            let Test::Local(local) = &test else { unreachable!() };
            assert_eq!(local.holds(field), expected, "round {round}: {type_name} {condition} {text:?}");
            assert!(!local.holds(FieldValue::Absent));
        }
    }
    assert!(evaluated > 400, "{evaluated}");
}

async fn expected(
    database: &ScratchDatabase,
    condition: &FilterCondition,
    type_name: &str,
    text: &Option<String>,
    operand: &str,
) -> bool {
    let sql = format!("select coalesce(({}), false)", sql(condition, type_name));
    let row = match condition.operator {
        FilterOperator::Is => database.sql.query_one(&sql, &[text]).await,
        _ => database.sql.query_one(&sql, &[text, &operand]).await,
    };
    row.unwrap().get(0)
}
