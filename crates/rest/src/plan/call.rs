//! Plans of function calls.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use portico_database::quote::text_array;
use regex::Regex;

use super::overload::{ArgumentSource, CallSignature, OverloadMatch, choose, unqualified};
use super::write::JsonBody;
use super::{PlanContext, ReadPlan, ReadRoot, ResultShape};
use crate::error::RestError;
use crate::query::RequestQuery;
use crate::schema::{Routine, RoutineParameter, SchemaCache, Volatility};
use crate::statement_builder::BoundValue;

/// The arguments that a request sends to a function.
#[derive(Debug, Clone)]
pub enum CallInput<'a> {
    /// Parameters of the query string (GET, HEAD, OPTIONS) or of a posted form.
    Pairs(&'a [(String, String)]),
    /// A posted object, or an array whose first object is used, as JSON or CSV.
    Object {
        /// The text that is sent to PostgreSQL.
        body: JsonBody,
        /// The keys of the object, or those of `columns=`.
        keys: &'a [String],
        /// The client sent JSON, which a function may take as a whole.
        is_json: bool,
    },
    /// A posted text, document or file.
    Whole {
        /// [`ArgumentSource::Text`], [`ArgumentSource::Xml`] or [`ArgumentSource::Binary`].
        source: ArgumentSource,
        /// The body.
        body: Bytes,
    },
}

/// The form in which arguments are passed to the function.
#[derive(Debug, Clone)]
pub enum CallArguments {
    /// No arguments.
    None,
    /// A parameter of the statement for each.
    Values(Vec<NamedArgument>),
    /// All are read from one object by PostgreSQL.
    Object {
        /// The object, or an array that begins with it.
        body: JsonBody,
        /// The parameters of the function that the object has values for.
        parameters: Vec<RoutineParameter>,
    },
    /// One argument without a name.
    Whole {
        /// The value.
        value: BoundValue,
        /// Its type. Trusted SQL of the catalog.
        sql_type: String,
    },
}

/// An argument with a name.
#[derive(Debug, Clone)]
pub struct NamedArgument {
    /// The parameter of the function.
    pub parameter: RoutineParameter,
    /// The text of the value; for a VARIADIC parameter an array of all texts.
    pub value: String,
}

/// The plan of a call.
#[derive(Debug, Clone)]
pub struct CallPlan {
    /// The function.
    pub routine: Arc<Routine>,
    /// The arguments.
    pub arguments: CallArguments,
    /// The read of the result.
    pub read: ReadPlan,
}

/// The function that a request calls, and its arguments.
#[derive(Debug, Clone)]
pub struct ResolvedCall {
    /// The function.
    pub routine: Arc<Routine>,
    /// The arguments.
    pub arguments: CallArguments,
}

/// Finds the function of a request.
///
/// # Errors
/// PGRST202, PGRST203.
pub fn find(cache: &SchemaCache, schema: &str, name: &str, input: CallInput<'_>) -> Result<ResolvedCall, RestError> {
    let (keys, kind): (BTreeSet<&str>, _) = match &input {
        CallInput::Pairs(pairs) => (pairs.iter().map(|(key, _)| key.as_str()).collect(), ArgumentSource::Named),
        CallInput::Object { keys, is_json, .. } => {
            let kind = if *is_json { ArgumentSource::Json } else { ArgumentSource::Named };
            (keys.iter().map(String::as_str).collect(), kind)
        }
        CallInput::Whole { source, .. } => (BTreeSet::new(), *source),
    };
    let OverloadMatch { routine, whole } = choose(cache, &CallSignature { schema, name, keys, body: kind })?;
    let arguments = arguments(&routine, whole, input);
    Ok(ResolvedCall { routine, arguments })
}

impl ResolvedCall {
    /// Plans the read of the result.
    ///
    /// # Errors
    /// The errors of the read plan.
    pub fn plan(self, context: &PlanContext<'_>, query: &RequestQuery) -> Result<CallPlan, RestError> {
        let read = ReadPlan::new(context, ReadRoot::Call(&self.routine), query)?;
        Ok(CallPlan { routine: self.routine, arguments: self.arguments, read })
    }
}

impl CallPlan {
    /// Returns the shape of the rows of `pgrst_source`.
    pub fn shape(&self) -> ResultShape {
        ResultShape::of_function(&self.routine.returns)
    }
}

/// Returns true if a call may not write. `posted`: the method is POST.
pub fn is_read_only(routine: &Routine, posted: bool) -> bool {
    !posted || routine.volatility != Volatility::Volatile
}

/// Returns the settings of a function that apply to the whole transaction: those whose `name=value`
/// matches one of the patterns.
pub fn hoisted_settings<'a>(
    routine: &'a Routine,
    hoisted: &'a [Regex],
) -> impl Iterator<Item = (&'a str, &'a str)> + 'a {
    let settings = routine.settings.iter().filter(|(name, value)| {
        let text = format!("{name}={value}");
        hoisted.iter().any(|expression| expression.is_match(&text))
    });
    settings.map(|(name, value)| (name.as_str(), value.as_str()))
}

fn arguments(routine: &Routine, whole: bool, input: CallInput<'_>) -> CallArguments {
    match input {
        CallInput::Pairs(pairs) if whole => match pairs.iter().rev().find(|(key, _)| key.is_empty()) {
            Some((_, value)) => whole_argument(routine, BoundValue::Text(value.clone())),
            None => CallArguments::None,
        },
        CallInput::Pairs(pairs) => {
            let values: Vec<_> = routine
                .parameters
                .iter()
                .filter_map(|parameter| {
                    Some(NamedArgument { parameter: parameter.clone(), value: value(parameter, pairs)? })
                })
                .collect();
            if values.is_empty() { CallArguments::None } else { CallArguments::Values(values) }
        }
        CallInput::Object { body, .. } if whole => whole_argument(routine, whole_body(routine, body.json)),
        CallInput::Object { body, keys, .. } => {
            let input = |parameter: &&RoutineParameter| keys.contains(&parameter.name);
            let parameters: Vec<_> = routine.parameters.iter().filter(input).cloned().collect();
            if parameters.is_empty() { CallArguments::None } else { CallArguments::Object { body, parameters } }
        }
        CallInput::Whole { body, .. } if whole => whole_argument(routine, whole_body(routine, body)),
        // All parameters of the function are optional
        CallInput::Whole { .. } => CallArguments::None,
    }
}

/// Returns a body as the text of a value; `bytea` has a text format of its own.
fn whole_body(routine: &Routine, body: Bytes) -> BoundValue {
    match routine.parameters.first().map(unqualified) {
        Some("bytea") => BoundValue::Text(hex(&body)),
        _ => BoundValue::Bytes(body),
    }
}

fn whole_argument(routine: &Routine, value: BoundValue) -> CallArguments {
    let sql_type = routine.parameters.first().map(|parameter| parameter.sql_type.clone()).unwrap_or_default();
    CallArguments::Whole { value, sql_type }
}

/// Returns the text of an argument: the last value; for a VARIADIC parameter an array of all
/// values.
fn value(parameter: &RoutineParameter, pairs: &[(String, String)]) -> Option<String> {
    let mut values = pairs.iter().filter(|(key, _)| *key == parameter.name).map(|(_, value)| value.as_str());
    if !parameter.variadic {
        return values.next_back().map(str::to_owned);
    }
    let mut values = values.peekable();
    values.peek().is_some().then(|| text_array(values))
}

/// Returns the text format of `bytea`.
fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("\\x");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
pub(crate) mod tests;
