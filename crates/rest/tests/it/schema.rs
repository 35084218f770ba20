//! The loaded schema cache.

use std::sync::Arc;

use portico_rest::schema::{
    LoadSettings, Relation, RelationKind, Relationship, RelationshipKind, Routine, SchemaCache, load,
};
use tokio::sync::OnceCell;

use crate::database::CinemaDatabase;

const HOSTILE: &str = "Qu\"oted schéma";

fn settings() -> LoadSettings {
    LoadSettings {
        schemas: ["public", "archive", HOSTILE].map(str::to_owned).into(),
        extra_search_path: vec!["extensions".to_owned()],
        time_zones: None,
    }
}

/// Returns a cache that is loaded once for all tests that only read it.
pub(crate) async fn cache() -> &'static SchemaCache {
    static CACHE: OnceCell<SchemaCache> = OnceCell::const_new();
    CACHE
        .get_or_init(|| async { load(&CinemaDatabase::open().await.authenticator().await, &settings()).await.unwrap() })
        .await
}

fn relation<'a>(cache: &'a SchemaCache, name: &str) -> &'a Arc<Relation> {
    cache.relation("public", name).unwrap_or_else(|| panic!("{name} is missing"))
}

fn pairs(columns: &[(String, String)]) -> String {
    columns.iter().map(|(one, other)| format!("{one}={other}")).collect::<Vec<_>>().join(",")
}

/// Returns a relationship as a line.
pub(crate) fn describe(relationship: &Relationship) -> String {
    let target = &relationship.target;
    let schema = if target.schema == "public" { String::new() } else { format!("{}.", target.schema) };
    let view = if relationship.target_is_view { " view" } else { "" };
    let itself = if relationship.is_self { " itself" } else { "" };
    let over = match &relationship.kind {
        RelationshipKind::ManyToOne { constraint, columns } => format!("to-one {constraint} {}", pairs(columns)),
        RelationshipKind::OneToMany { constraint, columns } => format!("to-many {constraint} {}", pairs(columns)),
        RelationshipKind::OneToOne { constraint, columns, is_parent } => {
            format!("{} {constraint} {}", if *is_parent { "one-parent" } else { "one-one" }, pairs(columns))
        }
        RelationshipKind::ManyToMany(junction) => format!(
            "many {}: {} {}, {} {}",
            junction.relation.name,
            junction.origin_constraint,
            pairs(&junction.origin_columns),
            junction.target_constraint,
            pairs(&junction.target_columns)
        ),
        RelationshipKind::Computed { function, to_one } => {
            format!("computed {} {}", function.name, if *to_one { "one" } else { "many" })
        }
    };
    format!("{schema}{}{view}{itself} {over}", target.name)
}

/// The view cannot be read, but everything else has to work.
#[tokio::test]
async fn a_view_over_a_foreign_table_without_a_handler_is_listed() {
    let cinema = CinemaDatabase::open().await;
    let admin = cinema.administrator().await;
    admin
        .batch_execute(
            "create view far_list as select id, name from far_away;
             create view far_names as select name from far_list;
             grant select on far_list, far_names to anon",
        )
        .await
        .unwrap();
    let settings = LoadSettings { schemas: vec!["public".to_owned()], ..LoadSettings::default() };
    let cache = load(&cinema.authenticator().await, &settings).await.unwrap();
    for name in ["far_list", "far_names"] {
        let relation = relation(&cache, name);
        assert_eq!((relation.insertable, relation.updatable, relation.deletable), (false, false, false), "{name}");
    }
    assert!(relation(&cache, "film_list").updatable);
}

#[tokio::test]
async fn relations_of_every_kind_are_listed_but_not_partitions() {
    let cache = cache().await;
    for (name, kind, writable) in [
        ("films", RelationKind::Table, (true, true, true)),
        ("measurements", RelationKind::PartitionedTable, (true, true, true)),
        ("film_list", RelationKind::View, (true, true, true)),
        ("anybody", RelationKind::View, (false, false, false)),
        ("trigger_people", RelationKind::View, (true, false, false)),
        ("film_stats", RelationKind::MaterializedView, (false, false, false)),
        ("far_away", RelationKind::ForeignTable, (false, false, false)),
    ] {
        let relation = relation(cache, name);
        assert_eq!(relation.kind, kind, "{name}");
        assert_eq!((relation.insertable, relation.updatable, relation.deletable), writable, "{name}");
    }
    for hidden in ["measurements_2023", "measurements_2024", "ledger"] {
        assert!(cache.relation("public", hidden).is_none(), "{hidden}");
    }
    assert!(cache.relation("private", "ledger").is_none());
    // A relation that no role may read is still listed
    assert!(cache.relation("public", "secrets").is_some());
    assert!(cache.relation("archive", "films").is_some());
    assert_eq!(relation(cache, "films").comment.as_deref(), Some("Films that were shown\nOne row each."));
    assert_eq!(cache.schema_comments["public"], "The cinema\nFilms, people\nand orders");
}

