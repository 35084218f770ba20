//! The FROM item of a level.

use crate::plan::{Embed, Level, LevelSource};
use crate::schema::{Relation, RelationshipKind};
use crate::sql::Sql;

/// Writes a FROM item.
pub type FromItem<'a> = &'a dyn Fn(&mut Sql);

/// The level above, and the embed that leads to this one.
pub(super) type ParentLevel<'a> = Option<(&'a Level, &'a Embed)>;

/// Appends the FROM item of a level.
pub(super) fn source(sql: &mut Sql, level: &Level, parent: ParentLevel<'_>, call: Option<FromItem<'_>>) {
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
pub(super) fn whole_row(sql: &mut Sql, level: &Level) {
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
