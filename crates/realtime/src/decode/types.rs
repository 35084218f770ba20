//! The types of columns, read from the catalog when they are first needed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::shape::{Attribute, Shape};

/// The first oid that is not one of a built-in object.
const FIRST_NORMAL_OID: u32 = 16384;

/// Selects types and all types that their values contain.
const TYPES: &str = "
    with recursive known (oid) as (
      select pg_catalog.unnest($1)
      union
      select component.oid
        from known
             join pg_catalog.pg_type as type on type.oid = known.oid
             cross join lateral (
               select type.typelem
                where type.typelem <> 0 and type.typsubscript = 'pg_catalog.array_subscript_handler'::pg_catalog.regproc
               union all
               select type.typbasetype where type.typtype = 'd'
               union all
               select attribute.atttypid
                 from pg_catalog.pg_attribute as attribute
                where type.typtype = 'c' and attribute.attrelid = type.typrelid
                  and attribute.attnum > 0 and not attribute.attisdropped
             ) as component (oid)
    )
    select type.oid,
           type.typname::text,
           pg_catalog.format('%I.%I', namespace.nspname, type.typname),
           case when type.typtype = 'd' then type.typbasetype end,
           case when type.typsubscript = 'pg_catalog.array_subscript_handler'::pg_catalog.regproc then type.typelem end,
           (select element.typdelim::text from pg_catalog.pg_type as element where element.oid = type.typelem),
           case when type.typtype = 'c' then attributes.names end,
           attributes.types,
           exists (select from pg_catalog.pg_cast as cast_to
                    where cast_to.castsource = type.oid and cast_to.castmethod = 'f'
                      and cast_to.casttarget = 'pg_catalog.json'::pg_catalog.regtype)
      from pg_catalog.pg_type as type
           join known using (oid)
           join pg_catalog.pg_namespace as namespace on namespace.oid = type.typnamespace
           cross join lateral (
             select coalesce(pg_catalog.array_agg(attribute.attname::text order by attribute.attnum), '{}') as names,
                    coalesce(pg_catalog.array_agg(attribute.atttypid order by attribute.attnum), '{}') as types
               from pg_catalog.pg_attribute as attribute
              where type.typtype = 'c' and attribute.attrelid = type.typrelid
                and attribute.attnum > 0 and not attribute.attisdropped
           ) as attributes";

/// A type of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ColumnType {
    /// The name without its schema, as clients see it: `int8`, `_text`.
    pub name: Box<str>,
    /// The name with its schema, quoted for SQL.
    pub(super) qualified: Box<str>,
    pub shape: Arc<Shape>,
}

/// The types that are known.
#[derive(Debug, Default)]
pub(crate) struct TypeCache {
    types: HashMap<u32, Arc<ColumnType>>,
}

impl TypeCache {
    /// Returns a type that was loaded.
    pub fn get(&self, oid: u32) -> Option<&Arc<ColumnType>> {
        self.types.get(&oid)
    }

    /// Loads those of the types that are not known, with one query at most. A type that does not
    /// exist any more is rendered as text.
    ///
    /// # Errors
    /// PostgreSQL's error, or the connection's.
    pub async fn load(
        &mut self,
        client: &Client,
        oids: impl IntoIterator<Item = u32>,
    ) -> Result<(), tokio_postgres::Error> {
        let unknown: HashSet<u32> = oids.into_iter().filter(|oid| !self.types.contains_key(oid)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let oids: Vec<u32> = unknown.into_iter().collect();
        let rows = client.query_typed(TYPES, &[(&oids, Type::OID_ARRAY)]).await?;
        let mut read = HashMap::with_capacity(rows.len());
        for row in &rows {
            read.insert(row.try_get(0)?, ColumnTypeRow::read(row)?);
        }
        for oid in oids {
            let made = read.get(&oid).map(|row| ColumnType {
                name: row.name.clone(),
                qualified: row.qualified.clone(),
                shape: shape(oid, &read, &mut Vec::new()),
            });
            self.types.insert(oid, Arc::new(made.unwrap_or_default()));
        }
        Ok(())
    }

    /// Evicts the types of the project, which may have changed since they were loaded.
    pub fn evict_project_types(&mut self) {
        self.types.retain(|oid, _| *oid < FIRST_NORMAL_OID);
    }
}

impl Default for ColumnType {
    /// Returns the type of a column whose type does not exist any more.
    fn default() -> Self {
        Self { name: "unknown".into(), qualified: "pg_catalog.text".into(), shape: Arc::new(Shape::Text) }
    }
}

impl ColumnType {
    /// Returns the statement with which the server renders values of a type that needs it
    /// ([`Shape::Cast`]). Its parameter is an array of their texts. It has a row of JSON text for
    /// each, in their order.
    pub(super) fn rendering(&self) -> String {
        format!(
            "select coalesce(pg_catalog.to_jsonb(item.text::{}), 'null')::pg_catalog.text
               from rows from (pg_catalog.unnest($1::pg_catalog.text[])) with ordinality as item (text, position)
              order by item.position",
            self.qualified
        )
    }
}

/// A type as the catalog has it.
struct ColumnTypeRow {
    name: Box<str>,
    qualified: Box<str>,
    base: Option<u32>,
    element: Option<u32>,
    delimiter: u8,
    attributes: Option<Vec<(Box<str>, u32)>>,
    has_cast: bool,
}

impl ColumnTypeRow {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let delimiter: Option<&str> = row.try_get(5)?;
        let names: Option<Vec<&str>> = row.try_get(6)?;
        let types: Vec<u32> = row.try_get(7)?;
        Ok(Self {
            name: row.try_get::<_, &str>(1)?.into(),
            qualified: row.try_get::<_, &str>(2)?.into(),
            base: row.try_get(3)?,
            element: row.try_get::<_, Option<u32>>(4)?.filter(|oid| *oid != 0),
            delimiter: delimiter.and_then(|text| text.bytes().next()).unwrap_or(b','),
            attributes: names.map(|names| names.into_iter().map(Into::into).zip(types).collect()),
            has_cast: row.try_get(8)?,
        })
    }
}

/// Makes the shape of a type. `outer` are the types that it is made for: one that contains itself
/// is rendered as text inside.
fn shape(oid: u32, types: &HashMap<u32, ColumnTypeRow>, outer: &mut Vec<u32>) -> Arc<Shape> {
    let Some(row) = types.get(&oid).filter(|_| !outer.contains(&oid)) else { return Arc::new(Shape::Text) };
    outer.push(oid);
    // The order in which `to_jsonb` looks at a type
    let made = if let Some(base) = row.base {
        shape(base, types, outer)
    } else if oid < FIRST_NORMAL_OID && !matches!(Shape::of_builtin(&row.name), Shape::Text) {
        Arc::new(Shape::of_builtin(&row.name))
    } else if let Some(element) = row.element {
        Arc::new(Shape::Array { element: shape(element, types, outer), delimiter: row.delimiter })
    } else if let Some(attributes) = &row.attributes {
        let attribute =
            |(name, oid): &(Box<str>, u32)| Attribute { name: name.clone(), shape: shape(*oid, types, outer) };
        Arc::new(Shape::Composite(attributes.iter().map(attribute).collect()))
    } else if oid >= FIRST_NORMAL_OID && row.has_cast {
        Arc::new(Shape::Cast)
    } else {
        Arc::new(Shape::Text)
    };
    outer.pop();
    made
}
