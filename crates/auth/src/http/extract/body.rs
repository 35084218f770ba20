//! Bodies of requests.

use axum::extract::{FromRequest, Request};
use http_body_util::{BodyExt as _, Limited};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Query, header};
use crate::Auth;
use crate::error::{AuthError, ContractError};

/// Largest body, in bytes.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Deepest nesting of a body.
const MAX_JSON_DEPTH: usize = 100;

/// A JSON body, with any `Content-Type`. `null` is the same as a missing field, unknown fields are
/// ignored, names are matched without regard to case, and the last of two equal names counts.
#[derive(Debug)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Auth> for Json<T> {
    type Rejection = AuthError;

    async fn from_request(request: Request, _auth: &Auth) -> Result<Self, AuthError> {
        let bytes = read_body(request).await?;
        parse_json(&bytes).map(Json)
    }
}

/// Reads a whole body.
///
/// # Errors
/// 413 for more than [`MAX_BODY_BYTES`], 400 when the client disconnected.
pub async fn read_body(request: Request) -> Result<bytes::Bytes, AuthError> {
    match Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() || is_too_large(error.as_ref()) => {
            Err(ContractError::BodyTooLarge.into())
        }
        Err(_) => Err(bad_json("the body could not be read")),
    }
}

/// Returns true for the limit of an outer layer, which is a cause of the error.
fn is_too_large(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Parses a JSON object by the rules of [`Json`].
///
/// # Errors
/// 400 `bad_json`.
pub fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, AuthError> {
    let text = std::str::from_utf8(bytes).map_err(|_| bad_json("the body is not UTF-8"))?;
    check_shape(text).map_err(bad_json)?;
    let value: Value = serde_json::from_str(text).map_err(|error| bad_json(error.to_string()))?;
    match value {
        Value::Object(fields) => of_fields(fields),
        // Go decodes null into an empty struct
        Value::Null => of_fields(Map::new()),
        _ => Err(bad_json("the body is not a JSON object")),
    }
}

fn of_fields<T: DeserializeOwned>(fields: impl IntoIterator<Item = (String, Value)>) -> Result<T, AuthError> {
    let given: Map<String, Value> = fields
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_lowercase(), value))
        .collect();
    serde_json::from_value(Value::Object(given)).map_err(|error| bad_json(error.to_string()))
}

/// The body of a token request: JSON, or the form that OAuth libraries send (RFC 6749, 4), where
/// every value is a text.
///
/// It is a form if it has that `Content-Type` and names a grant: `curl -d` sends JSON with that
/// type as well.
#[derive(Debug)]
pub struct TokenBody {
    bytes: bytes::Bytes,
    form: Option<Query>,
}

impl FromRequest<Auth> for TokenBody {
    type Rejection = AuthError;

    async fn from_request(request: Request, _auth: &Auth) -> Result<Self, AuthError> {
        let has_form_type = header(request.headers(), "content-type")
            .and_then(|value| value.split(';').next())
            .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded"));
        let bytes = read_body(request).await?;
        let form = std::str::from_utf8(&bytes).ok().filter(|_| has_form_type).map(Query::parse);
        Ok(Self { form: form.filter(|form| form.get("grant_type").is_some()), bytes })
    }
}

impl TokenBody {
    /// Returns the grant that a form names.
    pub fn grant(&self) -> Option<&str> {
        self.form.as_ref()?.get("grant_type")
    }

    /// Parses it by the rules of [`Json`].
    ///
    /// # Errors
    /// 400 `bad_json`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, AuthError> {
        let Some(form) = &self.form else { return parse_json(&self.bytes) };
        if form.pairs().iter().any(|(_, value)| value.contains('\0')) {
            return Err(bad_json(NUL_IN_TEXT));
        }
        of_fields(form.pairs().iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))))
    }
}

fn bad_json(detail: impl std::fmt::Display) -> AuthError {
    ContractError::UnreadableBody { detail: detail.to_string() }.into()
}

const NUL_IN_TEXT: &str = "a text contains the character U+0000";

/// Rejects what the parser accepts but cannot be stored: deep nesting, and NUL characters, which
/// PostgreSQL texts cannot contain.
fn check_shape(text: &str) -> Result<(), &'static str> {
    let (mut depth, mut in_string) = (0usize, false);
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                if bytes[at + 1..].starts_with(b"u0000") {
                    return Err(NUL_IN_TEXT);
                }
                at += 1;
            }
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > MAX_JSON_DEPTH {
                    return Err("it is nested too deeply");
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;
    use crate::error::ErrorCode;

    #[derive(Debug, Deserialize, PartialEq, Default)]
    #[serde(default)]
    struct Body {
        email: String,
        code_challenge: Option<String>,
        data: Option<Map<String, Value>>,
    }

    #[test]
    fn null_is_a_missing_field_and_names_ignore_case() {
        let body: Body = parse_json(br#"{"EMAIL":"a","code_challenge":null,"email":"b","other":[1]}"#).unwrap();
        assert_eq!(body, Body { email: "b".into(), code_challenge: None, data: None });
        assert_eq!(parse_json::<Body>(b"null").unwrap(), Body::default());
    }

    #[test]
    fn a_body_that_is_not_an_object_is_bad_json() {
        let deep = format!(r#"{{"data":{}1{}}}"#, "[".repeat(100), "]".repeat(100));
        for body in [
            b"".as_slice(),
            b"{",
            b"[]",
            b"\"text\"",
            b"{\"email\":1}",
            b"{\"email\":\"\xff\"}",
            br#"{"email":"a\u0000b"}"#,
            br#"{"data":{"a":["\u0000"]}}"#,
            deep.as_bytes(),
        ] {
            let error = parse_json::<Body>(body).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadJson);
            assert!(error.to_string().starts_with("Could not parse request body as JSON: "));
        }
        assert!(parse_json::<Body>(br#"{"email":"a\\u0000b"}"#).is_ok());
    }

    proptest! {
        #[test]
        fn bodies_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[\\[\\]{}\"\\\\u0a:, ]{0,80}") {
            let _ = parse_json::<Body>(&bytes);
            let _ = parse_json::<Body>(text.as_bytes());
            Query::parse(&text);
        }
    }
}
