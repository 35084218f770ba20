//! CSV bodies: a header line and rows, quoted where necessary (RFC 4180).

use indexmap::IndexSet;

use super::payload::{JsonPayload, ObjectKeys};
use crate::RestError;

/// Converts CSV to an array of objects of texts. `NULL` is null; an empty field is an empty text.
///
/// # Errors
///
/// PGRST102: there is no header, a row has another number of fields than the header, or a quote is
/// not closed.
pub(super) fn read(text: &str) -> Result<JsonPayload, RestError> {
    let mut reader = CsvReader { rest: text, line: 1 };
    let mut header = Vec::new();
    if !reader.record(&mut header)? {
        return Err(RestError::Body("CSV without a header line".to_owned()));
    }
    let names: Vec<String> = header.iter().map(|name| serde_json::Value::from(name.as_str()).to_string()).collect();
    let (mut json, mut objects) = (String::with_capacity(text.len() * 2), 0);
    json.push('[');
    let mut fields = Vec::with_capacity(header.len());
    while reader.record(&mut fields)? {
        if fields.len() != names.len() {
            return Err(RestError::Body("All lines must have same number of fields".to_owned()));
        }
        json.push_str(if objects == 0 { "{" } else { ",{" });
        objects += 1;
        for (at, (name, field)) in names.iter().zip(&fields).enumerate() {
            if at > 0 {
                json.push(',');
            }
            json.push_str(name);
            json.push(':');
            match field.as_str() {
                "NULL" => json.push_str("null"),
                text => json.push_str(&serde_json::Value::from(text).to_string()),
            }
        }
        json.push('}');
    }
    json.push(']');
    let mut keys: Vec<String> = header.into_iter().collect::<IndexSet<_>>().into_iter().collect();
    keys.sort_unstable();
    Ok(JsonPayload { text: json.into(), is_object: false, known: Some(ObjectKeys { keys, objects }) })
}

struct CsvReader<'a> {
    rest: &'a str,
    line: usize,
}

impl CsvReader<'_> {
    /// Reads the next record into `fields`; returns false at the end. Blank lines are skipped.
    fn record(&mut self, fields: &mut Vec<String>) -> Result<bool, RestError> {
        fields.clear();
        while self.end_of_line() {}
        if self.rest.is_empty() {
            return Ok(false);
        }
        loop {
            fields.push(self.field()?);
            if let Some(rest) = self.rest.strip_prefix(',') {
                self.rest = rest;
            } else if self.rest.is_empty() || self.end_of_line() {
                return Ok(true);
            } else {
                return Err(self.error("text after a closing quote"));
            }
        }
    }

    fn field(&mut self) -> Result<String, RestError> {
        let Some(mut inside) = self.rest.strip_prefix('"') else {
            let (field, rest) = self.rest.split_at(self.rest.find([',', '\r', '\n']).unwrap_or(self.rest.len()));
            self.rest = rest;
            return Ok(field.to_owned());
        };
        let mut field = String::new();
        loop {
            let Some((text, rest)) = inside.split_once('"') else {
                return Err(self.error("a quote is not closed"));
            };
            self.line += text.matches('\n').count();
            field.push_str(text);
            match rest.strip_prefix('"') {
                Some(rest) => {
                    field.push('"');
                    inside = rest;
                }
                None => {
                    self.rest = rest;
                    return Ok(field);
                }
            }
        }
    }

    fn end_of_line(&mut self) -> bool {
        let rest = ["\r\n", "\n", "\r"].into_iter().find_map(|end| self.rest.strip_prefix(end));
        if let Some(rest) = rest {
            self.rest = rest;
            self.line += 1;
        }
        rest.is_some()
    }

    fn error(&self, what: &str) -> RestError {
        RestError::Body(format!("CSV line {}: {what}", self.line))
    }
}
