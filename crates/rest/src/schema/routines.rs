//! Functions that can be called.

use std::collections::HashMap;

use super::catalog::{RoutineRow, TypeKind, TypeRow, domains};
use super::model::{QualifiedName, ReturnType, Routine, RoutineParameter, Volatility};

/// The types of a single unnamed parameter that a whole body can be passed to.
const WHOLE_BODY: [&str; 5] = ["bytea", "json", "jsonb", "text", "xml"];

/// Returns the function, if its parameters can be passed.
pub(crate) fn assemble_routine(
    row: RoutineRow,
    types: &HashMap<u32, TypeRow>,
    row_types: &HashMap<u32, QualifiedName>,
) -> Option<Routine> {
    let parameters = parameters(&row);
    let callable = match parameters.as_slice() {
        [only] if only.name.is_empty() => WHOLE_BODY.contains(&only.sql_type.as_str()),
        several => several.iter().all(|parameter| !parameter.name.is_empty()),
    };
    if !callable {
        return None;
    }
    let returns = return_type(&row, types, row_types);
    let settings: Vec<(String, String)> = row
        .settings
        .iter()
        .filter_map(|setting| setting.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let isolation = settings.iter().find(|(name, _)| name == "default_transaction_isolation");
    Some(Routine {
        oid: row.oid,
        name: row.name,
        comment: row.comment,
        parameters,
        returns,
        volatility: match row.volatility.as_str() {
            "i" => Volatility::Immutable,
            "s" => Volatility::Stable,
            _ => Volatility::Volatile,
        },
        variadic: row.variadic,
        isolation: isolation.map(|(_, level)| level.clone()),
        settings,
    })
}

/// Returns the input parameters. Output parameters are part of the result.
fn parameters(row: &RoutineRow) -> Vec<RoutineParameter> {
    let mode = |at: usize| row.modes.get(at).map_or("i", String::as_str);
    let inputs = row.types.iter().enumerate().filter(|(at, _)| matches!(mode(*at), "i" | "b" | "v"));
    let required = usize::try_from(row.inputs.saturating_sub(row.defaults)).unwrap_or_default();
    inputs
        .enumerate()
        .map(|(index, (at, sql_type))| RoutineParameter {
            name: row.names.get(at).cloned().unwrap_or_default(),
            sql_type: sql_type.clone(),
            unbounded_type: unbounded(sql_type),
            required: index < required,
            variadic: mode(at) == "v",
        })
        .collect()
}

/// Returns the type without a length. `character` alone is one character, `bit` one bit.
fn unbounded(sql_type: &str) -> String {
    match sql_type {
        "character" | "character[]" | "bit" | "bit[]" => match sql_type.split_once('[') {
            Some((base, _)) => format!("{base} varying[]"),
            None => format!("{sql_type} varying"),
        },
        other => other.to_owned(),
    }
}

fn return_type(row: &RoutineRow, types: &HashMap<u32, TypeRow>, row_types: &HashMap<u32, QualifiedName>) -> ReturnType {
    let base = domains(row.returned_type, types).last().map_or(row.returned_type, |domain| domain.base);
    let is = |name: &str| types.get(&base).is_some_and(|base| base.is_system && base.name.name == name);
    let has_row_type = types.get(&base).is_some_and(|base| base.kind == TypeKind::Row);
    let has_outputs = row.modes.iter().any(|mode| matches!(mode.as_str(), "o" | "b" | "t"));
    ReturnType {
        name: types.get(&row.returned_type).map(|own| own.name.clone()).unwrap_or_default(),
        set: row.returns_set,
        composite: has_row_type || has_outputs || is("record"),
        anonymous: is("record") && !has_outputs,
        void: is("void"),
        // Embeds are looked up in the schema of the request, which is that of the function
        relation: row_types.get(&base).filter(|relation| relation.schema == row.name.schema).cloned(),
    }
}
