//! Derives the relationships from foreign keys, views and functions. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::model::{ByName, Junction, QualifiedName, Relation, Relationship, RelationshipKind};

/// The limit of combinations for a view that shows the columns of a key several times.
pub(crate) const MAX_COMBINATIONS: usize = 256;

/// A foreign key, and the relations that show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForeignKey {
    /// Its name.
    pub constraint: String,
    /// Its columns are those of a primary key or unique constraint.
    pub unique: bool,
    /// The relations that show the referencing columns: the table itself, if it is exposed, and
    /// views.
    pub referencing: Vec<ExposedKey>,
    /// The relations that show the referenced columns.
    pub referenced: Vec<ExposedKey>,
}

/// A relation that shows all columns of one side of a foreign key. If it shows a column twice, it
/// is listed twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExposedKey {
    /// The table or view.
    pub relation: QualifiedName,
    /// The relation is a view.
    pub is_view: bool,
    /// Its names of the columns, in key order.
    pub columns: Vec<String>,
}

/// A function that takes a row of one relation and returns rows of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ComputedRelationship {
    /// The function.
    pub function: QualifiedName,
    /// The relation whose rows it takes.
    pub origin: QualifiedName,
    /// The relation whose rows it returns.
    pub target: QualifiedName,
    /// It returns at most one row.
    pub to_one: bool,
}

/// The inputs of the derivation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RelationshipSources<'a> {
    /// The relations of the exposed schemas; views with their inferred keys.
    pub relations: &'a ByName<Arc<Relation>>,
    /// All foreign keys of the database.
    pub foreign_keys: &'a [ForeignKey],
    /// Functions from row to rows.
    pub computed: &'a [ComputedRelationship],
}

/// A foreign key between two relations that show it, in any schema.
#[derive(Debug, Clone)]
struct ForeignKeyLink<'a> {
    constraint: &'a str,
    origin: &'a QualifiedName,
    target: &'a QualifiedName,
    origin_is_view: bool,
    target_is_view: bool,
    unique: bool,
    columns: Vec<(String, String)>,
}

/// Derives the relationships of the exposed schemas, by origin, in the order in which errors list
/// them.
pub(crate) fn derive(facts: RelationshipSources<'_>) -> ByName<Vec<Arc<Relationship>>> {
    let exposed = |name: &QualifiedName| {
        facts.relations.get(&name.schema).is_some_and(|relations| relations.contains_key(&name.name))
    };
    let mut links = links(facts.foreign_keys);
    // Junctions must be exposed, too, so links to other schemas can be dropped now
    links.retain(|link| exposed(link.origin) && exposed(link.target));

    let mut found: Vec<Relationship> = Vec::with_capacity(links.len() * 2);
    many_to_many(&links, facts.relations, &mut found);
    for link in links {
        from_link(link, &mut found);
    }
    let overridden: HashSet<(&QualifiedName, &QualifiedName)> =
        facts.computed.iter().map(|computed| (&computed.origin, &computed.function)).collect();
    found.retain(|relationship| !overridden.contains(&(&relationship.origin, &relationship.target)));
    let computed = facts.computed.iter().filter(|computed| exposed(&computed.origin) && exposed(&computed.target));
    found.extend(computed.map(from_function));

    let mut by_origin = ByName::<Vec<Arc<Relationship>>>::new();
    for relationship in found {
        let QualifiedName { schema, name } = &relationship.origin;
        // Allocates for the first entry of a name only
        if !by_origin.contains_key(schema) {
            by_origin.insert(schema.clone(), HashMap::new());
        }
        if let Some(names) = by_origin.get_mut(schema) {
            match names.get_mut(name) {
                Some(list) => list.push(Arc::new(relationship)),
                None => {
                    names.insert(name.clone(), vec![Arc::new(relationship)]);
                }
            }
        }
    }
    for list in by_origin.values_mut().flat_map(HashMap::values_mut) {
        list.sort_by(|one, other| order(one).cmp(&order(other)));
    }
    by_origin
}

/// Returns every foreign key, with copies for each view that shows either or both of its sides.
fn links(foreign_keys: &[ForeignKey]) -> Vec<ForeignKeyLink<'_>> {
    let mut links = Vec::with_capacity(foreign_keys.len());
    for key in foreign_keys {
        for origin in &key.referencing {
            links.extend(key.referenced.iter().take(MAX_COMBINATIONS).map(|target| ForeignKeyLink {
                constraint: &key.constraint,
                origin: &origin.relation,
                target: &target.relation,
                origin_is_view: origin.is_view,
                target_is_view: target.is_view,
                unique: key.unique,
                columns: origin.columns.iter().cloned().zip(target.columns.iter().cloned()).collect(),
            }));
        }
    }
    links
}

