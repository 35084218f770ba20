//! The filter of an entry: conditions that a row has to meet, all of them.
//!
//! `column=operator.value,column=not.operator.value`. Commas do not separate inside parentheses or
//! quotes.

use std::borrow::Cow;
use std::fmt;

/// The largest filter in bytes.
const MAX_BYTES: usize = 16 * 1024;
/// The largest number of conditions of a filter.
const MAX_CONDITIONS: usize = 100;

/// A condition on one column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FilterCondition {
    pub column: Box<str>,
    pub operator: FilterOperator,
    /// The operand as text. An array literal for [`FilterOperator::In`].
    pub value: Box<str>,
    /// The condition holds for the rows for which the operator returns false.
    pub is_negated: bool,
}

/// An operator between a column and a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FilterOperator {
    Eq,
    Neq,
    Lt,
    Lte,
    Gt,
    Gte,
    In,
    Like,
    Ilike,
    Match,
    Imatch,
    Is,
    IsDistinct,
}

impl FilterOperator {
    const ALL: [Self; 13] = [
        Self::Eq,
        Self::Neq,
        Self::Lt,
        Self::Lte,
        Self::Gt,
        Self::Gte,
        Self::In,
        Self::Like,
        Self::Ilike,
        Self::Match,
        Self::Imatch,
        Self::Is,
        Self::IsDistinct,
    ];

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operator| operator.name() == name)
    }

    /// Returns the name in a filter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::Neq => "neq",
            Self::Lt => "lt",
            Self::Lte => "lte",
            Self::Gt => "gt",
            Self::Gte => "gte",
            Self::In => "in",
            Self::Like => "like",
            Self::Ilike => "ilike",
            Self::Match => "match",
            Self::Imatch => "imatch",
            Self::Is => "is",
            Self::IsDistinct => "isdistinct",
        }
    }

    /// Returns true for the operators that compare text with a pattern.
    pub fn takes_pattern(self) -> bool {
        matches!(self, Self::Like | Self::Ilike | Self::Match | Self::Imatch)
    }

    /// Returns true for the operators that can be true of a null.
    pub fn accepts_null(self) -> bool {
        matches!(self, Self::Is | Self::IsDistinct)
    }
}

/// Prints a condition in the form of messages to clients.
impl fmt::Display for FilterCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { column, operator, value, is_negated } = self;
        write!(f, "{{{column:?}, {:?}, {value:?}, {is_negated}}}", operator.name())
    }
}

/// The reason why a filter cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FilterError {
    /// No operator, or an unknown one: the pieces of the condition.
    Unparsed(Vec<Box<str>>),
    EmptySegment,
    InWithoutParentheses,
    TooLong,
    TooManyConditions,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unparsed(pieces) => write!(f, "{pieces:?}"),
            Self::EmptySegment => f.write_str("filter must not contain empty segments (check for extra commas)"),
            Self::InWithoutParentheses => f.write_str("`in` filter value must be wrapped by parentheses"),
            Self::TooLong => write!(f, "filter must not be longer than {MAX_BYTES} bytes"),
            Self::TooManyConditions => write!(f, "filter must not contain more than {MAX_CONDITIONS} conditions"),
        }
    }
}

/// Parses a filter. A blank one has no conditions.
///
/// # Errors
/// [`FilterError`]
pub(crate) fn parse_filter(filter: &str) -> Result<Vec<FilterCondition>, FilterError> {
    if filter.len() > MAX_BYTES {
        return Err(FilterError::TooLong);
    }
    if filter.trim().is_empty() {
        return Ok(Vec::new());
    }
    let segments = split(filter);
    if segments.len() > MAX_CONDITIONS {
        return Err(FilterError::TooManyConditions);
    }
    if segments.iter().any(|segment| segment.trim().is_empty()) {
        return Err(FilterError::EmptySegment);
    }
    segments.into_iter().map(|segment| parse_condition(segment.trim())).collect()
}

/// Splits a filter at the commas that are neither in parentheses nor in quotes. A quote opens only
/// after a point, a parenthesis or a comma, so that one inside of a word is an ordinary character.
fn split(filter: &str) -> Vec<&str> {
    let mut segments = Vec::new();
    let (mut start, mut depth, mut is_quoted, mut before) = (0, 0_usize, false, '\0');
    let mut characters = filter.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' if is_quoted => {
                characters.next();
            }
            '"' if is_quoted => is_quoted = false,
            _ if is_quoted => {}
            '"' if matches!(before, '.' | '(' | ',') => is_quoted = true,
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                segments.push(&filter[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        before = character;
    }
    segments.push(&filter[start..]);
    segments
}

fn parse_condition(segment: &str) -> Result<FilterCondition, FilterError> {
    let pieces = |pieces: &[&str]| FilterError::Unparsed(pieces.iter().map(|piece| (*piece).into()).collect());
    let (column, rest) = segment.split_once('=').ok_or_else(|| pieces(&[segment]))?;
    let (is_negated, rest) = match rest.strip_prefix("not.") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let (name, value) = rest.split_once('.').ok_or_else(|| pieces(&[rest]))?;
    let operator = FilterOperator::parse(name).ok_or_else(|| pieces(&[name, value]))?;
    let value = match operator {
        FilterOperator::In => {
            let list = value.strip_prefix('(').and_then(|value| value.strip_suffix(')'));
            format!("{{{}}}", list.ok_or(FilterError::InWithoutParentheses)?).into()
        }
        _ => unquoted(value).into(),
    };
    Ok(FilterCondition { column: column.into(), operator, value, is_negated })
}

