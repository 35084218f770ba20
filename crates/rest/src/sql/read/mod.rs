//! The SQL of a read plan.
//!
//! - An embed is a subquery in the select list. With ORDER BY and LIMIT, PostgreSQL computes it
//!   after the sort and for the rows of the page only; a join would be computed for all rows. A row
//!   of a table is found by the index of the key. As joins inside of an embed of many rows,
//!   PostgreSQL hashed the whole table again for each parent: 100 rows with two levels took 70 ms,
//!   as subqueries 8 ms.
//! - What the level above has to see is a `LATERAL` join of a flat subquery: spreads, sort keys of
//!   embeds, and inner embeds of one row. PostgreSQL can pull it up and start at the embed. Views
//!   are joined, too, since an index may not find their rows.
//! - With an OFFSET, a subselect finds the page first: see [`super::page`].
//! - Conditions on embeds (`!inner` and null filters) are `EXISTS`: a semi-join or anti-join, which
//!   needs no aggregation.
//! - Embeds are built as `jsonb` directly, never via `json` and its text.

mod join;
pub(in crate::sql) mod output;
mod source;

use self::join::{is_aggregate, is_found_by_key, is_joined, is_one_group, joins_inner, may_yield_more, repeats_keys};
use self::output::{GroupingKey, SelectList, lifted, output};
use self::source::{ParentLevel, source};
use super::Sql;
use super::filter::{column, conditions};
use super::subselect_output::SubselectOutput;
use crate::plan::{
    Embed, EmbedShape, EmbedSortKey, Level, OutputColumn, ReadPlan, SortExpression, SpreadColumn, counts_rows,
};
use crate::query::{Direction, Join, Nulls};
use crate::schema::RelationshipKind;

pub use self::source::FromItem;

/// Appends the SELECT of a plan's rows. `call` writes the FROM item of a function's rows, with the
/// name [`crate::plan::CALL`]; other roots need none.
pub fn rows(sql: &mut Sql, plan: &ReadPlan, call: Option<FromItem<'_>>) {
    select(sql, &plan.root, None, call);
}

/// Appends a SELECT of the number of rows that match the conditions of the root, up to `most`.
pub fn count(sql: &mut Sql, plan: &ReadPlan, call: Option<FromItem<'_>>, most: Option<u64>) {
    match most {
        None => {
            sql.raw("SELECT count(*)");
            from_where(sql, &plan.root, call);
        }
        Some(most) => {
            sql.raw("SELECT count(*) FROM (SELECT 1");
            from_where(sql, &plan.root, call);
            sql.raw(" LIMIT ").value(most.to_string()).raw(") AS pgrst_source_count");
        }
    }
}

/// Appends a SELECT of one row for each that matches the conditions of the root, for the planner's
/// estimate.
pub fn matching(sql: &mut Sql, plan: &ReadPlan, call: Option<FromItem<'_>>) {
    sql.raw("SELECT 1");
    from_where(sql, &plan.root, call);
}

/// Appends FROM and WHERE without any embed.
fn from_where(sql: &mut Sql, level: &Level, call: Option<FromItem<'_>>) {
    sql.raw(" FROM ");
    source(sql, level, None, call);
    where_of(sql, level, None, true);
}

fn select(sql: &mut Sql, level: &Level, parent: ParentLevel<'_>, call: Option<FromItem<'_>>) {
    sql.raw("SELECT ");
    let grouped_by = outputs(sql, level, parent);
    sql.raw(" FROM ");
    if let Some(page) = SubselectOutput::of(level, parent.map(|(_, embed)| embed)) {
        sql.raw("(SELECT ");
        page.select_list(sql, &level.alias);
        sql.raw(" FROM ");
        source(sql, level, parent, call);
        where_of(sql, level, parent, true);
        order(sql, level);
        range(sql, level);
        sql.raw(") AS ");
        page.name(sql, &level.alias);
        joins(sql, level, parent);
        // Joins do not preserve the order of the page
        order(sql, level);
        return;
    }
    source(sql, level, parent, call);
    joins(sql, level, parent);
    where_of(sql, level, parent, false);
    if level.aggregated && !grouped_by.is_empty() {
        sql.raw(" GROUP BY ").list(", ", &grouped_by, |sql, group| match group {
            GroupingKey::Position(at) => drop(sql.raw(&at.to_string())),
            GroupingKey::Column(name) => drop(sql.qualified(&level.alias, name)),
        });
    }
    order(sql, level);
    range(sql, level);
}

fn range(sql: &mut Sql, level: &Level) {
    if let Some(limit) = level.limit {
        sql.raw(" LIMIT ").value(limit.to_string());
    }
    if let Some(offset) = level.offset {
        sql.raw(" OFFSET ").value(offset.to_string());
    }
}