/// Finds junctions: relations with two foreign keys whose columns are part of the primary key.
fn many_to_many(links: &[ForeignKeyLink<'_>], relations: &ByName<Arc<Relation>>, found: &mut Vec<Relationship>) {
    let mut junctions: HashMap<&QualifiedName, Vec<&ForeignKeyLink<'_>>> = HashMap::new();
    for link in links.iter().filter(|link| !link.unique) {
        let Some(relation) = relations.get(&link.origin.schema).and_then(|names| names.get(&link.origin.name)) else {
            continue;
        };
        // Both are part of the key if each is
        if link.columns.iter().all(|(column, _)| relation.primary_key.contains(column)) {
            junctions.entry(link.origin).or_default().push(link);
        }
    }
    for (junction, links) in junctions {
        for one in &links {
            for other in links.iter().filter(|other| other.constraint != one.constraint) {
                found.push(Relationship {
                    origin: one.target.clone(),
                    target: other.target.clone(),
                    target_is_view: other.target_is_view,
                    is_self: one.target == other.target,
                    kind: RelationshipKind::ManyToMany(Junction {
                        relation: junction.clone(),
                        origin_constraint: one.constraint.to_owned(),
                        target_constraint: other.constraint.to_owned(),
                        origin_columns: swapped(&one.columns),
                        target_columns: other.columns.clone(),
                    }),
                });
            }
        }
    }
}

/// Makes the two relationships of a foreign key.
fn from_link(link: ForeignKeyLink<'_>, found: &mut Vec<Relationship>) {
    let ForeignKeyLink { constraint, origin, target, origin_is_view, target_is_view, unique, columns } = link;
    let is_self = origin == target;
    let (constraint, inverse) = (constraint.to_owned(), swapped(&columns));
    let (there, back) = if unique {
        (
            RelationshipKind::OneToOne { constraint: constraint.clone(), columns, is_parent: false },
            RelationshipKind::OneToOne { constraint, columns: inverse, is_parent: true },
        )
    } else {
        (
            RelationshipKind::ManyToOne { constraint: constraint.clone(), columns },
            RelationshipKind::OneToMany { constraint, columns: inverse },
        )
    };
    let (origin, target) = (origin.clone(), target.clone());
    found.push(Relationship {
        origin: target.clone(),
        target: origin.clone(),
        target_is_view: origin_is_view,
        is_self,
        kind: back,
    });
    found.push(Relationship { origin, target, target_is_view, is_self, kind: there });
}

fn from_function(computed: &ComputedRelationship) -> Relationship {
    Relationship {
        origin: computed.origin.clone(),
        target: computed.target.clone(),
        target_is_view: false,
        is_self: computed.origin == computed.target,
        kind: RelationshipKind::Computed { function: computed.function.clone(), to_one: computed.to_one },
    }
}

fn swapped(columns: &[(String, String)]) -> Vec<(String, String)> {
    columns.iter().map(|(one, other)| (other.clone(), one.clone())).collect()
}

/// Pairs of columns.
type Columns = [(String, String)];

/// The sort key of an origin's relationships. Equal keys have equal texts.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RelationshipSortKey<'a> {
    is_computed: bool,
    target: &'a QualifiedName,
    is_self: bool,
    kind: u8,
    names: [&'a str; 3],
    columns: [&'a Columns; 2],
}

fn order(relationship: &Relationship) -> RelationshipSortKey<'_> {
    let (kind, names, columns): (u8, [&str; 3], [&Columns; 2]) = match &relationship.kind {
        RelationshipKind::OneToMany { constraint, columns } => (0, [constraint, "", ""], [columns, &[]]),
        RelationshipKind::ManyToOne { constraint, columns } => (1, [constraint, "", ""], [columns, &[]]),
        RelationshipKind::OneToOne { constraint, columns, is_parent } => {
            (2 + u8::from(*is_parent), [constraint, "", ""], [columns, &[]])
        }
        RelationshipKind::ManyToMany(Junction {
            relation,
            origin_constraint,
            target_constraint,
            origin_columns,
            target_columns,
        }) => (4, [&relation.name, origin_constraint, target_constraint], [origin_columns, target_columns]),
        RelationshipKind::Computed { function, .. } => (5, [&function.schema, &function.name, ""], [&[], &[]]),
    };
    RelationshipSortKey {
        is_computed: kind == 5,
        target: &relationship.target,
        is_self: relationship.is_self,
        kind,
        names,
        columns,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::model::RelationKind;
    use super::super::testing::qualified;
    use super::*;

    fn relation(name: &str, primary_key: &[&str]) -> Relation {
        Relation {
            name: qualified(name),
            comment: None,
            kind: RelationKind::Table,
            insertable: true,
            updatable: true,
            deletable: true,
            repeats_keys: false,
            primary_key: primary_key.iter().map(|column| (*column).to_owned()).collect(),
            columns: indexmap::IndexMap::new(),
        }
    }

    fn relations(all: impl IntoIterator<Item = Relation>) -> ByName<Arc<Relation>> {
        let mut by_name = ByName::<Arc<Relation>>::new();
        for relation in all {
            let QualifiedName { schema, name } = relation.name.clone();
            by_name.entry(schema).or_default().insert(name, Arc::new(relation));
        }
        by_name
    }

    fn shown(relation: &str, columns: &[&str]) -> ExposedKey {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        ExposedKey { relation: qualified(relation), is_view: relation.starts_with("view"), columns }
    }

    fn key(constraint: &str, unique: bool, referencing: &[ExposedKey], referenced: &[ExposedKey]) -> ForeignKey {
        let constraint = constraint.to_owned();
        ForeignKey { constraint, unique, referencing: referencing.to_vec(), referenced: referenced.to_vec() }
    }

    fn derived(
        relations: &ByName<Arc<Relation>>,
        foreign_keys: &[ForeignKey],
        computed: &[ComputedRelationship],
    ) -> Vec<Relationship> {
        let by_origin = derive(RelationshipSources { relations, foreign_keys, computed });
        let mut all: Vec<_> = by_origin.into_values().flat_map(HashMap::into_values).flatten().collect();
        all.sort_by(|one, other| (&one.origin, order(one)).cmp(&(&other.origin, order(other))));
        all.iter().map(|relationship| (**relationship).clone()).collect()
    }

    /// Returns origin, target and kind as a text.
    fn words(relationships: &[Relationship]) -> Vec<String> {
        let word = |relationship: &Relationship| {
            let kind = match relationship.kind {
                RelationshipKind::ManyToOne { .. } => "one",
                RelationshipKind::OneToMany { .. } => "many",
                RelationshipKind::OneToOne { is_parent: false, .. } => "single",
                RelationshipKind::OneToOne { is_parent: true, .. } => "single-parent",
                RelationshipKind::ManyToMany(_) => "many-to-many",
                RelationshipKind::Computed { .. } => "computed",
            };
            format!("{} {} {kind}", relationship.origin.name, relationship.target.name)
        };
        relationships.iter().map(word).collect()
    }

    #[test]
    fn a_junction_s_key_must_hold_both_foreign_keys() {
        let films = key("to_films", false, &[shown("roles", &["film"])], &[shown("films", &["id"])]);
        let actors = key("to_actors", false, &[shown("roles", &["actor"])], &[shown("actors", &["id"])]);
        let keys = [films, actors];
        let with = |key: &[&str]| {
            let all = [relation("films", &["id"]), relation("actors", &["id"]), relation("roles", key)];
            let found = derived(&relations(all), &keys, &[]);
            words(&found).into_iter().filter(|word| word.ends_with("many-to-many")).collect::<Vec<_>>()
        };
        let both = ["actors films many-to-many", "films actors many-to-many"];
        assert_eq!(with(&["actor", "film"]), both);
        assert_eq!(with(&["actor", "extra", "film"]), both);
        assert!(with(&["film"]).is_empty());
        assert!(with(&["id"]).is_empty());
        assert!(with(&[]).is_empty());
    }

    #[test]
    fn unexposed_relations_have_no_relationships() {
        let keys = [
            key("to_films", false, &[shown("private.roles", &["film"])], &[shown("films", &["id"])]),
            key("to_actors", false, &[shown("private.roles", &["actor"])], &[shown("actors", &["id"])]),
            key("hidden", false, &[shown("films", &["secret"])], &[shown("private.secrets", &["id"])]),
        ];
        let all = relations([relation("films", &["id"]), relation("actors", &["id"])]);
        assert!(derived(&all, &keys, &[]).is_empty());
    }

    #[test]
    fn views_copy_each_side_and_both() {
        let referencing = [shown("films", &["director_id"]), shown("view_films", &["maker"])];
        let referenced = [shown("directors", &["id"]), shown("view_directors", &["key"])];
        let all = ["films", "view_films", "directors", "view_directors"].map(|name| relation(name, &[]));
        let found = derived(&relations(all), &[key("k", false, &referencing, &referenced)], &[]);
        assert_eq!(
            words(&found),
            [
                "directors films many",
                "directors view_films many",
                "films directors one",
                "films view_directors one",
                "view_directors films many",
                "view_directors view_films many",
                "view_films directors one",
                "view_films view_directors one",
            ]
        );
        for relationship in &found {
            assert_eq!(relationship.target_is_view, relationship.target.name.starts_with("view"), "{relationship:?}");
        }
    }

    #[test]
    fn a_function_named_like_its_target_overrides_one_direction_only() {
        let keys = [
            key("one", false, &[shown("films", &["a"])], &[shown("directors", &["id"])]),
            key("two", false, &[shown("films", &["b"])], &[shown("directors", &["id"])]),
        ];
        let computed = |function: &str, target: &str| ComputedRelationship {
            function: qualified(function),
            origin: qualified("films"),
            target: qualified(target),
            to_one: true,
        };
        let all = relations([relation("films", &["id"]), relation("directors", &["id"])]);
        let back = ["directors films many", "directors films many"];
        let found = words(&derived(&all, &keys, &[computed("directors", "directors")]));
        assert_eq!(found, [&back[..], &["films directors computed"]].concat());
        let found = words(&derived(&all, &keys, &[computed("maker", "directors")]));
        assert_eq!(found[2..], ["films directors one", "films directors one", "films directors computed"]);
        // It is in another schema, so its name differs
        let found = words(&derived(&all, &keys, &[computed("private.directors", "directors")]));
        assert_eq!(found.len(), 5);
        let found = words(&derived(&all, &keys, &[computed("ledger", "private.ledger")]));
        assert_eq!(found.len(), 4, "it leads to what is not exposed");
    }

    fn any_keys() -> impl Strategy<Value = (Vec<Relation>, Vec<ForeignKey>)> {
        let relation = (0..6_usize, prop::collection::btree_set(0..3_usize, 0..3)).prop_map(|(number, key)| {
            let key: Vec<String> = key.into_iter().map(|column| format!("c{column}")).collect();
            relation(&format!("r{number}"), &key.iter().map(String::as_str).collect::<Vec<_>>())
        });
        let side = prop::collection::vec((0..8_usize, 0..3_usize), 1..3).prop_map(|places| {
            places.into_iter().map(|(number, column)| shown(&format!("r{number}"), &[&format!("c{column}")])).collect()
        });
        let side: BoxedStrategy<Vec<ExposedKey>> = side.boxed();
        let keys = prop::collection::vec((any::<bool>(), side.clone(), side), 0..8).prop_map(|keys| {
            let key = |(at, (unique, one, other)): (usize, (bool, Vec<ExposedKey>, Vec<ExposedKey>))| {
                key(&format!("k{at}"), unique, &one, &other)
            };
            keys.into_iter().enumerate().map(key).collect()
        });
        (prop::collection::vec(relation, 0..8), keys)
    }

    proptest! {
        #[test]
        fn every_relationship_has_an_inverse_and_both_ends((all, keys) in any_keys()) {
            let all = relations(all);
            let found = derived(&all, &keys, &[]);
            for relationship in &found {
                for end in [&relationship.origin, &relationship.target] {
                    prop_assert!(all[&end.schema].contains_key(&end.name));
                }
                prop_assert_eq!(relationship.is_self, relationship.origin == relationship.target);
                let is_inverse = |other: &&Relationship| {
                    other.origin == relationship.target
                        && other.target == relationship.origin
                        && match (&relationship.kind, &other.kind) {
                            (
                                RelationshipKind::ManyToOne { constraint, columns },
                                RelationshipKind::OneToMany { constraint: name, columns: back },
                            )
                            | (
                                RelationshipKind::OneToMany { constraint, columns },
                                RelationshipKind::ManyToOne { constraint: name, columns: back },
                            ) => constraint == name && *back == swapped(columns),
                            (
                                RelationshipKind::OneToOne { constraint, columns, is_parent },
                                RelationshipKind::OneToOne { constraint: name, columns: back, is_parent: theirs },
                            ) => constraint == name && *back == swapped(columns) && is_parent != theirs,
                            (RelationshipKind::ManyToMany(one), RelationshipKind::ManyToMany(other)) => {
                                one.relation == other.relation
                                    && one.origin_constraint == other.target_constraint
                                    && one.origin_columns == swapped(&other.target_columns)
                                    && one.target_columns == swapped(&other.origin_columns)
                            }
                            _ => false,
                        }
                };
                prop_assert!(found.iter().any(|other| is_inverse(&other)), "{:?}", relationship);
            }
        }

        #[test]
        fn the_order_of_the_catalog_does_not_matter((all, mut keys) in any_keys()) {
            let all = relations(all);
            let before = format!("{:?}", derived(&all, &keys, &[]));
            keys.reverse();
            prop_assert_eq!(before, format!("{:?}", derived(&all, &keys, &[])));
        }
    }
}
