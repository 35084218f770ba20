//! A parsed query string, independent of the schema.

/// The names of embeds from the root to the level that a parameter applies to; empty for the root.
pub type EmbedPath = Vec<String>;

/// A value, and the level that it applies to.
#[derive(Debug, Clone, PartialEq)]
pub struct AtLevel<T> {
    /// The path of the level.
    pub path: EmbedPath,
    /// The value.
    pub value: T,
}

/// A whole query string.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestQuery {
    /// `select`; empty if it is absent or empty, which selects every column.
    pub select: Vec<SelectItem>,
    /// `columns`: the columns of the payload.
    pub columns: Option<Vec<String>>,
    /// `on_conflict`: the columns that an upsert compares.
    pub on_conflict: Option<Vec<String>>,
    /// `col=op.value`, at every level.
    pub filters: Vec<AtLevel<Filter>>,
    /// `and=(…)`, `or=(…)`, at every level.
    pub logic: Vec<AtLevel<LogicTree>>,
    /// `order`; at most one per level.
    pub orders: Vec<AtLevel<Vec<OrderTerm>>>,
    /// `limit` and `offset`; at most one per level.
    pub ranges: Vec<AtLevel<RowRange>>,
    /// The arguments of a function called by GET or HEAD: parameters that are no filters, in their
    /// order.
    pub arguments: Vec<(String, String)>,
}

impl RequestQuery {
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

/// Limit and offset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowRange {
    /// `limit`; may be negative, which is rejected later.
    pub limit: Option<i64>,
    /// `offset`
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
        /// The key in the response instead of `count`.
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
    /// The key in the response instead of the column's name.
    pub alias: Option<String>,
    /// The column, with a path into its JSON.
    pub field: Field,
    /// The type that the value is cast to, before any aggregate. Letters, digits, `_`, `$` and
    /// spaces only.
    pub cast: Option<String>,
    /// The aggregate over all rows' values.
    pub aggregate: Option<Aggregate>,
    /// The type that the aggregate is cast to.
    pub aggregate_cast: Option<String>,
}

/// A related relation in `select`.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectRelation {
    /// `...`: its columns become columns of the parent. Never with an alias.
    pub spread: bool,
    /// The key in the response instead of the name.
    pub alias: Option<String>,
    /// The target: a relation, a foreign key, a column or a function.
    pub name: String,
    /// `!name`: the name of the relationship.
    pub hint: Option<String>,
    /// `!inner` or `!left`.
    pub join: Option<Join>,
    /// The items selected from it; empty for `name()`, which selects nothing.
    pub select: Vec<SelectItem>,
}

/// The effect of an embed on rows of the parent without a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// They stay.
    Left,
    /// They are removed.
    Inner,
}

/// An aggregate function.
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

/// A column, optionally with a path into its JSON.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Field {
    /// The column's name, without quotes.
    pub name: String,
    /// The path into its JSON; empty for the whole value.
    pub json_path: Vec<JsonStep>,
}

/// One step of a JSON path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JsonStep {
    /// The type of the result.
    pub arrow: Arrow,
    /// The element or value.
    pub operand: Operand,
}

/// The type of the result of a JSON step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arrow {
    /// `->`
    Json,
    /// `->>`
    Text,
}

/// The element or value that a JSON step selects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Operand {
    /// An element of an array; a negative index counts from the end.
    Index(i32),
    /// A value of an object.
    Key(String),
}

/// A condition on one field.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    /// The field that is compared.
    pub field: Field,
    /// `not.`
    pub negated: bool,
    /// The operator and its right side.
    pub operation: FilterOperation,
}

/// An operator and its right side.
#[derive(Debug, Clone, PartialEq)]
pub enum FilterOperation {
    /// `in.(a,b)`. A list whose only element is empty is already the empty list here.
    In(Vec<String>),
    /// `is.null`, `is.true` and so on.
    Is(IsValue),
    /// `isdistinct.x`
    IsDistinct(String),
    /// `fts(config).query` and so on.
    Fts {
        /// The function that parses the query.
        function: Fts,
        /// The text search configuration.
        config: Option<String>,
        /// The query.
        value: String,
    },
    /// An operator without a quantifier.
    Simple(SimpleOperator, String),
    /// An operator with an optional quantifier: `eq(any).{a,b}`.
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

/// The function that makes a text search query of the value.
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

/// Operators that compare with one value only.
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

/// Operators that can compare with any or all of several values.
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

/// The number of values that must match.
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
    /// An inner node.
    Group {
        /// `not.`
        negated: bool,
        /// The operator between the parts.
        logic: Logic,
        /// At least one.
        parts: Vec<LogicTree>,
    },
}

/// The operator between conditions.
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
    /// The sort key.
    pub field: Field,
    /// `.asc`, `.desc`
    pub direction: Option<Direction>,
    /// `.nullsfirst`, `.nullslast`
    pub nulls: Option<Nulls>,
}

/// The sort direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// `.asc`
    Ascending,
    /// `.desc`
    Descending,
}

/// The position of rows without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// `.nullsfirst`
    First,
    /// `.nullslast`
    Last,
}
