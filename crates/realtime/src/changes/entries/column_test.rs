//! Conditions that are ready to be evaluated: by the server itself where PostgreSQL's comparison is
//! one of bytes or integers, otherwise by PostgreSQL.

use std::sync::Arc;

use serde::Deserialize;

use super::filter::{FilterCondition, FilterOperator};

/// A column that a filter or a selection names, as the catalog describes it to a role.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct ColumnFacts {
    pub name: Box<str>,
    pub type_oid: u32,
    /// The name of the type in SQL, with its schema.
    pub type_sql: Box<str>,
    /// The name of the type in messages.
    pub type_text: Box<str>,
    /// The letter of `typtype`.
    pub type_kind: Box<str>,
    /// The letter of `typcategory`.
    pub category: Box<str>,
    /// The name of the collation in SQL, unless it is the database's.
    pub collation: Option<Box<str>>,
    /// Equal means equal bytes.
    pub is_deterministic: bool,
    /// The role may read the column.
    pub is_readable: bool,
}

/// The value of a column in a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValue<'a> {
    /// The change does not contain the column.
    Absent,
    Null,
    /// PostgreSQL's text form.
    Text(&'a str),
}

/// The conditions of an entry for one table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CompiledFilter {
    pub tests: Box<[ColumnTest]>,
}

/// A condition on a column of a known type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ColumnTest {
    pub column: Box<str>,
    pub type_oid: u32,
    pub test: Test,
}

/// The way a condition is evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Test {
    Local(LocalTest),
    Database(DatabaseTest),
}

/// A condition that the server evaluates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LocalTest {
    /// The text form of the value is one of these.
    OneOf {
        values: Box<[Box<str>]>,
        has_null: bool,
        is_negated: bool,
    },
    /// The text form is another one, or there is no value.
    Distinct {
        value: Box<str>,
        is_negated: bool,
    },
    /// A comparison of integers.
    Integer {
        operator: FilterOperator,
        value: i64,
        is_negated: bool,
    },
    /// A comparison of bytes in hexadecimal digits.
    Bytes {
        operator: FilterOperator,
        value: Box<str>,
        is_negated: bool,
    },
    IsNull {
        is_negated: bool,
    },
    /// A test of a boolean column; `unknown` is [`IsNull`](Self::IsNull).
    IsBoolean {
        value: bool,
        is_negated: bool,
    },
}

/// A condition that PostgreSQL evaluates.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DatabaseTest {
    /// A boolean expression over `item.value` and `item.literal`, both text.
    pub expression: Arc<str>,
    pub literal: Box<str>,
    /// The condition can hold for a null.
    pub accepts_null: bool,
}

/// A compiled condition, or the step that is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Compilation {
    /// Nothing.
    Ready(Test),
    /// PostgreSQL has to check the operand first.
    Check(OperandCheck),
}

/// A check of an operand by PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OperandCheck {
    /// Selects a JSON array of texts. Its parameter is the operand.
    pub sql: String,
    pub then: AfterCheck,
}

/// The use of the result of a [`OperandCheck`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AfterCheck {
    /// The selected texts are the operands in their canonical form.
    Canonical(LocalType),
    /// The condition is evaluated by PostgreSQL, if the operand is valid.
    Database(DatabaseTest),
    /// A test like `Database`, for a regular expression.
    Pattern(DatabaseTest),
}

/// The reason why a condition does not fit a column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConditionError {
    #[error("too many values for `in` filter. Maximum 100")]
    TooManyValues,
    #[error("invalid value for is filter: must be null, true, false, or unknown")]
    InvalidIs,
    #[error("is {value} filter requires a boolean column, got {type_text}")]
    IsNeedsBoolean { value: Box<str>, type_text: Box<str> },
    #[error("operator {operator} requires a text-compatible column type, got {type_text}")]
    NeedsText { operator: &'static str, type_text: Box<str> },
}

/// The largest number of values of an `in` list.
pub(crate) const MAX_IN_VALUES: usize = 100;

const BOOL: u32 = 16;
const BYTEA: u32 = 17;
const INT8: u32 = 20;
const INT2: u32 = 21;
const INT4: u32 = 23;
const TEXT: u32 = 25;
const VARCHAR: u32 = 1043;
const UUID: u32 = 2950;

/// Types whose equal values have equal text forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalType {
    Integer,
    Uuid,
    Boolean,
    Text,
    Bytes,
}