fn joins(sql: &mut Sql, level: &Level, parent: ParentLevel<'_>) {
    level.embeds.iter().for_each(|embed| join(sql, level, embed, parent.is_none()));
    if let Some(name) = &level.repeated {
        // Two embeds of one name are two joins of one name, which PostgreSQL rejects
        for _ in 0..2 {
            sql.raw(" CROSS JOIN (SELECT) AS ").name(name);
        }
    }
}

/// Appends the outputs, and returns the keys of GROUP BY.
fn outputs<'a>(sql: &mut Sql, level: &'a Level, parent: ParentLevel<'_>) -> Vec<GroupingKey<'a>> {
    let mut list = SelectList { written: 0, grouped_by: Vec::new() };
    for output in &level.columns {
        match output {
            OutputColumn::Column { column, representation: Some(_), .. } => {
                list.next(sql, false);
                list.grouped_by.push(GroupingKey::Column(&column.name));
            }
            output => list.next(sql, !is_aggregate(output)),
        }
        self::output(sql, &level.alias, output);
    }
    for embed in &level.embeds {
        match &embed.shape {
            EmbedShape::Hidden => {}
            EmbedShape::Object if !is_joined(embed) => {
                list.next(sql, true);
                sql.raw("(SELECT to_jsonb(").name(&embed.alias).raw(") FROM (");
                select(sql, &embed.level, Some((level, embed)), None);
                if embed.level.limit.is_none() && may_yield_more(embed) {
                    sql.raw(" LIMIT 1");
                }
                sql.raw(") AS ").name(&embed.alias).raw(") AS ").name(&embed.key);
            }
            EmbedShape::Object => {
                list.next(sql, true);
                sql.raw("to_jsonb(").name(&embed.alias).raw(")");
                // The columns for sorting are not part of the response
                for (at, ordered) in embed.ordered_by.iter().enumerate() {
                    if let EmbedSortKey::Column(_) = ordered {
                        sql.raw(" - 'pgrst_order_").raw(&at.to_string()).raw("'");
                    }
                }
                sql.raw(" AS ").name(&embed.key);
            }
            EmbedShape::Array => {
                list.next(sql, true);
                sql.raw("(SELECT coalesce(jsonb_agg(").name(&embed.alias).raw("), '[]') FROM (");
                select(sql, &embed.level, Some((level, embed)), None);
                sql.raw(") AS ").name(&embed.alias).raw(") AS ").name(&embed.key);
            }
            EmbedShape::Spread(lifted) | EmbedShape::SpreadArrays(lifted) => {
                for each in lifted {
                    self::lifted(sql, &mut list, embed, each);
                }
            }
        }
    }
    if let Some((_, embed)) = parent {
        for (at, ordered) in embed.ordered_by.iter().enumerate() {
            let EmbedSortKey::Column(ordered) = ordered else { continue };
            list.next(sql, true);
            column(sql, &level.alias, ordered);
            sql.raw(" AS ").name_of(format_args!("pgrst_order_{at}"));
        }
    }
    list.grouped_by
}

/// Appends the join of an embed whose columns are needed outside of it.
fn join(sql: &mut Sql, level: &Level, embed: &Embed, is_root: bool) {
    if !is_joined(embed) {
        return;
    }
    sql.raw(if joins_inner(embed) { " JOIN LATERAL (" } else { " LEFT JOIN LATERAL (" });
    match &embed.shape {
        EmbedShape::SpreadArrays(lifted) => {
            let mut list = SelectList { written: 0, grouped_by: Vec::new() };
            sql.raw("SELECT ");
            for each in lifted {
                if let SpreadColumn::Key { column, .. } = each {
                    list.next(sql, false);
                    sql.raw("coalesce(jsonb_agg(").qualified(&embed.alias, column).raw("), '[]') AS ").name(column);
                }
            }
            sql.raw(" FROM (");
            select(sql, &embed.level, Some((level, embed)), None);
            sql.raw(") AS ").name(&embed.alias);
        }
        _ => {
            select(sql, &embed.level, Some((level, embed)), None);
            // Otherwise PostgreSQL might hash the table for each parent
            let is_looked_up = !is_root && embed.join == Join::Left && is_found_by_key(embed);
            if embed.level.limit.is_none() && (is_looked_up || repeats_keys(embed)) {
                sql.raw(" LIMIT 1");
            }
        }
    }
    sql.raw(") AS ").name(&embed.alias).raw(" ON true");
}

