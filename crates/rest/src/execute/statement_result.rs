//! The result of a main statement.

use bytes::Bytes;
use portico_database::wire::Row;
use serde_json::Value;

use super::response_overrides::ResponseOverrides;
use super::transaction::BatchResults;
use crate::error::RestError;
use crate::sql::{EnvelopeColumn, StatementOutput};

/// The result of a main statement, whatever its form.
#[derive(Debug, Default)]
pub(crate) struct StatementResult {
    /// The number of all rows, if a count was requested.
    pub total: Option<u64>,
    /// The number of rows of the response.
    pub rows: u64,
    /// The body, in chunks.
    pub body: Option<Vec<Bytes>>,
    /// The number of rows that a merge upsert inserted.
    pub inserted: Option<u64>,
    /// The primary key of the only row that was written.
    pub location: Option<String>,
    /// Headers and status that SQL has set.
    pub overrides: ResponseOverrides,
}

impl StatementResult {
    /// Reads the result of a main statement.
    pub fn read(results: &mut BatchResults, output: StatementOutput) -> Result<Self, RestError> {
        match output {
            StatementOutput::Envelope => Self::of_row(results.main()),
            StatementOutput::Rows(_) => {
                let joined = results.take_joined_rows().ok_or(RestError::Internal)?;
                let overrides = overrides(results);
                Ok(Self { rows: joined.rows, body: Some(joined.pieces), overrides, ..Self::default() })
            }
            StatementOutput::Count => {
                let rows = results.affected();
                Ok(Self { rows, total: Some(rows), overrides: overrides(results), ..Self::default() })
            }
        }
    }

    /// Reads the only row of an envelope.
    fn of_row(rows: &[Row]) -> Result<Self, RestError> {
        let row = rows.first().ok_or(RestError::Internal)?;
        let number = |column: EnvelopeColumn| match row.bytes(column as usize) {
            None => Ok(None),
            // `count` is never negative
            Some(bytes) => match bytes.try_into().map(i64::from_be_bytes) {
                Ok(number) => Ok(Some(u64::try_from(number).unwrap_or_default())),
                Err(_) => Err(RestError::Internal),
            },
        };
        let text = |column: EnvelopeColumn| row.text(column as usize).map(str::to_owned);
        Ok(Self {
            total: number(EnvelopeColumn::Total)?,
            rows: number(EnvelopeColumn::Rows)?.unwrap_or_default(),
            body: row.get(EnvelopeColumn::Body as usize).map(|body| vec![body]),
            inserted: number(EnvelopeColumn::Inserted)?,
            location: text(EnvelopeColumn::Location),
            overrides: ResponseOverrides {
                headers: text(EnvelopeColumn::Headers),
                status: text(EnvelopeColumn::Status),
            },
        })
    }

    /// Makes a result whose body is the output of `EXPLAIN`.
    pub fn of_explain(rows: &[Row]) -> Self {
        let mut body = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            if at > 0 {
                body.push(b'\n');
            }
            body.extend_from_slice(row.bytes(0).unwrap_or_default());
        }
        Self { body: Some(vec![body.into()]), ..Self::default() }
    }
}

/// Reads the overrides of a main statement that does not return them itself.
fn overrides(results: &BatchResults) -> ResponseOverrides {
    let text = |column| results.overrides()?.text(column).filter(|text| !text.is_empty()).map(str::to_owned);
    ResponseOverrides { headers: text(0), status: text(1) }
}

/// Returns the number of rows that PostgreSQL expects: `Plan Rows` of the top node.
pub(crate) fn estimate(rows: &[Row]) -> Option<u64> {
    let plan: Value = serde_json::from_slice(rows.first()?.bytes(0)?).ok()?;
    let rows = plan.pointer("/0/Plan/Plan Rows")?;
    rows.as_u64().or_else(|| rows.as_f64().map(|rows| rows as u64))
}