#[tokio::test]
async fn views_that_join_or_group_may_repeat_a_key() {
    let cinema = CinemaDatabase::open().await;
    let client = cinema.administrator().await;
    client.batch_execute("create unique index on film_stats (director_id)").await.unwrap();
    let cache = load(&cinema.authenticator().await, &settings()).await.unwrap();
    for (name, repeats) in [
        ("films", false),
        ("measurements", false),
        ("film_list", false),
        ("recent_films", false),
        ("measurement_list", false),
        ("showings", true),
        ("grouped_films", true),
        ("trigger_people", true),
        ("film_stats", false),
        ("film_snapshot", true),
    ] {
        assert_eq!(relation(&cache, name).repeats_keys, repeats, "{name}");
    }
}

#[tokio::test]
async fn primary_keys_are_sorted_and_views_show_their_table_s() {
    let cache = cache().await;
    for (name, key) in [
        ("films", &["id"][..]),
        ("roles", &["actor_id", "film_id"]),
        ("nominations", &["category", "competition_id", "film_id"]),
        ("warehouses", &["code", "region"]),
        ("guest_book", &[]),
        ("film_list", &["id"]),
        ("recent_films", &["film"]),
        ("role_list", &["actor_id", "film_id"]),
        ("measurement_list", &["day", "id"]),
        ("computed_films", &[]),
        ("film_titles", &[]),
        ("anybody", &[]),
        ("over_private", &[]),
        ("film_snapshot", &["id"]),
    ] {
        assert_eq!(relation(cache, name).primary_key, key, "{name}");
    }
}

#[tokio::test]
async fn columns_have_their_types_defaults_and_labels() {
    let cache = cache().await;
    let column = |table: &str, name: &str| relation(cache, table).columns.get(name).unwrap().clone();
    for (table, name, base, nominal, default) in [
        ("films", "id", "integer", "integer", Some("nextval('public.films_id_seq')")),
        ("films", "rating", "numeric", "numeric(3,1)", None),
        ("films", "language", "character varying", "character varying(12)", Some("'english'::character varying")),
        ("films", "tags", "text[]", "text[]", Some("'{}'::text[]")),
        ("films", "mood", "public.mood", "public.mood", None),
        ("articles", "id", "bigint", "bigint", None),
        ("articles", "name", "character varying", "public.short_text", None),
        ("articles", "nickname", "character varying", "public.shorter_text", None),
        ("articles", "price", "numeric", "public.price", Some("9.99")),
        ("articles", "gross", "numeric", "numeric", None),
        ("articles", "code", "character", "character(4)", None),
        ("articles", "bits", "bit varying", "bit varying(8)", None),
        ("tickets", "number", "integer", "integer", Some("nextval('public.ticket_numbers'::regclass)")),
        ("paints", "undercoat", "integer", "public.color", Some("255")),
        ("events", "place", "public.point_of_sale", "public.point_of_sale", None),
    ] {
        let found = column(table, name);
        assert_eq!(
            (found.base_type.as_str(), found.nominal_type.as_str(), found.default.as_deref()),
            (base, nominal, default),
            "{table}.{name}"
        );
    }
    for (name, length) in
        [("name", Some(20)), ("nickname", Some(20)), ("code", Some(4)), ("bits", Some(8)), ("sku", None)]
    {
        assert_eq!(column("articles", name).max_length, length, "{name}");
    }
    assert_eq!(column("films", "mood").enum_labels, ["sad", "calm", "happy"]);
    assert!(column("films", "year").nullable);
    assert!(!column("films", "title").nullable);
    assert!(!column("articles", "label").nullable, "its domain forbids NULL");
    assert_eq!(column("films", "title").comment.as_deref(), Some("As on the poster"));
    assert_eq!(column("paints", "color").domain.as_deref(), Some("public.color"));
    assert_eq!(column("paint_list", "color").domain.as_deref(), Some("public.color"));
    assert_eq!(column("articles", "price").domain, None, "no cast belongs to it");
    let order: Vec<_> = relation(cache, "films").columns.keys().map(String::as_str).collect();
    assert_eq!(order[..4], ["id", "title", "year", "rating"]);
}

#[tokio::test]
async fn names_of_every_kind_are_kept() {
    let cache = cache().await;
    let odd = relation(cache, "Odd Table");
    for name in
        ["Id", "first name", "dot.ted", "co,mma:colon(paren)", "quo\"ted", "schräg 中文", "order", "back\\slash"]
    {
        assert!(odd.columns.contains_key(name), "{name}");
    }
    let long = "a-name-of-sixty-three-bytes-which-is-the-most-that-fits-into-it";
    assert_eq!(long.len(), 63);
    assert!(cache.relation(HOSTILE, "ta\"ble ünï").unwrap().columns.contains_key(long));
    let child: Vec<_> = cache.relationships_of(HOSTILE, long).iter().map(|each| describe(each)).collect();
    assert_eq!(child, [format!("{HOSTILE}.ta\"ble ünï to-one f\"k ünï par\"ent=i\"d")]);
    let view = cache.relation(HOSTILE, "v\"iew").unwrap();
    assert_eq!(view.primary_key, ["i)d"]);
    let view: Vec<_> = cache.relationships_of(HOSTILE, "v\"iew").iter().map(|each| describe(each)).collect();
    assert_eq!(view, [format!("{HOSTILE}.ta\"ble ünï to-one f\"k ünï {{p :resorigtbl 1}}=i\"d")]);
    let function = &cache.routines_named(HOSTILE, "f\"n")[0];
    assert_eq!(function.parameters[0].name, "a\"b");
}

