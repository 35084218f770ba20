//! The limits of a bucket: the size and the content types of its objects.

use serde_json::Value;

use crate::error::{Result, StorageError};

/// The longest entry of a list of content types, in characters.
const MAX_MIME_TYPE: usize = 1000;

/// Parses the size limit of a bucket: whole bytes, or a number with a decimal unit
/// (`"1.5MB"`), which is rounded to three significant digits. `None` removes the limit.
///
/// # Errors
/// [`StorageError::Schema`] for values of another form, [`StorageError::TooLarge`] above `global`.
pub(crate) fn parse_size_limit(value: &Value, global: u64) -> Result<Option<u64>> {
    let invalid = || StorageError::InvalidRequest("Invalid file size format, hint: use 20GB / 20MB / 30KB / 3B".into());
    let whole = |number: f64| (number.fract() == 0.0 && (0.0..=9e15).contains(&number)).then_some(number as u64);
    let bytes = match value {
        Value::Null => return Ok(None),
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)).ok_or_else(|| {
            StorageError::Schema(if number.as_f64().is_some_and(|number| number < 0.0) {
                "body/file_size_limit must be >= 0".into()
            } else {
                "body/file_size_limit must be integer".into()
            })
        })?,
        Value::String(text) => match text.trim().parse::<u64>() {
            Ok(bytes) => bytes,
            Err(_) => parse_unit(text.trim()).ok_or_else(invalid)?,
        },
        _ => return Err(invalid()),
    };
    if bytes > global { Err(StorageError::TooLarge("object")) } else { Ok(Some(bytes)) }
}

fn parse_unit(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim().to_ascii_uppercase().as_str() {
        "B" => 1.0,
        "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * factor;
    // The digits before the last three significant ones
    let magnitude = if bytes >= 1.0 { bytes.log10().floor() - 2.0 } else { 0.0 };
    let step = 10_f64.powf(magnitude.max(0.0));
    let rounded = (bytes / step).round() * step;
    (0.0..=9e15).contains(&rounded).then_some(rounded as u64)
}

/// Checks the list of content types of a bucket.
///
/// # Errors
/// [`StorageError::InvalidMimeType`] names the entry.
pub(crate) fn check_mime_types(types: &[String]) -> Result<()> {
    let invalid = |entry: &String| {
        entry.chars().count() > MAX_MIME_TYPE || entry.contains('\0') || !(entry.ends_with('*') || is_mime_type(entry))
    };
    match types.iter().find(|entry| invalid(entry)) {
        Some(entry) => Err(StorageError::InvalidMimeType(entry.clone())),
        None => Ok(()),
    }
}

/// Returns true for `type/subtype`, with or without `;charset=x`.
fn is_mime_type(entry: &str) -> bool {
    let is_token =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "!#$&^_.+-".contains(c));
    let (essence, parameter) = entry.split_once(';').map_or((entry, None), |(essence, rest)| (essence, Some(rest)));
    let is_charset = |rest: &str| rest.trim_start().strip_prefix("charset=").is_some_and(is_token);
    essence.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
        && parameter.is_none_or(is_charset)
}

/// Checks the declared content type of an upload against the list of its bucket.
///
/// # Errors
/// [`StorageError::InvalidMimeType`]
pub(crate) fn check_mime_type(declared: &str, allowed: Option<&[String]>) -> Result<()> {
    let Some(allowed) = allowed.filter(|allowed| !allowed.is_empty()) else { return Ok(()) };
    let split = |text: &str| text.split_once('/').map(|(kind, rest)| (kind.to_owned(), rest.to_owned()));
    let (kind, subtype) = split(declared).unwrap_or_default();
    let matches = |entry: &String| {
        split(entry).is_some_and(|(allowed, rest)| {
            !kind.is_empty() && allowed == kind && (rest == subtype || (rest == "*" && allowed != "*"))
        })
    };
    if allowed.iter().any(matches) { Ok(()) } else { Err(StorageError::InvalidMimeType(declared.to_owned())) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sizes_are_bytes_or_have_decimal_units_and_three_digits() {
        let parse = |value: Value| parse_size_limit(&value, 5_000_000_000);
        for (value, bytes) in [
            (json!(null), None),
            (json!(0), Some(0)),
            (json!(1234567), Some(1_234_567)),
            (json!("5"), Some(5)),
            (json!("1234KB"), Some(1_230_000)),
            (json!("1.5MB"), Some(1_500_000)),
            (json!("20b"), Some(20)),
            (json!("2gb"), Some(2_000_000_000)),
        ] {
            assert_eq!(parse(value.clone()), Ok(bytes), "{value}");
        }
        assert_eq!(parse(json!(5_000_000.0)), Ok(Some(5_000_000)));
        for value in [json!(-1), json!(1.5)] {
            assert!(matches!(parse(value.clone()), Err(StorageError::Schema(_))), "{value}");
        }
        for value in [json!("5MiB"), json!("MB"), json!("x"), json!(true), json!("1.1.1MB")] {
            let text = "Invalid file size format, hint: use 20GB / 20MB / 30KB / 3B";
            assert_eq!(parse(value.clone()), Err(StorageError::InvalidRequest(text.into())), "{value}");
        }
        assert_eq!(parse(json!("6GB")), Err(StorageError::TooLarge("object")));
        assert!(parse(json!("1e308GB")).is_err());
    }

    #[test]
    fn content_types_match_exactly_or_by_their_first_part() {
        let list = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>();
        let fits = |declared: &str, entries: &[&str]| check_mime_type(declared, Some(&list(entries))).is_ok();
        assert!(fits("image/png", &["image/*"]) && fits("image/png", &["text/plain", "image/png"]));
        assert!(fits("anything", &[]) && check_mime_type("anything", None).is_ok());
        for (declared, entries) in [
            ("text/plain;charset=UTF-8", &["text/plain"][..]),
            ("image/png", &["*"]),
            ("image/png", &["*/*"]),
            ("*/x", &["*/*"]),
            ("imagex/png", &["image/*"]),
            ("", &["image/*"]),
        ] {
            assert!(!fits(declared, entries), "{declared} {entries:?}");
        }
        assert_eq!(check_mime_types(&list(&["image/*", "text/html; charset=utf-8", "x*", "*"])), Ok(()));
        assert_eq!(check_mime_types(&list(&["image"])), Err(StorageError::InvalidMimeType("image".into())));
    }
}
