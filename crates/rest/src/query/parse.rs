//! The whole query string.

use super::cursor::Cursor;
use super::filter::{ValueContext, condition, embed_path, key};
use super::lex::{Pair, pairs};
use super::logic::logic;
use super::order::{names, order};
use super::select::select;
use super::types::{AtLevel, Filter, RequestQuery, RowRange};
use crate::RestError;

/// The kind of resource that a query string belongs to. It decides the meaning of parameters
/// without a reserved name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryTarget {
    /// A table or view: such a parameter is a filter.
    Relation,
    /// A function.
    Function {
        /// GET or HEAD: such a parameter is an argument, unless its value parses as that of a
        /// filter.
        read: bool,
    },
}

/// The kind of a parameter, given by its key.
enum ParameterKind {
    Select,
    Columns,
    OnConflict,
    Order,
    Limit,
    Offset,
    Logic(&'static str),
    Filter,
}

impl ParameterKind {
    fn of(key: &str) -> Self {
        match key {
            "select" => return Self::Select,
            "columns" => return Self::Columns,
            "on_conflict" => return Self::OnConflict,
            _ => {}
        }
        match key.rsplit('.').next().unwrap_or(key) {
            "order" => Self::Order,
            "limit" => Self::Limit,
            "offset" => Self::Offset,
            "and" => Self::Logic("and"),
            "or" => Self::Logic("or"),
            _ => Self::Filter,
        }
    }
}

/// Parses a raw query string, without its `?`.
///
/// # Errors
///
/// [`RestError::Parse`] about the first parameter that cannot be parsed. Parameters are parsed in
/// this order: `order`, logic, `columns`, `select`, filters, `on_conflict`, `limit` and `offset`.
pub fn parse(raw: &str, target: QueryTarget) -> Result<RequestQuery, RestError> {
    let mut query = RequestQuery::default();
    let (mut columns, mut select_text, mut on_conflict) = (None, None, None);
    let (mut orders, mut logics, mut filters, mut ranges) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let pairs = pairs(raw)?;
    for pair in &pairs {
        match ParameterKind::of(&pair.0) {
            ParameterKind::Select => _ = select_text.get_or_insert(&pair.1),
            ParameterKind::Columns => _ = columns.get_or_insert(&pair.1),
            ParameterKind::OnConflict => _ = on_conflict.get_or_insert(&pair.1),
            ParameterKind::Order => orders.push(pair),
            ParameterKind::Limit => ranges.push((pair, true)),
            ParameterKind::Offset => ranges.push((pair, false)),
            ParameterKind::Logic(operator) => logics.push((pair, operator)),
            ParameterKind::Filter => filters.push(pair),
        }
    }

    for (key, value) in orders {
        let path = Cursor::read(key, format_args!("tree path ({key})"), embed_path)?;
        let value = Cursor::read(value, format_args!("order ({value})"), order)?;
        if query.orders.iter().all(|earlier| earlier.path != path) {
            query.orders.push(AtLevel { path, value });
        }
    }
    for (pair, operator) in logics {
        query.logic.push(read_logic(pair, operator)?);
    }
    if let Some(text) = columns {
        query.columns = Some(Cursor::read(text, format_args!("columns parameter ({text})"), names)?);
    }
    if let Some(text) = select_text {
        query.select = Cursor::read(text, format_args!("select parameter ({text})"), select)?;
    }
    for pair in filters {
        read_filter(pair, target, &mut query)?;
    }
    if let Some(text) = on_conflict {
        query.on_conflict = Some(Cursor::read(text, format_args!("on_conflict parameter ({text})"), names)?);
    }
    for ((key, value), is_limit) in ranges {
        read_range(key, value, is_limit, &mut query)?;
    }
    Ok(query)
}

fn read_logic((key, value): &Pair<'_>, operator: &str) -> Result<AtLevel<super::LogicTree>, RestError> {
    let mut path = Cursor::read(key, format_args!("logic path ({key})"), embed_path)?;
    let names = path.len();
    path.retain(|name| name != "not");
    let negation = if path.len() < names { "not." } else { "" };
    let tree = format!("{negation}{operator}{value}");
    Ok(AtLevel { path, value: Cursor::read(&tree, format_args!("logic tree ({value})"), logic)? })
}

fn read_filter((name, value): &Pair<'_>, target: QueryTarget, query: &mut RequestQuery) -> Result<(), RestError> {
    let reads = |cursor: &mut Cursor<'_>| condition(cursor, ValueContext::RoutineParameter);
    if target == (QueryTarget::Function { read: true }) && reads(&mut Cursor::new(value)).is_err() {
        query.arguments.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        return Ok(());
    }
    let AtLevel { path, value: field } = Cursor::read(name, format_args!("tree path ({name})"), key)?;
    let (negated, operation) = Cursor::read(value, format_args!("filter ({value})"), reads)?;
    query.filters.push(AtLevel { path, value: Filter { field, negated, operation } });
    Ok(())
}

fn read_range(key: &str, value: &str, is_limit: bool, query: &mut RequestQuery) -> Result<(), RestError> {
    let path = Cursor::read(key, format_args!("tree path ({key})"), embed_path)?;
    let Some(number) = integer(value) else { return Ok(()) };
    let at = match query.ranges.iter().position(|earlier| earlier.path == path) {
        Some(at) => at,
        None => {
            query.ranges.push(AtLevel { path, value: RowRange::default() });
            query.ranges.len() - 1
        }
    };
    let range = &mut query.ranges[at].value;
    *(if is_limit { &mut range.limit } else { &mut range.offset }) = Some(number);
    Ok(())
}

/// Parses an integer of any length, saturating.
fn integer(text: &str) -> Option<i64> {
    let text = text.trim();
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(if digits.len() < text.len() { i64::MIN } else { i64::MAX }))
}
