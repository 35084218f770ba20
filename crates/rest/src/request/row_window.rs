//! The requested rows of a result: `limit`, `offset` and the `Range` header.

use http::{HeaderMap, Method, header};

use crate::RestError;
use crate::query::RequestQuery;

/// The requested part of the root's rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowWindow {
    /// The number of rows to skip; fits PostgreSQL's bigint.
    pub offset: u64,
    /// The limit of rows; fits PostgreSQL's bigint.
    pub limit: Option<u64>,
}

const LARGEST: u64 = i64::MAX as u64;

impl RowWindow {
    /// Combines `limit` and `offset` of the root level and, for GET, the `Range` header.
    ///
    /// # Errors
    ///
    /// PGRST103 for a negative limit at any level, and for a range that is empty although the limit
    /// is not 0; PGRST114 for limits of a PUT.
    pub fn of(query: &RequestQuery, method: &Method, headers: &HeaderMap) -> Result<Self, RestError> {
        if query.ranges.iter().any(|at| at.value.limit.is_some_and(|limit| limit < 0)) {
            return Err(range_error("Limit should be greater than or equal to zero."));
        }
        let root = query.ranges.iter().find(|at| at.path.is_empty()).map(|at| at.value);
        if method == Method::PUT && root.is_some() {
            return Err(RestError::PutRange);
        }
        let root = root.unwrap_or_default();
        let requested = Self {
            offset: root.offset.map_or(0, |offset| offset.max(0).unsigned_abs()),
            limit: root.limit.map(i64::unsigned_abs),
        };
        let header = if method == Method::GET { headers.get(header::RANGE) } else { None };
        match header.and_then(|value| bounds(value.to_str().ok()?)) {
            // A limit of 0 is never an error
            Some(_) | None if requested.limit == Some(0) => Ok(requested),
            None => Ok(requested),
            Some(bounds) => requested.within(bounds),
        }
    }

    fn within(self, (first, last): (u64, Option<u64>)) -> Result<Self, RestError> {
        let offset = self.offset.max(first);
        let end = self.limit.map(|limit| self.offset.saturating_add(limit));
        let end = end.into_iter().chain(last.map(|last| last.saturating_add(1))).min();
        match end {
            Some(end) if end <= offset => Err(range_error(
                "The lower boundary must be lower than or equal to the upper boundary in the Range header.",
            )),
            end => Ok(Self { offset, limit: end.map(|end| (end - offset).min(LARGEST)) }),
        }
    }
}

/// Parses `‹from›-‹to›` or `‹from›-`; any other form is ignored.
fn bounds(text: &str) -> Option<(u64, Option<u64>)> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().map_or(LARGEST, |number: u64| number.min(LARGEST)))
    };
    let (first, last) = text.trim().split_once('-')?;
    Some((number(first)?, if last.is_empty() { None } else { Some(number(last)?) }))
}

fn range_error(details: &str) -> RestError {
    RestError::Range { details: details.to_owned(), content_range: None }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::query::{QueryTarget, parse};

    fn window(method: Method, query: &str, range: &str) -> Result<RowWindow, String> {
        let mut headers = HeaderMap::new();
        if !range.is_empty() {
            headers.insert(header::RANGE, HeaderValue::from_str(range).unwrap());
        }
        let query = parse(query, QueryTarget::Relation).unwrap();
        RowWindow::of(&query, &method, &headers).map_err(|error| match error {
            RestError::Range { details, .. } => details,
            other => other.code().to_owned(),
        })
    }

    fn get(query: &str, range: &str) -> Result<(u64, Option<u64>), String> {
        window(Method::GET, query, range).map(|window| (window.offset, window.limit))
    }

    #[test]
    fn limits_and_offsets_are_used_unchanged() {
        assert_eq!(get("", ""), Ok((0, None)));
        assert_eq!(get("limit=5&offset=3&x.limit=1", ""), Ok((3, Some(5))));
        assert_eq!(get("limit=0", ""), Ok((0, Some(0))));
        assert_eq!(get("offset=-3&limit=x", ""), Ok((0, None)));
    }

    #[test]
    fn the_range_header_narrows_them_on_get_only() {
        assert_eq!(get("", "0-9"), Ok((0, Some(10))));
        assert_eq!(get("", "5-"), Ok((5, None)));
        assert_eq!(get("", "7-7"), Ok((7, Some(1))));
        assert_eq!(get("limit=5&offset=3", "4-100"), Ok((4, Some(4))));
        assert_eq!(get("limit=5&offset=3", "0-5"), Ok((3, Some(3))));
        assert_eq!(get("limit=0&offset=3", "5-9"), Ok((3, Some(0))));
        assert_eq!(get("", "0-99999999999999999999"), Ok((0, Some(LARGEST))));
        for method in [Method::HEAD, Method::POST, Method::PATCH] {
            assert_eq!(window(method, "", "5-9"), Ok(RowWindow::default()));
        }
        for other in ["bytes=0-9", "-5", "a-b", "5", "1-2-3", "1-b", "0-9,20-29"] {
            assert_eq!(get("", other), Ok((0, None)), "{other}");
        }
    }

    #[test]
    fn unsatisfiable_ranges_are_rejected() {
        let negative = "Limit should be greater than or equal to zero.";
        let crossed = "The lower boundary must be lower than or equal to the upper boundary in the Range header.";
        assert_eq!(get("limit=-1", ""), Err(negative.into()));
        assert_eq!(get("x.limit=-1", ""), Err(negative.into()));
        assert_eq!(get("", "9-5"), Err(crossed.into()));
        assert_eq!(get("limit=5", "9-20"), Err(crossed.into()));
        assert_eq!(window(Method::PUT, "limit=1", ""), Err("PGRST114".into()));
        assert_eq!(window(Method::PUT, "offset=1", ""), Err("PGRST114".into()));
        assert_eq!(window(Method::PUT, "x.limit=1", ""), Ok(RowWindow::default()));
    }
}
