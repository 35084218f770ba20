//! Errors of PostgreSQL and of the connection as errors of the data API.

use http::{HeaderName, HeaderValue, StatusCode};
use portico_database::wire::{PostgresError, WireError};
use serde_json::{Map, Value};

use crate::error::{PostgresErrorResponse, RestError};
use crate::execute::response_overrides::{final_status, is_framing};

/// Returns the error that the client sees for an error of the connection or of PostgreSQL.
/// `is_anonymous`: the role is that of callers without a token.
pub(crate) fn rest_error(error: &WireError, is_anonymous: bool) -> RestError {
    match error {
        WireError::Postgres(error) => of_postgres(error, is_anonymous),
        WireError::Busy(_) => RestError::PoolTimeout,
        WireError::Lost(error) => RestError::ConnectionLost(error.to_string()),
        // The address is not for clients
        WireError::Unreachable { .. } | WireError::Closed => {
            RestError::NoConnection("the database cannot be reached".into())
        }
        WireError::Refused(why) => {
            tracing::error!(reason = why, "the data API may not use the database");
            RestError::NoConnection("the database does not accept the server's connections".into())
        }
        WireError::TooLarge(what) => RestError::Body(format!("{what} is too large")),
        // Only a name of the request can contain a zero byte
        WireError::ZeroByte => RestError::Parse {
            message: "\"failed to parse (a zero byte)\" (line 1, column 1)".into(),
            details: "unexpected '\\NUL'".into(),
        },
        WireError::Protocol(what) => {
            tracing::error!(what, "unexpected message from the database");
            RestError::Internal
        }
    }
}

fn of_postgres(error: &PostgresError, is_anonymous: bool) -> RestError {
    let response = PostgresErrorResponse {
        code: error.code.clone(),
        message: error.message.clone(),
        details: error.detail.clone(),
        hint: error.hint.clone(),
        context: error.context.clone(),
        status: StatusCode::BAD_REQUEST,
        reason: None,
        headers: Vec::new(),
    };
    if error.code == "PGRST" {
        return raised(error).unwrap_or_else(|unreadable| {
            RestError::Postgres(Box::new(PostgresErrorResponse {
                code: "PGRST121".into(),
                message: "Could not parse JSON in the \"RAISE SQLSTATE 'PGRST'\" error".into(),
                status: StatusCode::INTERNAL_SERVER_ERROR,
                details: Some(unreadable.details),
                hint: Some(unreadable.hint.into()),
                ..response
            }))
        });
    }
    let (status, reason) = match error.code.strip_prefix("PT") {
        Some(number) => match number.parse().ok().and_then(final_status) {
            Some(status) => (status, Some(error.message.clone())),
            None => (StatusCode::INTERNAL_SERVER_ERROR, None),
        },
        None => (status(&error.code, &error.message, is_anonymous), None),
    };
    RestError::Postgres(Box::new(PostgresErrorResponse { status, reason, ..response }))
}

