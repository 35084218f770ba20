use super::*;
use crate::config::PlanSettings;
use crate::query::{QueryTarget, parse};
use crate::request::body::ObjectKeys;
use crate::schema::SchemaCache;
use crate::schema::testing::cinema;

/// A request that writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteRequest<'a> {
    pub(crate) action: WriteAction,
    /// `table?query`
    pub(crate) url: &'a str,
    pub(crate) body: &'static str,
    pub(crate) options: WriteOptions,
}

pub(crate) fn request<'a>(action: WriteAction, url: &'a str, body: &'static str) -> WriteRequest<'a> {
    WriteRequest { action, url, body, options: WriteOptions::default() }
}

impl WriteRequest<'_> {
    pub(crate) fn returning(mut self, returns: ReturnPreference) -> Self {
        self.options.returns = returns;
        self
    }

    pub(crate) fn resolving(mut self, resolution: Resolution) -> Self {
        self.options.resolution = Some(resolution);
        self
    }

    pub(crate) fn with_defaults(mut self) -> Self {
        self.options.defaults = true;
        self
    }

    pub(crate) fn plan(self, cache: &SchemaCache) -> Result<WritePlan, RestError> {
        let settings = PlanSettings::default();
        let context = PlanContext { cache, schema: "public", settings: &settings };
        let (table, query) = self.url.split_once('?').unwrap_or((self.url, ""));
        let query = parse(query, QueryTarget::Relation)?;
        let json: serde_json::Value = serde_json::from_str(self.body).unwrap_or_default();
        let object = json.as_object().or_else(|| json.as_array()?.first()?.as_object());
        let keys: Vec<String> = object.into_iter().flat_map(|object| object.keys().cloned()).collect();
        let payload = JsonPayload {
            text: Bytes::from_static(self.body.as_bytes()),
            is_object: json.is_object(),
            known: Some(ObjectKeys { keys, objects: 1 }),
        };
        let payload = Some(&payload).filter(|_| self.action != Delete);
        let relation = cache.relation("public", table).unwrap();
        WritePlan::new(&context, relation, self.action, &query, self.options, payload)
    }

    fn change(self) -> WriteChange {
        self.plan(&cinema()).unwrap().change
    }
}

use WriteAction::{Delete, Insert, Put, Update};

fn names(columns: &[AssignedColumn]) -> Vec<&str> {
    columns.iter().map(|column| column.name.as_str()).collect()
}

#[test]
fn columns_are_those_of_the_body_sorted_by_name() {
    let WriteChange::Insert { columns, .. } = request(Insert, "films", r#"{"year":1,"title":"x"}"#).change() else {
        panic!("no insert")
    };
    assert_eq!(names(&columns), ["title", "year"]);
}

#[test]
fn listed_columns_replace_those_of_the_body() {
    let url = r#"films?columns=year,"title",year"#;
    let WriteChange::Insert { columns, .. } = request(Insert, url, r#"[{"unknown":1}]"#).change() else {
        panic!("no insert")
    };
    assert_eq!(names(&columns), ["title", "year"]);
    let WriteChange::Update { columns, .. } = request(Update, "films?id=eq.1&columns=year", "{}").change() else {
        panic!("no update")
    };
    assert_eq!(names(&columns), ["year"]);
}

#[test]
fn the_alphabetically_first_unknown_column_is_reported() {
    let body = r#"{"zzz":1,"nam":2,"title":3}"#;
    for action in [Insert, Update, Put] {
        let error = request(action, "films?id=eq.1", body).plan(&cinema()).unwrap_err();
        assert_eq!(error.code(), "PGRST204");
        assert_eq!(error.message(), "Could not find the 'nam' column of 'films' in the schema cache");
    }
}

