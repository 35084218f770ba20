//! The relationships of the loaded schema cache.

use std::sync::Arc;

use portico_rest::schema::{Relationship, RelationshipKind};

use crate::schema::{cache, describe};

/// Returns all relationships from one relation to another.
async fn between(origin: &str, target: &str) -> Vec<String> {
    let all = cache().await.relationships_of("public", origin);
    all.iter()
        .filter(|each| each.target.name == target && each.target.schema == "public")
        .map(|each| describe(each))
        .collect()
}

async fn assert_between(origin: &str, target: &str, expected: &[&str]) {
    assert_eq!(between(origin, target).await, expected, "{origin} with {target}");
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
        let found: Vec<_> = cache().await.relationships_of("public", view).iter().map(|each| describe(each)).collect();
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
    let archived: Vec<_> = cache.relationships_of("archive", "films").iter().map(|each| describe(each)).collect();
    assert!(archived.contains(&"directors to-one films_director_id_fkey director_id=id".to_owned()), "{archived:?}");
    let boxes = "archive.boxes many box_films: box_films_film_id_fkey id=film_id, box_films_box_id_fkey box_id=id";
    assert!(archived.contains(&boxes.to_owned()), "{archived:?}");
    // A view of one schema over a table of another
    let view: Vec<_> = cache.relationships_of("archive", "current_films").iter().map(|each| describe(each)).collect();
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
        assert!(back.iter().any(is_inverse), "{:?} has no inverse", describe(relationship));
    }
}
