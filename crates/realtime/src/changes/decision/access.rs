//! The rows and columns of a table that a role may read, as PostgreSQL decides it at this moment.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use crate::changes::entries::validate::{malformed, text_array};
use crate::changes::reads::role_reads::{CANCELED, ChangeReader, ReadFailure, RoleReads};
use crate::changes::slice::slice_keys::NumberedKey;
use crate::decode::DescribedTable;

/// The largest list of keys of one read, in bytes. A larger read would not share round trips.
const MAX_KEY_BYTES: usize = 8 * 1024;
/// The largest number of additional reads that search for the rows for which a policy fails. Rows
/// that were not found to be visible then are hidden.
const MAX_SEARCH: usize = 32;
/// The time for all reads of one reader and table. Each one alone has less.
const MAX_TIME: Duration = Duration::from_secs(15);
/// The rights of the current role on the table `$1`.
const RIGHTS: &str = "'has_row_security', class.relrowsecurity, \
    'columns', array(select attribute.attnum \
                       from pg_catalog.pg_attribute as attribute \
                      where attribute.attrelid = $1::pg_catalog.oid and attribute.attnum > 0 and not attribute.attisdropped \
                        and pg_catalog.has_schema_privilege(class.relnamespace, 'usage') \
                        and pg_catalog.has_column_privilege($1::pg_catalog.oid, attribute.attnum, 'select'))";

/// The columns and rows of a table that a role may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableAccess {
    pub has_row_security: bool,
    /// The readable columns, marked in the order of the table's columns.
    pub columns: Arc<[bool]>,
    /// The numbers of the keys whose rows the policies show, if they were read.
    pub visible: HashSet<usize>,
}

impl TableAccess {
    /// Returns true if every column of the primary key may be read.
    pub fn reads_key(&self, table: &DescribedTable) -> bool {
        table
            .table
            .columns
            .iter()
            .zip(self.columns.iter())
            .all(|(column, is_readable)| *is_readable || !column.is_primary_key)
    }

    /// Returns true if any column may be read.
    pub fn reads_any(&self) -> bool {
        self.columns.contains(&true)
    }

    /// Returns true if a column may be read, by its name.
    pub fn reads(&self, table: &DescribedTable, name: &str) -> bool {
        let mut columns = table.table.columns.iter().zip(self.columns.iter());
        columns.any(|(column, is_readable)| *is_readable && *column.name == *name)
    }
}

/// A row of the reads.
#[derive(Debug, Deserialize)]
struct AccessRow {
    has_row_security: bool,
    columns: Vec<i16>,
    #[serde(default)]
    visible: Vec<usize>,
}

/// Reads what a role may read of a table. `None`: the table does not exist any more.
///
/// # Errors
/// [`ReadFailure`]
pub(crate) async fn role_access(
    reads: &RoleReads,
    role: &str,
    table: &DescribedTable,
) -> Result<Option<TableAccess>, ReadFailure> {
    let sql = format!(
        "select pg_catalog.json_build_object({RIGHTS})::pg_catalog.text \
           from pg_catalog.pg_class as class where class.oid = $1::pg_catalog.oid"
    );
    let oid = table.table.oid.to_string();
    let row = one(&reads.read_as_role(role, &sql, &[Some(oid.as_bytes())]).await?)?;
    Ok(row.map(|row| access(table, &row, HashSet::new())))
}

