//! Conditions, with the types of their columns.

use super::PlanContext;
use super::column_path::{ColumnPath, column_of};
use crate::query::{Filter, FilterOperation, Logic, LogicTree, RequestQuery};
use crate::schema::{QualifiedName, Relation};

/// A condition on the rows of a level.
#[derive(Debug, Clone, PartialEq)]
pub enum RowCondition {
    /// A comparison.
    Filter {
        /// The column that is compared.
        column: ColumnPath,
        /// `NOT`
        negated: bool,
        /// The operator and its right side.
        operation: FilterOperation,
        /// The function that parses values for the column's domain.
        from_text: Option<QualifiedName>,
        /// The column is not a `tsvector`: a text search converts it.
        to_tsvector: bool,
    },
    /// The embed with this index has rows.
    Exists {
        /// The index of the embed.
        embed: usize,
        /// True if it must have rows, false if it must have none.
        wanted: bool,
    },
    /// A group of conditions.
    Group {
        /// `NOT`
        negated: bool,
        /// The operator between the parts.
        logic: Logic,
        /// At least one.
        parts: Vec<RowCondition>,
    },
}

/// Returns the conditions of an UPDATE or DELETE: the filters of the root, and the logic trees of
/// all levels.
pub fn conditions_of_write(context: &PlanContext<'_>, relation: &Relation, query: &RequestQuery) -> Vec<RowCondition> {
    let filters = query.filters.iter().filter(|filter| filter.path.is_empty());
    let filters = filters.map(|at| filter_condition(context, Some(relation), &at.value));
    let logic = query.logic.iter().map(|at| tree_condition(context, Some(relation), &at.value, &|_| None));
    filters.chain(logic).collect()
}

/// Returns a filter as a condition.
pub(super) fn filter_condition(
    context: &PlanContext<'_>,
    relation: Option<&Relation>,
    filter: &Filter,
) -> RowCondition {
    let known = relation.and_then(|relation| relation.columns.get(&filter.field.name));
    let whole = filter.field.json_path.is_empty();
    let from_text = known
        .filter(|_| whole)
        .and_then(|column| column.domain.as_ref())
        .and_then(|domain| context.cache.representations.get(domain))
        .and_then(|representation| representation.from_text.clone());
    let to_tsvector = if whole { known.is_some_and(|column| column.base_type != "tsvector") } else { known.is_some() };
    RowCondition::Filter {
        column: column_of(relation, &filter.field),
        negated: filter.negated,
        operation: filter.operation.clone(),
        from_text,
        to_tsvector,
    }
}

/// Returns a tree as a condition. `leaf` may replace the condition of a filter.
pub(super) fn tree_condition(
    context: &PlanContext<'_>,
    relation: Option<&Relation>,
    tree: &LogicTree,
    leaf: &dyn Fn(&Filter) -> Option<RowCondition>,
) -> RowCondition {
    match tree {
        LogicTree::Filter(filter) => leaf(filter).unwrap_or_else(|| filter_condition(context, relation, filter)),
        LogicTree::Group { negated, logic, parts } => RowCondition::Group {
            negated: *negated,
            logic: *logic,
            parts: parts.iter().map(|part| tree_condition(context, relation, part, leaf)).collect(),
        },
    }
}
