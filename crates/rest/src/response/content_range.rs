//! `Content-Range`, and the status that it implies.

use http::StatusCode;

use crate::error::RestError;

/// Returns `Content-Range`: `0-24/3573`, `*/5`, `*/*`.
pub(crate) fn content_range(first: u64, rows: u64, total: Option<u64>) -> String {
    let total = total.map_or_else(|| "*".to_owned(), |total| total.to_string());
    match rows {
        0 => format!("*/{total}"),
        rows => format!("{first}-{}/{total}", first.saturating_add(rows - 1)),
    }
}

/// Returns the status of a read, and its `Content-Range`.
///
/// # Errors
/// PGRST103 if the requested rows lie behind the last one.
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
    fn the_status_of_a_read_depends_on_its_range_and_total() {
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
}