impl LocalType {
    fn of(column: &ColumnFacts) -> Option<Self> {
        match column.type_oid {
            INT2 | INT4 | INT8 => Some(Self::Integer),
            UUID => Some(Self::Uuid),
            BOOL => Some(Self::Boolean),
            TEXT | VARCHAR if column.is_deterministic => Some(Self::Text),
            BYTEA => Some(Self::Bytes),
            _ => None,
        }
    }

    /// Returns true for the operators that need no more than the text forms.
    fn evaluates(self, operator: FilterOperator) -> bool {
        match operator {
            FilterOperator::Eq | FilterOperator::Neq | FilterOperator::In | FilterOperator::IsDistinct => true,
            FilterOperator::Lt | FilterOperator::Lte | FilterOperator::Gt | FilterOperator::Gte => {
                matches!(self, Self::Integer | Self::Bytes)
            }
            _ => false,
        }
    }

    /// Returns the canonical text of a literal. `None`: PostgreSQL has to decide what it means.
    fn canonical(self, type_oid: u32, literal: &str) -> Option<Box<str>> {
        match self {
            Self::Integer => {
                let number: i64 = literal.parse().ok()?;
                let fits = match type_oid {
                    INT2 => i16::try_from(number).is_ok(),
                    INT4 => i32::try_from(number).is_ok(),
                    _ => true,
                };
                fits.then(|| number.to_string().into())
            }
            Self::Uuid => {
                let is_canonical = literal.len() == 36
                    && literal.bytes().enumerate().all(|(at, byte)| match at {
                        8 | 13 | 18 | 23 => byte == b'-',
                        _ => byte.is_ascii_hexdigit(),
                    });
                is_canonical.then(|| literal.to_ascii_lowercase().into())
            }
            Self::Boolean => match literal {
                "true" | "t" => Some("t".into()),
                "false" | "f" => Some("f".into()),
                _ => None,
            },
            Self::Text => Some(literal.into()),
            Self::Bytes => Some(hex_digits(literal)),
        }
    }
}

/// Compiles a condition for a column.
///
/// # Errors
/// [`ConditionError`]
pub(crate) fn compile(condition: &FilterCondition, column: &ColumnFacts) -> Result<Compilation, ConditionError> {
    match condition.operator {
        FilterOperator::Is => compile_is(condition, column),
        operator if operator.takes_pattern() => compile_pattern(condition, column),
        operator => match LocalType::of(column) {
            Some(local) if local.evaluates(operator) => compile_local(condition, column, local),
            _ => Ok(compile_for_database(condition, column)),
        },
    }
}

fn compile_is(condition: &FilterCondition, column: &ColumnFacts) -> Result<Compilation, ConditionError> {
    let is_negated = condition.is_negated;
    let value = condition.value.to_ascii_lowercase();
    let test = match &*value {
        // A row is null when all its fields are
        "null" if &*column.type_kind == "c" => Test::Database(database_test(condition, column)),
        "null" => Test::Local(LocalTest::IsNull { is_negated }),
        "true" | "false" | "unknown" if column.type_oid != BOOL => {
            let (value, type_text) = (condition.value.clone(), column.type_text.clone());
            return Err(ConditionError::IsNeedsBoolean { value, type_text });
        }
        "unknown" => Test::Local(LocalTest::IsNull { is_negated }),
        "true" | "false" => Test::Local(LocalTest::IsBoolean { value: value == "true", is_negated }),
        _ => return Err(ConditionError::InvalidIs),
    };
    Ok(Compilation::Ready(test))
}

fn compile_pattern(condition: &FilterCondition, column: &ColumnFacts) -> Result<Compilation, ConditionError> {
    if &*column.category != "S" {
        let (operator, type_text) = (condition.operator.name(), column.type_text.clone());
        return Err(ConditionError::NeedsText { operator, type_text });
    }
    let test = database_test(condition, column);
    if matches!(condition.operator, FilterOperator::Like | FilterOperator::Ilike) {
        return Ok(Compilation::Ready(Test::Database(test)));
    }
    let sql = "select pg_catalog.jsonb_build_array(('' operator(pg_catalog.~) $1::pg_catalog.text)::pg_catalog.text)::pg_catalog.text";
    Ok(Compilation::Check(OperandCheck { sql: sql.to_owned(), then: AfterCheck::Pattern(test) }))
}

