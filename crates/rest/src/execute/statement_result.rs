//! What a main statement yielded, and what of it every answer shows (contract 9.2, 14, 21.2).

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use portico_database::wire::Row;
use serde_json::{Map, Value};

use crate::error::RestError;
use crate::execute::transaction::BatchResults;
use crate::sql::{EnvelopeColumn, StatementOutput};

/// The row of a main statement, read.
#[derive(Debug, Default)]
pub(crate) struct StatementResult {
    /// Rows there are in all, when somebody asked.
    pub total: Option<u64>,
    /// Rows that the answer is about.
    pub rows: u64,
    /// The body, in pieces.
    pub body: Option<Vec<Bytes>>,
    /// Of a merge upsert: rows that are new.
    pub inserted: Option<u64>,
    /// The primary key of the one row that was written.
    pub location: Option<String>,
    headers: Option<String>,
    status: Option<String>,
}

impl StatementResult {
    /// Reads what a main statement yielded.
    pub fn read(outcome: &mut BatchResults, yields: StatementOutput) -> Result<Self, RestError> {
        match yields {
            StatementOutput::Envelope => Self::of_row(outcome.main()),
            StatementOutput::Rows(_) => {
                let joined = outcome.take_joined_rows().ok_or(RestError::Internal)?;
                let (headers, status) = wishes(outcome);
                Ok(Self { rows: joined.rows, body: Some(joined.pieces), headers, status, ..Self::default() })
            }
            StatementOutput::Count => {
                let rows = outcome.affected();
                let (headers, status) = wishes(outcome);
                Ok(Self { rows, total: Some(rows), headers, status, ..Self::default() })
            }
        }
    }

    /// Reads the one row of an envelope.
    fn of_row(rows: &[Row]) -> Result<Self, RestError> {
        let row = rows.first().ok_or(RestError::Internal)?;
        let number = |column: EnvelopeColumn| match row.bytes(column as usize) {
            None => Ok(None),
            // `count` never is negative
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
            headers: text(EnvelopeColumn::Headers),
            status: text(EnvelopeColumn::Status),
        })
    }

    /// A plan as the body.
    pub fn of_plan(plan: Vec<u8>) -> Self {
        Self { body: Some(vec![plan.into()]), ..Self::default() }
    }

    /// Puts what SQL wants of the answer (`response.headers`, `response.status`) over what it would be.
    pub fn apply_wishes(&self, status: &mut StatusCode, headers: &mut HeaderMap) -> Result<(), RestError> {
        if let Some(text) = &self.headers {
            let wished = wished_headers(text).ok_or(RestError::ResponseHeaders)?;
            for (name, _) in &wished {
                headers.remove(name);
            }
            for (name, value) in wished.into_iter().filter(|(name, _)| !is_framing(name)) {
                headers.append(name, value);
            }
        }
        if let Some(text) = &self.status {
            let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let number = text.get(..digits).and_then(|number| number.parse().ok());
            *status = number.and_then(final_status).ok_or(RestError::ResponseStatus)?;
        }
        Ok(())
    }
}

/// The wishes of SQL for the answer, where the main statement does not yield it.
fn wishes(outcome: &BatchResults) -> (Option<String>, Option<String>) {
    let text = |column| outcome.wishes()?.text(column).filter(|text| !text.is_empty()).map(str::to_owned);
    (text(0), text(1))
}

/// The status with this number, if an answer can end with it: after one of 1xx another has to follow.
pub(crate) fn final_status(number: u16) -> Option<StatusCode> {
    StatusCode::from_u16(number).ok().filter(|status| !status.is_informational())
}

/// Whether a header tells where an answer ends or what becomes of the connection: that is the server's business, and a wrong one breaks
/// off the connection.
pub(crate) fn is_framing(name: &HeaderName) -> bool {
    [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION, header::UPGRADE, header::TRAILER]
        .contains(name)
        || name == "keep-alive"
}

fn wished_headers(text: &str) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let list: Vec<Map<String, Value>> = serde_json::from_str(text).ok()?;
    list.into_iter()
        .map(|object| {
            let mut pairs = object.into_iter();
            let (name, value) = pairs.next()?;
            let value = HeaderValue::from_str(value.as_str()?).ok()?;
            pairs.next().is_none().then_some((name.parse().ok()?, value))
        })
        .collect()
}

