//! What an error of PostgreSQL means for the answer (contract 16.3, 16.5).

use http::{HeaderName, HeaderValue, StatusCode};
use portico_database::wire::{PostgresError, WireError};
use serde_json::{Map, Value};

use crate::error::{PostgresErrorResponse, RestError};
use crate::execute::statement_result::{final_status, is_framing};

/// The refusal for an error of the connection or of PostgreSQL. `is_anonymous`: the caller's role is the one without a token.
pub(crate) fn refusal(error: &WireError, is_anonymous: bool) -> RestError {
    match error {
        WireError::Postgres(error) => of_postgres(error, is_anonymous),
        WireError::Busy(_) => RestError::PoolTimeout,
        WireError::Lost(error) => RestError::ConnectionLost(error.to_string()),
        // The place is nobody's business but the operator's
        WireError::Unreachable { .. } | WireError::Closed => {
            RestError::NoConnection("the database can not be reached".into())
        }
        WireError::Refused(why) => {
            tracing::error!(why, "The data API may not use the database");
            RestError::NoConnection("the database does not accept the server's connections".into())
        }
        WireError::TooLarge(what) => RestError::Body(format!("{what} is too large")),
        // A zero byte can only come from a name of the request
        WireError::ZeroByte => RestError::Parse {
            message: "\"failed to parse (a zero byte)\" (line 1, column 1)".into(),
            details: "unexpected '\\NUL'".into(),
        },
        WireError::Protocol(what) => {
            tracing::error!(what, "The database answered unexpectedly");
            RestError::Internal
        }
    }
}

fn of_postgres(error: &PostgresError, is_anonymous: bool) -> RestError {
    let mut refusal = PostgresErrorResponse {
        code: error.code.clone(),
        message: error.message.clone(),
        details: error.detail.clone(),
        hint: error.hint.clone(),
        status: StatusCode::BAD_REQUEST,
        reason: None,
        headers: Vec::new(),
    };
    if error.code == "PGRST" {
        return raised(error).unwrap_or_else(|why| {
            let mut refusal = refusal;
            refusal.code = "PGRST121".into();
            refusal.message = "Could not parse JSON in the \"RAISE SQLSTATE 'PGRST'\" error".into();
            refusal.status = StatusCode::INTERNAL_SERVER_ERROR;
            refusal.details = Some(why.details);
            refusal.hint = Some(why.hint.into());
            RestError::Postgres(Box::new(refusal))
        });
    }
    refusal.status = match error.code.strip_prefix("PT") {
        Some(number) => {
            let status = number.parse().ok().and_then(final_status);
            if status.is_some() {
                refusal.reason = Some(error.message.clone());
            }
            status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        }
        None => status(&error.code, &error.message, is_anonymous),
    };
    RestError::Postgres(Box::new(refusal))
}

/// The status of a SQLSTATE; the first rule that fits decides.
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
        // A server that goes down or comes up says one of these
        ("57P02" | "57P03", _) => StatusCode::SERVICE_UNAVAILABLE,
        (_, "57") => StatusCode::INTERNAL_SERVER_ERROR,
        ("P0001", _) => StatusCode::BAD_REQUEST,
        (_, "F0" | "HV" | "P0" | "XX") => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// Why an error of `RAISE SQLSTATE 'PGRST'` can not be read.
struct UnreadableRaise {
    details: String,
    hint: &'static str,
}

const MESSAGE_HINT: &str =
    "MESSAGE must be a JSON object with obligatory keys: 'code', 'message' and optional keys: 'details', 'hint'.";
const DETAIL_HINT: &str =
    "DETAIL must be a JSON object with obligatory keys: 'status', 'headers' and optional key: 'status_text'.";

/// The answer that SQL made itself: `RAISE SQLSTATE 'PGRST'` with JSON in MESSAGE and DETAIL.
fn raised(error: &PostgresError) -> Result<RestError, UnreadableRaise> {
    let message = || UnreadableRaise {
        details: format!("Invalid JSON value for MESSAGE: '{}'", error.message),
        hint: MESSAGE_HINT,
    };
    let said: Map<String, Value> = serde_json::from_str(&error.message).map_err(|_| message())?;
    let text = |key: &str| said.get(key).and_then(Value::as_str).map(str::to_owned);
    let (code, text_message) = (text("code").ok_or_else(message)?, text("message").ok_or_else(message)?);
    // What is optional may be null, but nothing that is no text
    let optional = |of: &Map<String, Value>, key: &str| match of.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(()),
    };
    let details = optional(&said, "details").map_err(|()| message())?;
    let hint = optional(&said, "hint").map_err(|()| message())?;

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
    fn every_class_has_its_status() {
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
    fn a_status_of_one_s_own_is_the_answer_s() {
        let RestError::Postgres(refusal) = of_postgres(&error("PT402", "Pay", None), false) else { panic!() };
        assert_eq!((refusal.status.as_u16(), refusal.reason.as_deref()), (402, Some("Pay")));
        for code in ["PTabc", "PT101"] {
            let RestError::Postgres(refusal) = of_postgres(&error(code, "Pay", None), false) else { panic!() };
            assert_eq!(refusal.status.as_u16(), 500, "{code}");
        }
    }

    #[test]
    fn a_whole_answer_can_be_raised_and_a_broken_one_is_told() {
        let message = r#"{"code":"123","message":"m","details":"d","hint":"h"}"#;
        let detail = r#"{"status":402,"status_text":"Pay","headers":{"X-A":"b"}}"#;
        let RestError::Postgres(refusal) = of_postgres(&error("PGRST", message, Some(detail)), false) else { panic!() };
        assert_eq!((refusal.code.as_str(), refusal.status.as_u16(), refusal.headers.len()), ("123", 402, 1));
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
            let refusal = of_postgres(&error("PGRST", message, detail), false);
            assert_eq!((refusal.code(), refusal.status().as_u16()), ("PGRST121", 500));
            assert_eq!(refusal.details(), Some(Value::from(details)));
        }
    }
}
