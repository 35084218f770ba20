//! Reads, from the query string to the rows of a real PostgreSQL.

use std::fmt::Write as _;

use portico_database::wire::{Batch, Pool, Statement, WireError, WirePoolSettings};
use portico_rest::RestError;
use portico_rest::config::PlanSettings;
use portico_rest::plan::{BodyFormat, PlanContext, ReadPlan, ReadRoot, ResultShape};
use portico_rest::query::{QueryTarget, parse};
use portico_rest::schema::{LoadSettings, SchemaCache, load};
use portico_rest::sql::{RowCount, Sql, matching, read_statement};

use crate::database::CinemaDatabase;

/// One case per line; the file explains the format.
const READS: &str = include_str!("reads.txt");

pub const JSON: BodyFormat = BodyFormat::Json { shape: ResultShape::Set, strip_nulls: false };

/// A cinema, and the parts that run statements on it.
pub struct ReadRunner {
    pub cinema: CinemaDatabase,
    pub settings: PlanSettings,
    cache: SchemaCache,
    pool: Pool,
}

/// The result of a read.
#[derive(Debug, PartialEq)]
pub struct ReadResult {
    pub total: Option<u64>,
    pub rows: u64,
    pub body: Option<String>,
}

/// The failure of a read.
#[derive(Debug)]
pub enum ReadError {
    Ours(RestError),
    /// SQLSTATE and message.
    Postgres(String, String),
}

impl ReadRunner {
    pub async fn open() -> Self {
        let cinema = CinemaDatabase::open().await;
        let settings = LoadSettings { schemas: vec!["public".to_owned()], ..LoadSettings::default() };
        let cache = load(&cinema.authenticator().await, &settings).await.unwrap();
        let pool = Pool::open(cinema.endpoint(), "authenticator", WirePoolSettings::default()).unwrap();
        let settings = PlanSettings { aggregates: true, ..PlanSettings::default() };
        Self { cinema, settings, cache, pool }
    }

    pub fn plan(&self, resource: &str) -> Result<ReadPlan, RestError> {
        let (name, raw) = resource.split_once('?').unwrap_or((resource, ""));
        let relation = self.cache.relation("public", name.trim_matches('"')).expect(name);
        let context = PlanContext { cache: &self.cache, schema: "public", settings: &self.settings };
        ReadPlan::new(&context, ReadRoot::Relation(relation), &parse(raw, QueryTarget::Relation)?)
    }

    pub async fn run(&self, role: &str, sql: &Sql) -> Result<Vec<Option<String>>, ReadError> {
        let params: Vec<_> = sql.params().iter().map(|param| Some(param.as_bytes())).collect();
        let role = [Some(role.as_bytes())];
        let batch = Batch::new()
            .statement(Statement::named("select set_config('role', $1, true)", &role))
            .statement(Statement::unnamed(sql.text(), &params));
        let responses = match self.pool.checkout().await.unwrap().run(&batch).await {
            Ok(responses) => responses,
            Err(WireError::Postgres(error)) => {
                return Err(ReadError::Postgres(error.code.clone(), error.message.clone()));
            }
            Err(error) => panic!("{error}"),
        };
        let row = responses.row(1).unwrap();
        Ok((0..row.len()).map(|column| row.text(column).map(str::to_owned)).collect())
    }

    pub async fn ask(
        &self,
        role: &str,
        resource: &str,
        count: RowCount,
        body_format: &BodyFormat,
    ) -> Result<ReadResult, ReadError> {
        let plan = self.plan(resource).map_err(ReadError::Ours)?;
        let row = self.run(role, &read_statement(&plan, count, body_format)).await?;
        let number = |column: usize| row[column].as_ref().map(|text| text.parse().unwrap());
        Ok(ReadResult { total: number(0), rows: number(1).unwrap(), body: row[2].clone() })
    }

    /// Returns the body, or the error in a line.
    async fn shown(&self, resource: &str) -> String {
        match self.ask("service_role", resource, RowCount::None, &JSON).await {
            Ok(response) => response.body.unwrap(),
            Err(ReadError::Ours(error)) => error.body().to_string(),
            Err(ReadError::Postgres(code, message)) => format!("{code} {message}"),
        }
    }

    async fn body(&self, resource: &str, body_format: &BodyFormat) -> String {
        self.ask("service_role", resource, RowCount::None, body_format).await.unwrap().body.unwrap()
    }
}