fn compile_local(
    condition: &FilterCondition,
    column: &ColumnFacts,
    local: LocalType,
) -> Result<Compilation, ConditionError> {
    let literal = &*condition.value;
    let canonical = |literal: &str| local.canonical(column.type_oid, literal);
    let is_list = condition.operator == FilterOperator::In;
    let operands: Option<Vec<_>> = if is_list {
        let canonical = |element: Option<&str>| element.map_or(Some(None), |text| canonical(text).map(Some));
        plain_elements(literal).and_then(|elements| elements.into_iter().map(canonical).collect())
    } else {
        canonical(literal).map(|value| vec![Some(value)])
    };
    if let Some(operands) = operands {
        return Ok(Compilation::Ready(Test::Local(local_test(condition, local, operands)?)));
    }
    let type_sql = if local == LocalType::Bytes { "pg_catalog.text" } else { &*column.type_sql };
    let source =
        if is_list { format!("pg_catalog.unnest($1::{type_sql}[])") } else { format!("(values ($1::{type_sql}))") };
    let sql = format!(
        "select coalesce(pg_catalog.jsonb_agg(case when item.value is null then null \
                else pg_catalog.format('%s', item.value) end), '[]')::pg_catalog.text \
           from {source} as item (value)"
    );
    Ok(Compilation::Check(OperandCheck { sql, then: AfterCheck::Canonical(local) }))
}

/// Completes a condition whose operands PostgreSQL has brought into their canonical form.
///
/// # Errors
/// [`ConditionError::TooManyValues`]
pub(crate) fn complete(
    condition: &FilterCondition,
    local: LocalType,
    operands: Vec<Option<Box<str>>>,
) -> Result<Test, ConditionError> {
    let canonical = |text: Box<str>| if local == LocalType::Bytes { hex_digits(&text) } else { text };
    let operands = operands.into_iter().map(|operand| operand.map(canonical)).collect();
    local_test(condition, local, operands).map(Test::Local)
}

/// Returns the digits of a `bytea` as clients receive them: without the prefix.
fn hex_digits(text: &str) -> Box<str> {
    text.strip_prefix("\\x").unwrap_or(text).to_ascii_lowercase().into()
}

fn local_test(
    condition: &FilterCondition,
    local: LocalType,
    operands: Vec<Option<Box<str>>>,
) -> Result<LocalTest, ConditionError> {
    let is_negated = condition.is_negated;
    let count = operands.len();
    let has_null = operands.iter().any(Option::is_none);
    let mut values: Vec<Box<str>> = operands.into_iter().flatten().collect();
    let first = |values: Vec<Box<str>>| values.into_iter().next().unwrap_or_default();
    Ok(match condition.operator {
        FilterOperator::In if count > MAX_IN_VALUES => return Err(ConditionError::TooManyValues),
        FilterOperator::In => {
            values.sort_unstable();
            values.dedup();
            LocalTest::OneOf { values: values.into(), has_null, is_negated }
        }
        FilterOperator::Neq => LocalTest::OneOf { values: values.into(), has_null, is_negated: !is_negated },
        FilterOperator::IsDistinct => LocalTest::Distinct { value: first(values), is_negated },
        FilterOperator::Lt | FilterOperator::Lte | FilterOperator::Gt | FilterOperator::Gte => {
            let (operator, value) = (condition.operator, first(values));
            match (local, value.parse()) {
                (LocalType::Integer, Ok(value)) => LocalTest::Integer { operator, value, is_negated },
                _ => LocalTest::Bytes { operator, value, is_negated },
            }
        }
        _ => LocalTest::OneOf { values: values.into(), has_null, is_negated },
    })
}

fn compile_for_database(condition: &FilterCondition, column: &ColumnFacts) -> Compilation {
    let test = database_test(condition, column);
    let type_sql = &column.type_sql;
    // The operand is cast even where the expression, of a null, needs no value of it
    let operand = match condition.operator {
        FilterOperator::In => {
            format!("coalesce(pg_catalog.array_length(item.literal::{type_sql}[], 1), 0)::pg_catalog.text")
        }
        _ => format!("pg_catalog.format('%s', item.literal::{type_sql})"),
    };
    let sql = format!(
        "select pg_catalog.jsonb_build_array({operand}, ({})::pg_catalog.text)::pg_catalog.text \
           from (values (null::pg_catalog.text, $1::pg_catalog.text)) as item (value, literal)",
        test.expression
    );
    Compilation::Check(OperandCheck { sql, then: AfterCheck::Database(test) })
}

