//! Tests of the SQL for every case in `tests/it/reads.txt`, which the integration tests run on a
//! database.

use super::{RowCount, plain_read, read, read_statement};
use crate::config::PlanSettings;
use crate::plan::{BodyFormat, CALL, PlanContext, ReadPlan, ReadRoot, ResultShape};
use crate::query::{QueryTarget, parse};
use crate::schema::testing::cinema;

const READS: &str = include_str!("../../tests/it/reads.txt");

const JSON: BodyFormat = BodyFormat::Json { shape: ResultShape::Set, strip_nulls: false };

fn settings() -> PlanSettings {
    PlanSettings { aggregates: true, ..PlanSettings::default() }
}

fn shown(sql: &super::Sql) -> String {
    let params: Vec<_> = sql.params().iter().map(|param| String::from_utf8_lossy(param.as_bytes())).collect();
    if params.is_empty() { sql.text().to_owned() } else { format!("{}\n  {params:?}", sql.text()) }
}

fn plan(settings: &PlanSettings, resource: &str) -> Result<ReadPlan, crate::RestError> {
    let cache = cinema();
    let (name, raw) = resource.split_once('?').unwrap_or((resource, ""));
    let name = name.trim_matches('"');
    let relation = cache.relation("public", name).unwrap_or_else(|| panic!("no relation {name}"));
    let query = parse(raw, QueryTarget::Relation)?;
    ReadPlan::new(&PlanContext { cache: &cache, schema: "public", settings }, ReadRoot::Relation(relation), &query)
}

fn rows(resource: &str) -> String {
    match plan(&settings(), resource) {
        Ok(plan) => {
            let mut sql = super::Sql::new();
            read::rows(&mut sql, &plan, None);
            shown(&sql)
        }
        Err(error) => error.body().to_string(),
    }
}

#[test]
fn every_read_has_its_sql() {
    let cache = cinema();
    let mut group = String::new();
    let mut groups: Vec<(String, String)> = Vec::new();
    for line in READS.lines().skip(1).filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix("# ") {
            group = name.to_lowercase().replace([' ', ','], "_");
            groups.push((group.clone(), String::new()));
            continue;
        }
        let name = line.split('?').next().unwrap().trim_matches('"');
        // Some special cases exist in the database only
        if cache.relation("public", name).is_some() {
            let text = &mut groups.last_mut().unwrap().1;
            text.push_str(&format!("{line}\n  {}\n\n", rows(line)));
        }
    }
    assert!(!group.is_empty());
    for (name, text) in groups {
        insta::assert_snapshot!(name, text);
    }
}

fn statement(settings: &PlanSettings, resource: &str, count: RowCount, body_format: &BodyFormat) -> String {
    shown(&read_statement(&plan(settings, resource).unwrap(), count, body_format))
}

#[test]
fn a_row_by_its_key_needs_no_limit_of_the_operator() {
    let capped = PlanSettings { max_rows: Some(1000), ..settings() };
    insta::assert_snapshot!(statement(&capped, "films?id=eq.1", RowCount::None, &JSON));
    insta::assert_snapshot!(statement(&capped, "films?id=gt.1", RowCount::None, &JSON));
    // The key of a view is inferred and guarantees nothing
    insta::assert_snapshot!(statement(&capped, "film_list?id=eq.1", RowCount::None, &JSON));
    let none = PlanSettings { max_rows: Some(0), ..settings() };
    insta::assert_snapshot!(statement(&none, "films?select=id&id=eq.1", RowCount::None, &JSON));
}

#[test]
fn the_operators_limit_holds_at_every_level() {
    let capped = PlanSettings { max_rows: Some(10), ..settings() };
    let resource = "directors?select=id,films(id,directors(id))&limit=20&films.limit=5";
    insta::assert_snapshot!(statement(&capped, resource, RowCount::Exact, &JSON));
}

#[test]
fn totals_are_counted_as_the_request_prefers() {
    let of = |resource, count| statement(&settings(), resource, count, &BodyFormat::Nothing);
    insta::assert_snapshot!(of("films?year=gt.2000", RowCount::Exact));
    insta::assert_snapshot!(of("films?year=gt.2000&limit=1", RowCount::Exact));
    insta::assert_snapshot!(of("films?select=director_id,count()", RowCount::Exact));
    insta::assert_snapshot!(of("films?select=*,directors!inner(*)&directors.id=eq.1&limit=1", RowCount::UpTo(1001)));
    insta::assert_snapshot!(shown(&super::matching(&plan(&settings(), "films?id=gt.1&order=id&limit=1").unwrap())));
}

