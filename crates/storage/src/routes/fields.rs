//! The fields of JSON bodies and queries, and the errors of those that do not match the schema of a
//! route. Scalars are converted where that is sensible, and unknown fields are ignored.

use axum::body::Body;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use portico_base::CappedPermit;
use serde_json::{Map, Value};

use super::shallow_json;
use crate::error::{Result, StorageError};
use crate::operation::Operation;

/// The largest JSON body, in bytes.
const MAX_JSON: usize = 1024 * 1024;

/// The fields of an object.
#[derive(Debug, Default)]
pub(super) struct JsonFields {
    /// The name of the object in errors: `body`, `querystring`.
    source: &'static str,
    values: Map<String, Value>,
    /// The memory that is reserved for the body.
    _memory: Option<CappedPermit>,
}

impl JsonFields {
    /// Reads a JSON body. Waits until there is memory for it.
    ///
    /// # Errors
    /// When it is too long, missing, or not an object, when it takes longer than the settings
    /// allow, and when there is no memory for it.
    pub async fn of_body(operation: &Operation, headers: &HeaderMap, body: Body) -> Result<Self> {
        declared_type(headers)?;
        let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let length = declared.unwrap_or(MAX_JSON);
        if length > MAX_JSON {
            return Err(StorageError::TooLarge("object"));
        }
        let mut memory = operation.reserve_memory(length).await?;
        let reading = tokio::time::timeout(operation.service.settings.fields_timeout, read(body, length));
        let bytes = reading.await.unwrap_or(Err(StorageError::TooSlow))?;
        memory.shrink_to(bytes.len());
        if bytes.is_empty() {
            let is_json =
                headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
            return Err(if is_json {
                StorageError::Body("Body cannot be empty when content-type is set to 'application/json'".into())
            } else {
                StorageError::Schema("body must be object".into())
            });
        }
        match shallow_json::parse(&bytes) {
            Ok(Value::Object(values)) => Ok(Self { source: "body", values, _memory: Some(memory) }),
            Ok(_) => Err(StorageError::Schema("body must be object".into())),
            Err(_) => {
                Err(StorageError::Body("Body is not valid JSON but content-type is set to 'application/json'".into()))
            }
        }
    }

    /// Reads a query.
    pub fn of_query(query: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let values = pairs.map(|(name, value)| (name.into_owned(), Value::String(value.into_owned()))).collect();
        Self { source: "querystring", values, _memory: None }
    }

    /// Returns a field as it is; `None` if it is missing.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// Returns the error of a field with another value than its route accepts.
    pub fn invalid(&self, name: &str, problem: &str) -> StorageError {
        StorageError::Schema(format!("{}/{name} {problem}", self.source))
    }

    /// Returns the error of a field that is missing.
    pub fn missing(&self, name: &str) -> StorageError {
        StorageError::Schema(format!("{} must have required property '{name}'", self.source))
    }

