//! Properties of embeds that decide how they are joined.

use crate::plan::{Embed, EmbedShape, Level, OutputColumn, SpreadColumn};
use crate::query::Join;
use crate::schema::RelationshipKind;

/// Returns true if the level above refers to the columns of an embed.
pub(super) fn is_joined(embed: &Embed) -> bool {
    match &embed.shape {
        EmbedShape::Hidden => !embed.ordered_by.is_empty(),
        EmbedShape::Array => false,
        EmbedShape::Object => joins_inner(embed) || !embed.ordered_by.is_empty() || !is_found_by_key(embed),
        EmbedShape::Spread(_) | EmbedShape::SpreadArrays(_) => true,
    }
}

/// Returns true if the join itself removes rows of the parent: it is inner and leads to at most one
/// row.
pub(super) fn joins_inner(embed: &Embed) -> bool {
    let one_row = matches!(embed.shape, EmbedShape::Object | EmbedShape::Spread(_));
    embed.join == Join::Inner && (one_row || (embed.shape == EmbedShape::Hidden && !embed.ordered_by.is_empty()))
}

/// Returns true if an index finds the row: foreign keys lead to unique keys, and functions find
/// rows themselves.
pub(super) fn is_found_by_key(embed: &Embed) -> bool {
    is_computed(embed) || embed.level.relation.as_ref().is_some_and(|relation| !relation.is_view())
}

/// Returns true if several rows may match a parent's key. Only the first is used, since the parent
/// would be repeated otherwise.
pub(super) fn repeats_keys(embed: &Embed) -> bool {
    !is_computed(embed) && embed.level.relation.as_ref().is_some_and(|relation| relation.repeats_keys)
}

/// Returns true if a subquery for one row may return several, because a function returns more than
/// its declaration promises.
pub(super) fn may_yield_more(embed: &Embed) -> bool {
    is_computed(embed) || embed.level.embeds.iter().any(|below| is_computed(below) && is_joined(below))
}

pub(super) fn is_computed(embed: &Embed) -> bool {
    matches!(embed.relationship.kind, RelationshipKind::Computed { .. })
}

pub(super) fn is_aggregate(output: &OutputColumn) -> bool {
    matches!(output, OutputColumn::CountRows { .. } | OutputColumn::Column { aggregate: Some(_), .. })
}

/// Returns true if an aggregated level has no grouping columns.
pub(super) fn is_one_group(level: &Level) -> bool {
    level.columns.iter().all(is_aggregate)
        && level.embeds.iter().all(|embed| match &embed.shape {
            EmbedShape::Hidden => true,
            EmbedShape::Object | EmbedShape::Array => false,
            EmbedShape::Spread(lifted) | EmbedShape::SpreadArrays(lifted) => {
                lifted.iter().all(|each| matches!(each, SpreadColumn::Aggregated { .. } | SpreadColumn::Nothing))
            }
        })
}
