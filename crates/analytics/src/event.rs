//! The known events, and the properties of each.

use serde::Deserialize;
use serde_json::Value;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// The largest number of events in one request.
const MAX_EVENTS: usize = 50;
/// The largest difference of a browser's clock; beyond it, the time of arrival is stored.
const MAX_AGE: Duration = Duration::days(1);
const MAX_AHEAD: Duration = Duration::minutes(5);

/// An event as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: &'static str,
    pub(crate) properties: Value,
    pub(crate) user_id: Option<Uuid>,
    pub(crate) route: Option<String>,
    pub(crate) occurred_at: OffsetDateTime,
    pub(crate) received_at: OffsetDateTime,
}

/// The reasons for which the events of a request are rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProductEventError {
    #[error(
        "Could not parse request body as JSON of the form {{\"events\":[{{\"name\",\"properties\",\"occurred_at\"}}]}}"
    )]
    Shape,
    #[error("A request carries 1 to {MAX_EVENTS} events")]
    Count,
    #[error("Unknown event name")]
    Name,
    #[error("The properties do not belong to the event")]
    Properties,
    #[error("occurred_at is not a time of RFC 3339")]
    Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventBatch {
    events: Vec<ReceivedEvent>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReceivedEvent {
    name: String,
    #[serde(default)]
    properties: Option<serde_json::Map<String, Value>>,
    #[serde(default)]
    occurred_at: Option<String>,
}

/// The properties of an event.
struct EventKind {
    name: &'static str,
    /// The one property, and its allowed texts.
    property: Option<(&'static str, PropertyCheck)>,
}

type PropertyCheck = fn(&str) -> bool;

const EVENT_KINDS: [EventKind; 4] = [
    EventKind { name: "sign_in", property: Some(("method", is_method)) },
    EventKind { name: "sign_up", property: Some(("method", is_method)) },
    EventKind { name: "sign_out", property: None },
    EventKind { name: "page_view", property: Some(("route", is_route)) },
];

/// Parses the events of a request: all of them or none.
pub(crate) fn parse(body: &[u8], user_id: Option<Uuid>, now: OffsetDateTime) -> Result<Vec<Event>, ProductEventError> {
    let envelope: EventBatch = serde_json::from_slice(body).map_err(|_| ProductEventError::Shape)?;
    if envelope.events.is_empty() || envelope.events.len() > MAX_EVENTS {
        return Err(ProductEventError::Count);
    }
    envelope.events.into_iter().map(|received| check(received, user_id, now)).collect()
}

fn check(received: ReceivedEvent, user_id: Option<Uuid>, now: OffsetDateTime) -> Result<Event, ProductEventError> {
    let kind = EVENT_KINDS.iter().find(|kind| kind.name == received.name).ok_or(ProductEventError::Name)?;
    let properties = received.properties.unwrap_or_default();
    let fits = match kind.property {
        Some((name, is_allowed)) => {
            properties.len() == 1 && properties.get(name).and_then(Value::as_str).is_some_and(is_allowed)
        }
        None => properties.is_empty(),
    };
    if !fits {
        return Err(ProductEventError::Properties);
    }
    let occurred_at = match received.occurred_at {
        Some(text) => OffsetDateTime::parse(&text, &Rfc3339).map_err(|_| ProductEventError::Time)?,
        None => now,
    };
    // Compared as distances, which cannot overflow for any time of the format
    let age = now - occurred_at;
    let occurred_at = if age > MAX_AGE || age < -MAX_AHEAD { now } else { occurred_at };
    let route = properties.get("route").and_then(Value::as_str).map(str::to_owned);
    Ok(Event { name: kind.name, properties: Value::Object(properties), user_id, route, occurred_at, received_at: now })
}

/// Returns true for the name of a provider or another sign-in method.
fn is_method(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'_' | b'-' | b':' | b'/'))
}

