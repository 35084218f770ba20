//! From foreign keys, what views show of them, and functions, to every relationship there is (contract 7.2). Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::model::{ByName, Junction, QualifiedName, Relation, Relationship, RelationshipKind};

/// A view that shows a key's columns many times over has a combination for each; more than this many are of no use to anybody.
pub(crate) const MAX_COMBINATIONS: usize = 256;

/// A foreign key, and who shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForeignKey {
    /// Its name.
    pub constraint: String,
    /// Its columns are those of a primary key or unique constraint.
    pub unique: bool,
    /// Who shows the columns that refer: the table that has it, if it is exposed, and views.
    pub referencing: Vec<Shown>,
    /// Who shows the columns that are referred to.
    pub referenced: Vec<Shown>,
}

/// A relation that shows all columns of one side of a foreign key. One that shows a column twice is there twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The table or view.
    pub relation: QualifiedName,
    /// It is no table.
    pub is_view: bool,
    /// What it calls the columns, in key order.
    pub columns: Vec<String>,
}

/// A function of one relation's row that yields rows of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ComputedRelationship {
    /// The function.
    pub function: QualifiedName,
    /// Whose rows it takes.
    pub origin: QualifiedName,
    /// Whose rows it yields.
    pub target: QualifiedName,
    /// It yields at most one.
    pub to_one: bool,
}

/// What relationships follow from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    /// The relations of the exposed schemas, views with their inferred keys.
    pub relations: &'a ByName<Arc<Relation>>,
    /// All foreign keys of the database.
    pub foreign_keys: &'a [ForeignKey],
    /// Functions that lead from row to row.
    pub computed: &'a [ComputedRelationship],
}

/// A foreign key as seen from the tables and views that show it: still of any schema.
#[derive(Debug, Clone)]
struct Link<'a> {
    constraint: &'a str,
    origin: &'a QualifiedName,
    target: &'a QualifiedName,
    origin_is_view: bool,
    target_is_view: bool,
    unique: bool,
    columns: Vec<(String, String)>,
}

/// Derives the relationships of the exposed schemas: by origin, each origin's in the order in which texts list them.
pub(crate) fn derive(facts: Facts<'_>) -> ByName<Vec<Arc<Relationship>>> {
    let exposed = |name: &QualifiedName| {
        facts.relations.get(&name.schema).is_some_and(|relations| relations.contains_key(&name.name))
    };
    let mut links = links(facts.foreign_keys);
    // Junctions, too, must be exposed; so nothing is lost by leaving out now what leads elsewhere.
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
        // An allocation for the first of a name only
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

/// Every foreign key, and a copy of it for each view that shows its one side, its other side, or both.
fn links(foreign_keys: &[ForeignKey]) -> Vec<Link<'_>> {
    let mut links = Vec::with_capacity(foreign_keys.len());
    for key in foreign_keys {
        for origin in &key.referencing {
            links.extend(key.referenced.iter().take(MAX_COMBINATIONS).map(|target| Link {
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

/// Two foreign keys of one relation whose columns lie in its primary key.
fn many_to_many(links: &[Link<'_>], relations: &ByName<Arc<Relation>>, found: &mut Vec<Relationship>) {
    let mut junctions: HashMap<&QualifiedName, Vec<&Link<'_>>> = HashMap::new();
    for link in links.iter().filter(|link| !link.unique) {
        let Some(relation) = relations.get(&link.origin.schema).and_then(|names| names.get(&link.origin.name)) else {
            continue;
        };
        // Both lie in the key if each does.
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

/// A foreign key seen from both its sides.
fn from_link(link: Link<'_>, found: &mut Vec<Relationship>) {
    let Link { constraint, origin, target, origin_is_view, target_is_view, unique, columns } = link;
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

/// What relationships of one origin are sorted by; equal for none but those that no text can tell apart.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Order<'a> {
    is_computed: bool,
    target: &'a QualifiedName,
    is_self: bool,
    kind: u8,
    names: [&'a str; 3],
    columns: [&'a [(String, String)]; 2],
}

fn order(relationship: &Relationship) -> Order<'_> {
    let (kind, names, columns): (u8, [&str; 3], [&[(String, String)]; 2]) = match &relationship.kind {
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
    Order { is_computed: kind == 5, target: &relationship.target, is_self: relationship.is_self, kind, names, columns }
}
