//! Conditions on the object that a request is about (RFC 9110, section 13).

use time::OffsetDateTime;

use crate::model::{ObjectRow, parse_timestamp};

/// The conditions of a request. ETags are compared without quotes; `*` matches every object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    pub if_modified_since: Option<OffsetDateTime>,
    pub if_unmodified_since: Option<OffsetDateTime>,
}

/// The condition on the object that a write replaces or deletes. It holds in the transaction that
/// writes, not only before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WriteCondition {
    /// No object has the key.
    Absent,
    /// The object exists and has this ETag, which is without quotes; `*` is every ETag.
    Etag(String),
}

/// The outcome of conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConditionOutcome {
    Met,
    /// The client has the current content.
    NotModified,
    Failed,
}

impl Conditions {
    /// Reads the conditions of headers, which `header` returns by their usual names.
    pub fn of_headers<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Self {
        let date = |name: &str| Some(httpdate::parse_http_date(header(name)?).ok()?.into());
        Self {
            if_match: header("if-match").map(str::to_owned),
            if_none_match: header("if-none-match").map(str::to_owned),
            if_modified_since: date("if-modified-since"),
            if_unmodified_since: date("if-unmodified-since"),
        }
    }

    /// Reads the conditions of a download apart from S3, where others have no meaning.
    pub fn of_download<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Self {
        Self { if_match: None, if_unmodified_since: None, ..Self::of_headers(header) }
    }

    /// Judges an object. A condition on the ETag takes the place of the one on the time.
    pub fn evaluate(&self, row: &ObjectRow) -> ConditionOutcome {
        let etag = row.metadata.etag().map(opaque_tag);
        let matches = |tags: &str| tags.split(',').map(opaque_tag).any(|tag| tag == "*" || Some(tag) == etag);
        // Dates of HTTP have whole seconds
        let modified = last_modified(row).map(OffsetDateTime::unix_timestamp);
        let is_newer = |than: &OffsetDateTime| modified.is_some_and(|modified| modified > than.unix_timestamp());
        let has_failed = match (&self.if_match, &self.if_unmodified_since) {
            (Some(tags), _) => !matches(tags),
            (None, Some(since)) => is_newer(since),
            (None, None) => false,
        };
        let is_current = match (&self.if_none_match, &self.if_modified_since) {
            (Some(tags), _) => matches(tags),
            (None, Some(since)) => !is_newer(since),
            (None, None) => false,
        };
        match (has_failed, is_current) {
            (true, _) => ConditionOutcome::Failed,
            (false, true) => ConditionOutcome::NotModified,
            (false, false) => ConditionOutcome::Met,
        }
    }
}

/// Returns an ETag without its quotes and without the mark of a weak one.
fn opaque_tag(etag: &str) -> &str {
    etag.trim().trim_start_matches("W/").trim_matches('"')
}

/// Returns true if a range of an object may be sent, as the header `If-Range` says: the client has
/// a part of this content, and of no other one.
pub(crate) fn permits_range(if_range: Option<&str>, row: &ObjectRow) -> bool {
    let Some(validator) = if_range.map(str::trim) else { return true };
    if validator.starts_with('"') {
        // A weak ETag does not tell contents apart by their bytes
        return row
            .metadata
            .etag()
            .is_some_and(|etag| !etag.starts_with("W/") && opaque_tag(etag) == opaque_tag(validator));
    }
    let date = httpdate::parse_http_date(validator).ok().map(|date| OffsetDateTime::from(date).unix_timestamp());
    date.is_some() && date == last_modified(row).map(OffsetDateTime::unix_timestamp)
}

/// Returns the time of the last change of an object's content.
pub(crate) fn last_modified(row: &ObjectRow) -> Option<OffsetDateTime> {
    let stored = row.metadata.last_modified().and_then(parse_timestamp);
    stored.or_else(|| row.updated_at.as_deref().and_then(parse_timestamp))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row() -> ObjectRow {
        let row = json!({ "id": "", "metadata": { "eTag": "\"abc\"", "lastModified": "2026-08-01T09:00:00.500Z" } });
        serde_json::from_value(row).unwrap()
    }

    fn evaluate(name: &str, value: &str) -> ConditionOutcome {
        Conditions::of_headers(|header| (header == name).then_some(value)).evaluate(&row())
    }

    #[test]
    fn a_range_belongs_to_the_content_that_the_client_has() {
        for (validator, is_permitted) in [
            (None, true),
            (Some("\"abc\""), true),
            (Some("\"x\""), false),
            (Some("W/\"abc\""), false),
            (Some("Sat, 01 Aug 2026 09:00:00 GMT"), true),
            (Some("Sat, 01 Aug 2026 09:00:01 GMT"), false),
            (Some("yesterday"), false),
            (Some(""), false),
        ] {
            assert_eq!(permits_range(validator, &row()), is_permitted, "{validator:?}");
        }
    }

    #[test]
    fn an_object_is_judged_by_its_etag_and_its_time() {
        let (at, before) = ("Sat, 01 Aug 2026 09:00:00 GMT", "Sat, 01 Aug 2026 08:59:59 GMT");
        for (name, value, verdict) in [
            ("if-match", "\"abc\"", ConditionOutcome::Met),
            ("if-match", "abc", ConditionOutcome::Met),
            ("if-match", "*", ConditionOutcome::Met),
            ("if-match", "\"x\"", ConditionOutcome::Failed),
            ("if-none-match", "\"x\", \"abc\"", ConditionOutcome::NotModified),
            ("if-none-match", "W/\"abc\"", ConditionOutcome::NotModified),
            ("if-none-match", "\"x\"", ConditionOutcome::Met),
            ("if-modified-since", at, ConditionOutcome::NotModified),
            ("if-modified-since", before, ConditionOutcome::Met),
            ("if-unmodified-since", at, ConditionOutcome::Met),
            ("if-unmodified-since", before, ConditionOutcome::Failed),
            ("if-unmodified-since", "yesterday", ConditionOutcome::Met),
        ] {
            assert_eq!(evaluate(name, value), verdict, "{name}: {value}");
        }
    }
}
