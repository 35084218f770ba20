//! The statement builder.

use std::fmt::Write as _;

use bytes::Bytes;
use portico_database::quote;

/// A parameter of a statement, in PostgreSQL's text format and without a type. The type follows
/// from its position in the statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundValue {
    /// Text.
    Text(String),
    /// The body of a request, shared and not copied.
    Bytes(Bytes),
}

impl BoundValue {
    /// Returns the bytes that are sent.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// The text of a statement, and its parameters.
///
/// Only [`Sql::raw`] takes SQL, and only the program's own text or text of the database's catalog.
/// Input of clients is added by [`Sql::name`] and [`Sql::value`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sql {
    text: String,
    params: Vec<BoundValue>,
}

impl Sql {
    /// Makes an empty statement.
    pub fn new() -> Self {
        Self { text: String::with_capacity(512), params: Vec::new() }
    }

    /// Appends trusted SQL: the program's own text, or types and expressions of the database's
    /// catalog.
    pub fn raw(&mut self, sql: &str) -> &mut Self {
        self.text.push_str(sql);
        self
    }

    /// Appends a quoted identifier. A zero byte, which no identifier can hold, is left out.
    pub fn name(&mut self, name: &str) -> &mut Self {
        quote::push_identifier(&mut self.text, name);
        self
    }

    /// Appends a quoted identifier that is composed of parts, such as `films_1`.
    pub fn name_of(&mut self, name: std::fmt::Arguments<'_>) -> &mut Self {
        quote::push_identifier(&mut self.text, &name.to_string());
        self
    }

    /// Appends `"qualifier"."name"`.
    pub fn qualified(&mut self, qualifier: &str, name: &str) -> &mut Self {
        self.name(qualifier).raw(".").name(name)
    }

    /// Appends a placeholder: `$3`.
    pub fn value(&mut self, value: impl Into<BoundValue>) -> &mut Self {
        self.params.push(value.into());
        let _ = write!(self.text, "${}", self.params.len());
        self
    }

    /// Appends the placeholder of a request's body. The body is sent once, however often it is
    /// used.
    pub fn body(&mut self, body: &Bytes) -> &mut Self {
        let same = |param: &BoundValue| matches!(param, BoundValue::Bytes(known) if known.as_ptr() == body.as_ptr() && known.len() == body.len());
        match self.params.iter().position(same) {
            Some(at) => {
                let _ = write!(self.text, "${}", at + 1);
                self
            }
            None => self.value(body.clone()),
        }
    }

    /// Calls `item` for each of `items`, with `separator` between them.
    pub fn list<T>(
        &mut self,
        separator: &str,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        for (at, each) in items.into_iter().enumerate() {
            if at > 0 {
                self.text.push_str(separator);
            }
            item(self, each);
        }
        self
    }

    /// Puts trusted SQL in front: `EXPLAIN …`.
    #[must_use]
    pub fn after(mut self, prefix: &str) -> Self {
        self.text.insert_str(0, prefix);
        self
    }

    /// Returns the text so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the parameters so far, `$1` first.
    pub fn params(&self) -> &[BoundValue] {
        &self.params
    }
}

impl From<String> for BoundValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for BoundValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Bytes> for BoundValue {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_values_stay_outside() {
        let mut sql = Sql::new();
        sql.raw("select ").qualified("a", "b\"; drop table x; --").raw(" = ").value("'; --").raw(", ").value("x");
        assert_eq!(sql.text(), r#"select "a"."b""; drop table x; --" = $1, $2"#);
        assert_eq!(sql.params(), [BoundValue::from("'; --"), BoundValue::from("x")]);
    }

    #[test]
    fn a_body_is_sent_once() {
        let body = Bytes::from_static(b"[]");
        let mut sql = Sql::new();
        sql.value("x").raw(", ").body(&body).raw(", ").body(&body);
        assert_eq!(sql.text(), "$1, $2, $2");
        assert_eq!(sql.params().len(), 2);
    }
}
