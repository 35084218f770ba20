//! Writes a query string that parses to a given [`RequestQuery`], for property tests.

use std::fmt::Write as _;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::*;

/// Returns `query` as a query string.
pub(super) fn print(query: &RequestQuery) -> String {
    let mut pairs = Vec::new();
    if !query.select.is_empty() {
        pairs.push(("select".to_owned(), items(&query.select)));
    }
    for (key, list) in [("columns", &query.columns), ("on_conflict", &query.on_conflict)] {
        pairs.extend(list.as_ref().map(|list| (key.to_owned(), joined(list, ", ", |name| quoted(name)))));
    }
    for AtLevel { path, value } in &query.filters {
        let key = keyed(path, &field(&value.field));
        pairs.push((key, condition(value.negated, &value.operation, false)));
    }
    for AtLevel { path, value } in &query.logic {
        let tree = tree(value);
        let (operator, rest) = tree.split_at(tree.find('(').unwrap());
        pairs.push((keyed(path, operator), rest.to_owned()));
    }
    for AtLevel { path, value } in &query.orders {
        pairs.push((keyed(path, "order"), joined(value, ",", term)));
    }
    for AtLevel { path, value } in &query.ranges {
        for (key, number) in [("limit", value.limit), ("offset", value.offset)] {
            pairs.extend(number.map(|number| (keyed(path, key), number.to_string())));
        }
    }
    pairs.extend(query.arguments.iter().cloned());
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    joined(&pairs, "&", |(key, value)| format!("{}={}", encode(key), encode(value)))
}

fn joined<T>(items: &[T], separator: &str, print: impl Fn(&T) -> String) -> String {
    items.iter().map(print).collect::<Vec<_>>().join(separator)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

fn keyed(path: &[String], last: &str) -> String {
    path.iter().map(|name| quoted(name) + ".").collect::<String>() + last
}

fn field(field: &Field) -> String {
    let mut text = quoted(&field.name);
    for JsonStep { arrow, operand } in &field.json_path {
        text.push_str(if *arrow == Arrow::Json { "->" } else { "->>" });
        match operand {
            Operand::Index(index) => _ = write!(text, "{index}"),
            Operand::Key(key) => text.push_str(&quoted(key)),
        }
    }
    text
}

fn items(list: &[SelectItem]) -> String {
    joined(list, " ,\t", item)
}

fn item(item: &SelectItem) -> String {
    let mut text = String::new();
    let aliased = |alias: &Option<String>| alias.as_ref().map_or(String::new(), |alias| quoted(alias) + ":");
    let cast = |cast: &Option<String>| cast.as_ref().map_or(String::new(), |cast| format!("::{cast}"));
    match item {
        SelectItem::Star => text.push('*'),
        SelectItem::CountRows { alias, cast: to } => text = aliased(alias) + "count()" + &cast(to),
        SelectItem::Column(column) => {
            text = aliased(&column.alias) + &field(&column.field) + &cast(&column.cast);
            if let Some(aggregate) = column.aggregate {
                let name = match aggregate {
                    Aggregate::Sum => "sum",
                    Aggregate::Avg => "avg",
                    Aggregate::Count => "count",
                    Aggregate::Max => "max",
                    Aggregate::Min => "min",
                };
                let _ = write!(text, ".{name}(){}", cast(&column.aggregate_cast));
            }
        }
        SelectItem::Relation(relation) => {
            text = if relation.spread { "...".to_owned() } else { aliased(&relation.alias) };
            text += &quoted(&relation.name);
            text.extend(relation.hint.iter().map(|hint| format!("!{}", quoted(hint))));
            text.extend(relation.join.map(|join| if join == Join::Left { "!left" } else { "!inner" }));
            let _ = write!(text, "({})", items(&relation.select));
        }
    }
    text
}

fn condition(negated: bool, operation: &FilterOperation, in_logic: bool) -> String {
    let value = |text: &String| if in_logic { quoted(text) } else { text.clone() };
    let not = if negated { "not." } else { "" };
    let text = match operation {
        FilterOperation::In(list) => format!("in.({})", joined(list, ",", |text| quoted(text))),
        FilterOperation::Is(is) => match is {
            IsValue::Null => "is.null",
            IsValue::NotNull => "is.not_NULL",
            IsValue::True => "is.TRUE",
            IsValue::False => "is.false",
            IsValue::Unknown => "is.unknown",
        }
        .to_owned(),
        FilterOperation::IsDistinct(text) => format!("isdistinct.{}", value(text)),
        FilterOperation::Fts { function, config, value: text } => {
            let name = match function {
                Fts::Query => "fts",
                Fts::Plain => "plfts",
                Fts::Phrase => "phfts",
                Fts::Web => "wfts",
            };
            let config = config.as_ref().map_or(String::new(), |config| format!("({config})"));
            format!("{name}{config}.{}", value(text))
        }
        FilterOperation::Simple(operator, text) => {
            let name = match operator {
                SimpleOperator::NotEqual => "neq",
                SimpleOperator::Contains => "cs",
                SimpleOperator::ContainedBy => "cd",
                SimpleOperator::Overlaps => "ov",
                SimpleOperator::StrictlyLeft => "sl",
                SimpleOperator::StrictlyRight => "sr",
                SimpleOperator::NotExtendsRight => "nxr",
                SimpleOperator::NotExtendsLeft => "nxl",
                SimpleOperator::Adjacent => "adj",
            };
            format!("{name}.{}", value(text))
        }
        FilterOperation::Quantified(operator, quantifier, text) => {
            let name = match operator {
                QuantOperator::Equal => "eq",
                QuantOperator::GreaterOrEqual => "gte",
                QuantOperator::Greater => "gt",
                QuantOperator::LessOrEqual => "lte",
                QuantOperator::Less => "lt",
                QuantOperator::Like => "like",
                QuantOperator::ILike => "ilike",
                QuantOperator::Match => "match",
                QuantOperator::IMatch => "imatch",
            };
            let quantifier = match quantifier {
                None => "",
                Some(Quantifier::Any) => "(any)",
                Some(Quantifier::All) => "(all)",
            };
            format!("{name}{quantifier}.{}", value(text))
        }
    };
    format!("{not}{text}")
}

fn tree(tree: &LogicTree) -> String {
    match tree {
        LogicTree::Filter(filter) => {
            format!("{}.{}", field(&filter.field), condition(filter.negated, &filter.operation, true))
        }
        LogicTree::Group { negated, logic, parts } => {
            let not = if *negated { "not." } else { "" };
            let name = if *logic == Logic::And { "and" } else { "or" };
            format!("{not}{name}({})", joined(parts, ", ", self::tree))
        }
    }
}

fn term(term: &OrderTerm) -> String {
    let mut text = match &term.relation {
        Some(relation) => format!("{}({})", quoted(relation), field(&term.field)),
        None => field(&term.field),
    };
    text.push_str(match term.direction {
        None => "",
        Some(Direction::Ascending) => ".asc",
        Some(Direction::Descending) => ".desc",
    });
    text.push_str(match term.nulls {
        None => "",
        Some(Nulls::First) => ".nullsfirst",
        Some(Nulls::Last) => ".nullslast",
    });
    text
}