#[test]
fn an_unknown_embed_is_reported_before_an_unknown_column() {
    let error = request(Insert, "films?select=nothing(*)", r#"{"nam":1}"#).plan(&cinema()).unwrap_err();
    assert_eq!(error.code(), "PGRST200");
}

#[test]
fn an_update_without_columns_changes_nothing() {
    for body in ["{}", "[]", "[{}]"] {
        let plan = request(Update, "films", body).plan(&cinema()).unwrap();
        assert_eq!(plan.change, WriteChange::Nothing);
        let cache = cinema();
        let context = PlanContext { cache: &cache, schema: "public", settings: &PlanSettings::default() };
        plan.check_safe_update(&context).unwrap();
    }
}

#[test]
fn writes_of_every_row_are_rejected() {
    let cache = cinema();
    let mut settings = PlanSettings::default();
    for (action, url, message) in [
        (Update, "films", Some("UPDATE requires a WHERE clause")),
        (Update, "films?limit=1&order=id", Some("UPDATE requires a WHERE clause")),
        (Update, "films?select=*,directors(*)&directors.id=eq.1", Some("UPDATE requires a WHERE clause")),
        (Delete, "films", Some("DELETE requires a WHERE clause")),
        (Update, "films?id=eq.1", None),
        (Delete, "films?or=(id.eq.1,id.eq.2)", None),
        // All logic trees are part of the WHERE, at whatever level they are
        (Delete, "films?select=*,directors(*)&directors.or=(id.eq.1,id.eq.2)", None),
        (Insert, "films", None),
    ] {
        let plan = request(action, url, r#"{"year":1}"#).plan(&cache).unwrap();
        settings.safe_update = true;
        let error = plan.check_safe_update(&PlanContext { cache: &cache, schema: "public", settings: &settings }).err();
        assert_eq!(error.as_ref().map(RestError::message).as_deref(), message, "{url}");
        if let Some(error) = error {
            assert_eq!((error.code(), error.status()), ("21000", StatusCode::BAD_REQUEST));
        }
        settings.safe_update = false;
        plan.check_safe_update(&PlanContext { cache: &cache, schema: "public", settings: &settings }).unwrap();
    }
}

#[test]
fn upserts_compare_the_requested_columns_or_the_primary_key_or_nothing() {
    let cache = cinema();
    let conflict = |url: &str, body| {
        let plan = request(Insert, url, body).resolving(Resolution::MergeDuplicates).plan(&cache).unwrap();
        let resolution = plan.resolution();
        let counts = plan.counts_inserted();
        let WriteChange::Insert { conflict, .. } = plan.change else { panic!("no insert") };
        assert_eq!(resolution.is_some(), conflict.is_some());
        assert_eq!(counts, conflict.is_some());
        conflict.map(|conflict| conflict.columns)
    };
    assert_eq!(conflict("films", r#"{"id":1}"#), Some(vec!["id".to_owned()]));
    assert_eq!(conflict("roles", r#"{"film_id":1}"#), Some(vec!["actor_id".to_owned(), "film_id".to_owned()]));
    assert_eq!(conflict("films?on_conflict=title,year", r#"{"id":1}"#), Some(vec!["title".into(), "year".into()]));
    assert_eq!(conflict("guest_book", r#"{"entry":1}"#), None);
    assert_eq!(conflict("guest_book?on_conflict=entry", r#"{"entry":1}"#), Some(vec!["entry".to_owned()]));
}

#[test]
fn a_put_needs_exactly_its_primary_key() {
    let cache = cinema();
    let body = r#"{"film_id":1,"actor_id":2,"character":"x"}"#;
    for url in [
        "roles",
        "roles?film_id=eq.1",
        "roles?film_id=eq.1&film_id=eq.1",
        "roles?film_id=eq.1&actor_id=eq.2&character=eq.x",
        "roles?film_id=eq.1&actor_id=gt.2",
        "roles?film_id=eq.1&actor_id=not.eq.2",
        "roles?film_id=eq.1&actor_id=eq(any).{2}",
        "roles?film_id=eq.1&actor_id->a=eq.2",
        "roles?film_id=eq.1&actor_id=eq.2&and=(film_id.eq.1)",
        "guest_book?entry=eq.1",
    ] {
        let error = request(Put, url, if url.starts_with('g') { "{}" } else { body }).plan(&cache).unwrap_err();
        assert_eq!((error.code(), error.status()), ("PGRST105", StatusCode::METHOD_NOT_ALLOWED), "{url}");
    }
    let url = "roles?actor_id=eq.2&film_id=eq.1&select=character&columns=film_id";
    let plan = request(Put, url, body).with_defaults().plan(&cache).unwrap();
    assert!(plan.counts_inserted());
    assert_eq!(plan.resolution(), None);
    let WriteChange::Insert { columns, defaults, only, .. } = plan.change else { panic!("no insert") };
    assert_eq!(names(&columns), ["actor_id", "character", "film_id"]);
    assert!(!defaults);
    let only: Vec<_> = only.iter().map(|key| (key.column.name.as_str(), key.value.as_str())).collect();
    assert_eq!(only, [("actor_id", "2"), ("film_id", "1")]);
}

#[test]
fn the_result_of_a_write_depends_on_the_preference() {
    let cache = cinema();
    let plan = |url, returns| request(Insert, url, r#"{"id":1}"#).returning(returns).plan(&cache).unwrap();
    assert!(matches!(plan("films", ReturnPreference::Minimal).returning, WriteReturn::Count));
    let plan_with_location = plan("films?select=title", ReturnPreference::HeadersOnly);
    assert!(plan_with_location.returns_location());
    let WriteReturn::Location(returned) = plan_with_location.returning else { panic!("no location") };
    assert!(!returned.all);
    let mut columns = returned.columns;
    columns.sort();
    assert_eq!(columns, ["id", "title"]);
    let WriteReturn::Location(returned) = plan("films", ReturnPreference::HeadersOnly).returning else {
        panic!("no location")
    };
    assert!(returned.all);
    assert!(matches!(plan("films", ReturnPreference::Representation).returning, WriteReturn::Rows(_)));
    let update = request(Update, "films?id=eq.1", r#"{"id":1}"#).returning(ReturnPreference::HeadersOnly);
    assert!(!update.plan(&cache).unwrap().returns_location());
}

#[test]
fn filters_of_an_insert_are_ignored_but_must_name_embeds() {
    let cache = cinema();
    request(Insert, "films?id=eq.1&limit=0", r#"{"id":1}"#).plan(&cache).unwrap();
    let error = request(Insert, "films?actors.id=eq.1", r#"{"id":1}"#).plan(&cache).unwrap_err();
    assert_eq!(error.code(), "PGRST108");
}