#[tokio::test]
async fn time_zones_are_read_once() {
    let cinema = CinemaDatabase::open().await;
    let client = cinema.authenticator().await;
    let first = load(&client, &settings()).await.unwrap();
    assert!(first.time_zones.contains("Europe/Berlin"));
    let known = Some(Arc::clone(&first.time_zones));
    let second = load(&client, &LoadSettings { time_zones: known, ..settings() }).await.unwrap();
    assert!(Arc::ptr_eq(&first.time_zones, &second.time_zones));
}

#[tokio::test]
async fn a_load_leaves_the_connection_as_it_was() {
    let cinema = CinemaDatabase::open().await;
    let client = cinema.authenticator().await;
    client.batch_execute("set search_path = public; set statement_timeout = '7s'").await.unwrap();
    load(&client, &settings()).await.unwrap();
    for (name, value) in [("search_path", "public"), ("statement_timeout", "7s"), ("transaction_read_only", "off")] {
        let row = client.query_one("select current_setting($1)", &[&name]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), value);
    }
}

#[tokio::test]
async fn the_next_cache_has_objects_that_were_created_meanwhile() {
    let cinema = CinemaDatabase::open().await;
    let client = cinema.authenticator().await;
    let administrator = cinema.administrator().await;
    assert!(load(&client, &settings()).await.unwrap().relation("public", "sequels").is_none());
    administrator
        .batch_execute("create table public.sequels (id integer primary key, film_id integer references public.films)")
        .await
        .unwrap();
    let cache = load(&client, &settings()).await.unwrap();
    assert!(cache.relation("public", "sequels").is_some());
    assert!(cache.relationships_of("public", "films").iter().any(|each| each.target.name == "sequels"));
}

#[tokio::test]
async fn a_schema_that_does_not_exist_is_empty() {
    let cinema = CinemaDatabase::open().await;
    let settings = LoadSettings { schemas: vec!["nowhere".to_owned(), "pg_catalog".to_owned()], ..settings() };
    let cache = load(&cinema.authenticator().await, &settings).await.unwrap();
    assert!(cache.relations.is_empty());
    assert!(cache.relationships.is_empty());
}

/// Prints a cache without the order of its maps and the numbers that differ between databases.
fn lines(cache: &SchemaCache) -> Vec<String> {
    let mut lines = Vec::new();
    for relation in cache.relations.values().flat_map(|names| names.values()) {
        lines.push(format!("{relation:?}"));
    }
    for relationship in cache.relationships.values().flat_map(|names| names.values().flatten()) {
        lines.push(format!("{relationship:?}"));
    }
    for routine in cache.routines.values().flat_map(|names| names.values().flatten()) {
        lines.push(format!("{:?}", Routine { oid: 0, ..Routine::clone(routine) }));
    }
    lines.push(format!("{:?} {:?}", cache.representations, cache.media_handlers));
    lines.sort();
    lines
}

#[tokio::test]
async fn an_older_postgresql_gives_the_same_cache() {
    let folder = portico_database::scratch::ClusterFolder::new();
    let Some((cinema, _cluster)) = CinemaDatabase::of_older_version(folder.path()).await else { return };
    let old = load(&cinema.authenticator().await, &settings()).await.unwrap();
    let (old, new) = (lines(&old), lines(cache().await));
    assert_eq!(old.len(), new.len());
    for (old, new) in old.iter().zip(&new) {
        assert_eq!(old, new);
    }
}

#[tokio::test]
async fn changes_of_the_schema_do_not_fail_a_load() {
    let cinema = CinemaDatabase::open().await;
    let (client, administrator) = (cinema.authenticator().await, cinema.administrator().await);
    let changes = async {
        for _ in 0..12 {
            administrator
                .batch_execute(
                    "create domain public.passing as text default 'x';
                     create table public.passing_by (id integer generated by default as identity primary key,
                       film_id integer references public.films, note public.passing default 'y');
                     create view public.passing_view as select id, film_id from public.passing_by;
                     create function public.passing_of(public.films) returns setof public.passing_by language sql as 'select * from public.passing_by';",
                )
                .await
                .unwrap();
            administrator
                .batch_execute(
                    "drop function public.passing_of; drop view public.passing_view; drop table public.passing_by;
                     drop domain public.passing;",
                )
                .await
                .unwrap();
        }
    };
    let loads = async {
        for _ in 0..12 {
            let cache = load(&client, &settings()).await.unwrap();
            let all = cache.relationships.values().flat_map(|names| names.values().flatten());
            for relationship in all {
                assert!(cache.relation(&relationship.target.schema, &relationship.target.name).is_some());
            }
        }
    };
    tokio::join!(changes, loads);
}