/// Returns true for the pattern of a route, not an address: no query, and no segment that could
/// hold a name.
fn is_route(text: &str) -> bool {
    let is_segment = |segment: &str| {
        segment.len() <= 40
            && segment.bytes().all(|c| {
                c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'$' | b'.' | b'{' | b'}' | b':' | b'*')
            })
            && Uuid::parse_str(segment).is_err()
    };
    text.len() <= 200 && text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: OffsetDateTime = time::macros::datetime!(2026-05-01 12:00 UTC);

    fn one(json: &str) -> Result<Event, ProductEventError> {
        parse(format!("{{\"events\":[{json}]}}").as_bytes(), None, NOW).map(|mut events| events.remove(0))
    }

    #[test]
    fn a_known_event_is_accepted_in_its_own_shape_only() {
        for good in [
            r#"{"name":"sign_in","properties":{"method":"google"},"occurred_at":"2026-05-01T11:59:00.123Z"}"#,
            r#"{"name":"sign_up","properties":{"method":"email"}}"#,
            r#"{"name":"sign_out","properties":{}}"#,
            r#"{"name":"sign_out"}"#,
            r#"{"name":"page_view","properties":{"route":"/app/$id"}}"#,
            r#"{"name":"page_view","properties":{"route":"/"}}"#,
        ] {
            assert!(one(good).is_ok(), "{good}");
        }
        for bad in [
            r#"{"name":"sign_in"}"#,
            r#"{"name":"sign_in","properties":{"method":"Ada Lovelace"}}"#,
            r#"{"name":"sign_in","properties":{"method":"google","email":"ada@example.com"}}"#,
            r#"{"name":"sign_in","properties":{"method":1}}"#,
            r#"{"name":"sign_out","properties":{"why":"x"}}"#,
            r#"{"name":"page_view","properties":{"route":"/app?code=x"}}"#,
            r#"{"name":"page_view","properties":{"route":"https://example.com/"}}"#,
            r#"{"name":"page_view","properties":{"route":"/u/ada@example.com"}}"#,
            r#"{"name":"page_view","properties":{"route":"/u/0f6b3f6e-8f0c-4f6b-9a53-0b8f1d4f7a10"}}"#,
            r#"{"name":"page_view","properties":{"route":"/a\u0000"}}"#,
        ] {
            assert_eq!(one(bad), Err(ProductEventError::Properties), "{bad}");
        }
        assert_eq!(one(r#"{"name":"purchase","properties":{}}"#), Err(ProductEventError::Name));
        assert_eq!(one(r#"{"name":"sign_out","occurred_at":"yesterday"}"#), Err(ProductEventError::Time));
        assert_eq!(one(r#"{"name":"sign_out","occurred_at":5}"#), Err(ProductEventError::Shape));
        assert_eq!(one(r#"{"name":"sign_out","user":"ada"}"#), Err(ProductEventError::Shape));
    }

    #[test]
    fn a_page_view_s_route_has_a_column_of_its_own() {
        let event = one(r#"{"name":"page_view","properties":{"route":"/app"}}"#).unwrap();
        assert_eq!((event.name, event.route.as_deref()), ("page_view", Some("/app")));
    }

    #[test]
    fn a_clock_that_is_far_off_is_ignored() {
        let at = |text: &str| one(&format!(r#"{{"name":"sign_out","occurred_at":"{text}"}}"#)).unwrap().occurred_at;
        assert_eq!(at("2026-05-01T11:00:00Z"), NOW - Duration::hours(1));
        assert_eq!(at("2026-05-01T14:02:00+02:00"), NOW + Duration::minutes(2));
        for far in ["2026-05-01T12:06:00Z", "2026-04-30T11:59:59Z", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z"] {
            assert_eq!(at(far), NOW, "{far}");
        }
    }

    #[test]
    fn the_number_of_events_is_bounded() {
        let body = |n: usize| format!("{{\"events\":[{}]}}", vec![r#"{"name":"sign_out"}"#; n].join(","));
        assert_eq!(parse(body(MAX_EVENTS).as_bytes(), None, NOW).unwrap().len(), MAX_EVENTS);
        assert_eq!(parse(body(MAX_EVENTS + 1).as_bytes(), None, NOW), Err(ProductEventError::Count));
        assert_eq!(parse(body(0).as_bytes(), None, NOW), Err(ProductEventError::Count));
    }

    #[test]
    fn malformed_json_is_rejected() {
        for bad in ["", "null", "[]", "{}", "{\"events\":1}", "{\"events\":[1]}", "\u{0}", &"[".repeat(60_000)] {
            assert_eq!(parse(bad.as_bytes(), None, NOW), Err(ProductEventError::Shape));
        }
        assert_eq!(parse(&[0xff, 0xfe], None, NOW), Err(ProductEventError::Shape));
    }
}
