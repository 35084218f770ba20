//! How a body is made of the rows of a statement.

use crate::schema::{QualifiedName, ReturnType};

/// What makes the body, inside PostgreSQL, of the rows of `pgrst_source` (contract 10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyFormat {
    /// No body is wanted (HEAD, writes that return nothing): the column is NULL.
    Nothing,
    /// JSON (19.1).
    Json {
        /// What it is made of.
        shape: ResultShape,
        /// Keys with null are left out, recursively.
        strip_nulls: bool,
    },
    /// The one row as a JSON object; that there is exactly one is checked before the commit (9.4).
    Object {
        /// What it is made of.
        shape: ResultShape,
        /// Keys with null are left out, recursively.
        strip_nulls: bool,
    },
    /// CSV (10.3).
    Csv,
    /// A FeatureCollection, by PostGIS.
    GeoJson,
    /// An aggregate of the database's owner (10.5).
    Handler {
        /// The aggregate.
        function: QualifiedName,
        /// Its argument is this relation's row type: rows are cast to it. `None`: `anyelement`, which takes them as they are.
        relation: Option<QualifiedName>,
        /// What it gets.
        shape: ResultShape,
    },
    /// The one value of a function that is itself a handler (10.5), without any JSON around it.
    Value,
}

/// What the rows of `pgrst_source` are. Those of relations are [`ResultShape::Set`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultShape {
    /// Any number of rows: an array.
    Set,
    /// One row of a function that yields no set: an object.
    One,
    /// Any number of values, in the column `pgrst_scalar`: an array.
    ScalarSet,
    /// One value, in the column `pgrst_scalar`: bare.
    Scalar,
}

impl ResultShape {
    /// What a function's result is (13.4). A `record` without known columns can not stand in FROM: it is a value like others,
    /// of which PostgreSQL makes an object.
    pub fn of_function(returns: &ReturnType) -> Self {
        match (returns.composite && !returns.anonymous, returns.set) {
            (true, true) => Self::Set,
            (true, false) => Self::One,
            (false, true) => Self::ScalarSet,
            (false, false) => Self::Scalar,
        }
    }

    /// Whether the value is in the column `pgrst_scalar`.
    pub fn is_scalar(self) -> bool {
        matches!(self, Self::ScalarSet | Self::Scalar)
    }

    /// Whether there is always exactly one.
    pub fn is_single(self) -> bool {
        matches!(self, Self::One | Self::Scalar)
    }
}
