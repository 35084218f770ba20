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

use super::Sql;
use super::filter::{column, conditions, json_path};
use super::page::Page;
use crate::plan::{
    Embed, EmbedShape, EmbedSortKey, Level, LevelSource, OutputColumn, ReadPlan, SortExpression, SpreadColumn,
    aggregate_name, counts_rows,
};
use crate::query::{Aggregate, Direction, Join, Nulls};
use crate::schema::{Relation, RelationshipKind};

/// Writes a FROM item.
pub type FromItem<'a> = &'a dyn Fn(&mut Sql);

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

/// The level above, and the embed that leads to this one.
type ParentLevel<'a> = Option<(&'a Level, &'a Embed)>;

fn select(sql: &mut Sql, level: &Level, parent: ParentLevel<'_>, call: Option<FromItem<'_>>) {
    sql.raw("SELECT ");
    let grouped_by = outputs(sql, level, parent);
    sql.raw(" FROM ");
    if let Some(page) = Page::of(level, parent.map(|(_, embed)| embed)) {
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
            GroupingKey::OutputColumn(at) => drop(sql.raw(&at.to_string())),
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

/// A key of GROUP BY.
enum GroupingKey<'a> {
    /// The output at this position.
    OutputColumn(usize),
    /// A column. Its domain converts it to JSON, which has no equality.
    Column(&'a str),
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

/// A select list under construction.
struct SelectList<'a> {
    written: usize,
    grouped_by: Vec<GroupingKey<'a>>,
}

impl SelectList<'_> {
    fn next(&mut self, sql: &mut Sql, groups: bool) {
        if self.written > 0 {
            sql.raw(", ");
        }
        self.written += 1;
        if groups {
            self.grouped_by.push(GroupingKey::OutputColumn(self.written));
        }
    }
}

fn is_aggregate(output: &OutputColumn) -> bool {
    matches!(output, OutputColumn::CountRows { .. } | OutputColumn::Column { aggregate: Some(_), .. })
}

fn output(sql: &mut Sql, alias: &str, output: &OutputColumn) {
    match output {
        OutputColumn::Star => {
            sql.name(alias).raw(".*");
        }
        OutputColumn::Column { column: field, representation, cast, aggregate, aggregate_cast, key } => {
            casted(sql, aggregate_cast.as_deref(), |sql| {
                aggregated(sql, *aggregate, |sql| {
                    casted(sql, cast.as_deref(), |sql| match representation {
                        None => column(sql, alias, field),
                        Some(function) => {
                            sql.qualified(&function.schema, &function.name).raw("(");
                            sql.qualified(alias, &field.name).raw(")");
                            json_path(sql, field);
                        }
                    });
                });
            });
            let plain = representation.is_none() && cast.is_none() && aggregate.is_none() && aggregate_cast.is_none();
            if !(plain && field.json_path.is_empty() && *key == field.name) {
                sql.raw(" AS ").name(key);
            }
        }
        OutputColumn::CountRows { cast, key } => {
            casted(sql, cast.as_deref(), |sql| {
                sql.raw("count(*)");
            });
            sql.raw(" AS ").name(key);
        }
    }
}

fn lifted(sql: &mut Sql, list: &mut SelectList<'_>, embed: &Embed, lifted: &SpreadColumn) {
    match lifted {
        SpreadColumn::Nothing => {}
        SpreadColumn::Star => {
            list.next(sql, true);
            sql.name(&embed.alias).raw(".*");
        }
        SpreadColumn::Key { column, key } => {
            list.next(sql, true);
            sql.qualified(&embed.alias, column);
            if column != key {
                sql.raw(" AS ").name(key);
            }
        }
        SpreadColumn::Aggregated { input, aggregate, cast, key } => {
            list.next(sql, false);
            casted(sql, cast.as_deref(), |sql| match input {
                Some(input) => aggregated(sql, Some(*aggregate), |sql| {
                    sql.qualified(&embed.alias, input);
                }),
                None => {
                    sql.raw("count(*)");
                }
            });
            sql.raw(" AS ").name(key);
        }
    }
}

fn aggregated(sql: &mut Sql, aggregate: Option<Aggregate>, inner: impl FnOnce(&mut Sql)) {
    match aggregate {
        None => inner(sql),
        Some(aggregate) => {
            sql.raw(aggregate_name(aggregate)).raw("(");
            inner(sql);
            sql.raw(")");
        }
    }
}

fn casted(sql: &mut Sql, cast: Option<&str>, inner: impl FnOnce(&mut Sql)) {
    match cast {
        None => inner(sql),
        Some(cast) => {
            sql.raw("CAST(");
            inner(sql);
            sql.raw(" AS ");
            type_name(sql, cast);
            sql.raw(")");
        }
    }
}

/// Appends a type that a client has chosen. It consists of words of letters, digits, `_` and `$`.
/// None of them may begin like a dollar-quoted text (`$a$`), or like a number followed by one
/// (`1$a$`). Anything else becomes a quoted name, which no type has.
pub(super) fn type_name(sql: &mut Sql, name: &str) {
    let is_word = |word: &str| {
        !word.starts_with(|c: char| c == '$' || c.is_ascii_digit())
            && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$'))
    };
    if !name.trim().is_empty() && name.split(' ').all(is_word) {
        sql.raw(name);
    } else {
        sql.name(name);
    }
}

/// Appends the FROM item of a level.
fn source(sql: &mut Sql, level: &Level, parent: ParentLevel<'_>, call: Option<FromItem<'_>>) {
    match &level.source {
        LevelSource::Relation(name) => {
            sql.qualified(&name.schema, &name.name);
            if name.name != level.alias {
                sql.raw(" AS ").name(&level.alias);
            }
        }
        LevelSource::Written => {
            sql.raw("pgrst_source AS ").name(&level.alias);
        }
        LevelSource::Call => {
            if let Some(call) = call {
                call(sql);
            }
        }
        LevelSource::Computed(function) => {
            sql.qualified(&function.schema, &function.name).raw("(");
            if let Some((parent, _)) = parent {
                whole_row(sql, parent);
            }
            sql.raw(") AS ").name(&level.alias);
        }
    }
    if let Some((_, Embed { relationship, junction_alias, .. })) = parent
        && let RelationshipKind::ManyToMany(junction) = &relationship.kind
    {
        sql.raw(", ").qualified(&junction.relation.schema, &junction.relation.name);
        sql.raw(" AS ").name(junction_alias);
    }
}

/// Appends the row of a level as a value of its relation's type. Rows of a CTE or a subquery have
/// no such type, so a new value is built.
fn whole_row(sql: &mut Sql, level: &Level) {
    match (&level.source, level.relation.as_deref()) {
        (LevelSource::Written | LevelSource::Call, Some(Relation { name, columns, .. })) => {
            sql.raw("ROW(").list(", ", columns.keys(), |sql, name| {
                sql.qualified(&level.alias, name);
            });
            sql.raw(")::").qualified(&name.schema, &name.name);
        }
        _ => {
            sql.name(&level.alias).raw(".*");
        }
    }
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

/// Returns true if the level above refers to the columns of an embed.
fn is_joined(embed: &Embed) -> bool {
    match &embed.shape {
        EmbedShape::Hidden => !embed.ordered_by.is_empty(),
        EmbedShape::Array => false,
        EmbedShape::Object => joins_inner(embed) || !embed.ordered_by.is_empty() || !is_found_by_key(embed),
        EmbedShape::Spread(_) | EmbedShape::SpreadArrays(_) => true,
    }
}

/// Returns true if the join itself removes rows of the parent: it is inner and leads to at most one
/// row.
fn joins_inner(embed: &Embed) -> bool {
    let one_row = matches!(embed.shape, EmbedShape::Object | EmbedShape::Spread(_));
    embed.join == Join::Inner && (one_row || (embed.shape == EmbedShape::Hidden && !embed.ordered_by.is_empty()))
}

/// Returns true if an index finds the row: foreign keys lead to unique keys, and functions find
/// rows themselves.
fn is_found_by_key(embed: &Embed) -> bool {
    is_computed(embed) || embed.level.relation.as_ref().is_some_and(|relation| !relation.is_view())
}

/// Returns true if several rows may match a parent's key. Only the first is used, since the parent
/// would be repeated otherwise.
fn repeats_keys(embed: &Embed) -> bool {
    !is_computed(embed) && embed.level.relation.as_ref().is_some_and(|relation| relation.repeats_keys)
}

/// Returns true if a subquery for one row may return several, because a function returns more than
/// its declaration promises.
fn may_yield_more(embed: &Embed) -> bool {
    is_computed(embed) || embed.level.embeds.iter().any(|below| is_computed(below) && is_joined(below))
}

fn is_computed(embed: &Embed) -> bool {
    matches!(embed.relationship.kind, RelationshipKind::Computed { .. })
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

/// Returns true if an aggregated level has no grouping columns.
fn is_one_group(level: &Level) -> bool {
    level.columns.iter().all(is_aggregate)
        && level.embeds.iter().all(|embed| match &embed.shape {
            EmbedShape::Hidden => true,
            EmbedShape::Object | EmbedShape::Array => false,
            EmbedShape::Spread(lifted) | EmbedShape::SpreadArrays(lifted) => {
                lifted.iter().all(|each| matches!(each, SpreadColumn::Aggregated { .. } | SpreadColumn::Nothing))
            }
        })
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
