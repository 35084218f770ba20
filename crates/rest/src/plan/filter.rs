//! Conditions, checked against what is known of their columns.

use super::PlanContext;
use super::column_path::{ColumnPath, column_of};
use crate::query::{Filter, Logic, LogicTree, Operation, Query};
use crate::schema::{QualifiedName, Relation};

/// A condition on the rows of a level.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// A comparison.
    Filter {
        /// What is compared.
        column: ColumnPath,
        /// `NOT`
        negated: bool,
        /// With what, and how.
        operation: Operation,
        /// The function that reads values for the column's domain (19.3).
        from_text: Option<QualifiedName>,
        /// The column is no `tsvector`: a text search makes one of it.
        to_tsvector: bool,
    },
    /// Whether there are rows of the level's embed with this index (5.4).
    Exists {
        /// Which embed.
        embed: usize,
        /// There shall be some, or none.
        wanted: bool,
    },
    /// Several.
    Group {
        /// `NOT`
        negated: bool,
        /// How they are joined.
        logic: Logic,
        /// AtLevel least one.
        parts: Vec<Condition>,
    },
}

/// The WHERE of an UPDATE or DELETE: the filters of the root and every logic tree, at whatever level it is (5.2).
pub fn conditions_of_write(context: &PlanContext<'_>, relation: &Relation, query: &Query) -> Vec<Condition> {
    let filters = query.filters.iter().filter(|filter| filter.path.is_empty());
    let filters = filters.map(|at| filter_condition(context, Some(relation), &at.value));
    let logic = query.logic.iter().map(|at| tree_condition(context, Some(relation), &at.value, &|_| None));
    filters.chain(logic).collect()
}

/// A filter as a condition.
pub(super) fn filter_condition(context: &PlanContext<'_>, relation: Option<&Relation>, filter: &Filter) -> Condition {
    let known = relation.and_then(|relation| relation.columns.get(&filter.field.name));
    let whole = filter.field.json_path.is_empty();
    let from_text = known
        .filter(|_| whole)
        .and_then(|column| column.domain.as_ref())
        .and_then(|domain| context.cache.representations.get(domain))
        .and_then(|representation| representation.from_text.clone());
    let to_tsvector = if whole { known.is_some_and(|column| column.base_type != "tsvector") } else { known.is_some() };
    Condition::Filter {
        column: column_of(relation, &filter.field),
        negated: filter.negated,
        operation: filter.operation.clone(),
        from_text,
        to_tsvector,
    }
}

/// A tree as a condition; `leaf` may turn a filter into something else.
pub(super) fn tree_condition(
    context: &PlanContext<'_>,
    relation: Option<&Relation>,
    tree: &LogicTree,
    leaf: &dyn Fn(&Filter) -> Option<Condition>,
) -> Condition {
    match tree {
        LogicTree::Filter(filter) => leaf(filter).unwrap_or_else(|| filter_condition(context, relation, filter)),
        LogicTree::Group { negated, logic, parts } => Condition::Group {
            negated: *negated,
            logic: *logic,
            parts: parts.iter().map(|part| tree_condition(context, relation, part, leaf)).collect(),
        },
    }
}
