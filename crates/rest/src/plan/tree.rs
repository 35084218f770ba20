//! The plan of a read: a tree of levels, each of them one `SELECT`.

use std::sync::Arc;

use super::column_path::ColumnPath;
use super::filter::Condition;
use crate::query::{Aggregate, Join};
use crate::schema::{QualifiedName, Relation, Relationship};

/// What rows a read is about, and how each becomes a row of the answer.
#[derive(Debug, Clone)]
pub struct ReadPlan {
    /// The root.
    pub root: Level,
    /// Embeds with an alias that a filter, order or limit called by their relation's name (7.6): `(name, alias)`.
    pub legacy_names: Vec<(String, String)>,
}

/// Which columns a write has to return so that its rows can be read by a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReturnedColumns {
    /// All columns of the relation.
    pub all: bool,
    /// Further names, each once; with `all` only those that are no column of the relation: computed fields.
    pub columns: Vec<String>,
}

/// One `SELECT`.
#[derive(Debug, Clone)]
pub struct Level {
    /// FROM.
    pub source: LevelSource,
    /// The name of the source's rows inside the statement.
    pub alias: String,
    /// The relation that the rows are of, if the cache knows it.
    pub relation: Option<Arc<Relation>>,
    /// What is selected of its own columns, in order.
    pub columns: Vec<OutputColumn>,
    /// What is joined.
    pub embeds: Vec<Embed>,
    /// WHERE, joined by AND.
    pub conditions: Vec<Condition>,
    /// ORDER BY.
    pub order: Vec<SortTerm>,
    /// LIMIT: what the client asked for, at most what the operator allows.
    pub limit: Option<u64>,
    /// OFFSET.
    pub offset: Option<u64>,
    /// Rows are grouped: by everything that is selected and no aggregate.
    pub aggregated: bool,
    /// The name that the joins of two embeds would have both, if two have the same key.
    pub repeated: Option<String>,
}

/// Where the rows of a level come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LevelSource {
    /// A table or view.
    Relation(QualifiedName),
    /// The rows that a write returned: the CTE `pgrst_source`.
    Written,
    /// The rows of a function; its caller writes the FROM item.
    Call,
    /// A function of the parent's row.
    Computed(QualifiedName),
}

/// One thing that a level selects.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputColumn {
    /// `*`
    Star,
    /// A column, or what is computed of it.
    Column {
        /// Which.
        column: ColumnPath,
        /// The function of its domain that makes JSON of it (19.3).
        representation: Option<QualifiedName>,
        /// The type it is cast to.
        cast: Option<String>,
        /// What is computed of all rows' values.
        aggregate: Option<Aggregate>,
        /// The type that the aggregate is cast to.
        aggregate_cast: Option<String>,
        /// Its name in the result.
        key: String,
    },
    /// `count()`
    CountRows {
        /// The type it is cast to.
        cast: Option<String>,
        /// Its name in the result.
        key: String,
    },
}

/// Another level below one.
#[derive(Debug, Clone)]
pub struct Embed {
    /// The relationship.
    pub relationship: Arc<Relationship>,
    /// Its name in the result: the alias, or the name.
    pub key: String,
    /// The name of its rows in the statement of the level above.
    pub alias: String,
    /// The name of the junction's rows inside.
    pub junction_alias: String,
    /// Whether rows of the parent stay without it.
    pub join: Join,
    /// What becomes of it.
    pub shape: EmbedShape,
    /// The level.
    pub level: Level,
    /// The keys that the level above orders by, each once.
    pub ordered_by: Vec<EmbedSortKey>,
}

/// What becomes of an embed in its parent's row.
#[derive(Debug, Clone, PartialEq)]
pub enum EmbedShape {
    /// Nothing: it filters only.
    Hidden,
    /// An object or null.
    Object,
    /// An array of objects.
    Array,
    /// Its columns are the parent's.
    Spread(Vec<SpreadColumn>),
    /// Arrays of its columns' values are the parent's columns.
    SpreadArrays(Vec<SpreadColumn>),
}

/// A column of a spread embed.
#[derive(Debug, Clone, PartialEq)]
pub enum SpreadColumn {
    /// All that the embed selects by `*`.
    Star,
    /// One.
    Key {
        /// Its name among the embed's columns, where it is the only one of this name.
        column: String,
        /// Its name in the parent's row, which may have several of this name.
        key: String,
    },
    /// None: a count that passes through to the level above.
    Nothing,
    /// An aggregate that is computed at the level above (6.3).
    Aggregated {
        /// The column of the embed; none for `count()`.
        input: Option<String>,
        /// What is computed.
        aggregate: Aggregate,
        /// The type of the result.
        cast: Option<String>,
        /// Its name in the result.
        key: String,
    },
}

/// One term of ORDER BY.
#[derive(Debug, Clone, PartialEq)]
pub struct SortTerm {
    /// By what.
    pub by: SortExpression,
    /// `ASC` or `DESC`, if it was said.
    pub direction: Option<crate::query::Direction>,
    /// `NULLS FIRST` or `NULLS LAST`, if it was said.
    pub nulls: Option<crate::query::Nulls>,
}

/// A value of an embed's row that the level above orders by.
#[derive(Debug, Clone, PartialEq)]
pub enum EmbedSortKey {
    /// A column of the embed's source.
    Column(ColumnPath),
    /// A value that the embed selects, by its name in the result.
    Output(ColumnPath),
}

/// An expression of ORDER BY.
#[derive(Debug, Clone, PartialEq)]
pub enum SortExpression {
    /// A column of the level.
    Column(ColumnPath),
    /// Of the embed with the first index that column of its `ordered_by` with the second.
    Embed(usize, usize),
}