/// `0-24/3573`, `*/5`, `*/*`.
pub(crate) fn content_range(first: u64, rows: u64, total: Option<u64>) -> String {
    let total = total.map_or_else(|| "*".to_owned(), |total| total.to_string());
    match rows {
        0 => format!("*/{total}"),
        rows => format!("{first}-{}/{total}", first.saturating_add(rows - 1)),
    }
}

/// The status of a read, and its `Content-Range`.
///
/// # Errors
/// PGRST103 when the rows that were asked for lie behind the last one.
pub(crate) fn read_status(first: u64, rows: u64, total: Option<u64>) -> Result<(StatusCode, String), RestError> {
    let range = content_range(first, rows, total);
    match total {
        Some(total) if first > total => Err(RestError::Range {
            details: format!("An offset of {first} was requested, but there are only {total} rows."),
            content_range: Some(format!("*/{total}")),
        }),
        Some(total) if rows < total => Ok((StatusCode::PARTIAL_CONTENT, range)),
        _ => Ok((StatusCode::OK, range)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_read_as_the_contract_s_table() {
        let status =
            |first, rows, total| read_status(first, rows, total).map(|(status, range)| (status.as_u16(), range));
        for (first, rows, total, expected) in [
            (0, 25, None, (200, "0-24/*")),
            (0, 0, None, (200, "*/*")),
            (100, 0, None, (200, "*/*")),
            (0, 5, Some(5), (200, "0-4/5")),
            (0, 25, Some(3573), (206, "0-24/3573")),
            (5, 0, Some(5), (206, "*/5")),
            (0, 0, Some(0), (200, "*/0")),
            (0, 9, Some(3), (200, "0-8/3")),
        ] {
            assert_eq!(status(first, rows, total).unwrap(), (expected.0, expected.1.to_owned()));
        }
        let error = read_status(100, 0, Some(15)).unwrap_err();
        assert_eq!(error.details(), Some("An offset of 100 was requested, but there are only 15 rows.".into()));
        assert_eq!(error.headers().first().unwrap().1, "*/15");
    }

    #[test]
    fn sql_may_replace_and_repeat_headers_and_choose_the_status() {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        let mut status = StatusCode::OK;
        let reply = StatementResult {
            headers: Some(r#"[{"Content-Type":"image/png"},{"Set-Cookie":"a=1"},{"Set-Cookie":"b=2"}]"#.into()),
            status: Some("418 teapot".into()),
            ..StatementResult::default()
        };
        reply.apply_wishes(&mut status, &mut headers).unwrap();
        assert_eq!(status.as_u16(), 418);
        assert_eq!(headers.get_all("set-cookie").iter().count(), 2);
        assert_eq!(headers.get_all("content-type").iter().collect::<Vec<_>>(), ["image/png"]);
        for (text, wrong) in [("{}", true), (r#"[{"a":"b","c":"d"}]"#, true), (r#"[{"a":1}]"#, true), ("[]", false)] {
            let reply = StatementResult { headers: Some(text.into()), ..StatementResult::default() };
            assert_eq!(reply.apply_wishes(&mut status, &mut headers).is_err(), wrong, "{text}");
        }
        for text in ["x", "99", "1000", "101"] {
            let reply = StatementResult { status: Some(text.into()), ..StatementResult::default() };
            assert_eq!(reply.apply_wishes(&mut status, &mut headers), Err(RestError::ResponseStatus), "{text}");
        }
    }

    #[test]
    fn where_an_answer_ends_is_not_for_sql_to_say() {
        let (mut status, mut headers) = (StatusCode::OK, HeaderMap::new());
        let text = r#"[{"Content-Length":"3"},{"Transfer-Encoding":"chunked"},{"Connection":"upgrade"},{"X-A":"b"}]"#;
        let reply = StatementResult { headers: Some(text.into()), ..StatementResult::default() };
        reply.apply_wishes(&mut status, &mut headers).unwrap();
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-a"]);
    }
}
