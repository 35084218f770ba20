//! The relationship of an embed.

use std::sync::Arc;

use super::PlanContext;
use super::node::QueryNode;
use crate::RestError;
use crate::error::RelationshipText;
use crate::query::SelectRelation;
use crate::schema::{QualifiedName, Relationship, RelationshipKind, nearest};

/// Returns a node with the relationship of every embed below it; parents are resolved first.
///
/// # Errors
///
/// PGRST200 if there is none, PGRST201 if there are several.
pub(super) fn resolve<'q>(
    context: &PlanContext<'_>,
    origin: &QualifiedName,
    is_relation: bool,
    node: QueryNode<'q>,
) -> Result<QueryNode<'q>, RestError> {
    node.try_map_children(|child| {
        let Some(item) = child.item else { return Ok(child) };
        let known: &[_] =
            if is_relation { context.cache.relationships_of(&origin.schema, &origin.name) } else { Default::default() };
        let relationship = choose(context, origin, known, item)?;
        let target = relationship.target.clone();
        resolve(context, &target, true, child.with_relationship(relationship))
    })
}

fn choose(
    context: &PlanContext<'_>,
    origin: &QualifiedName,
    known: &[Arc<Relationship>],
    item: &SelectRelation,
) -> Result<Arc<Relationship>, RestError> {
    let in_schema = || known.iter().filter(|candidate| candidate.target.schema == context.schema);
    let mut found: Vec<_> = in_schema().filter(|candidate| fits(candidate, &item.name, item.hint.as_deref())).collect();
    if found.is_empty() && item.hint.is_none() {
        found = in_schema().filter(|candidate| is_child_by_column(candidate, &item.name)).collect();
    }
    match found.as_slice() {
        [only] => Ok(Arc::clone(only)),
        [_, _, ..] => Err(RestError::AmbiguousRelationship {
            origin: origin.name.clone(),
            target: item.name.clone(),
            candidates: found.iter().map(|candidate| text(candidate)).collect(),
            suggestions: found.iter().map(|candidate| suggestion(candidate)).collect(),
        }),
        [] => Err(RestError::NoRelationship {
            origin: origin.name.clone(),
            target: item.name.clone(),
            hint: item.hint.clone(),
            schema: context.schema.to_owned(),
            suggestion: similar(context, &origin.name, known, &item.name),
        }),
    }
}

/// The least similarity of suggested names.
const LIKENESS: f64 = 0.33;

/// Returns a suggestion: another target; another origin, if the origin has no relationships.
fn similar(context: &PlanContext<'_>, origin: &str, known: &[Arc<Relationship>], target: &str) -> Option<String> {
    let (requested, similar_name) = if known.is_empty() {
        let origins = context.cache.relationships.get(context.schema)?;
        (origin, nearest(origin, origins.keys().map(String::as_str), LIKENESS)?)
    } else {
        // Only relations are suggested, also those that a function returns
        let targets = known.iter().filter(|relationship| relationship.target.schema == context.schema);
        let names = targets.map(|relationship| relationship.target.name.as_str());
        (target, nearest(target, names, LIKENESS)?)
    };
    (requested != similar_name).then(|| format!("Perhaps you meant '{similar_name}' instead of '{requested}'."))
}

