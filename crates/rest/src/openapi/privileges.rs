//! The objects of a schema that the role of the request may use, and the schema's comment.

use std::collections::HashSet;

use crate::statement_builder::Sql;

/// The objects of a schema that are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum VisibleObjects {
    /// All exposed objects (`ignore-privileges`).
    #[default]
    Everything,
    /// The objects that the role of the request may use (`follow-privileges`).
    Only {
        /// The names of relations.
        relations: HashSet<String>,
        /// The oids of functions.
        functions: HashSet<u32>,
    },
}

impl VisibleObjects {
    /// Returns true if a relation is shown.
    pub fn has_relation(&self, name: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Only { relations, .. } => relations.contains(name),
        }
    }

    /// Returns true if a function is shown.
    pub fn has_function(&self, oid: u32) -> bool {
        match self {
            Self::Everything => true,
            Self::Only { functions, .. } => functions.contains(&oid),
        }
    }
}

/// The visible objects and the comment of a schema.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchemaVisibility {
    /// The objects that the role may use.
    pub visible: VisibleObjects,
    /// The schema's comment.
    pub comment: Option<String>,
}

/// Writes a statement that returns one row with three texts: the names of the relations that the
/// current role owns or has any privilege on, as a JSON array; the oids of the functions that it
/// may execute, likewise; the schema's comment.
pub fn visibility_query(schema: &str) -> Sql {
    let mut sql = Sql::new();
    sql.raw("with exposed as (select n.oid from pg_catalog.pg_namespace as n where n.nspname = ");
    sql.value(schema);
    sql.raw(
        ") select \
         (select coalesce(pg_catalog.json_agg(c.relname), '[]')::text from pg_catalog.pg_class as c, exposed \
         where c.relnamespace = exposed.oid and c.relkind in ('r', 'p', 'v', 'm', 'f') and not c.relispartition \
         and (pg_catalog.pg_has_role(c.relowner, 'USAGE') \
         or pg_catalog.has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') \
         or pg_catalog.has_any_column_privilege(c.oid, 'SELECT, INSERT, UPDATE, REFERENCES'))), \
         (select coalesce(pg_catalog.json_agg(p.oid::bigint), '[]')::text from pg_catalog.pg_proc as p, exposed \
         where p.pronamespace = exposed.oid and p.prokind = 'f' and pg_catalog.has_function_privilege(p.oid, 'EXECUTE')), \
         (select pg_catalog.obj_description(exposed.oid, 'pg_namespace') from exposed)",
    );
    sql
}

/// Reads the columns of [`visibility_query`]; `None` if they cannot be parsed.
pub fn read_visibility(
    relations: Option<&str>,
    functions: Option<&str>,
    comment: Option<&str>,
) -> Option<SchemaVisibility> {
    let relations = serde_json::from_str(relations?).ok()?;
    let functions = serde_json::from_str(functions?).ok()?;
    Some(SchemaVisibility {
        visible: VisibleObjects::Only { relations, functions },
        comment: comment.map(str::to_owned),
    })
}