/// Returns a value without the quotes around it. One whose quotes are not balanced is returned as
/// it is.
fn unquoted(value: &str) -> Cow<'_, str> {
    let Some(inner) = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) else { return value.into() };
    let mut unescaped = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => return value.into(),
            '\\' => match characters.next() {
                Some(escaped) => unescaped.push(escaped),
                None => return value.into(),
            },
            other => unescaped.push(other),
        }
    }
    unescaped.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn condition(column: &str, operator: FilterOperator, value: &str) -> FilterCondition {
        FilterCondition { column: column.into(), operator, value: value.into(), is_negated: false }
    }

    #[test]
    fn conditions_are_read_as_the_grammar_says() {
        let not = |condition: FilterCondition| FilterCondition { is_negated: true, ..condition };
        for (filter, conditions) in [
            ("", vec![]),
            ("  ", vec![]),
            ("id=eq.1", vec![condition("id", FilterOperator::Eq, "1")]),
            (
                " id=eq.1 , a=lt.2 ",
                vec![condition("id", FilterOperator::Eq, "1"), condition("a", FilterOperator::Lt, "2")],
            ),
            ("id=not.in.(1, 2)", vec![not(condition("id", FilterOperator::In, "{1, 2}"))]),
            ("a=in.(\"x,y\",z)", vec![condition("a", FilterOperator::In, "{\"x,y\",z}")]),
            (
                "a=in.(\"x)\",z),b=eq.1",
                vec![condition("a", FilterOperator::In, "{\"x)\",z}"), condition("b", FilterOperator::Eq, "1")],
            ),
            ("a=eq.b=c.d", vec![condition("a", FilterOperator::Eq, "b=c.d")]),
            ("a=eq.", vec![condition("a", FilterOperator::Eq, "")]),
            ("=eq.1", vec![condition("", FilterOperator::Eq, "1")]),
            ("a=eq.\"b,\\\"c\\\\\"", vec![condition("a", FilterOperator::Eq, "b,\"c\\")]),
            ("a=eq.\"b", vec![condition("a", FilterOperator::Eq, "\"b")]),
            ("a=eq.\"b\"c\"", vec![condition("a", FilterOperator::Eq, "\"b\"c\"")]),
            ("a=eq.\"", vec![condition("a", FilterOperator::Eq, "\"")]),
            (
                "a=eq.b\",c=eq.d\"",
                vec![condition("a", FilterOperator::Eq, "b\""), condition("c", FilterOperator::Eq, "d\"")],
            ),
            ("a=match.^(x|y,z)$", vec![condition("a", FilterOperator::Match, "^(x|y,z)$")]),
            ("a=not.is.null", vec![not(condition("a", FilterOperator::Is, "null"))]),
            ("a=eq.not.b", vec![condition("a", FilterOperator::Eq, "not.b")]),
        ] {
            assert_eq!(parse_filter(filter), Ok(conditions), "{filter}");
        }
        for operator in FilterOperator::ALL.into_iter().filter(|operator| *operator != FilterOperator::In) {
            let expected = condition("a", operator, "v.w");
            assert_eq!(parse_filter(&format!("a={}.v.w", operator.name())), Ok(vec![expected]));
        }
    }

    #[test]
    fn a_filter_that_cannot_be_read_has_the_detail_of_the_protocol() {
        for (filter, detail) in [
            ("wrong", r#"["wrong"]"#),
            ("id=foo.hey", r#"["foo", "hey"]"#),
            ("id=eq", r#"["eq"]"#),
            ("id=EQ.1", r#"["EQ", "1"]"#),
            ("id=not.foo.hey", r#"["foo", "hey"]"#),
            ("id=in.1,2", "`in` filter value must be wrapped by parentheses"),
            ("id=in.(1", "`in` filter value must be wrapped by parentheses"),
            ("id=in.", "`in` filter value must be wrapped by parentheses"),
            ("id=eq.1,", "filter must not contain empty segments (check for extra commas)"),
            (",id=eq.1", "filter must not contain empty segments (check for extra commas)"),
            ("id=eq.1, ,a=eq.2", "filter must not contain empty segments (check for extra commas)"),
            (&"x".repeat(MAX_BYTES + 1), "filter must not be longer than 16384 bytes"),
            (&["a=eq.1"; 101].join(","), "filter must not contain more than 100 conditions"),
        ] {
            assert_eq!(parse_filter(filter).unwrap_err().to_string(), detail, "{filter}");
        }
    }

    #[test]
    fn a_condition_is_printed_as_the_protocol_prints_it() {
        let condition = FilterCondition { is_negated: true, ..condition("a\"b", FilterOperator::Eq, "1") };
        assert_eq!(condition.to_string(), r#"{"a\"b", "eq", "1", true}"#);
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(filter: String, dense in r#"[a=.,()"\\ not.einq]{0,60}"#) {
            let _ = parse_filter(&filter);
            let _ = parse_filter(&dense);
        }

        #[test]
        fn quoted_values_survive(values in prop::collection::vec(any::<String>(), 1..5)) {
            let escape = |value: &String| format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""));
            let filter = values.iter().map(|value| format!("a=eq.{}", escape(value))).collect::<Vec<_>>().join(",");
            prop_assume!(filter.len() <= MAX_BYTES);
            let got: Vec<_> = parse_filter(&filter).unwrap().into_iter().map(|condition| condition.value.into_string()).collect();
            prop_assert_eq!(got, values);
        }
    }
}
