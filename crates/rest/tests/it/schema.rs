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
fn line(relationship: &Relationship) -> String {
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

/// Returns all relationships from one relation to another.
async fn between(origin: &str, target: &str) -> Vec<String> {
    let all = cache().await.relationships_of("public", origin);
    all.iter()
        .filter(|each| each.target.name == target && each.target.schema == "public")
        .map(|each| line(each))
        .collect()
}

async fn assert_between(origin: &str, target: &str, expected: &[&str]) {
    assert_eq!(between(origin, target).await, expected, "{origin} with {target}");
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
async fn a_foreign_key_leads_both_ways() {
    assert_between(
        "orders",
        "addresses",
        &["addresses to-one billing billing_address_id=id", "addresses to-one shipping shipping_address_id=id"],
    )
    .await;
    assert_between(
        "addresses",
        "orders",
        &["orders to-many billing id=billing_address_id", "orders to-many shipping id=shipping_address_id"],
    )
    .await;
    assert_between(
        "stocks",
        "warehouses",
        &["warehouses to-one stocks_warehouse warehouse_code=code,warehouse_region=region"],
    )
    .await;
    assert_between("odd child", "Odd Table", &["Odd Table to-one odd \"fk\" Odd Id=Id"]).await;
}

#[tokio::test]
async fn a_unique_constraint_makes_one_to_one_and_an_index_does_not() {
    assert_between(
        "director_profiles",
        "directors",
        &["directors one-one director_profiles_director_id_fkey director_id=id"],
    )
    .await;
    assert_between(
        "directors",
        "director_profiles",
        &["director_profiles one-parent director_profiles_director_id_fkey id=director_id"],
    )
    .await;
    assert_between(
        "films",
        "technical_details",
        &["technical_details one-parent technical_details_film_id_fkey id=film_id"],
    )
    .await;
    assert_between("films", "posters", &["posters to-many posters_film_id_fkey id=film_id"]).await;
}

#[tokio::test]
async fn a_junction_needs_both_foreign_keys_in_its_primary_key() {
    assert_between(
        "films",
        "actors",
        &[
            "actors many role_list: roles_film_id_fkey id=film_id, roles_actor_id_fkey actor_id=id",
            "actors many roles: roles_film_id_fkey id=film_id, roles_actor_id_fkey actor_id=id",
        ],
    )
    .await;
    assert_between("competitions", "films", &[
        "films many nominations: nominations_competition_id_fkey id=competition_id, nominations_film_id_fkey film_id=id",
    ])
    .await;
    // A key of its own, beside the foreign keys, makes no junction
    assert!(between("films", "warehouses").await.is_empty());
}

#[tokio::test]
async fn a_relation_can_have_a_relationship_with_itself() {
    let mut of_people = between("people", "people").await;
    of_people.sort();
    assert_eq!(
        of_people,
        [
            "people itself computed children_of many",
            "people itself many friendships: friendships_one_fkey id=one, friendships_other_fkey other=id",
            "people itself many friendships: friendships_other_fkey id=other, friendships_one_fkey one=id",
            "people itself to-many people_manager_id_fkey id=manager_id",
            "people itself to-one people_manager_id_fkey manager_id=id",
        ]
    );
    assert_between(
        "presidents",
        "presidents",
        &[
            "presidents itself one-one presidents_successor_id_fkey successor_id=id",
            "presidents itself one-parent presidents_successor_id_fkey id=successor_id",
            "presidents itself computed predecessor one",
            "presidents itself computed successor one",
        ],
    )
    .await;
}

#[tokio::test]
async fn views_have_the_relationships_of_the_keys_that_they_show() {
    assert_between("film_list", "directors", &["directors to-one films_director_id_fkey director_id=id"]).await;
    assert_between("directors", "film_list", &["film_list view to-many films_director_id_fkey id=director_id"]).await;
    assert_between("film_list", "director_list", &["director_list view to-one films_director_id_fkey director_id=id"])
        .await;
    // Through another view, under other names
    assert_between("recent_films", "directors", &["directors to-one films_director_id_fkey director=id"]).await;
    assert_between("recent_films", "roles", &["roles to-many roles_film_id_fkey film=film_id"]).await;
    assert_between("film_snapshot", "directors", &["directors to-one films_director_id_fkey director_id=id"]).await;
    assert_between("film_stats", "films", &["films to-many films_director_id_fkey director_id=director_id"]).await;
    assert_between(
        "stock_list",
        "warehouses",
        &["warehouses to-one stocks_warehouse warehouse_code=code,warehouse_region=region"],
    )
    .await;
    assert_between(
        "orders_with_address",
        "addresses",
        &["addresses to-one billing billing_address_id=id", "addresses to-one shipping shipping_address_id=id"],
    )
    .await;
    // The same column twice is two relationships
    assert_between(
        "double_films",
        "directors",
        &["directors to-one films_director_id_fkey author=id", "directors to-one films_director_id_fkey maker=id"],
    )
    .await;
    // From the junction's view to either side
    assert_between("role_list", "film_list", &["film_list view to-one roles_film_id_fkey film_id=id"]).await;
    assert_between(
        "grouped_films",
        "director_profiles",
        &["director_profiles one-parent director_profiles_director_id_fkey director=director_id"],
    )
    .await;
}

#[tokio::test]
async fn views_that_show_no_whole_key_have_none() {
    for view in ["film_titles", "computed_films", "anybody", "half_stock_list", "over_private"] {
        let found: Vec<_> = cache().await.relationships_of("public", view).iter().map(|each| line(each)).collect();
        assert!(found.is_empty(), "{view}: {found:?}");
    }
}

#[tokio::test]
async fn partitioned_tables_have_relationships_and_partitions_add_none() {
    assert_between("measurements", "stations", &["stations to-one measurements_station_id_fkey station_id=id"]).await;
    assert_between("stations", "measurements", &["measurements to-many measurements_station_id_fkey id=station_id"])
        .await;
    assert_between(
        "alarms",
        "measurements",
        &["measurements to-one alarms_measurement measurement_id=id,measurement_day=day"],
    )
    .await;
    let cache = cache().await;
    let targets = cache.relationships.values().flat_map(|names| names.values().flatten());
    assert!(targets.into_iter().all(|each| !each.target.name.starts_with("measurements_2")));
}

#[tokio::test]
async fn functions_of_a_row_are_relationships_and_override_those_with_their_target_s_name() {
    let of_films = between("films", "directors").await;
    assert_eq!(of_films[0], "directors to-one films_director_id_fkey director_id=id");
    assert_eq!(of_films[of_films.len() - 2..], ["directors computed maker one", "directors computed maker_of one"]);
    let of_directors = between("directors", "films").await;
    assert!(of_directors.contains(&"films computed recent_films_of many".to_owned()), "{of_directors:?}");
    assert_between("video_games", "designers", &["designers computed designers one"]).await;
    assert_between("designers", "video_games", &["video_games computed video_games many"]).await;
}

#[tokio::test]
async fn relationships_lead_only_to_exposed_relations() {
    let cache = cache().await;
    let all: Vec<_> = cache.relationships.values().flat_map(|names| names.values().flatten()).collect();
    assert!(all.iter().all(|each| each.target.schema != "private" && each.origin.schema != "private"));
    let archived: Vec<_> = cache.relationships_of("archive", "films").iter().map(|each| line(each)).collect();
    assert!(archived.contains(&"directors to-one films_director_id_fkey director_id=id".to_owned()), "{archived:?}");
    let boxes = "archive.boxes many box_films: box_films_film_id_fkey id=film_id, box_films_box_id_fkey box_id=id";
    assert!(archived.contains(&boxes.to_owned()), "{archived:?}");
    // A view of one schema over a table of another
    let view: Vec<_> = cache.relationships_of("archive", "current_films").iter().map(|each| line(each)).collect();
    assert!(view.contains(&"directors to-one films_director_id_fkey director_id=id".to_owned()), "{view:?}");
    assert!(cache.relationships_of("public", "no such table").is_empty());
    assert!(cache.relationships_of("no such schema", "films").is_empty());
}

#[tokio::test]
async fn every_relationship_has_its_inverse() {
    let cache = cache().await;
    let flip = |columns: &[(String, String)]| -> Vec<(String, String)> {
        columns.iter().map(|(one, other)| (other.clone(), one.clone())).collect()
    };
    for relationship in cache.relationships.values().flat_map(|names| names.values().flatten()) {
        let overridden = ["designers", "video_games"].contains(&relationship.target.name.as_str());
        if overridden || matches!(relationship.kind, RelationshipKind::Computed { .. }) {
            continue;
        }
        let back = cache.relationships_of(&relationship.target.schema, &relationship.target.name);
        let is_inverse = |other: &Arc<Relationship>| {
            other.target == relationship.origin
                && match (&relationship.kind, &other.kind) {
                    (
                        RelationshipKind::ManyToOne { constraint, columns },
                        RelationshipKind::OneToMany { constraint: theirs, columns: back },
                    )
                    | (
                        RelationshipKind::OneToMany { constraint, columns },
                        RelationshipKind::ManyToOne { constraint: theirs, columns: back },
                    ) => constraint == theirs && *back == flip(columns),
                    (
                        RelationshipKind::OneToOne { constraint, columns, is_parent },
                        RelationshipKind::OneToOne { constraint: theirs, columns: back, is_parent: other },
                    ) => constraint == theirs && *back == flip(columns) && is_parent != other,
                    (RelationshipKind::ManyToMany(one), RelationshipKind::ManyToMany(other)) => {
                        one.relation == other.relation
                            && one.origin_constraint == other.target_constraint
                            && one.target_constraint == other.origin_constraint
                            && one.origin_columns == flip(&other.target_columns)
                    }
                    _ => false,
                }
        };
        assert!(back.iter().any(is_inverse), "{:?} has no inverse", line(relationship));
    }
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
    let child: Vec<_> = cache.relationships_of(HOSTILE, long).iter().map(|each| line(each)).collect();
    assert_eq!(child, [format!("{HOSTILE}.ta\"ble ünï to-one f\"k ünï par\"ent=i\"d")]);
    let view = cache.relation(HOSTILE, "v\"iew").unwrap();
    assert_eq!(view.primary_key, ["i)d"]);
    let view: Vec<_> = cache.relationships_of(HOSTILE, "v\"iew").iter().map(|each| line(each)).collect();
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
    let folder = tempfile::tempdir().unwrap();
    for major in [14, 15, 16, 17] {
        let folder = folder.path().join(major.to_string());
        let Some((cinema, cluster)) = CinemaDatabase::of_version(major, &folder).await else { continue };
        let old = load(&cinema.authenticator().await, &settings()).await.unwrap();
        let (old, new) = (lines(&old), lines(cache().await));
        assert_eq!(old.len(), new.len());
        for (old, new) in old.iter().zip(&new) {
            assert_eq!(old, new);
        }
        drop(cluster);
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
