//! The description of a type: how its values are rendered as JSON.

use std::sync::Arc;

/// The way in which the values of a type are rendered. A domain has the shape of its base type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `true` or `false`.
    Boolean,
    /// A number whose text form is that of JSON, apart from the values that are no numbers:
    /// `int2`, `int4`, `int8`, `numeric`.
    Number,
    /// A number whose text form may have an exponent: `float4`, `float8`.
    Float,
    /// A string in PostgreSQL's text form: every type that has no other shape.
    Text,
    /// `bytea`.
    Bytes,
    /// `timestamp` without a time zone.
    Timestamp,
    /// `timestamp` with a time zone.
    TimestampWithZone,
    /// `json`: a document as it was written.
    Json,
    /// `jsonb`: a document in the order of `jsonb`.
    Jsonb,
    /// An array, with the character between its elements.
    Array { element: Arc<Shape>, delimiter: u8 },
    /// `int2vector` and `oidvector`: elements between spaces.
    Vector(Arc<Shape>),
    /// A composite type.
    Composite(Arc<[Attribute]>),
    /// A type with a cast to `json`, which is a function that only the server can run.
    Cast,
}

/// An attribute of a composite type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub name: Box<str>,
    pub shape: Arc<Shape>,
}

impl Shape {
    /// Returns the shape of a built-in type, by its name in the catalog.
    pub fn of_builtin(type_name: &str) -> Self {
        match type_name {
            "bool" => Self::Boolean,
            "int2" | "int4" | "int8" | "numeric" => Self::Number,
            "float4" | "float8" => Self::Float,
            "bytea" => Self::Bytes,
            "timestamp" => Self::Timestamp,
            "timestamptz" => Self::TimestampWithZone,
            "json" => Self::Json,
            "jsonb" => Self::Jsonb,
            "int2vector" => Self::Vector(Arc::new(Self::Number)),
            "oidvector" => Self::Vector(Arc::new(Self::Text)),
            _ => Self::Text,
        }
    }
}

/// Returns the order of two keys of a `jsonb` object: the shorter one first, then by bytes.
pub(crate) fn key_order(left: &str, right: &str) -> std::cmp::Ordering {
    left.len().cmp(&right.len()).then_with(|| left.as_bytes().cmp(right.as_bytes()))
}
