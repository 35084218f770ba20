//! The output of hooks, whatever their transport.

use http::StatusCode;
use serde_json::Value;

use crate::error::{AuthError, ContractError};
use crate::model::JsonObject;

/// The largest output that is accepted, in bytes.
pub(super) const MAX_BYTES: usize = 200 * 1024;

/// Reads an output. `None` is a response without content, which succeeds.
///
/// # Errors
/// The error that the output states, and `500` for one that is not an object.
pub(super) fn read(output: Option<&[u8]>) -> Result<JsonObject, AuthError> {
    let Some(output) = output else { return Ok(JsonObject::new()) };
    match serde_json::from_slice::<Value>(output) {
        Ok(Value::Object(output)) => match stated_error(&output) {
            Some(error) => Err(error),
            None => Ok(output),
        },
        Ok(Value::Null) => Ok(JsonObject::new()),
        _ => Err(ContractError::HookOutputNotJson.into()),
    }
}

/// Returns the error of `{"error": {"http_code": 403, "message": "..."}}`. One without a message is
/// ignored.
fn stated_error(output: &JsonObject) -> Option<AuthError> {
    let error = output.get("error")?;
    let message = error.get("message").and_then(Value::as_str).filter(|message| !message.is_empty())?;
    let code = error.get("http_code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let status = code.and_then(|code| StatusCode::from_u16(code).ok());
    // Another status would be no error, which the client could not understand
    let status = status.filter(|status| status.is_client_error() || status.is_server_error());
    Some(AuthError::Hook { status: status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), message: message.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(output: &str) -> (u16, String) {
        let error = read(Some(output.as_bytes())).unwrap_err();
        (error.status().as_u16(), error.to_string())
    }

    #[test]
    fn a_stated_error_has_its_status_and_message() {
        assert_eq!(refusal(r#"{"error":{"http_code":403,"message":"No"}}"#), (403, "No".into()));
        assert_eq!(refusal(r#"{"error":{"message":"No"}}"#), (500, "No".into()));
        for code in ["200", "302", "99", "70000", "-1", "\"403\"", "4.5"] {
            assert_eq!(refusal(&format!(r#"{{"error":{{"http_code":{code},"message":"No"}}}}"#)), (500, "No".into()));
        }
        assert!(read(Some(br#"{"error":{"http_code":403,"message":""}}"#)).is_ok());
        assert!(read(Some(br#"{"error":"text"}"#)).is_ok());
    }

    #[test]
    fn an_output_is_an_object_or_absent() {
        assert_eq!(read(None).unwrap(), JsonObject::new());
        assert_eq!(read(Some(b"null")).unwrap(), JsonObject::new());
        for output in ["", "[]", "1", "{", "\"x\""] {
            assert_eq!(refusal(output), (500, "Error unmarshaling JSON output.".into()), "{output}");
        }
    }
}