#[test]
fn each_body_format_has_its_aggregate() {
    let of = |body_format: &BodyFormat| statement(&settings(), "films?select=id", RowCount::None, body_format);
    let handler = |relation| BodyFormat::Handler {
        function: crate::schema::testing::qualified("film_html"),
        relation,
        shape: ResultShape::Set,
    };
    let producers = [
        BodyFormat::Nothing,
        JSON,
        BodyFormat::Json { shape: ResultShape::Set, strip_nulls: true },
        BodyFormat::Object { shape: ResultShape::Set, strip_nulls: false },
        BodyFormat::Object { shape: ResultShape::Set, strip_nulls: true },
        BodyFormat::Csv,
        BodyFormat::GeoJson,
        handler(None),
        handler(Some(crate::schema::testing::qualified("films"))),
    ];
    let all: Vec<_> = producers.iter().map(|body_format| format!("{body_format:?}\n{}\n", of(body_format))).collect();
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn reads_have_no_envelope_where_none_is_needed() {
    let settings = settings();
    let plain = |resource: &str, body_format: &BodyFormat| {
        let (sql, yields) = plain_read(&plan(&settings, resource).unwrap(), body_format)?;
        Some(format!("{}\n  {yields:?}", shown(&sql)))
    };
    let object = BodyFormat::Object { shape: ResultShape::Set, strip_nulls: false };
    let stripped = |shape| BodyFormat::Json { shape, strip_nulls: true };
    insta::assert_snapshot!(plain("films?select=id,directors(name)&order=id&limit=3", &JSON).unwrap());
    insta::assert_snapshot!(plain("films?id=eq.1", &object).unwrap());
    insta::assert_snapshot!(plain("films?select=id", &stripped(ResultShape::Set)).unwrap());
    for other in [BodyFormat::Csv, BodyFormat::Nothing, BodyFormat::GeoJson, stripped(ResultShape::ScalarSet)] {
        assert_eq!(plain("films?select=id", &other), None, "{other:?}");
    }
}

#[test]
fn written_rows_are_read_from_their_cte() {
    let cache = cinema();
    let relation = cache.relation("public", "people").unwrap();
    let settings = settings();
    let context = PlanContext { cache: &cache, schema: "public", settings: &settings };
    let raw = "select=name,children_of(name),manager:manager_id(name)&id=eq.1&limit=1&order=name&children_of.limit=2";
    let plan =
        ReadPlan::new(&context, ReadRoot::Written(relation), &parse(raw, QueryTarget::Relation).unwrap()).unwrap();
    let mut sql = super::Sql::new();
    read::rows(&mut sql, &plan, None);
    insta::assert_snapshot!(shown(&sql));
}

#[test]
fn the_rows_of_a_function_come_from_its_call() {
    let cache = cinema();
    let routine = &cache.routines_named("public", "films_since")[0];
    let settings = settings();
    let context = PlanContext { cache: &cache, schema: "public", settings: &settings };
    let raw = "select=title,directors(last_name),maker(last_name)&id=gt.1&limit=1&since=2000";
    let query = parse(raw, QueryTarget::Function { read: true }).unwrap();
    let plan = ReadPlan::new(&context, ReadRoot::Call(routine), &query).unwrap();
    let mut sql = super::Sql::new();
    let call = |sql: &mut super::Sql| {
        sql.qualified("public", "films_since").raw("(").value("2000").raw("::integer) AS ").raw(CALL);
    };
    read::rows(&mut sql, &plan, Some(&call));
    insta::assert_snapshot!(shown(&sql));
}

#[test]
fn types_of_clients_cannot_contain_other_sql() {
    let of = |name: &str| {
        let mut sql = super::Sql::new();
        read::output::type_name(&mut sql, name);
        sql.text().to_owned()
    };
    for fine in ["text", "timestamp with time zone", "_int4", "größe", "a$b"] {
        assert_eq!(of(fine), fine);
    }
    for odd in ["", " ", "text)", "$$", "a $b$", "1$a$", "x--", "int[]", "a.b", "x\0", "a;b"] {
        assert_eq!(of(odd), format!("\"{}\"", odd.replace('\0', "")));
    }
}

/// Texts depend on the shape of a request only, so that a prepared statement serves many requests.
#[test]
fn values_do_not_change_the_text() {
    let text = |resource: &str| {
        let plan = plan(&settings(), resource).unwrap();
        read_statement(&plan, RowCount::Exact, &JSON).text().to_owned()
    };
    let one = "films?select=id,x:meta->a->0,actors!roles(id)&id=in.(1,2)&title=like.a*&limit=1&offset=3&actors.limit=7&order=id";
    let other = "films?select=id,x:meta->b->1,actors!roles(id)&id=in.(7)&title=like.b&limit=99&offset=4&actors.limit=8&order=id";
    assert_eq!(text(one), text(other));
}
