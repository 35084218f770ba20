//! What a query string says, before anything is known about the schema.

/// The names of embeds from the root to the level that a parameter is about; empty for the root.
pub type EmbedPath = Vec<String>;

/// Something, and the level it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct AtLevel<T> {
    /// The level.
    pub path: EmbedPath,
    /// What is said about it.
    pub value: T,
}

/// A whole query string.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Query {
    /// `select`; empty when it is absent or empty, which means every column.
    pub select: Vec<SelectItem>,
    /// `columns`: the payload's columns.
    pub columns: Option<Vec<String>>,
    /// `on_conflict`: the columns that an upsert compares.
    pub on_conflict: Option<Vec<String>>,
    /// `col=op.value`, at every level.
    pub filters: Vec<AtLevel<Filter>>,
    /// `and=(…)`, `or=(…)`, at every level.
    pub logic: Vec<AtLevel<LogicTree>>,
    /// `order`; at most one for each level.
    pub orders: Vec<AtLevel<Vec<OrderTerm>>>,
    /// `limit` and `offset`; at most one for each level.
    pub ranges: Vec<AtLevel<RowRange>>,
    /// Of a function called by GET or HEAD: pairs that are no filter, in their order.
    pub arguments: Vec<(String, String)>,
}

impl Query {
    /// Returns the query with another range at the root level; a default range is none.
    #[must_use]
    pub fn with_root_range(mut self, range: RowRange) -> Self {
        self.ranges.retain(|range| !range.path.is_empty());
        if range != RowRange::default() {
            self.ranges.push(AtLevel { path: EmbedPath::new(), value: range });
        }
        self
    }
}

/// How many rows, from where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowRange {
    /// `limit`; may be negative, which is an error of its own later.
    pub limit: Option<i64>,
    /// `offset`.
    pub offset: Option<i64>,
}

/// One item of `select`.
#[derive(Debug, Clone, PartialEq)]
pub enum SelectItem {
    /// `*`
    Star,
    /// `[alias:]field[::cast][.aggregate()][::cast]`
    Column(SelectColumn),
    /// `[alias:]count()[::cast]`: the number of rows.
    CountRows {
        /// The key in the answer instead of `count`.
        alias: Option<String>,
        /// The type of the count.
        cast: Option<String>,
    },
    /// `[alias:]name[!hint][!inner](…)`, and `...name(…)` as [`SelectRelation::spread`].
    Relation(SelectRelation),
}

/// A column in `select`.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectColumn {
    /// The key in the answer instead of the column's name.
    pub alias: Option<String>,
    /// Which column, and where in its JSON.
    pub field: Field,
    /// The type that the value is cast to, before any aggregate. Letters, digits, `_`, `$` and spaces only.
    pub cast: Option<String>,
    /// What is computed of all rows' values.
    pub aggregate: Option<Aggregate>,
    /// The type that the aggregate is cast to.
    pub aggregate_cast: Option<String>,
}

/// Another relation in `select`.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectRelation {
    /// `...`: its columns become the parent's. Never with an alias.
    pub spread: bool,
    /// The key in the answer instead of the name.
    pub alias: Option<String>,
    /// The target: a relation, a foreign key, a column or a function.
    pub name: String,
    /// `!name`: which relationship is meant.
    pub hint: Option<String>,
    /// `!inner` or `!left`.
    pub join: Option<Join>,
    /// What is selected of it; empty for `name()`: nothing.
    pub select: Vec<SelectItem>,
}

/// Whether rows of the parent without a match stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// They stay.
    Left,
    /// They go.
    Inner,
}

/// What is computed of many values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    /// `sum()`
    Sum,
    /// `avg()`
    Avg,
    /// `count()`
    Count,
    /// `max()`
    Max,
    /// `min()`
    Min,
}

/// A column, and possibly a place in its JSON.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Field {
    /// The column's name, without quotes.
    pub name: String,
    /// The way into its JSON; empty for the whole value.
    pub json_path: Vec<JsonStep>,
}

