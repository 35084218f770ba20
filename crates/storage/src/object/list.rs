//! The first form of listings: one level below a prefix, by offset.

use bytes::Bytes;

use crate::error::Result;
use crate::operation::{Actor, JSON_ARRAY, Operation, SqlStep};
use crate::sql;

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
    let rows = operation.read(Actor::Caller, SqlStep { text: sql::LIST, values: &values }, JSON_ARRAY).await?;
    Ok(if rows.joined.rows == 0 { Bytes::from_static(b"[]") } else { rows.bytes() })
}