/// Appends WHERE: the relationship to the parent, the level's conditions, and that its inner embeds
/// have rows. `alone`: no embed is joined.
fn where_of(sql: &mut Sql, level: &Level, parent: ParentLevel<'_>, alone: bool) {
    let mut next = {
        let mut written = false;
        move |sql: &mut Sql| {
            sql.raw(if written { " AND " } else { " WHERE " });
            written = true;
        }
    };
    if let Some((above, embed)) = parent {
        belongs(sql, &mut next, above, embed);
    }
    if !level.conditions.is_empty() {
        next(sql);
        conditions(sql, &level.alias, &level.conditions, &|sql, at| {
            if let Some(embed) = level.embeds.get(at) {
                exists(sql, level, embed);
            }
        });
    }
    for embed in level.embeds.iter().filter(|embed| embed.join == Join::Inner && (alone || !joins_inner(embed))) {
        next(sql);
        exists(sql, level, embed);
    }
}

/// Appends the conditions of a relationship.
fn belongs(sql: &mut Sql, next: &mut dyn FnMut(&mut Sql), above: &Level, embed: &Embed) {
    let level = &embed.level;
    let mut equal = |sql: &mut Sql, (left, left_name): (&str, &str), (right, right_name): (&str, &str)| {
        next(sql);
        sql.qualified(left, left_name).raw(" = ").qualified(right, right_name);
    };
    match &embed.relationship.kind {
        RelationshipKind::ManyToOne { columns, .. }
        | RelationshipKind::OneToMany { columns, .. }
        | RelationshipKind::OneToOne { columns, .. } => {
            for (ours, theirs) in columns {
                equal(sql, (&level.alias, theirs), (&above.alias, ours));
            }
        }
        RelationshipKind::ManyToMany(junction) => {
            for (ours, middle) in &junction.origin_columns {
                equal(sql, (&embed.junction_alias, middle), (&above.alias, ours));
            }
            for (middle, theirs) in &junction.target_columns {
                equal(sql, (&level.alias, theirs), (&embed.junction_alias, middle));
            }
        }
        // A function that returns NULL is a row of NULLs in FROM, as in a direct call
        RelationshipKind::Computed { .. } => {}
    }
}

/// Appends the condition that an embed has rows.
fn exists(sql: &mut Sql, above: &Level, embed: &Embed) {
    let level = &embed.level;
    let always_one_row = counts_rows(level) || (level.aggregated && is_one_group(level));
    sql.raw("EXISTS (SELECT ");
    // Such an embed has a row even if nothing matches
    sql.raw(if always_one_row { "count(*)" } else { "1" });
    sql.raw(" FROM ");
    source(sql, level, Some((above, embed)), None);
    where_of(sql, level, Some((above, embed)), true);
    match (level.limit, level.offset) {
        (Some(0), _) => {
            sql.raw(" LIMIT 0");
        }
        (_, Some(offset)) => {
            sql.raw(" OFFSET ").value(offset.to_string());
        }
        // Any other limit keeps a row where there is one, and would only prevent a semi-join
        _ => {}
    }
    sql.raw(")");
}

/// Returns the column of a spread by which groups are sorted. A second column of the same value
/// would not be part of a group.
fn grouped_column<'a>(level: &Level, embed: &'a Embed, at: usize) -> Option<&'a str> {
    let (true, EmbedShape::Spread(lifted)) = (level.aggregated, &embed.shape) else { return None };
    let EmbedSortKey::Column(wanted) = embed.ordered_by.get(at)? else { return None };
    embed.level.columns.iter().find_map(|output| match output {
        OutputColumn::Column { column, representation: None, cast: None, aggregate: None, key, .. }
            if column == wanted =>
        {
            lifted
                .iter()
                .any(|each| matches!(each, SpreadColumn::Key { column, .. } if column == key))
                .then_some(key.as_str())
        }
        _ => None,
    })
}

fn order(sql: &mut Sql, level: &Level) {
    if level.order.is_empty() {
        return;
    }
    sql.raw(" ORDER BY ").list(", ", &level.order, |sql, order| {
        match &order.by {
            SortExpression::Column(by) => column(sql, &level.alias, by),
            SortExpression::Embed(embed, at) => {
                let Some(embed) = level.embeds.get(*embed) else { return };
                match (embed.ordered_by.get(*at), grouped_column(level, embed, *at)) {
                    (Some(EmbedSortKey::Output(output)), _) => column(sql, &embed.alias, output),
                    (_, Some(name)) => drop(sql.qualified(&embed.alias, name)),
                    (_, None) => drop(sql.qualified(&embed.alias, &format!("pgrst_order_{at}"))),
                }
            }
        }
        sql.raw(match order.direction {
            Some(Direction::Ascending) => " ASC",
            Some(Direction::Descending) => " DESC",
            None => "",
        });
        sql.raw(match order.nulls {
            Some(Nulls::First) => " NULLS FIRST",
            Some(Nulls::Last) => " NULLS LAST",
            None => "",
        });
    });
}
