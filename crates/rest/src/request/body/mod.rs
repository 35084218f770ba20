//! The body of a request as types.
//!
//! JSON is passed on to PostgreSQL as text. Only its top level is parsed here, in one pass and
//! without building values, to find the columns that the body names. CSV and forms are converted to
//! such JSON.

mod csv;
mod json;
mod payload;

use std::collections::BTreeMap;

use bytes::Bytes;

pub use payload::{JsonPayload, ObjectKeys, is_object};

use crate::RestError;
use crate::query::decode;
use crate::request::media::MediaType;

/// The use of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyPurpose {
    /// Rows of a relation.
    Rows,
    /// Arguments of a function.
    Arguments,
}

/// A body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Rows, or arguments by name, or the whole JSON for a function's only parameter.
    Json(JsonPayload),
    /// The arguments of a function from a form: decoded, in order, repeated ones included.
    Form(Vec<(String, String)>),
    /// The only argument of a function: `text/plain`, `text/xml` or `application/octet-stream`.
    Raw {
        /// The media type.
        media_type: MediaType,
        /// The bytes of the body.
        bytes: Bytes,
    },
}

/// Parses a body of the type `media_type`. With `has_columns` (`columns=` was given), JSON is not
/// parsed.
///
/// # Errors
///
/// PGRST102 if the type does not suit the purpose, or the body does not match the type.
pub fn parse(
    purpose: BodyPurpose,
    media_type: &MediaType,
    has_columns: bool,
    bytes: Bytes,
) -> Result<Payload, RestError> {
    match media_type {
        MediaType::Json => {
            // A function may be called without a body
            let bytes = match purpose {
                BodyPurpose::Arguments if bytes.is_empty() => Bytes::from_static(b"{}"),
                _ => bytes,
            };
            if has_columns {
                let is_object = is_object(&bytes);
                return Ok(Payload::Json(JsonPayload { text: bytes, is_object, known: None }));
            }
            json::read(bytes).map(Payload::Json)
        }
        MediaType::Csv => csv::read(text(&bytes)?).map(Payload::Json),
        MediaType::Form => {
            let pairs = form(text(&bytes)?)?;
            match purpose {
                BodyPurpose::Rows => Ok(Payload::Json(one_row(pairs))),
                BodyPurpose::Arguments => Ok(Payload::Form(pairs)),
            }
        }
        MediaType::Text | MediaType::Xml | MediaType::Binary if purpose == BodyPurpose::Arguments => {
            Ok(Payload::Raw { media_type: media_type.clone(), bytes })
        }
        other => Err(RestError::Body(format!("Content-Type not acceptable: {}", other.text()))),
    }
}

fn form(text: &str) -> Result<Vec<(String, String)>, RestError> {
    let decoded = |text| decode(text).map(Into::into).ok_or_else(not_utf8);
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decoded(key)?, decoded(value)?))
        })
        .collect()
}

/// Returns one object of texts; the last of equal keys is used.
fn one_row(pairs: Vec<(String, String)>) -> JsonPayload {
    let row: BTreeMap<String, String> = pairs.into_iter().collect();
    let members: serde_json::Map<_, _> = row.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    JsonPayload {
        text: serde_json::Value::Object(members).to_string().into(),
        is_object: true,
        known: Some(ObjectKeys { keys: row.into_keys().collect(), objects: 1 }),
    }
}

fn text(bytes: &[u8]) -> Result<&str, RestError> {
    std::str::from_utf8(bytes).map_err(|_| not_utf8())
}

fn not_utf8() -> RestError {
    RestError::Body("The body is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests;