    /// Returns a text.
    ///
    /// # Errors
    /// When the field is not a scalar.
    pub fn text(&self, name: &str) -> Result<Option<String>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(scalar @ (Value::Number(_) | Value::Bool(_))) => Ok(Some(scalar.to_string())),
            Some(Value::Null) => Ok(Some(String::new())),
            Some(_) => Err(self.invalid(name, "must be string")),
        }
    }

    /// Returns a text that has to be there.
    ///
    /// # Errors
    /// When it is missing or not a scalar.
    pub fn required_text(&self, name: &str) -> Result<String> {
        self.text(name)?.ok_or_else(|| self.missing(name))
    }

    /// Returns a whole number of at least `least`.
    ///
    /// # Errors
    /// When it is something else.
    pub fn number(&self, name: &str, least: i64) -> Result<Option<i64>> {
        let number = match self.get(name) {
            None => return Ok(None),
            Some(Value::Number(number)) => number
                .as_i64()
                .or_else(|| number.as_f64().filter(|number| number.fract() == 0.0).map(|number| number as i64)),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(Value::Bool(flag)) => Some(i64::from(*flag)),
            Some(_) => None,
        };
        let number = number.ok_or_else(|| self.invalid(name, "must be integer"))?;
        if number < least { Err(self.invalid(name, &format!("must be >= {least}"))) } else { Ok(Some(number)) }
    }

    /// Returns a whole number that has to be there.
    ///
    /// # Errors
    /// When it is missing or something else.
    pub fn required_number(&self, name: &str, least: i64) -> Result<i64> {
        self.number(name, least)?.ok_or_else(|| self.missing(name))
    }

    /// Returns a flag.
    ///
    /// # Errors
    /// When it is something else.
    pub fn flag(&self, name: &str) -> Result<Option<bool>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(Value::String(text)) if text == "true" => Ok(Some(true)),
            Some(Value::String(text)) if text == "false" => Ok(Some(false)),
            Some(Value::Null) => Ok(Some(false)),
            Some(Value::Number(number)) if number.as_i64() == Some(1) => Ok(Some(true)),
            Some(Value::Number(number)) if number.as_i64() == Some(0) => Ok(Some(false)),
            Some(_) => Err(self.invalid(name, "must be boolean")),
        }
    }

    /// Returns a list of texts; the inner `None` is null.
    ///
    /// # Errors
    /// When it is something else.
    pub fn texts(&self, name: &str) -> Result<Option<Option<Vec<String>>>> {
        let items = match self.get(name) {
            None => return Ok(None),
            Some(Value::Null) => return Ok(Some(None)),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(self.invalid(name, "must be array")),
        };
        let text = |(at, item): (usize, &Value)| match item {
            Value::String(text) => Ok(text.clone()),
            Value::Number(_) | Value::Bool(_) => Ok(item.to_string()),
            Value::Null => Ok(String::new()),
            _ => Err(self.invalid(&format!("{name}/{at}"), "must be string")),
        };
        items.iter().enumerate().map(text).collect::<Result<_>>().map(|texts| Some(Some(texts)))
    }

    /// Returns a list of texts that has to be there, within bounds of its length.
    ///
    /// # Errors
    /// When it is missing, too short, too long, or something else.
    pub fn required_texts(&self, name: &str, longest: usize) -> Result<Vec<String>> {
        if let Some(Value::Array(items)) = self.get(name)
            && items.len() > longest
        {
            return Err(self.invalid(name, &format!("must NOT have more than {longest} items")));
        }
        let texts = self.texts(name)?.ok_or_else(|| self.missing(name))?;
        let texts = texts.ok_or_else(|| self.invalid(name, "must be array"))?;
        match texts.len() {
            0 => Err(self.invalid(name, "must NOT have fewer than 1 items")),
            _ => Ok(texts),
        }
    }

    /// Returns one of several texts.
    ///
    /// # Errors
    /// When it is another one.
    pub fn choice(&self, name: &str, allowed: &[&'static str]) -> Result<Option<&'static str>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let found = allowed.iter().find(|allowed| **allowed == text);
        found.map(|found| Some(*found)).ok_or_else(|| self.invalid(name, "must be equal to one of the allowed values"))
    }

    /// Returns a nested object.
    ///
    /// # Errors
    /// When it is something else.
    pub fn object(&self, name: &'static str) -> Result<Option<NestedFields>> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(values)) => {
                let fields = Self { values: values.clone(), ..Self::default() };
                Ok(Some(NestedFields(fields, format!("{}/{name}", self.source))))
            }
            Some(_) => Err(self.invalid(name, "must be object")),
        }
    }
}

/// The fields of a nested object, with the path to it.
#[derive(Debug)]
pub(super) struct NestedFields(JsonFields, String);

impl NestedFields {
    /// Calls `read` with the fields; its errors name the whole path.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read<T>(&self, read: impl FnOnce(&JsonFields) -> Result<T>) -> Result<T> {
        read(&self.0).map_err(|error| match error {
            StorageError::Schema(text) => StorageError::Schema(format!("{}{text}", self.1)),
            other => other,
        })
    }
}

/// Returns the content type that a request declares.
///
/// # Errors
/// [`StorageError::InvalidContentType`]
pub(super) fn declared_type(headers: &HeaderMap) -> Result<Option<&str>> {
    let Some(value) = headers.get(header::CONTENT_TYPE).filter(|value| !value.is_empty()) else { return Ok(None) };
    let value = value.to_str().ok().filter(|value| value.contains('/'));
    value.map(Some).ok_or(StorageError::InvalidContentType)
}

/// Reads a body of bounded length.
///
/// # Errors
/// When it is too long or does not arrive.
async fn read(body: Body, limit: usize) -> Result<bytes::Bytes> {
    match Limited::new(body, limit).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(StorageError::TooLarge("object")),
        Err(_) => Err(StorageError::Aborted),
    }
}