fn fits(candidate: &Relationship, name: &str, hint: Option<&str>) -> bool {
    let is_target = candidate.target.name == name;
    match (&candidate.kind, hint) {
        (RelationshipKind::Computed { function, .. }, _) => function.name == name,
        // The table's name selects the children, the foreign key's column the parent; no other name
        // is accepted
        (RelationshipKind::OneToMany { .. }, None) if candidate.is_self => is_target,
        (RelationshipKind::OneToMany { columns, .. }, Some(hint)) if candidate.is_self => {
            is_target && matches!(columns.as_slice(), [(_, key)] if key == hint)
        }
        (RelationshipKind::ManyToOne { columns, .. }, None) if candidate.is_self => {
            matches!(columns.as_slice(), [(key, _)] if key == name)
        }
        _ if candidate.is_self => false,
        (RelationshipKind::ManyToMany(_), None) => is_target,
        (RelationshipKind::ManyToMany(junction), Some(hint)) => is_target && junction.relation.name == hint,
        (
            RelationshipKind::ManyToOne { constraint, columns }
            | RelationshipKind::OneToOne { constraint, columns, is_parent: false },
            None,
        ) => {
            let named = || constraint == name || matches!(columns.as_slice(), [(key, _)] if key == name);
            is_target || (!candidate.target_is_view && named())
        }
        (
            RelationshipKind::OneToMany { constraint, .. }
            | RelationshipKind::OneToOne { constraint, is_parent: true, .. },
            None,
        ) => is_target || (!candidate.target_is_view && constraint == name),
        (
            RelationshipKind::ManyToOne { constraint, columns }
            | RelationshipKind::OneToMany { constraint, columns }
            | RelationshipKind::OneToOne { constraint, columns, .. },
            Some(hint),
        ) => {
            let by_column = || matches!(columns.as_slice(), [(ours, theirs)] if ours == hint || theirs == hint);
            is_target && (constraint == hint || by_column())
        }
    }
}

/// Returns true if a name is a column of a one-to-one relationship whose foreign key belongs to the
/// target. Used only where nothing else fits: a foreign key of the origin comes first.
fn is_child_by_column(candidate: &Relationship, name: &str) -> bool {
    let RelationshipKind::OneToOne { columns, is_parent: true, .. } = &candidate.kind else { return false };
    let is_column = matches!(columns.as_slice(), [(ours, theirs)] if ours == name || theirs == name);
    is_column && !candidate.is_self && !candidate.target_is_view
}

fn text(candidate: &Relationship) -> RelationshipText {
    let Relationship { origin, target, .. } = candidate;
    let (cardinality, relationship) = match &candidate.kind {
        RelationshipKind::ManyToOne { constraint, columns } => ("many-to-one", over(candidate, constraint, columns)),
        RelationshipKind::OneToMany { constraint, columns } => ("one-to-many", over(candidate, constraint, columns)),
        RelationshipKind::OneToOne { constraint, columns, .. } => ("one-to-one", over(candidate, constraint, columns)),
        RelationshipKind::ManyToMany(junction) => {
            let ours = list(junction.origin_columns.iter().map(|(_, column)| column));
            let theirs = list(junction.target_columns.iter().map(|(column, _)| column));
            let (first, second) = (&junction.origin_constraint, &junction.target_constraint);
            ("many-to-many", format!("{} using {first}({ours}) and {second}({theirs})", junction.relation.name))
        }
        RelationshipKind::Computed { function, to_one } => {
            let cardinality = if *to_one { "many-to-one" } else { "one-to-many" };
            (cardinality, format!("{}({})", function.name, origin.name))
        }
    };
    RelationshipText { cardinality, embedding: format!("{} with {}", origin.name, target.name), relationship }
}

fn over(candidate: &Relationship, constraint: &str, columns: &[(String, String)]) -> String {
    let ours = list(columns.iter().map(|(column, _)| column));
    let theirs = list(columns.iter().map(|(_, column)| column));
    format!("{constraint} using {}({ours}) and {}({theirs})", candidate.origin.name, candidate.target.name)
}

fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn suggestion(candidate: &Relationship) -> String {
    let target = &candidate.target.name;
    match &candidate.kind {
        RelationshipKind::ManyToOne { constraint, .. }
        | RelationshipKind::OneToMany { constraint, .. }
        | RelationshipKind::OneToOne { constraint, .. } => format!("{target}!{constraint}"),
        RelationshipKind::ManyToMany(junction) => format!("{target}!{}", junction.relation.name),
        RelationshipKind::Computed { function, .. } => function.name.clone(),
    }
}
