//! Loads the schema cache from PostgreSQL.

use std::collections::HashSet;
use std::sync::Arc;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};
use tracing::{debug, warn};

use super::assemble::assemble;
use super::catalog::{
    ColumnRow, KeyRow, MediaHandlerRow, RelationRow, RepresentationRow, RoutineRow, SchemaCatalog, TypeRow, computed,
    schema_comment, view,
};
use super::model::SchemaCache;

/// An empty search path makes PostgreSQL qualify types and defaults. Settings of a role or a
/// database for other work must not prevent the load of a large schema. Compiling these statements
/// with JIT costs more than running them.
const BEGIN: &str = "begin isolation level repeatable read read only;
    set local search_path = '';
    set local statement_timeout = '60s';
    set local jit = off;";

const RELATIONS: &str = include_str!("sql/relations.sql");
const COLUMNS: &str = include_str!("sql/columns.sql");
const TYPES: &str = include_str!("sql/types.sql");
const KEYS: &str = include_str!("sql/keys.sql");
const VIEWS: &str = include_str!("sql/views.sql");
const ROUTINES: &str = include_str!("sql/routines.sql");
const COMPUTED: &str = include_str!("sql/computed.sql");
const REPRESENTATIONS: &str = include_str!("sql/representations.sql");
const MEDIA_HANDLERS: &str = include_str!("sql/media_handlers.sql");
const SCHEMAS: &str = include_str!("sql/schemas.sql");
const TIME_ZONES: &str = "select name from pg_catalog.pg_timezone_names";

/// The settings of a load.
#[derive(Debug, Clone, Default)]
pub struct LoadSettings {
    /// The exposed schemas: `db-schemas`.
    pub schemas: Vec<String>,
    /// `db-extra-search-path`: views may show keys through views of these schemas.
    pub extra_search_path: Vec<String>,
    /// The time zones of an earlier load from the same server. They are not read again, which takes
    /// PostgreSQL longer than everything else in a small database.
    pub time_zones: Option<Arc<HashSet<String>>>,
}

/// Loads the schema cache, in one read-only transaction of the role that `client` is connected as.
/// The connection must not be used for anything else meanwhile.
///
/// # Errors
/// The errors of PostgreSQL; the transaction is then rolled back. If the call is dropped before it
/// completes, the transaction stays open and the connection must be closed.
pub async fn load(client: &Client, settings: &LoadSettings) -> Result<SchemaCache, Error> {
    let time_zones = match &settings.time_zones {
        Some(known) => Arc::clone(known),
        None => Arc::new(time_zones(client).await?),
    };
    client.batch_execute(BEGIN).await?;
    let catalog = match read(client, settings).await {
        Ok(catalog) => catalog,
        Err(error) => {
            if let Err(error) = client.batch_execute("rollback").await {
                debug!(error = %error, "the transaction of a failed load is not rolled back");
            }
            return Err(error);
        }
    };
    client.batch_execute("commit").await?;
    let mut cache = assemble(catalog);
    cache.time_zones = time_zones;
    Ok(cache)
}

/// Reads the names of time zones. PostgreSQL reads them from files, which may be missing. Then no
/// preference for a time zone is valid, and everything else works.
async fn time_zones(client: &Client) -> Result<HashSet<String>, Error> {
    match client.query(TIME_ZONES, &[]).await {
        Ok(rows) => rows.iter().map(|row| row.try_get(0)).collect(),
        Err(error) if error.as_db_error().is_some() => {
            warn!(error = %error, "the names of time zones cannot be read");
            Ok(HashSet::new())
        }
        Err(error) => Err(error),
    }
}

/// Reads all rows. All statements are sent at once, so that PostgreSQL works while rows are read.
async fn read(client: &Client, settings: &LoadSettings) -> Result<SchemaCatalog, Error> {
    let LoadSettings { schemas, extra_search_path, .. } = settings;
    let (one, both): ([&(dyn ToSql + Sync); 1], [&(dyn ToSql + Sync); 2]) = ([schemas], [schemas, extra_search_path]);
    let (relations, columns, types, keys, views, routines, computed_rows, representations, media_handlers, comments) =
        tokio::try_join!(
            client.query(RELATIONS, &one),
            client.query(COLUMNS, &one),
            client.query(TYPES, &[]),
            client.query(KEYS, &[]),
            client.query(VIEWS, &both),
            client.query(ROUTINES, &one),
            client.query(COMPUTED, &one),
            client.query(REPRESENTATIONS, &[]),
            client.query(MEDIA_HANDLERS, &one),
            client.query(SCHEMAS, &one),
        )?;
    let types: Vec<TypeRow> = all(&types, TypeRow::read)?;
    Ok(SchemaCatalog {
        relations: all(&relations, RelationRow::read)?,
        columns: all(&columns, ColumnRow::read)?,
        types: types.into_iter().map(|row| (row.oid, row)).collect(),
        keys: all(&keys, KeyRow::read)?,
        views: all(&views, view)?,
        routines: all(&routines, RoutineRow::read)?,
        computed: all(&computed_rows, computed)?,
        representations: all(&representations, RepresentationRow::read)?,
        media_handlers: all(&media_handlers, MediaHandlerRow::read)?,
        schema_comments: all(&comments, schema_comment)?,
    })
}

fn all<T, Many: FromIterator<T>>(rows: &[Row], read: impl Fn(&Row) -> Result<T, Error>) -> Result<Many, Error> {
    rows.iter().map(read).collect()
}
