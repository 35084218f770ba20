//! The levels of a read plan; each is one `SELECT`.

use std::sync::Arc;

use super::column_path::ColumnPath;
use super::filter::RowCondition;
use crate::query::{Aggregate, Join};
use crate::schema::{QualifiedName, Relation, Relationship};

/// The plan of a read.
#[derive(Debug, Clone)]
pub struct ReadPlan {
    /// The root level.
    pub root: Level,
    /// Embeds with an alias that a parameter addressed by name: `(name, alias)`.
    pub legacy_names: Vec<(String, String)>,
}

/// The columns that a write has to return so that a plan can read its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReturnedColumns {
    /// All columns of the relation.
    pub all: bool,
    /// Further names, each once. With `all`, only those that are no columns of the relation:
    /// computed fields.
    pub columns: Vec<String>,
}

/// One `SELECT`.
#[derive(Debug, Clone)]
pub struct Level {
    /// FROM.
    pub source: LevelSource,
    /// The name of the source's rows in the statement.
    pub alias: String,
    /// The relation of the rows, if the cache has it.
    pub relation: Option<Arc<Relation>>,
    /// The selected columns, in order.
    pub columns: Vec<OutputColumn>,
    /// The embeds.
    pub embeds: Vec<Embed>,
    /// WHERE, joined by AND.
    pub conditions: Vec<RowCondition>,
    /// ORDER BY.
    pub order: Vec<SortTerm>,
    /// LIMIT: the client's limit, at most the operator's.
    pub limit: Option<u64>,
    /// OFFSET.
    pub offset: Option<u64>,
    /// Rows are grouped by all outputs without an aggregate.
    pub aggregated: bool,
    /// The name that the joins of two embeds would share, because two embeds have the same key.
    pub repeated: Option<String>,
}

/// The source of a level's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LevelSource {
    /// A table or view.
    Relation(QualifiedName),
    /// The rows that a write returned: the CTE `pgrst_source`.
    Written,
    /// The rows of a function; the caller writes the FROM item.
    Call,
    /// A function that takes a row of the parent.
    Computed(QualifiedName),
}

/// An output of a level.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputColumn {
    /// `*`
    Star,
    /// A column, or an aggregate of it.
    Column {
        /// The column.
        column: ColumnPath,
        /// The function of its domain that converts it to JSON.
        representation: Option<QualifiedName>,
        /// The type that it is cast to.
        cast: Option<String>,
        /// The aggregate over all rows' values.
        aggregate: Option<Aggregate>,
        /// The type that the aggregate is cast to.
        aggregate_cast: Option<String>,
        /// The key in the result.
        key: String,
    },
    /// `count()`
    CountRows {
        /// The type that it is cast to.
        cast: Option<String>,
        /// The key in the result.
        key: String,
    },
}

/// An embedded level.
#[derive(Debug, Clone)]
pub struct Embed {
    /// The relationship.
    pub relationship: Arc<Relationship>,
    /// The key in the result: the alias, or the name.
    pub key: String,
    /// The name of its rows in the statement of the level above.
    pub alias: String,
    /// The name of the junction's rows in its own statement.
    pub junction_alias: String,
    /// The effect on rows of the parent without a match.
    pub join: Join,
    /// The shape of its result.
    pub shape: EmbedShape,
    /// The level.
    pub level: Level,
    /// The sort keys of the level above, each once.
    pub ordered_by: Vec<EmbedSortKey>,
}

/// The shape of an embed in its parent's row.
#[derive(Debug, Clone, PartialEq)]
pub enum EmbedShape {
    /// No output: the embed is a filter only.
    Hidden,
    /// An object, or null.
    Object,
    /// An array of objects.
    Array,
    /// Its columns are columns of the parent.
    Spread(Vec<SpreadColumn>),
    /// Arrays of its columns' values are columns of the parent.
    SpreadArrays(Vec<SpreadColumn>),
}

/// A column of a spread embed.
#[derive(Debug, Clone, PartialEq)]
pub enum SpreadColumn {
    /// All columns that the embed selects by `*`.
    Star,
    /// One column.
    Key {
        /// The name among the embed's columns, which is unique there.
        column: String,
        /// The key in the parent's row, which need not be unique there.
        key: String,
    },
    /// No column: a count that the level above computes.
    Nothing,
    /// An aggregate that is computed at the level above.
    Aggregated {
        /// The column of the embed; `None` for `count()`.
        input: Option<String>,
        /// The aggregate.
        aggregate: Aggregate,
        /// The type of the result.
        cast: Option<String>,
        /// The key in the result.
        key: String,
    },
}

/// One term of ORDER BY.
#[derive(Debug, Clone, PartialEq)]
pub struct SortTerm {
    /// The sort key.
    pub by: SortExpression,
    /// `ASC` or `DESC`, if requested.
    pub direction: Option<crate::query::Direction>,
    /// `NULLS FIRST` or `NULLS LAST`, if requested.
    pub nulls: Option<crate::query::Nulls>,
}

/// A value of an embed's row that the level above sorts by.
#[derive(Debug, Clone, PartialEq)]
pub enum EmbedSortKey {
    /// A column of the embed's source.
    Column(ColumnPath),
    /// A value that the embed selects, by its key in the result.
    Output(ColumnPath),
}

/// An expression of ORDER BY.
#[derive(Debug, Clone, PartialEq)]
pub enum SortExpression {
    /// A column of the level.
    Column(ColumnPath),
    /// The sort key with the second index, of the embed with the first index.
    Embed(usize, usize),
}

/// Returns true if a column `"rows"."count"` is the number of rows. PostgreSQL reads it so where
/// there is no such column.
pub(crate) fn counts_rows(level: &Level) -> bool {
    let is_count = |output: &OutputColumn| {
        matches!(output, OutputColumn::Column { column: ColumnPath { name, json_path, .. }, aggregate: None, .. }
            if name == "count" && json_path.is_empty())
    };
    level.columns.iter().any(is_count)
        && level.relation.as_ref().is_some_and(|relation| !relation.columns.contains_key("count"))
}
