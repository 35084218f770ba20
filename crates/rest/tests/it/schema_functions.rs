//! Functions, casts and media type handlers of the loaded schema cache.

use std::sync::Arc;

use portico_rest::schema::{Routine, SchemaCache, Volatility};

use crate::schema::cache;

fn only<'a>(cache: &'a SchemaCache, name: &str) -> &'a Arc<Routine> {
    let [routine] = cache.routines_named("public", name) else { panic!("{name} is not there once") };
    routine
}

#[tokio::test]
async fn functions_are_listed_if_their_parameters_can_be_passed() {
    let cache = cache().await;
    for name in ["hello", "add_them", "whole_json", "whole_bytes", "whole_xml", "whole_text", "anything", "nothing"] {
        assert_eq!(only(cache, name).name.name, name);
    }
    for hidden in [
        "unnamed_number",
        "unnamed_pair",
        "a_procedure",
        "an_aggregate",
        "trigger_people_insert",
        "full_name",
        "secret",
    ] {
        assert!(cache.routines_named("public", hidden).is_empty(), "{hidden}");
    }
    // A function that may not be executed is listed: the call fails
    assert!(!cache.routines_named("public", "forbidden").is_empty());
    let lengths: Vec<_> =
        cache.routines_named("public", "overloaded").iter().map(|routine| routine.parameters.len()).collect();
    assert_eq!(lengths, [0, 1, 2, 3]);
    let wholes: Vec<_> =
        cache.routines_named("public", "two_wholes").iter().map(|each| each.parameters[0].sql_type.as_str()).collect();
    assert_eq!(wholes, ["json", "jsonb"]);
    assert_eq!(only(cache, "add_them").comment.as_deref(), Some("Adds\ntwo numbers"));
}

#[tokio::test]
async fn parameters_have_names_types_and_defaults() {
    let cache = cache().await;
    let taken = |name: &str| -> Vec<String> {
        let show = |parameter: &portico_rest::schema::RoutineParameter| {
            let mark = if parameter.required { "" } else { "?" };
            let dots = if parameter.variadic { "..." } else { "" };
            format!("{}{mark}{dots} {} {}", parameter.name, parameter.sql_type, parameter.unbounded_type)
        };
        only(cache, name).parameters.iter().map(show).collect()
    };
    assert_eq!(taken("greet"), ["name? text text", "greeting? text text"]);
    assert_eq!(taken("sum_of"), ["numbers?... integer[] integer[]"]);
    assert!(only(cache, "sum_of").variadic);
    assert_eq!(taken("with_out"), ["a integer integer"]);
    assert_eq!(taken("with_inout"), ["a integer integer", "b? text text"]);
    assert_eq!(
        taken("short_arguments"),
        ["c character character varying", "v character varying character varying", "b bit bit varying",]
    );
    assert_eq!(taken("floor_of"), ["place public.point_of_sale public.point_of_sale"]);
    assert_eq!(taken("Odd Name"), ["First Argument text text", "second\"arg? integer integer"]);
    assert_eq!(taken("whole_json"), [" json json"]);
}

#[tokio::test]
async fn results_have_their_kinds() {
    let cache = cache().await;
    for (name, returned, set, composite, anonymous, void, relation) in [
        ("hello", "text", false, false, false, false, None),
        ("numbers_as_set", "int4", true, false, false, false, None),
        ("numbers_as_table", "record", true, true, false, false, None),
        ("with_out", "record", false, true, false, false, None),
        ("one_out", "int4", false, true, false, false, None),
        ("any_record", "record", false, true, true, false, None),
        ("any_records", "record", true, true, true, false, None),
        ("film_by_id", "films", false, true, false, false, Some("films")),
        ("films_since", "films", true, true, false, false, Some("films")),
        ("film_list_since", "film_list", true, true, false, false, Some("film_list")),
        ("a_sale_point", "point_of_sale", false, true, false, false, None),
        ("a_price", "price", false, false, false, false, None),
        ("nothing", "void", false, false, false, true, None),
        ("welcome", "text/html", false, false, false, false, None),
    ] {
        let returns = &only(cache, name).returns;
        assert_eq!(returns.name.name, returned, "{name}");
        assert_eq!(
            (returns.set, returns.composite, returns.anonymous, returns.void),
            (set, composite, anonymous, void),
            "{name}"
        );
        assert_eq!(returns.relation.as_ref().map(|relation| relation.name.as_str()), relation, "{name}");
    }
}

#[tokio::test]
async fn functions_have_their_volatility_and_settings() {
    let cache = cache().await;
    assert_eq!(only(cache, "add_them").volatility, Volatility::Immutable);
    assert_eq!(only(cache, "greet").volatility, Volatility::Stable);
    assert_eq!(only(cache, "book_guest").volatility, Volatility::Volatile);
    let slow = only(cache, "slow_function");
    let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(slow.settings, [setting("statement_timeout", "4321ms"), setting("work_mem", "5MB")]);
    assert_eq!(slow.isolation, None);
    assert_eq!(only(cache, "careful_function").isolation.as_deref(), Some("serializable"));
}

#[tokio::test]
async fn representations_are_the_implicit_casts_of_domains() {
    let cache = cache().await;
    let color = &cache.representations["public.color"];
    let name = |function: &Option<portico_rest::schema::QualifiedName>| function.as_ref().unwrap().name.clone();
    assert_eq!(
        [name(&color.to_json), name(&color.from_json), name(&color.from_text)],
        ["color_to_json", "color_from_json", "color_from_text"]
    );
    assert_eq!(cache.representations.len(), 1);
}

#[tokio::test]
async fn media_handlers_return_a_domain_named_like_a_media_type() {
    let cache = cache().await;
    let handlers: Vec<_> = cache
        .media_handlers
        .iter()
        .map(|handler| {
            let relation = handler.relation.as_ref().map_or("any", |relation| relation.name.as_str());
            let of = if handler.is_function { "call" } else { relation };
            format!("{} {} {of}", handler.media_type, handler.function.name)
        })
        .collect();
    assert_eq!(
        handlers,
        [
            "application/vnd.cinema.film any_count any",
            // Final functions of aggregates are functions, too
            "application/vnd.cinema.film counted_rows call",
            "text/html film_html films",
            "*/* first_image_as_any call",
            "text/html html_films call",
            "image/png logo call",
            "*/* poster_image posters",
            "text/html welcome call",
        ]
    );
}
