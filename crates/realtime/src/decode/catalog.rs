//! The tables and types of a stream, read from the catalog when they are first needed.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::Client;

use super::change::Relation;
use super::record::DescribedTable;
use super::table::Table;
use super::types::TypeCache;

/// The tables and types that a stream has named. One for each stream.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    types: TypeCache,
    tables: HashMap<u32, (Arc<Relation>, Arc<DescribedTable>)>,
}

impl Catalog {
    /// Returns a table, as the stream described it last. Reads it with two queries at most the
    /// first time, and again when the stream has described it anew. `None`: it does not exist any
    /// more.
    ///
    /// # Errors
    /// PostgreSQL's error, or the connection's.
    pub async fn describe(
        &mut self,
        client: &Client,
        relation: &Arc<Relation>,
    ) -> Result<Option<Arc<DescribedTable>>, tokio_postgres::Error> {
        if let Some(described) = self.described(relation) {
            return Ok(Some(described));
        }
        self.tables.remove(&relation.oid);
        let Some(table) = Table::read(client, relation.oid).await? else { return Ok(None) };
        // The types of the project may be what has changed
        self.types.forget_project_types();
        self.types.load(client, table.columns.iter().map(|column| column.type_oid)).await?;
        let described = Arc::new(DescribedTable::new(table, relation, &self.types));
        self.tables.insert(relation.oid, (Arc::clone(relation), Arc::clone(&described)));
        Ok(Some(described))
    }

    /// Returns a table that was already read and has not changed since.
    pub fn described(&self, relation: &Arc<Relation>) -> Option<Arc<DescribedTable>> {
        let (known, described) = self.tables.get(&relation.oid)?;
        Arc::ptr_eq(known, relation).then(|| Arc::clone(described))
    }
}
