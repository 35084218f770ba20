//! The first form of listings: one level below a prefix, by offset.

use bytes::Bytes;
use portico_database::wire::Row;

use crate::binary_value;
use crate::error::{Result, StorageError};
use crate::operation::{Actor, Operation, SqlStep};
use crate::sql;

/// The size of a row with the metadata of an ordinary upload.
const ROW_SIZE: usize = 512;

/// A request for the entries below a prefix.
#[derive(Debug, Clone)]
pub(crate) struct ListRequest {
    pub bucket: String,
    pub prefix: String,
    pub limit: u64,
    pub offset: u64,
    pub search: String,
    /// A column that can be sorted by.
    pub column: String,
    pub descending: bool,
}

/// Returns the entries as a JSON array.
///
/// # Errors
/// Those of PostgreSQL.
pub(crate) async fn list(operation: &Operation, request: &ListRequest) -> Result<Bytes> {
    let prefix = match request.prefix.as_str() {
        "" => String::new(),
        prefix if prefix.ends_with('/') => prefix.to_owned(),
        prefix => format!("{prefix}/"),
    };
    let number = |number: u64| number.min(i32::MAX as u64).to_string();
    let (limit, offset) = (number(request.limit), number(request.offset));
    let levels = prefix.split('/').count().to_string();
    let order = if request.descending { "desc" } else { "asc" };
    let values = [prefix.as_str(), &request.bucket, &limit, &levels, &offset, &request.search, &request.column, order];
    let values = values.map(|value| Some(value.as_bytes()));
    let results = operation.read_rows(Actor::Caller, SqlStep { text: sql::LIST, values: &values }).await?;
    render(results.rows(0))
}

/// Renders the rows as `json_build_object` of PostgreSQL renders such columns, with its spaces.
fn render(rows: &[Row]) -> Result<Bytes> {
    let mut json = Vec::with_capacity(2 + ROW_SIZE * rows.len());
    json.push(b'[');
    for row in rows {
        json.extend_from_slice(if json.len() == 1 { b"{\"name\" : " } else { b",{\"name\" : " });
        match row.text(0) {
            // A text always becomes JSON
            Some(name) => serde_json::to_writer(&mut json, name).map_err(|_| StorageError::Internal)?,
            None => json.extend_from_slice(b"null"),
        }
        json.extend_from_slice(b", \"id\" : ");
        quote(&mut json, binary_value::uuid(row, 1)?.as_ref().map(|id| &id[..]));
        let times = [", \"updated_at\" : ", ", \"created_at\" : ", ", \"last_accessed_at\" : "];
        for (column, field) in (2..).zip(times) {
            json.extend_from_slice(field.as_bytes());
            quote(&mut json, binary_value::timestamp(row, column)?.as_ref().map(|time| time.as_str().as_bytes()));
        }
        json.extend_from_slice(b", \"metadata\" : ");
        json.extend_from_slice(binary_value::json(row, 5)?.unwrap_or("null").as_bytes());
        json.push(b'}');
    }
    json.push(b']');
    Ok(json.into())
}

/// Writes a value that has no character to escape.
fn quote(json: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(value) => {
            json.push(b'"');
            json.extend_from_slice(value);
            json.push(b'"');
        }
        None => json.extend_from_slice(b"null"),
    }
}