fn database_test(condition: &FilterCondition, column: &ColumnFacts) -> DatabaseTest {
    let type_sql = &column.type_sql;
    let collation = column.collation.as_ref().map(|name| format!(" collate {name}")).unwrap_or_default();
    let value = format!("(item.value::{type_sql}{collation})");
    let symbol = match condition.operator {
        FilterOperator::Eq => "=",
        FilterOperator::Neq => "<>",
        FilterOperator::Lt => "<",
        FilterOperator::Lte => "<=",
        FilterOperator::Gt => ">",
        FilterOperator::Gte => ">=",
        FilterOperator::IsDistinct => "is distinct from",
        FilterOperator::Like => "operator(pg_catalog.~~)",
        FilterOperator::Ilike => "operator(pg_catalog.~~*)",
        FilterOperator::Match => "operator(pg_catalog.~)",
        FilterOperator::Imatch => "operator(pg_catalog.~*)",
        FilterOperator::In | FilterOperator::Is => "",
    };
    let comparison = match condition.operator {
        FilterOperator::Is => format!("{value} is null"),
        FilterOperator::In => format!("{value} = any (item.literal::{type_sql}[])"),
        operator if operator.takes_pattern() => format!("item.value {symbol} item.literal"),
        _ => format!("{value} {symbol} item.literal::{type_sql}"),
    };
    let expression = if condition.is_negated { format!("not ({comparison})") } else { comparison };
    DatabaseTest {
        expression: expression.into(),
        literal: condition.value.clone(),
        accepts_null: condition.operator.accepts_null(),
    }
}

/// Returns the elements of an array literal without quotes, escapes and nesting. `None` if it has
/// any, so that PostgreSQL has to parse it.
fn plain_elements(literal: &str) -> Option<Vec<Option<&str>>> {
    let list = literal.strip_prefix('{')?.strip_suffix('}')?;
    let is_plain = |byte: u8| !matches!(byte, b'"' | b'\\' | b'{' | b'}' | 0x0b | 0x0c);
    if !list.bytes().all(is_plain) {
        return None;
    }
    let list = list.trim_ascii();
    if list.is_empty() {
        return Some(Vec::new());
    }
    let elements = list.split(',').map(str::trim_ascii);
    elements
        .map(|text| (!text.is_empty()).then(|| Some(text).filter(|text| !text.eq_ignore_ascii_case("null"))))
        .collect()
}

impl CompiledFilter {
    /// Returns true if PostgreSQL has to evaluate a condition.
    pub fn needs_database(&self) -> bool {
        self.tests.iter().any(|test| matches!(test.test, Test::Database(_)))
    }

    /// Returns a column and the values of which it must have one for the filter to hold, if there
    /// is such a column.
    pub fn index_values(&self) -> Option<(&str, &[Box<str>])> {
        self.tests.iter().find_map(|test| match &test.test {
            Test::Local(LocalTest::OneOf { values, is_negated: false, .. }) => Some((&*test.column, &**values)),
            _ => None,
        })
    }
}

impl<'a> FieldValue<'a> {
    /// Returns the value of a column with a text.
    pub fn of_text(type_oid: u32, text: &'a str) -> Self {
        // As clients see it, and as they write it in filters
        let prefix = if type_oid == BYTEA { "\\x" } else { "" };
        Self::Text(text.strip_prefix(prefix).unwrap_or(text))
    }
}

impl LocalTest {
    /// Returns true if the condition holds. A null meets no condition but those about nulls.
    pub fn holds(&self, field: FieldValue<'_>) -> bool {
        let text = match field {
            FieldValue::Absent => return false,
            FieldValue::Null => {
                return match self {
                    Self::IsNull { is_negated } | Self::Distinct { is_negated, .. } => !is_negated,
                    Self::IsBoolean { is_negated, .. } => *is_negated,
                    Self::OneOf { .. } | Self::Integer { .. } | Self::Bytes { .. } => false,
                };
            }
            FieldValue::Text(text) => text,
        };
        match self {
            Self::OneOf { values, has_null, is_negated } => {
                let is_one = values.binary_search_by(|value| (**value).cmp(text)).is_ok();
                // With a null in the list the result is unknown instead of false
                if *is_negated { !is_one && !has_null } else { is_one }
            }
            Self::Distinct { value, is_negated } => (**value != *text) != *is_negated,
            Self::Integer { operator, value, is_negated } => {
                text.parse::<i64>().is_ok_and(|number| is_in_order(*operator, number.cmp(value)) != *is_negated)
            }
            Self::Bytes { operator, value, is_negated } => is_in_order(*operator, text.cmp(value)) != *is_negated,
            Self::IsNull { is_negated } => *is_negated,
            Self::IsBoolean { value, is_negated } => ((text == "t") == *value) != *is_negated,
        }
    }
}

fn is_in_order(operator: FilterOperator, order: std::cmp::Ordering) -> bool {
    match operator {
        FilterOperator::Lt => order.is_lt(),
        FilterOperator::Lte => order.is_le(),
        FilterOperator::Gt => order.is_gt(),
        FilterOperator::Gte => order.is_ge(),
        _ => false,
    }
}
