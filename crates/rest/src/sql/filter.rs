//! Conditions as SQL.

use portico_database::quote::text_array;

use super::Sql;
use crate::plan::{ColumnPath, RowCondition};
use crate::query::{Arrow, FilterOperation, Fts, IsValue, Logic, Operand, QuantOperator, Quantifier, SimpleOperator};
use crate::schema::QualifiedName;

/// Appends conditions, joined by AND, on rows with the name `alias`. `exists` writes the condition
/// on the embed with an index.
pub fn conditions(sql: &mut Sql, alias: &str, conditions: &[RowCondition], exists: &dyn Fn(&mut Sql, usize)) {
    sql.list(" AND ", conditions, |sql, each| condition(sql, alias, each, exists));
}

fn condition(sql: &mut Sql, alias: &str, condition: &RowCondition, exists: &dyn Fn(&mut Sql, usize)) {
    match condition {
        RowCondition::Filter { column, negated, operation, from_text, to_tsvector } => {
            if *negated {
                sql.raw("NOT ");
            }
            filter(sql, alias, column, operation, from_text.as_ref(), *to_tsvector);
        }
        RowCondition::Exists { embed, wanted } => {
            if !wanted {
                sql.raw("NOT ");
            }
            exists(sql, *embed);
        }
        RowCondition::Group { negated, logic, parts } => {
            let separator = match logic {
                Logic::And => " AND ",
                Logic::Or => " OR ",
            };
            sql.raw(if *negated { "NOT (" } else { "(" });
            sql.list(separator, parts, |sql, part| self::condition(sql, alias, part, exists));
            sql.raw(")");
        }
    }
}

/// Appends a column of the rows `alias`, with its JSON path. Keys are typed parameters, so that
/// `->` is never ambiguous.
pub(super) fn column(sql: &mut Sql, alias: &str, column: &ColumnPath) {
    if column.to_json {
        sql.raw("to_jsonb(").qualified(alias, &column.name).raw(")");
    } else {
        sql.qualified(alias, &column.name);
    }
    json_path(sql, column);
}

/// Appends the JSON path of the expression before it.
pub(super) fn json_path(sql: &mut Sql, column: &ColumnPath) {
    for step in &column.json_path {
        sql.raw(match step.arrow {
            Arrow::Json => "->",
            Arrow::Text => "->>",
        });
        match &step.operand {
            Operand::Index(index) => sql.value(index.to_string()).raw("::int"),
            Operand::Key(key) => sql.value(key.as_str()).raw("::text"),
        };
    }
}

fn filter(
    sql: &mut Sql,
    alias: &str,
    left: &ColumnPath,
    operation: &FilterOperation,
    from_text: Option<&QualifiedName>,
    to_tsvector: bool,
) {
    match operation {
        FilterOperation::In(values) => {
            column(sql, alias, left);
            sql.raw(" = ANY (");
            values_of(sql, text_array(values.iter().map(String::as_str)), from_text);
            sql.raw(")");
        }
        FilterOperation::Is(value) => {
            column(sql, alias, left);
            sql.raw(match value {
                IsValue::Null => " IS NULL",
                IsValue::NotNull => " IS NOT NULL",
                IsValue::True => " IS TRUE",
                IsValue::False => " IS FALSE",
                IsValue::Unknown => " IS UNKNOWN",
            });
        }
        FilterOperation::IsDistinct(value) => {
            column(sql, alias, left);
            sql.raw(" IS DISTINCT FROM ").value(value.as_str());
        }
        FilterOperation::Fts { function, config, value } => {
            let config = config.as_deref();
            if to_tsvector {
                sql.raw("to_tsvector(");
                text_search_config(sql, config);
                column(sql, alias, left);
                sql.raw(")");
            } else {
                column(sql, alias, left);
            }
            sql.raw(match function {
                Fts::Query => " @@ to_tsquery(",
                Fts::Plain => " @@ plainto_tsquery(",
                Fts::Phrase => " @@ phraseto_tsquery(",
                Fts::Web => " @@ websearch_to_tsquery(",
            });
            text_search_config(sql, config);
            sql.value(value.as_str()).raw(")");
        }
        FilterOperation::Simple(operator, value) => {
            column(sql, alias, left);
            sql.raw(simple(*operator));
            value_of(sql, value.clone(), from_text);
        }
        FilterOperation::Quantified(operator, quantifier, value) => {
            column(sql, alias, left);
            sql.raw(quantifiable(*operator));
            let is_like = matches!(operator, QuantOperator::Like | QuantOperator::ILike);
            let (value, from_text) = if is_like { (value.replace('*', "%"), None) } else { (value.clone(), from_text) };
            match quantifier {
                None => value_of(sql, value, from_text),
                Some(quantifier) => {
                    sql.raw(match quantifier {
                        Quantifier::Any => "ANY (",
                        Quantifier::All => "ALL (",
                    });
                    values_of(sql, value, from_text);
                    sql.raw(")");
                }
            }
        }
    }
}

fn text_search_config(sql: &mut Sql, config: Option<&str>) {
    if let Some(config) = config {
        sql.value(config).raw("::regconfig, ");
    }
}

fn value_of(sql: &mut Sql, value: String, from_text: Option<&QualifiedName>) {
    match from_text {
        None => sql.value(value),
        Some(function) => sql.qualified(&function.schema, &function.name).raw("(").value(value).raw("::text)"),
    };
}

/// Appends the values of an array, each converted by the domain's function.
fn values_of(sql: &mut Sql, literal: String, from_text: Option<&QualifiedName>) {
    match from_text {
        None => sql.value(literal),
        Some(function) => sql
            .raw("ARRAY(SELECT ")
            .qualified(&function.schema, &function.name)
            .raw("(v) FROM unnest(")
            .value(literal)
            .raw("::text[]) AS v)"),
    };
}

fn simple(operator: SimpleOperator) -> &'static str {
    match operator {
        SimpleOperator::NotEqual => " <> ",
        SimpleOperator::Contains => " @> ",
        SimpleOperator::ContainedBy => " <@ ",
        SimpleOperator::Overlaps => " && ",
        SimpleOperator::StrictlyLeft => " << ",
        SimpleOperator::StrictlyRight => " >> ",
        SimpleOperator::NotExtendsRight => " &< ",
        SimpleOperator::NotExtendsLeft => " &> ",
        SimpleOperator::Adjacent => " -|- ",
    }
}

fn quantifiable(operator: QuantOperator) -> &'static str {
    match operator {
        QuantOperator::Equal => " = ",
        QuantOperator::GreaterOrEqual => " >= ",
        QuantOperator::Greater => " > ",
        QuantOperator::LessOrEqual => " <= ",
        QuantOperator::Less => " < ",
        QuantOperator::Like => " LIKE ",
        QuantOperator::ILike => " ILIKE ",
        QuantOperator::Match => " ~ ",
        QuantOperator::IMatch => " ~* ",
    }
}
