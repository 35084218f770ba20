//! The tables and types of a stream, read from the catalog when they are first needed.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::Client;

use super::change::PublishedRelation;
use super::record::DescribedTable;
use super::table::Table;
use super::types::TypeCache;

/// The largest number of tables that are known. Further ones are read again when they are needed.
const MAX_TABLES: usize = 5_000;

/// The tables and types that a stream has named. One for each stream.
#[derive(Debug, Default)]
pub(crate) struct TableCatalog {
    types: TypeCache,
    /// `None` for a table that does not exist any more.
    tables: HashMap<u32, (Arc<PublishedRelation>, Option<Arc<DescribedTable>>)>,
}

impl TableCatalog {
    /// Returns a table, as the stream described it last. Reads it with two queries at most the
    /// first time, and again when the stream has described it anew. `None`: it does not exist any
    /// more.
    ///
    /// # Errors
    /// PostgreSQL's error, or the connection's.
    pub async fn describe(
        &mut self,
        client: &Client,
        relation: &Arc<PublishedRelation>,
    ) -> Result<Option<Arc<DescribedTable>>, tokio_postgres::Error> {
        if let Some(known) = self.described(relation) {
            return Ok(known);
        }
        let described = match Table::read(client, relation.oid).await? {
            Some(table) => {
                // The types of the project may be what has changed
                self.types.evict_project_types();
                self.types.load(client, table.columns.iter().map(|column| column.type_oid)).await?;
                Some(Arc::new(DescribedTable::new(table, relation, &self.types)))
            }
            None => None,
        };
        // Tables that were dropped, such as old partitions, are never named again
        if self.tables.len() >= MAX_TABLES {
            self.tables.clear();
        }
        self.tables.insert(relation.oid, (Arc::clone(relation), described.clone()));
        Ok(described)
    }

    /// Returns a table that was already read and has not changed since; inside, `None` for one that
    /// does not exist any more.
    pub fn described(&self, relation: &Arc<PublishedRelation>) -> Option<Option<Arc<DescribedTable>>> {
        let (known, described) = self.tables.get(&relation.oid)?;
        Arc::ptr_eq(known, relation).then(|| described.clone())
    }
}