/// Reads which rows of a table a channel may read, and which columns. A policy that fails for some
/// of the rows hides these, and only these. `None`: the table does not exist any more.
///
/// # Errors
/// [`ReadFailure`], if it fails for every row.
pub(crate) async fn row_access(
    reads: &RoleReads,
    reader: &ChangeReader,
    read: &TableRead<'_>,
    keys: &[NumberedKey<'_>],
) -> Result<Option<TableAccess>, ReadFailure> {
    let table = read.table;
    let mut found: Option<TableAccess> = None;
    let (mut failed, mut hidden) = (None, 0);
    let start = Instant::now();
    let mut waiting: Vec<&[NumberedKey<'_>]> = chunks(keys);
    let mut attempts = waiting.len() + MAX_SEARCH;
    // The last one first, so that halves follow each other
    waiting.reverse();
    while let Some(keys) = waiting.pop() {
        attempts = attempts.saturating_sub(1);
        if start.elapsed() >= MAX_TIME {
            let message = "the reads of changed rows take too long together".into();
            return Err(ReadFailure::Rejected { code: CANCELED.into(), message });
        }
        match read_rows(reads, reader, read, keys).await {
            Ok(None) => return Ok(None),
            Ok(Some(access)) => match &mut found {
                Some(found) => found.visible.extend(access.visible),
                None => found = Some(access),
            },
            Err(failure) if keys.len() > 1 && failure.is_of_an_item() && attempts > waiting.len() + 1 => {
                let (first, second) = keys.split_at(keys.len() / 2);
                waiting.extend([second, first]);
            }
            // A policy that is slow for some rows is slow for the others, and so is a lock
            Err(failure) if failure.is_temporary() => return Err(failure),
            Err(failure) => {
                hidden += keys.len();
                failed = Some(failure);
            }
        }
    }
    if let Some(error) = &failed {
        let (schema, table) = (&*table.table.schema, &*table.table.name);
        tracing::warn!(error = %error, role = &*reader.role, schema, table, hidden, "a policy failed for changed rows");
    }
    match (found, failed) {
        (None, Some(failure)) => Err(failure),
        (found, _) => Ok(found),
    }
}

/// A table and the statement that reads its rows, which is the same for all readers.
#[derive(Debug)]
pub(crate) struct TableRead<'a> {
    pub table: &'a DescribedTable,
    sql: String,
}

impl<'a> TableRead<'a> {
    /// Returns the read of a table.
    pub fn of(table: &'a DescribedTable) -> Self {
        Self { table, sql: rows_statement(table) }
    }
}

/// Returns the statement that selects the positions of those keys whose rows are visible. The
/// parameters are the table, and an array of values for each column of the key. No row if the table
/// has another name by now: the rows would be those of another table. PostgreSQL looks the name up
/// together with the table that it reads, and again whenever either may have changed.
///
/// With `exists` PostgreSQL could read the whole table for a join, and evaluate the policies for
/// rows that did not change. With `limit` it looks each key up.
///
/// The arrays come from subqueries, which hide their lengths from the planner. Otherwise a plan for
/// the few keys of a read counts as cheaper than the one for any keys, so that PostgreSQL makes one
/// for each read, which takes several times as long as the read itself.
fn rows_statement(table: &DescribedTable) -> String {
    let (mut arrays, mut names, mut conditions) = (String::new(), String::new(), String::new());
    for (number, column, type_sql) in key_columns(table) {
        let (comma, and) = if number == 0 { ("", "") } else { (", ", " and ") };
        let _ = write!(arrays, "{comma}pg_catalog.unnest((select ${}::pg_catalog.text[]))", number + 2);
        let _ = write!(names, "k{number}, ");
        let _ = write!(conditions, "{and}visible.{} = item.k{number}::{type_sql}", quoted(column));
    }
    let name = format!("{}.{}", quoted(&table.table.schema), quoted(&table.table.name));
    format!(
        "select pg_catalog.json_build_object({RIGHTS}, 'visible', array( \
                  select item.position - 1 \
                    from rows from ({arrays}) with ordinality as item ({names}position) \
                   where (select true from {name} as visible where {conditions} limit 1)))::pg_catalog.text \
           from pg_catalog.pg_class as class \
          where class.oid = $1::pg_catalog.oid and class.oid = {}::pg_catalog.regclass",
        literal(&name),
    )
}

/// Returns the columns of the primary key: number, name, and type in SQL.
fn key_columns(table: &DescribedTable) -> impl Iterator<Item = (usize, &str, &str)> {
    let columns = table.table.columns.iter().enumerate().filter(|(_, column)| column.is_primary_key);
    columns.enumerate().map(|(number, (at, column))| (number, &*column.name, table.type_sql(at)))
}

async fn read_rows(
    reads: &RoleReads,
    reader: &ChangeReader,
    read: &TableRead<'_>,
    keys: &[NumberedKey<'_>],
) -> Result<Option<TableAccess>, ReadFailure> {
    let TableRead { table, sql } = read;
    let oid = table.table.oid.to_string();
    let arrays: Vec<String> = key_columns(table)
        .map(|(number, ..)| text_array(keys.iter().map(|(_, key)| key.get(number).map(|value| &**value))))
        .collect();
    let values: Vec<_> =
        std::iter::once(Some(oid.as_bytes())).chain(arrays.iter().map(|array| Some(array.as_bytes()))).collect();
    let Some(row) = one(&reads.read_as(reader, sql, &values).await?)? else { return Ok(None) };
    let visible = row.visible.iter().filter_map(|position| Some(keys.get(*position)?.0)).collect();
    Ok(Some(access(table, &row, visible)))
}

fn one(rows: &[u8]) -> Result<Option<AccessRow>, ReadFailure> {
    let rows: Vec<AccessRow> = serde_json::from_slice(rows).map_err(|error| malformed(&error))?;
    Ok(rows.into_iter().next())
}

fn access(table: &DescribedTable, row: &AccessRow, visible: HashSet<usize>) -> TableAccess {
    let columns = table.table.columns.iter().map(|column| row.columns.contains(&column.number)).collect();
    TableAccess { has_row_security: row.has_row_security, columns, visible }
}

/// Splits keys into lists of a limited size.
fn chunks<'a, 'k>(keys: &'a [NumberedKey<'k>]) -> Vec<&'a [NumberedKey<'k>]> {
    let mut chunks = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, (_, key)) in keys.iter().enumerate() {
        let size: usize = key.iter().map(|value| value.len() + 3).sum();
        if bytes + size > MAX_KEY_BYTES && at > start {
            chunks.push(&keys[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += size;
    }
    chunks.push(&keys[start..]);
    chunks
}

/// Returns a text as an SQL literal.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Returns a name as an SQL identifier.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
