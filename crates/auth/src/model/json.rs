//! JSON values as clients read them.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio_postgres::Row;

/// A JSON object.
pub type JsonObject = Map<String, Value>;

/// Returns the JSON object in a column; an empty one for NULL and other values.
pub(super) fn object(row: &Row, at: usize) -> JsonObject {
    match row.get::<_, Option<Value>>(at) {
        Some(Value::Object(map)) => map,
        _ => JsonObject::new(),
    }
}

/// A time as clients read it: RFC 3339 in UTC, without trailing zeros of the fraction.
pub struct Timestamp(pub OffsetDateTime);

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.to_offset(time::UtcOffset::UTC).format(&Rfc3339).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&text)
    }
}

/// Writes an optional time as a member of an object.
pub(super) fn time_entry<S: Serializer>(
    map: &mut S::SerializeMap,
    key: &'static str,
    at: Option<OffsetDateTime>,
) -> Result<(), S::Error> {
    match at {
        Some(at) => map.serialize_entry(key, &Timestamp(at)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn timestamps_are_utc_with_a_trimmed_fraction() {
        for (at, expected) in [
            (datetime!(2024-07-01 10:20:30.123456 UTC), "\"2024-07-01T10:20:30.123456Z\""),
            (datetime!(2024-07-01 10:20:30.100000 UTC), "\"2024-07-01T10:20:30.1Z\""),
            (datetime!(2024-07-01 10:20:30 UTC), "\"2024-07-01T10:20:30Z\""),
            (datetime!(2024-07-01 12:20:30 +2), "\"2024-07-01T10:20:30Z\""),
        ] {
            assert_eq!(serde_json::to_string(&Timestamp(at)).unwrap(), expected);
        }
    }
}