#[tokio::test]
async fn every_case_has_the_expected_response() {
    let reader = ReadRunner::open().await;
    let mut groups: Vec<(String, String)> = Vec::new();
    for line in READS.lines().skip(1).filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix("# ") {
            groups.push((name.to_lowercase().replace([' ', ','], "_"), String::new()));
            continue;
        }
        let response = reader.shown(line).await;
        writeln!(groups.last_mut().unwrap().1, "{line}\n{response}\n").unwrap();
    }
    for (name, text) in groups {
        insta::assert_snapshot!(name, text);
    }
}

#[tokio::test]
async fn totals_count_all_matching_rows() {
    let reader = ReadRunner::open().await;
    let total = async |resource, count| {
        let response = reader.ask("service_role", resource, count, &BodyFormat::Nothing).await.unwrap();
        (response.total, response.rows, response.body)
    };
    assert_eq!(total("films?year=gt.2000", RowCount::None).await, (None, 4, None));
    assert_eq!(total("films?year=gt.2000", RowCount::Exact).await, (Some(4), 4, None));
    assert_eq!(total("films?year=gt.2000&limit=1", RowCount::Exact).await, (Some(4), 1, None));
    assert_eq!(total("films?offset=10", RowCount::Exact).await, (Some(5), 0, None));
    assert_eq!(total("films?limit=1", RowCount::UpTo(3)).await, (Some(3), 1, None));
    assert_eq!(total("films?select=director_id,count()", RowCount::Exact).await, (Some(5), 4, None));
    assert_eq!(total("films?select=count", RowCount::Exact).await, (Some(5), 1, None));
    let inner = "films?select=id,directors!inner(id),actors!roles()&directors.id=lt.3&actors=is.null&limit=0";
    assert_eq!(total(inner, RowCount::Exact).await, (Some(0), 0, None));
    let inner = "films?select=id,directors!inner(id),actors!roles()&directors.id=lt.3&actors=not.is.null&limit=0";
    assert_eq!(total(inner, RowCount::Exact).await, (Some(3), 0, None));
    let plan = reader.plan("films?id=gt.1&select=id,directors!inner()").unwrap();
    assert_eq!(reader.run("service_role", &matching(&plan)).await.unwrap(), [Some("1".to_owned())]);
}

