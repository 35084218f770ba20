//! Tests of read plans, and of the order of their errors.

use std::sync::Arc;

use super::{PlanContext, ReadPlan, ReadRoot, ReturnedColumns};
use crate::RestError;
use crate::config::PlanSettings;
use crate::query::{QueryTarget, parse};
use crate::schema::testing::cinema;
use crate::schema::{QualifiedName, Relationship};

fn plan_with(settings: &PlanSettings, resource: &str) -> Result<ReadPlan, RestError> {
    let cache = cinema();
    let (name, raw) = resource.split_once('?').unwrap();
    let context = PlanContext { cache: &cache, schema: "public", settings };
    let relation = cache.relation("public", name).unwrap();
    ReadPlan::new(&context, ReadRoot::Relation(relation), &parse(raw, QueryTarget::Relation).unwrap())
}

fn plan(resource: &str) -> Result<ReadPlan, RestError> {
    plan_with(&PlanSettings::default(), resource)
}

fn code(resource: &str) -> String {
    plan(resource).map_or_else(|error| error.code().to_owned(), |_| "fine".to_owned())
}

/// Each case also has every error that comes later.
#[test]
fn errors_are_reported_in_a_fixed_order() {
    assert_eq!(code("films?select=nowhere(id.max())&order=gone(id)&actors.id=eq.1"), "PGRST108");
    assert_eq!(code("films?select=nowhere(id.max())&order=gone(id)&actors.limit=1"), "PGRST108");
    assert_eq!(code("films?select=nowhere(id.max())&order=gone(id)&actors.or=(id.eq.1)"), "PGRST108");
    assert_eq!(code("films?select=nowhere(id.max())&order=gone(id)"), "PGRST200");
    assert_eq!(code("orders?select=addresses(id.max())&order=gone(id)"), "PGRST201");
    assert_eq!(code("films?select=roles(film_id.max())&order=gone(id)"), "PGRST108");
    assert_eq!(code("films?select=...roles(film_id.max())&order=roles(id)"), "PGRST118");
    assert_eq!(code("films?select=...roles(film_id.max())"), "PGRST123");
    let enabled = PlanSettings { aggregates: true, ..PlanSettings::default() };
    assert_eq!(plan_with(&enabled, "films?select=...roles(film_id.max())").unwrap_err().code(), "PGRST127");
    assert_eq!(plan_with(&enabled, "films?select=...roles(...actors(count()))").unwrap_err().code(), "PGRST127");
}

#[test]
fn only_targets_in_the_schema_of_the_request_are_found() {
    let mut cache = cinema();
    let of_orders = cache.relationships.get_mut("public").unwrap().get_mut("orders").unwrap();
    of_orders.truncate(1);
    let mut elsewhere = Relationship::clone(&of_orders[0]);
    elsewhere.target = QualifiedName { schema: "archive".into(), name: "receipts".into() };
    of_orders.push(Arc::new(elsewhere));
    let settings = PlanSettings::default();
    let context = PlanContext { cache: &cache, schema: "public", settings: &settings };
    let hint = |raw: &str| {
        let query = parse(raw, QueryTarget::Relation).unwrap();
        let error = ReadPlan::new(&context, ReadRoot::Relation(cache.relation("public", "orders").unwrap()), &query);
        error.unwrap_err().hint()
    };
    assert_eq!(hint("select=receipt(id)"), None);
    assert_eq!(hint("select=address(id)").unwrap(), "Perhaps you meant 'addresses' instead of 'address'.");
}

#[test]
fn aggregates_are_found_at_every_level_and_a_count_without_parentheses_is_none() {
    assert_eq!(code("films?select=count()"), "PGRST123");
    assert_eq!(code("films?select=directors(films(n:count()))"), "PGRST123");
    assert_eq!(code("films?select=directors(films(id.max()))"), "PGRST123");
    assert_eq!(code("films?select=count"), "fine");
    assert_eq!(code("directors?select=id,films(count)"), "fine");
}

