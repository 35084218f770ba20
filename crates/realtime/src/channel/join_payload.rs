//! The payload of `phx_join`. No value rejects a join: one of a wrong type counts as absent.

use bytes::Bytes;
use serde_json::{Map, Value};

/// The parsed payload of a join.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JoinPayload {
    /// `None`: the join has no `config`, as those of clients of the first generation.
    pub config: Option<JoinConfig>,
    /// `access_token`
    pub access_token: Option<String>,
    /// `user_token`
    pub user_token: Option<String>,
}

/// `config` of a join.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct JoinConfig {
    /// The sender receives its own broadcasts too.
    pub broadcast_self: bool,
    /// Each broadcast gets a reply.
    pub broadcast_ack: bool,
    /// `replay`, if the key is there: also `null`.
    pub replay: Option<Value>,
    /// The client waits until messages of the database are delivered.
    pub replication_ready: bool,
    /// The key of the presence; `None`: the server chooses one.
    pub presence_key: Option<String>,
    pub presence_enabled: bool,
    /// The entries, as they were sent.
    pub postgres_changes: Vec<Value>,
    pub private: bool,
}

impl JoinPayload {
    /// Parses the payload.
    pub fn parse(payload: &Bytes) -> Self {
        let payload = serde_json::from_slice(payload).unwrap_or(Value::Null);
        let text = |name: &str| payload.get(name).and_then(Value::as_str).map(str::to_owned);
        Self {
            config: payload.get("config").map(JoinConfig::parse),
            access_token: text("access_token"),
            user_token: text("user_token"),
        }
    }
}

impl JoinConfig {
    fn parse(config: &Value) -> Self {
        let empty = Map::new();
        let object = |name: &str| config.get(name).and_then(Value::as_object).unwrap_or(&empty);
        let broadcast = object("broadcast");
        let presence = object("presence");
        let entries = config.get("postgres_changes").and_then(Value::as_array);
        Self {
            broadcast_self: flag(broadcast.get("self")),
            broadcast_ack: flag(broadcast.get("ack")),
            replay: broadcast.get("replay").cloned(),
            replication_ready: flag(broadcast.get("replication_ready")),
            presence_key: presence.get("key").and_then(scalar),
            presence_enabled: flag(presence.get("enabled")),
            postgres_changes: entries.into_iter().flatten().filter(|entry| entry.is_object()).cloned().collect(),
            private: flag(config.get("private")),
        }
    }
}

fn flag(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Bool(flag)) => *flag,
        Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
        _ => false,
    }
}

/// The longest key of a presence, in bytes. A longer one counts as absent.
const MAX_KEY: usize = 1024;

/// Returns a scalar as text; empty text counts as absent.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| (1..=MAX_KEY).contains(&text.len())),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: &Value) -> JoinPayload {
        JoinPayload::parse(&Bytes::from(value.to_string()))
    }

    #[test]
    fn values_are_read_as_clients_send_them() {
        let entry = json!({ "event": "*", "schema": "public" });
        let join = parse(&json!({
            "config": {
                "broadcast": { "self": true, "ack": "TRUE", "replay": null },
                "presence": { "key": 7, "enabled": true },
                "postgres_changes": [entry, null],
                "private": "true",
            },
            "access_token": "a",
        }));
        let config = join.config.unwrap();
        assert!(config.broadcast_self && config.broadcast_ack && config.private && config.presence_enabled);
        assert_eq!(config.replay, Some(Value::Null));
        assert_eq!(config.presence_key.as_deref(), Some("7"));
        assert_eq!(config.postgres_changes, [entry]);
        assert_eq!((join.access_token.as_deref(), join.user_token), (Some("a"), None));
    }

    #[test]
    fn values_of_a_wrong_type_count_as_absent() {
        let wrong = json!({ "config": {
            "broadcast": [], "presence": { "key": "", "enabled": 1 }, "postgres_changes": {}, "private": 1,
        }, "access_token": 5 });
        assert_eq!(parse(&wrong).config, Some(JoinConfig::default()));
        assert_eq!(parse(&json!({ "config": null })).config, Some(JoinConfig::default()));
        assert_eq!(parse(&json!({})).config, None);
        assert_eq!(parse(&json!([])).config, None);
    }
}
