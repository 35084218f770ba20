//! The format of a response's body.

use crate::schema::{QualifiedName, ReturnType};

/// The format in which PostgreSQL writes the rows of `pgrst_source` as a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyFormat {
    /// No body (HEAD, writes that return nothing): the column is NULL.
    Nothing,
    /// JSON.
    Json {
        /// The shape of the rows.
        shape: ResultShape,
        /// Keys with null values are removed, recursively.
        strip_nulls: bool,
    },
    /// The only row as a JSON object. The number of rows is checked before the commit.
    Object {
        /// The shape of the rows.
        shape: ResultShape,
        /// Keys with null values are removed, recursively.
        strip_nulls: bool,
    },
    /// CSV.
    Csv,
    /// A GeoJSON FeatureCollection, made by PostGIS.
    GeoJson,
    /// An aggregate that the database's owner has defined.
    Handler {
        /// The aggregate.
        function: QualifiedName,
        /// The relation whose row type the aggregate takes; rows are cast to it. `None`: it takes
        /// `anyelement`, and rows are passed as they are.
        relation: Option<QualifiedName>,
        /// The shape of its input.
        shape: ResultShape,
    },
    /// The only value of a function that is itself a handler, without JSON around it.
    Value,
}

/// The shape of the rows of `pgrst_source`. Rows of relations are a [`ResultShape::Set`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultShape {
    /// Any number of rows: an array.
    Set,
    /// One row of a function that returns no set: an object.
    One,
    /// Any number of values, in the column `pgrst_scalar`: an array.
    ScalarSet,
    /// One value, in the column `pgrst_scalar`: a bare value.
    Scalar,
}

impl ResultShape {
    /// Returns the shape of a function's result. A `record` without known columns cannot stand in
    /// FROM. It is treated as a value, of which PostgreSQL makes an object.
    pub fn of_function(returns: &ReturnType) -> Self {
        match (returns.composite && !returns.anonymous, returns.set) {
            (true, true) => Self::Set,
            (true, false) => Self::One,
            (false, true) => Self::ScalarSet,
            (false, false) => Self::Scalar,
        }
    }

    /// Returns true if the value is in the column `pgrst_scalar`.
    pub fn is_scalar(self) -> bool {
        matches!(self, Self::ScalarSet | Self::Scalar)
    }

    /// Returns true if there is always exactly one row or value.
    pub fn is_single(self) -> bool {
        matches!(self, Self::One | Self::Scalar)
    }
}