#[tokio::test]
async fn a_body_has_the_requested_form() {
    let reader = ReadRunner::open().await;
    let stripped = BodyFormat::Json { shape: ResultShape::Set, strip_nulls: true };
    let resource = "films?select=id,rating,meta,directors(born)&id=in.(3,4)&order=id";
    assert_eq!(
        reader.body(resource, &stripped).await,
        r#"[{"id":3,"rating":6.0,"directors":{"born":"1961-07-08"}},{"id":4,"meta":{}}]"#
    );
    let object = |strip_nulls| BodyFormat::Object { shape: ResultShape::Set, strip_nulls };
    let one = "films?select=id,rating,tags&id=eq.4";
    assert_eq!(reader.body(one, &object(false)).await, r#"{"id":4,"rating":null,"tags":["drama","comedy"]}"#);
    assert_eq!(reader.body(one, &object(true)).await, r#"{"id":4,"tags":["drama","comedy"]}"#);
    assert_eq!(reader.body("films?id=eq.99", &object(false)).await, "null");
    assert_eq!(reader.body("films?id=eq.99", &JSON).await, "[]");
    assert_eq!(reader.body("films?select=directors()&id=lt.3", &JSON).await, "[{}, \n {}]");
}

#[tokio::test]
async fn csv_is_postgresqls_text_of_rows() {
    let reader = ReadRunner::open().await;
    let resource = "films?select=id,Title:title,rating,tags,always_true,directors(last_name)&id=in.(1,3,4)&order=id";
    insta::assert_snapshot!(reader.body(resource, &BodyFormat::Csv).await);
    assert_eq!(reader.body("films?id=eq.99", &BodyFormat::Csv).await, "\n");
}

#[tokio::test]
async fn the_operators_limit_holds_at_every_level() {
    let mut reader = ReadRunner::open().await;
    reader.settings.max_rows = Some(1);
    let of = async |resource| reader.body(resource, &JSON).await;
    assert_eq!(of("directors?select=id,films(id)&films.order=id&order=id").await, r#"[{"id":1,"films":[{"id": 1}]}]"#);
    assert_eq!(
        of("directors?select=id,films(id)&films.order=id.desc&id=eq.1&limit=5").await,
        r#"[{"id":1,"films":[{"id": 2}]}]"#
    );
    assert_eq!(of("films?select=id,directors(id)&id=eq.3&limit=0").await, "[]");
}

#[tokio::test]
async fn an_unknown_column_is_named_by_postgresql() {
    let reader = ReadRunner::open().await;
    let of = async |resource| reader.shown(resource).await;
    assert_eq!(of("films?select=nam").await, "42703 column films.nam does not exist");
    assert_eq!(of("films?nam=eq.1").await, "42703 column films.nam does not exist");
    assert_eq!(of("directors?select=films(nam)").await, "42703 column films_1.nam does not exist");
    assert_eq!(of("films?id=like.1*").await, "42883 operator does not exist: integer ~~ unknown");
    assert_eq!(of("films?id=eq.x").await, "22P02 invalid input syntax for type integer: \"x\"");
    assert_eq!(of("films?select=id::nothing").await, "42704 type \"nothing\" does not exist");
    assert_eq!(of("films?select=id::$$").await, "42704 type \"$$\" does not exist");
}

/// Rows that an offset skips take no time.
#[tokio::test]
async fn nothing_is_computed_for_rows_that_an_offset_skips() {
    let reader = ReadRunner::open().await;
    let admin = reader.cinema.administrator().await;
    admin
        .batch_execute(
            "create sequence looks;
             grant usage on sequence looks to service_role;
             create function look(films) returns bigint language sql volatile as $$ select nextval('public.looks') $$;
             create function look(roles) returns bigint language sql volatile as $$ select nextval('public.looks') $$;",
        )
        .await
        .unwrap();
    let looks = async |resource| {
        admin.batch_execute("alter sequence looks restart").await.unwrap();
        reader.ask("service_role", resource, RowCount::Exact, &JSON).await.unwrap();
        let next: i64 = admin.query_one("select nextval('looks')", &[]).await.unwrap().get(0);
        next - 1
    };
    assert_eq!(looks("films?select=id,look&order=id&limit=2&offset=3").await, 2);
    assert_eq!(looks("films?select=*,look&limit=1&offset=4").await, 1);
    assert_eq!(looks("directors?select=films(id,look)&films.order=id&films.offset=1&id=eq.1").await, 1);
    let roles: i64 = admin.query_one("select count(*) from roles where film_id = 2", &[]).await.unwrap().get(0);
    assert!(roles > 0);
    assert_eq!(looks("films?select=id,roles(look)&order=id&limit=1&offset=1").await, roles);
}

/// A page reads only the requested columns.
#[tokio::test]
async fn a_page_needs_the_privileges_of_its_columns_only() {
    let reader = ReadRunner::open().await;
    let admin = reader.cinema.administrator().await;
    admin
        .batch_execute(
            // Roles belong to the cluster, which outlives this test
            "do $$ begin create role clerk nologin; exception when duplicate_object or unique_violation then null; end $$;
             grant clerk to authenticator; grant usage on schema public to clerk;
             grant select (id, director_id) on films to clerk; grant select (id) on directors to clerk",
        )
        .await
        .unwrap();
    let resource = "films?select=id,directors(id)&order=id&limit=1&offset=1";
    let response = reader.ask("clerk", resource, RowCount::Exact, &JSON).await.unwrap();
    assert_eq!((response.total, response.rows), (Some(5), 1));
}

/// An empty table, deep trees, long names: cases that break carelessly written SQL.
#[tokio::test]
async fn unusual_shapes_are_valid_sql() {
    let reader = ReadRunner::open().await;
    for resource in [
        "empty_table",
        "empty_table?select=name,count()",
        "films?select=directors(films(directors(films(directors(films(id))))))",
        "films?select=*,*,id,id,directors(*),again:directors(*)",
        "films?select=id,a:directors(id),b:directors(id),...directors(last_name),...maker(first_name)",
        "films?select=...directors(id,...director_profiles(biography,...directors(born)))",
        "films?select=directors(a:first_name,a:last_name)",
        "films?select=a:directors!inner(id),b:directors!inner(id),actors!roles!inner()&order=a(id),b(id)",
        "people?select=people(people(people(people()))),manager_id(manager_id(people(*)))",
        "films?select=a_very_long_alias_that_goes_on_and_on_beyond_what_postgresql_can_hold_as_a_name:directors(id)",
        "films?select=roles(actors(roles(films(actors!roles(roles(films(id)))))))",
        "films?select=actors!roles(films!roles(actors!roles(films!roles(id))))",
    ] {
        let response = reader.ask("service_role", resource, RowCount::Exact, &JSON).await;
        assert!(response.is_ok(), "{resource}: {response:?}");
    }
}
