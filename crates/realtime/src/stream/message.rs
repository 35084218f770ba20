//! Rows of `realtime.messages`, which are broadcast.

use bytes::Bytes;

use crate::decode::{Change, ChangeKind, ColumnValue, Table};

/// A message that SQL has inserted into `realtime.messages`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DatabaseMessage {
    /// The id of the row, a UUID.
    pub id: String,
    /// The topic, without the prefix of the protocol.
    pub topic: String,
    pub event: String,
    /// The message is for the private channels of the topic, otherwise for the public ones.
    pub private: bool,
    pub payload: MessagePayload,
}

/// The payload of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MessagePayload {
    /// A JSON document.
    Json(Bytes),
    /// Bytes.
    Binary(Bytes),
}

/// Returns true if a table is `realtime.messages` or one of its partitions.
pub(super) fn holds_messages(table: &Table) -> bool {
    let is_messages = |schema: &str, name: &str| schema == "realtime" && name == "messages";
    match &table.partition_root {
        Some((schema, name)) => is_messages(schema, name),
        None => is_messages(&table.schema, &table.name),
    }
}

impl DatabaseMessage {
    /// Reads an inserted row. `Ok(None)`: the change is not an insert.
    ///
    /// # Errors
    /// The name of a column without which the row cannot be broadcast.
    pub fn read(change: &Change) -> Result<Option<Self>, &'static str> {
        let ChangeKind::Insert { new } = &change.kind else { return Ok(None) };
        let value = |name: &'static str| {
            let column = change.relation.columns.iter().position(|column| *column.name == *name);
            match column.and_then(|column| new.get(column)) {
                Some(ColumnValue::Text(value)) => Ok(value),
                _ => Err(name),
            }
        };
        let text = |name| value(name).map(|value| String::from_utf8_lossy(value).into_owned());
        value("inserted_at")?;
        let payload = match (value("binary_payload"), value("payload")) {
            (Ok(binary), _) => {
                let digits = binary.strip_prefix(b"\\x").ok_or("binary_payload")?;
                MessagePayload::Binary(hex::decode(digits).map_err(|_| "binary_payload")?.into())
            }
            (Err(_), Ok(json)) => MessagePayload::Json(new.slice(json)),
            (Err(_), Err(name)) => return Err(name),
        };
        Ok(Some(Self {
            id: text("id")?,
            topic: text("topic")?,
            event: text("event")?,
            private: value("private")? == b"t",
            payload,
        }))
    }
}
