//! `user_metadata` and `identity_data`: the claims that the service writes, and the changes that
//! people make.

use serde_json::Value;

use crate::error::{AuthError, ContractError};
use crate::model::JsonObject;
use crate::model::ids::UserId;

/// `user_metadata` is part of every access token, which has to fit into a request header.
const MAX_BYTES: usize = 40 * 1024;

/// Adds the claims of the service about the contact of an account that signs up, over those that
/// the person gave.
pub(crate) fn of_contact(mut data: JsonObject, id: UserId, email: Option<&str>) -> JsonObject {
    data.insert("sub".into(), id.to_string().into());
    if let Some(email) = email {
        data.insert("email".into(), email.into());
    }
    data.insert("email_verified".into(), false.into());
    data.insert("phone_verified".into(), false.into());
    data
}

/// Merges changes into metadata: `null` removes a key, every other value replaces it.
pub(crate) fn merge(current: &JsonObject, changes: JsonObject) -> JsonObject {
    let mut merged = current.clone();
    for (key, value) in changes {
        if value == Value::Null {
            merged.shift_remove(&key);
        } else {
            merged.insert(key, value);
        }
    }
    merged
}

/// Checks the size of metadata.
///
/// # Errors
/// 422 `validation_failed`.
pub(crate) fn check_size(data: &JsonObject) -> Result<(), AuthError> {
    let size = serde_json::to_vec(data).map_or(usize::MAX, |text| text.len());
    if size <= MAX_BYTES {
        return Ok(());
    }
    Err(ContractError::MetadataTooLarge { max_bytes: MAX_BYTES }.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> JsonObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn merging_is_shallow_and_null_removes() {
        let merged =
            merge(&object(json!({"a": {"x": 1}, "b": 2, "c": 3})), object(json!({"a": {"y": 2}, "b": null, "d": 4})));
        assert_eq!(Value::Object(merged), json!({"a": {"y": 2}, "c": 3, "d": 4}));
    }

    #[test]
    fn large_metadata_is_refused() {
        assert!(check_size(&object(json!({"a": "x".repeat(1000)}))).is_ok());
        assert!(check_size(&object(json!({"a": "x".repeat(50_000)}))).is_err());
    }
}
