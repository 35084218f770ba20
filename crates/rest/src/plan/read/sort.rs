//! Sort terms of a level.

use crate::plan::column_path::{ColumnPath, column_of};
use crate::plan::node::QueryNode;
use crate::plan::tree::{Embed, EmbedShape, EmbedSortKey, Level, OutputColumn, SortExpression, SortTerm, SpreadColumn};
use crate::query::{Field, OrderTerm};
use crate::schema::Relation;

/// Returns ORDER BY. Adds the sort keys to the embeds that they belong to.
pub(super) fn orders(node: &QueryNode<'_>, relation: Option<&Relation>, embeds: &mut [Embed]) -> Vec<SortTerm> {
    node.order.iter().map(|term| order(node, term, relation, embeds)).collect()
}

fn order(node: &QueryNode<'_>, term: &OrderTerm, relation: Option<&Relation>, embeds: &mut [Embed]) -> SortTerm {
    let related = term.relation.as_ref();
    let embed = related.and_then(|name| node.children.iter().position(|child| child.key() == name));
    let by = match embed.and_then(|index| Some((index, embeds.get_mut(index)?))) {
        Some((index, embed)) => {
            let key = order_key(&embed.level, &term.field);
            let at = embed.ordered_by.iter().position(|known| *known == key).unwrap_or_else(|| {
                embed.ordered_by.push(key);
                embed.ordered_by.len() - 1
            });
            SortExpression::Embed(index, at)
        }
        None => SortExpression::Column(column_of(relation, &term.field)),
    };
    SortTerm { by, direction: term.direction, nulls: term.nulls }
}

/// Returns the value of an embed's row that a sort term refers to: the one that the embed selects
/// under this name, otherwise a column of its source.
fn order_key(level: &Level, field: &Field) -> EmbedSortKey {
    let name = &field.name;
    let is_itself = |output: &OutputColumn| match output {
        OutputColumn::Column { key, column, .. } => key == name && column.name == *key && column.json_path.is_empty(),
        OutputColumn::CountRows { .. } | OutputColumn::Star => false,
    };
    let is_called = |output: &OutputColumn| match output {
        OutputColumn::Column { key, .. } | OutputColumn::CountRows { key, .. } => key == name,
        OutputColumn::Star => false,
    };
    let is_lifted = |embed: &Embed| match &embed.shape {
        EmbedShape::Hidden => false,
        EmbedShape::Object | EmbedShape::Array => embed.key == *name,
        EmbedShape::Spread(lifted) | EmbedShape::SpreadArrays(lifted) => {
            lifted.iter().any(|each| matches!(each, SpreadColumn::Key { key, .. } if key == name))
        }
    };
    let is_other = level.columns.iter().any(is_called) || level.embeds.iter().any(is_lifted);
    if is_other && !level.columns.iter().any(is_itself) {
        // The type is not known
        let (name, json_path) = (name.clone(), field.json_path.clone());
        let to_json = !json_path.is_empty();
        EmbedSortKey::Output(ColumnPath { name, json_path, to_json })
    } else {
        EmbedSortKey::Column(column_of(level.relation.as_deref(), field))
    }
}