/// One step into JSON.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JsonStep {
    /// Whether the step yields JSON or text.
    pub arrow: Arrow,
    /// Where it leads.
    pub operand: Operand,
}

/// The kind of a step into JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arrow {
    /// `->`
    Json,
    /// `->>`
    Text,
}

/// Where a step into JSON leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Operand {
    /// An element of an array; negative ones count from its end.
    Index(i32),
    /// A value of an object.
    Key(String),
}

/// A condition on one field.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    /// What is compared.
    pub field: Field,
    /// `not.`
    pub negated: bool,
    /// With what, and how.
    pub operation: Operation,
}

/// How a field is compared, and with what.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// `in.(a,b)`. A list with the one element `''` is the empty list here already.
    In(Vec<String>),
    /// `is.null` and its like.
    Is(IsValue),
    /// `isdistinct.x`
    IsDistinct(String),
    /// `fts(config).query` and its like.
    Fts {
        /// Which function reads the query.
        function: Fts,
        /// The text search configuration.
        config: Option<String>,
        /// The query.
        value: String,
    },
    /// Operators without a quantifier.
    Simple(SimpleOperator, String),
    /// Operators that may have one: `eq(any).{a,b}`.
    Quantified(QuantOperator, Option<Quantifier>, String),
}

/// The right side of `is`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsValue {
    /// `null`
    Null,
    /// `not_null`
    NotNull,
    /// `true`
    True,
    /// `false`
    False,
    /// `unknown`: a truth value that is null.
    Unknown,
}

/// Which function makes a text search query of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fts {
    /// `fts`: `to_tsquery`
    Query,
    /// `plfts`: `plainto_tsquery`
    Plain,
    /// `phfts`: `phraseto_tsquery`
    Phrase,
    /// `wfts`: `websearch_to_tsquery`
    Web,
}

/// Operators that compare with one value only (contract 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimpleOperator {
    /// `neq`: `<>`
    NotEqual,
    /// `cs`: `@>`
    Contains,
    /// `cd`: `<@`
    ContainedBy,
    /// `ov`: `&&`
    Overlaps,
    /// `sl`: `<<`
    StrictlyLeft,
    /// `sr`: `>>`
    StrictlyRight,
    /// `nxr`: `&<`
    NotExtendsRight,
    /// `nxl`: `&>`
    NotExtendsLeft,
    /// `adj`: `-|-`
    Adjacent,
}

/// Operators that may compare with any or all of several values (contract 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantOperator {
    /// `eq`: `=`
    Equal,
    /// `gte`: `>=`
    GreaterOrEqual,
    /// `gt`: `>`
    Greater,
    /// `lte`: `<=`
    LessOrEqual,
    /// `lt`: `<`
    Less,
    /// `like`, with `*` for `%`
    Like,
    /// `ilike`, with `*` for `%`
    ILike,
    /// `match`: `~`
    Match,
    /// `imatch`: `~*`
    IMatch,
}

/// Whether one or all of several values must fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantifier {
    /// `(any)`
    Any,
    /// `(all)`
    All,
}

/// Conditions joined by `and` or `or`.
#[derive(Debug, Clone, PartialEq)]
pub enum LogicTree {
    /// A leaf.
    Filter(Filter),
    /// A knot.
    Group {
        /// `not.`
        negated: bool,
        /// How its parts are joined.
        logic: Logic,
        /// AtLevel least one.
        parts: Vec<LogicTree>,
    },
}

/// How conditions are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logic {
    /// `and`
    And,
    /// `or`
    Or,
}

/// One term of `order`.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderTerm {
    /// `relation(field)`: the field belongs to this embed.
    pub relation: Option<String>,
    /// What is ordered by.
    pub field: Field,
    /// `.asc`, `.desc`
    pub direction: Option<Direction>,
    /// `.nullsfirst`, `.nullslast`
    pub nulls: Option<Nulls>,
}

/// Up or down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// `.asc`
    Ascending,
    /// `.desc`
    Descending,
}

/// Where rows without a value go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// `.nullsfirst`
    First,
    /// `.nullslast`
    Last,
}
