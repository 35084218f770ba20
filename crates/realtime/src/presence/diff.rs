//! The JSON of `presence_state` and `presence_diff`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Map, Value};

use crate::socket::frame::json_string;

/// The keys of a meta that are the server's.
const REFERENCE: &str = "phx_ref";
const PREVIOUS: &str = "phx_ref_prev";

/// One entry of the presence of a key, as JSON text. Clones share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PresenceMeta {
    /// `phx_ref`: unique in the room.
    pub reference: Arc<str>,
    json: Bytes,
}

impl PresenceMeta {
    /// Returns an entry with the payload of a user and, if it replaces one, the reference of that
    /// one. Keys of the payload that have the names of the server's are left out.
    pub fn new(reference: String, previous: Option<&str>, mut payload: Map<String, Value>) -> Self {
        remove_own_keys(&mut payload);
        payload.insert(REFERENCE.into(), Value::String(reference.clone()));
        if let Some(previous) = previous {
            payload.insert(PREVIOUS.into(), previous.into());
        }
        Self { reference: reference.into(), json: Value::Object(payload).to_string().into() }
    }

    /// Reads an entry that another server has made. `None`: it has another form.
    pub fn of_json(json: Bytes) -> Option<Self> {
        let meta: Map<String, Value> = serde_json::from_slice(&json).ok()?;
        let reference = meta.get(REFERENCE)?.as_str()?.into();
        Some(Self { reference, json })
    }

    /// Returns true if the entry has this payload of a user.
    pub fn has_payload(&self, payload: &Map<String, Value>) -> bool {
        let mut payload = payload.clone();
        remove_own_keys(&mut payload);
        let mut own: Map<String, Value> = serde_json::from_slice(&self.json).unwrap_or_default();
        remove_own_keys(&mut own);
        own == payload
    }

    /// Returns the JSON object.
    pub fn json(&self) -> &Bytes {
        &self.json
    }
}

fn remove_own_keys(payload: &mut Map<String, Value>) {
    payload.shift_remove(REFERENCE);
    payload.shift_remove(PREVIOUS);
}

/// Entries by their key.
#[derive(Debug, Default)]
pub(super) struct MetasByKey<'a>(BTreeMap<&'a str, Vec<&'a PresenceMeta>>);

impl<'a> FromIterator<(&'a str, &'a PresenceMeta)> for MetasByKey<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a PresenceMeta)>>(metas: I) -> Self {
        let mut keys = BTreeMap::<_, Vec<_>>::new();
        for (key, meta) in metas {
            keys.entry(key).or_default().push(meta);
        }
        Self(keys)
    }
}

impl MetasByKey<'_> {
    /// Returns `{"<key>":{"metas":[…]},…}`.
    pub fn json(&self) -> Bytes {
        let mut json = BytesMut::new();
        self.put(&mut json);
        json.freeze()
    }

    fn put(&self, json: &mut BytesMut) {
        json.put_u8(b'{');
        for (index, (key, metas)) in self.0.iter().enumerate() {
            if index > 0 {
                json.put_u8(b',');
            }
            json.put_slice(json_string(key).as_bytes());
            json.put_slice(b":{\"metas\":[");
            for (index, meta) in metas.iter().enumerate() {
                if index > 0 {
                    json.put_u8(b',');
                }
                json.put_slice(&meta.json);
            }
            json.put_slice(b"]}");
        }
        json.put_u8(b'}');
    }
}

/// Returns the payload of `presence_diff`.
pub(super) fn diff_json(joins: &MetasByKey<'_>, leaves: &MetasByKey<'_>) -> Bytes {
    let mut json = BytesMut::new();
    json.put_slice(b"{\"joins\":");
    joins.put(&mut json);
    json.put_slice(b",\"leaves\":");
    leaves.put(&mut json);
    json.put_u8(b'}');
    json.freeze()
}
