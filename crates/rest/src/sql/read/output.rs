//! The outputs of a select list.

use crate::plan::{Embed, OutputColumn, SpreadColumn, aggregate_name};
use crate::query::Aggregate;
use crate::sql::Sql;
use crate::sql::filter::{column, json_path};

/// A select list under construction.
pub(super) struct SelectList<'a> {
    pub written: usize,
    pub grouped_by: Vec<GroupingKey<'a>>,
}

impl SelectList<'_> {
    pub fn next(&mut self, sql: &mut Sql, groups: bool) {
        if self.written > 0 {
            sql.raw(", ");
        }
        self.written += 1;
        if groups {
            self.grouped_by.push(GroupingKey::Position(self.written));
        }
    }
}

/// A key of GROUP BY.
pub(super) enum GroupingKey<'a> {
    /// The output at this position.
    Position(usize),
    /// A column. Its domain converts it to JSON, which has no equality.
    Column(&'a str),
}

pub(super) fn output(sql: &mut Sql, alias: &str, output: &OutputColumn) {
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

pub(super) fn lifted(sql: &mut Sql, list: &mut SelectList<'_>, embed: &Embed, lifted: &SpreadColumn) {
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

pub(super) fn aggregated(sql: &mut Sql, aggregate: Option<Aggregate>, inner: impl FnOnce(&mut Sql)) {
    match aggregate {
        None => inner(sql),
        Some(aggregate) => {
            sql.raw(aggregate_name(aggregate)).raw("(");
            inner(sql);
            sql.raw(")");
        }
    }
}

pub(super) fn casted(sql: &mut Sql, cast: Option<&str>, inner: impl FnOnce(&mut Sql)) {
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
pub(in crate::sql) fn type_name(sql: &mut Sql, name: &str) {
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
