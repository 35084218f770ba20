//! The facts about a published table that the stream's description lacks.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::change::ReplicaIdentity;

/// Selects a table and its columns, those of the primary key marked.
const TABLE: &str = "
    select class.relname::text,
           namespace.nspname::text,
           class.relrowsecurity,
           class.relreplident::text,
           root.relname::text,
           root_namespace.nspname::text,
           attribute.attname::text,
           attribute.attnum,
           attribute.atttypid,
           coalesce(attribute.attnum = any (primary_key.indkey), false)
      from pg_catalog.pg_class as class
           join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
           left join pg_catalog.pg_class as root
             on root.oid = pg_catalog.pg_partition_root(class.oid) and root.oid <> class.oid
           left join pg_catalog.pg_namespace as root_namespace on root_namespace.oid = root.relnamespace
           left join pg_catalog.pg_index as primary_key on primary_key.indrelid = class.oid and primary_key.indisprimary
           left join pg_catalog.pg_attribute as attribute
             on attribute.attrelid = class.oid and attribute.attnum > 0 and not attribute.attisdropped
     where class.oid = $1
     order by attribute.attnum";

/// A table of a publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    pub oid: u32,
    pub schema: Box<str>,
    pub name: Box<str>,
    /// Row-level security is enabled.
    pub has_row_security: bool,
    pub identity: ReplicaIdentity,
    /// The schema and the name of the partitioned table that this is a partition of, at the top.
    pub partition_root: Option<(Box<str>, Box<str>)>,
    /// The columns, in the order of their attribute numbers.
    pub columns: Box<[TableColumn]>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableColumn {
    pub name: Box<str>,
    /// The attribute number, from 1.
    pub number: i16,
    pub type_oid: u32,
    pub is_primary_key: bool,
}

impl Table {
    /// Reads a table from the catalog. `None`: it does not exist any more.
    ///
    /// # Errors
    /// PostgreSQL's error, or the connection's.
    pub async fn read(client: &Client, oid: u32) -> Result<Option<Self>, tokio_postgres::Error> {
        let rows = client.query_typed(TABLE, &[(&oid, Type::OID)]).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let root: Option<&str> = first.try_get(4)?;
        let root_schema: Option<&str> = first.try_get(5)?;
        let letter = first.try_get::<_, &str>(3)?.bytes().next().unwrap_or_default();
        let mut columns = Vec::with_capacity(rows.len());
        for row in &rows {
            // A table without columns has one row, without one
            let Some(name) = row.try_get::<_, Option<&str>>(6)? else { continue };
            columns.push(TableColumn {
                name: name.into(),
                number: row.try_get(7)?,
                type_oid: row.try_get(8)?,
                is_primary_key: row.try_get(9)?,
            });
        }
        Ok(Some(Self {
            oid,
            name: first.try_get::<_, &str>(0)?.into(),
            schema: first.try_get::<_, &str>(1)?.into(),
            has_row_security: first.try_get(2)?,
            identity: ReplicaIdentity::of_letter(letter).unwrap_or(ReplicaIdentity::Nothing),
            partition_root: root_schema.zip(root).map(|(schema, name)| (schema.into(), name.into())),
            columns: columns.into(),
        }))
    }

    /// Returns true if the table has a primary key.
    pub fn has_primary_key(&self) -> bool {
        self.columns.iter().any(|column| column.is_primary_key)
    }
}