#[test]
fn an_aliased_embed_can_be_addressed_by_its_name_unless_that_is_disabled() {
    let resource = "films?select=id,d:directors(id)&directors.id=eq.1&directors.order=id&d.limit=1";
    assert_eq!(plan(resource).unwrap().legacy_names, [("directors".to_owned(), "d".to_owned())]);
    assert_eq!(plan("films?select=id,d:directors(id)&d.id=eq.1").unwrap().legacy_names, []);
    let strict = PlanSettings { legacy_target_names: false, ..PlanSettings::default() };
    let error = plan_with(&strict, resource).unwrap_err();
    assert_eq!(error.message(), "'directors' is not an embedded resource in this request");
    assert_eq!(error.details().unwrap(), "Target names are not allowed in filters if they have an alias");
    assert_eq!(error.hint().unwrap(), "Change 'directors' to 'd' in filters, orders or limits.");
    assert!(plan_with(&strict, "films?select=id,d:directors(id)&d.id=eq.1").is_ok());
    assert!(plan_with(&strict, "films?select=id,directors(id)&directors.id=eq.1").is_ok());
}

#[test]
fn a_name_addresses_the_first_of_several_siblings() {
    let plan = plan("films?select=a:directors(id),directors(id)&directors.id=eq.1").unwrap();
    let filters: Vec<_> = plan.root.embeds.iter().map(|embed| embed.level.conditions.len()).collect();
    assert_eq!(filters, [1, 0]);
}

#[test]
fn a_write_returns_what_its_representation_needs() {
    let of = |resource: &str| plan(resource).unwrap().returned_columns();
    let columns =
        |all: bool, names: &[&str]| ReturnedColumns { all, columns: names.iter().map(|n| (*n).to_owned()).collect() };
    assert_eq!(of("films?select=title"), columns(false, &["title", "id"]));
    assert_eq!(of("films?select=*"), columns(true, &[]));
    assert_eq!(of("films?select=*,age_in_years&order=full"), columns(true, &["age_in_years", "full"]));
    assert_eq!(
        of("films?select=meta->a,meta->>b,directors(id)&order=year"),
        columns(false, &["meta", "year", "director_id", "id"])
    );
    assert_eq!(of("roles?select=character,films(id)"), columns(false, &["character", "film_id", "actor_id"]));
    assert_eq!(of("actors?select=films!roles(id)"), columns(false, &["id"]));
    assert_eq!(of("stocks?select=warehouses(name)"), columns(false, &["warehouse_code", "warehouse_region", "id"]));
    assert_eq!(of("people?select=children_of(name),boss"), columns(true, &["boss"]));
}

#[test]
fn hints_choose_among_relationships() {
    assert_eq!(code("orders?select=addresses!billing(id)"), "fine");
    assert_eq!(code("orders?select=addresses!billing_address_id(id)"), "fine");
    assert_eq!(code("orders?select=billing(id)"), "fine");
    assert_eq!(code("orders?select=billing_address_id(id)"), "fine");
    // All of them have this column
    assert_eq!(code("orders?select=addresses!id(id)"), "PGRST201");
    assert_eq!(code("addresses?select=orders!shipping(id)"), "fine");
    assert_eq!(code("addresses?select=orders(id)"), "PGRST201");
    // The key of the other side is not a name of an embed
    assert_eq!(code("addresses?select=shipping_address_id(id)"), "PGRST200");
    assert_eq!(code("stocks?select=stocks_warehouse(name)"), "fine");
    assert_eq!(code("stocks?select=warehouse_code(name)"), "PGRST200");
    assert_eq!(code("films?select=actors!roles(id)"), "fine");
    assert_eq!(code("films?select=actors!roles_film_id_fkey(id)"), "PGRST200");
    // A relationship of a table with itself: children by its name, the parent by the column,
    // nothing by the constraint
    assert_eq!(code("people?select=people(id)"), "fine");
    assert_eq!(code("people?select=people!manager_id(id)"), "fine");
    assert_eq!(code("people?select=people!people_manager_id_fkey(id)"), "PGRST200");
    assert_eq!(code("people?select=people_manager_id_fkey(id)"), "PGRST200");
    assert_eq!(code("presidents?select=presidents(id)"), "PGRST200");
    // A hint has no effect on a function
    assert_eq!(code("presidents?select=successor!whatever(id)"), "fine");
    // Names of keys and columns do not apply to views
    assert_eq!(code("roles?select=film_id(title)"), "fine");
}