/// Returns the status for a SQLSTATE; the first matching rule applies.
fn status(code: &str, message: &str, is_anonymous: bool) -> StatusCode {
    let class = code.get(..2).unwrap_or_default();
    match (code, class) {
        (_, "08") => StatusCode::SERVICE_UNAVAILABLE,
        (_, "09") => StatusCode::INTERNAL_SERVER_ERROR,
        (_, "0L" | "0P") => StatusCode::FORBIDDEN,
        ("23503" | "23505", _) => StatusCode::CONFLICT,
        ("25006", _) => StatusCode::METHOD_NOT_ALLOWED,
        ("21000", _) if message.ends_with("requires a WHERE clause") => StatusCode::BAD_REQUEST,
        ("21000", _) => StatusCode::INTERNAL_SERVER_ERROR,
        ("22023", _) if message.starts_with("role ") && message.ends_with(" does not exist") => {
            StatusCode::UNAUTHORIZED
        }
        (_, "25" | "2D" | "38" | "39" | "3B" | "40") => StatusCode::INTERNAL_SERVER_ERROR,
        (_, "28") => StatusCode::FORBIDDEN,
        ("42883", _) if message.starts_with("function xmlagg(") => StatusCode::NOT_ACCEPTABLE,
        ("42883" | "42P01", _) => StatusCode::NOT_FOUND,
        ("42P17", _) => StatusCode::INTERNAL_SERVER_ERROR,
        ("42501", _) if is_anonymous => StatusCode::UNAUTHORIZED,
        ("42501", _) => StatusCode::FORBIDDEN,
        ("53400", _) => StatusCode::INTERNAL_SERVER_ERROR,
        (_, "53") => StatusCode::SERVICE_UNAVAILABLE,
        (_, "54" | "55" | "58") => StatusCode::INTERNAL_SERVER_ERROR,
        ("57P01", _) => StatusCode::SERVICE_UNAVAILABLE,
        // The server stops or starts
        ("57P02" | "57P03", _) => StatusCode::SERVICE_UNAVAILABLE,
        (_, "57") => StatusCode::INTERNAL_SERVER_ERROR,
        ("P0001", _) => StatusCode::BAD_REQUEST,
        (_, "F0" | "HV" | "P0" | "XX") => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// The reason why an error of `RAISE SQLSTATE 'PGRST'` cannot be read.
struct UnreadableRaise {
    details: String,
    hint: &'static str,
}

const MESSAGE_HINT: &str =
    "MESSAGE must be a JSON object with obligatory keys: 'code', 'message' and optional keys: 'details', 'hint'.";
const DETAIL_HINT: &str =
    "DETAIL must be a JSON object with obligatory keys: 'status', 'headers' and optional key: 'status_text'.";

/// Reads the response that SQL has defined: `RAISE SQLSTATE 'PGRST'` with JSON in MESSAGE and
/// DETAIL.
fn raised(error: &PostgresError) -> Result<RestError, UnreadableRaise> {
    let message = || UnreadableRaise {
        details: format!("Invalid JSON value for MESSAGE: '{}'", error.message),
        hint: MESSAGE_HINT,
    };
    let fields: Map<String, Value> = serde_json::from_str(&error.message).map_err(|_| message())?;
    let text = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
    let (code, text_message) = (text("code").ok_or_else(message)?, text("message").ok_or_else(message)?);
    // An optional field may be null, but no other type than text
    let optional = |fields: &Map<String, Value>, key: &str| match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(()),
    };
    let details = optional(&fields, "details").map_err(|()| message())?;
    let hint = optional(&fields, "hint").map_err(|()| message())?;

    let missing = || UnreadableRaise { details: "DETAIL is missing in the RAISE statement".into(), hint: DETAIL_HINT };
    let detail = error.detail.as_deref().ok_or_else(missing)?;
    let wrong = || UnreadableRaise { details: format!("Invalid JSON value for DETAIL: '{detail}'"), hint: DETAIL_HINT };
    let response: Map<String, Value> = serde_json::from_str(detail).map_err(|_| wrong())?;
    let status = response.get("status").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok());
    let status = status.and_then(final_status).ok_or_else(wrong)?;
    let mut headers = Vec::new();
    for (name, value) in response.get("headers").and_then(Value::as_object).ok_or_else(wrong)? {
        let value = value.as_str().and_then(|value| HeaderValue::from_str(value).ok());
        let (name, value) = (name.parse::<HeaderName>().map_err(|_| wrong())?, value.ok_or_else(wrong)?);
        if !is_framing(&name) {
            headers.push((name, value));
        }
    }
    Ok(RestError::Postgres(Box::new(PostgresErrorResponse {
        code,
        message: text_message,
        details,
        hint,
        context: None,
        status,
        reason: optional(&response, "status_text").map_err(|()| wrong())?,
        headers,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: &str, message: &str, detail: Option<&str>) -> PostgresError {
        PostgresError {
            code: code.into(),
            message: message.into(),
            detail: detail.map(str::to_owned),
            ..PostgresError::default()
        }
    }

    #[test]
    fn every_sqlstate_class_has_a_status() {
        for (code, message, expected) in [
            ("08006", "", 503),
            ("0L000", "", 403),
            ("21000", "UPDATE requires a WHERE clause", 400),
            ("21000", "more than one row returned by a subquery", 500),
            ("22023", "role \"x\" does not exist", 401),
            ("22023", "invalid value", 400),
            ("22P02", "", 400),
            ("23502", "", 400),
            ("23503", "", 409),
            ("23505", "", 409),
            ("25006", "", 405),
            ("25P02", "", 500),
            ("28000", "", 403),
            ("40001", "", 500),
            ("42501", "", 403),
            ("42703", "", 400),
            ("42883", "operator does not exist", 404),
            ("42883", "function xmlagg(", 406),
            ("42P01", "", 404),
            ("42P17", "", 500),
            ("53300", "", 503),
            ("53400", "", 500),
            ("55P03", "", 500),
            ("57014", "", 500),
            ("57P01", "", 503),
            ("P0001", "", 400),
            ("P0002", "", 500),
            ("XX000", "", 500),
        ] {
            assert_eq!(status(code, message, false), expected, "{code} {message}");
        }
        assert_eq!(status("42501", "", true), 401);
    }

    #[test]
    fn sql_can_raise_a_status() {
        let RestError::Postgres(response) = of_postgres(&error("PT402", "Pay", None), false) else { panic!() };
        assert_eq!((response.status.as_u16(), response.reason.as_deref()), (402, Some("Pay")));
        for code in ["PTabc", "PT101"] {
            let RestError::Postgres(response) = of_postgres(&error(code, "Pay", None), false) else { panic!() };
            assert_eq!(response.status.as_u16(), 500, "{code}");
        }
    }

    #[test]
    fn sql_can_raise_a_whole_response_and_an_unreadable_one_is_reported() {
        let message = r#"{"code":"123","message":"m","details":"d","hint":"h"}"#;
        let detail = r#"{"status":402,"status_text":"Pay","headers":{"X-A":"b"}}"#;
        let RestError::Postgres(response) = of_postgres(&error("PGRST", message, Some(detail)), false) else {
            panic!()
        };
        assert_eq!((response.code.as_str(), response.status.as_u16(), response.headers.len()), ("123", 402, 1));
        for (message, detail, details) in [
            ("x", Some(detail), "Invalid JSON value for MESSAGE: 'x'"),
            (message, None, "DETAIL is missing in the RAISE statement"),
            (message, Some("{}"), "Invalid JSON value for DETAIL: '{}'"),
            (
                r#"{"code":"1","message":"m","hint":5}"#,
                Some(detail),
                r#"Invalid JSON value for MESSAGE: '{"code":"1","message":"m","hint":5}'"#,
            ),
            (
                message,
                Some(r#"{"status":402,"status_text":5,"headers":{}}"#),
                r#"Invalid JSON value for DETAIL: '{"status":402,"status_text":5,"headers":{}}'"#,
            ),
        ] {
            let response = of_postgres(&error("PGRST", message, detail), false);
            assert_eq!((response.code(), response.status().as_u16()), ("PGRST121", 500));
            assert_eq!(response.details(), Some(Value::from(details)));
        }
    }
}
