//! The choice among the functions of one name.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::RestError;
use crate::schema::{Routine, RoutineParameter, SchemaCache, nearest};

/// The name and the arguments of a call.
#[derive(Debug, Clone)]
pub struct CallSignature<'a> {
    /// The schema of the request.
    pub schema: &'a str,
    /// The name of the function.
    pub name: &'a str,
    /// The names of the arguments.
    pub keys: BTreeSet<&'a str>,
    /// The source of the arguments.
    pub body: ArgumentSource,
}

/// The source of a call's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentSource {
    /// The query string (GET, HEAD, OPTIONS), a posted form, or CSV: by name only.
    Named,
    /// A JSON body: by name, or as a whole.
    Json,
    /// A `text/plain` body: as a whole.
    Text,
    /// A `text/xml` body: as a whole.
    Xml,
    /// An `application/octet-stream` body: as a whole.
    Binary,
}

/// The chosen function.
#[derive(Debug, Clone)]
pub struct OverloadMatch {
    /// The function.
    pub routine: Arc<Routine>,
    /// The whole body is its only argument.
    pub whole: bool,
}

/// The least similarity of suggested parameter lists.
const SIMILAR_LIST: f64 = 0.33;
/// The least similarity of suggested names. A lower one would reveal which names exist.
const SIMILAR_NAME: f64 = 0.75;

/// Chooses the function by the names of the arguments. Types are not considered.
///
/// # Errors
/// PGRST202 if none matches, PGRST203 if several do.
pub fn choose(cache: &SchemaCache, wanted: &CallSignature<'_>) -> Result<OverloadMatch, RestError> {
    let overloads = cache.routines_named(wanted.schema, wanted.name);
    let routines = match overloads.iter().filter(|routine| wanted.fits_by_name(routine)).collect::<Vec<_>>() {
        by_name if !by_name.is_empty() => by_name,
        _ => overloads.iter().filter(|routine| wanted.fits_as_a_whole(routine)).collect(),
    };
    match routines.as_slice() {
        [] => Err(wanted.missing(cache, overloads)),
        [routine] => Ok(OverloadMatch { routine: Arc::clone(routine), whole: unnamed(routine).is_some() }),
        several => Err(RestError::AmbiguousFunction(several.iter().map(|routine| signature(routine)).collect())),
    }
}

impl CallSignature<'_> {
    fn fits_by_name(&self, routine: &Routine) -> bool {
        if routine.parameters.is_empty() {
            return self.keys.is_empty() && matches!(self.body, ArgumentSource::Named | ArgumentSource::Json);
        }
        // A parameter without a name is addressed by the key ""
        let mut required = routine.parameters.iter().filter(|parameter| parameter.required);
        required.all(|parameter| self.keys.contains(parameter.name.as_str()))
            && self.keys.iter().all(|key| routine.parameters.iter().any(|parameter| parameter.name == **key))
    }

    fn fits_as_a_whole(&self, routine: &Routine) -> bool {
        unnamed(routine).is_some_and(|only| match self.body {
            ArgumentSource::Named => false,
            ArgumentSource::Json => matches!(unqualified(only), "json" | "jsonb"),
            ArgumentSource::Text => unqualified(only) == "text",
            ArgumentSource::Xml => unqualified(only) == "xml",
            ArgumentSource::Binary => unqualified(only) == "bytea",
        })
    }

    /// Makes the error PGRST202.
    fn missing(&self, cache: &SchemaCache, overloads: &[Arc<Routine>]) -> RestError {
        let function = format!("{}.{}", self.schema, self.name);
        let keys = self.keys.iter().copied().collect::<Vec<_>>().join(", ");
        let unnamed = match self.body {
            ArgumentSource::Named => None,
            ArgumentSource::Json => Some("json/jsonb"),
            ArgumentSource::Text => Some("text"),
            ArgumentSource::Xml => Some("xml"),
            ArgumentSource::Binary => Some("bytea"),
        }
        .map(|types| format!("with a single unnamed {types} parameter"));
        let by_name = match self.keys.len() {
            0 => "without parameters".to_owned(),
            1 => format!("with parameter {keys}"),
            _ => format!("with parameters {keys}"),
        };
        let raw = self.is_raw();
        let called = match self.keys.len() {
            _ if raw => function.clone(),
            0 => format!("{function} without parameters"),
            _ => format!("{function}({keys})"),
        };
        let searched = match unnamed {
            Some(unnamed) if raw => unnamed,
            Some(unnamed) => format!("{by_name} or {unnamed}"),
            None => by_name,
        };
        RestError::NoFunction {
            message: format!("Could not find the function {called} in the schema cache"),
            details: format!(
                "Searched for the function {function} {searched}, but no matches were found in the schema cache."
            ),
            hint: self
                .suggestion(cache, overloads, &keys)
                .filter(|_| !raw)
                .map(|suggestion| format!("Perhaps you meant to call the function {suggestion}")),
        }
    }

    fn is_raw(&self) -> bool {
        matches!(self.body, ArgumentSource::Text | ArgumentSource::Xml | ArgumentSource::Binary)
    }

    fn suggestion(&self, cache: &SchemaCache, overloads: &[Arc<Routine>], keys: &str) -> Option<String> {
        if overloads.is_empty() {
            let names = cache.routines.get(self.schema)?;
            let mut names: Vec<_> = names.keys().map(String::as_str).collect();
            names.sort_unstable();
            return nearest(self.name, names, SIMILAR_NAME).map(|name| format!("{}.{name}", self.schema));
        }
        // Lists are compared with their parentheses, which makes short lists more similar
        let lists: Vec<_> = overloads.iter().map(|routine| sorted_names(routine)).collect();
        nearest(&format!("({keys})"), lists.iter().map(String::as_str), SIMILAR_LIST)
            .map(|list| format!("{}.{}{list}", self.schema, self.name))
    }
}

/// Returns the only parameter of a function, if it has no name.
pub(super) fn unnamed(routine: &Routine) -> Option<&RoutineParameter> {
    match routine.parameters.as_slice() {
        [only] if only.name.is_empty() => Some(only),
        _ => None,
    }
}

/// Returns the type of a parameter without the schema of PostgreSQL's own types.
pub(super) fn unqualified(parameter: &RoutineParameter) -> &str {
    parameter.sql_type.strip_prefix("pg_catalog.").unwrap_or(&parameter.sql_type)
}

/// Returns `(a, b)`.
fn sorted_names(routine: &Routine) -> String {
    let mut names: Vec<_> = routine.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    names.sort_unstable();
    format!("({})", names.join(", "))
}

/// Returns `public.f(arg => text, num => integer)`.
fn signature(routine: &Routine) -> String {
    let parameters: Vec<_> =
        routine.parameters.iter().map(|parameter| format!("{} => {}", parameter.name, parameter.sql_type)).collect();
    format!("{}.{}({})", routine.name.schema, routine.name.name, parameters.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{QualifiedName, ReturnType, Volatility};

    fn routine(name: &str, parameters: &[(&str, &str, bool)]) -> Arc<Routine> {
        Arc::new(Routine {
            oid: 0,
            name: QualifiedName { schema: "public".into(), name: name.into() },
            comment: None,
            parameters: parameters
                .iter()
                .map(|(name, sql_type, required)| RoutineParameter {
                    name: (*name).into(),
                    sql_type: (*sql_type).into(),
                    unbounded_type: (*sql_type).into(),
                    required: *required,
                    variadic: false,
                })
                .collect(),
            returns: ReturnType {
                name: QualifiedName { schema: "pg_catalog".into(), name: "int4".into() },
                set: false,
                composite: false,
                anonymous: false,
                void: false,
                relation: None,
            },
            volatility: Volatility::Volatile,
            variadic: false,
            isolation: None,
            settings: Vec::new(),
        })
    }

    fn cache(routines: Vec<Arc<Routine>>) -> SchemaCache {
        let mut cache = SchemaCache::default();
        for routine in routines {
            let schema = cache.routines.entry("public".into()).or_default();
            schema.entry(routine.name.name.clone()).or_default().push(routine);
        }
        cache
    }

    fn call(cache: &SchemaCache, name: &str, keys: &[&str], body: ArgumentSource) -> Result<(usize, bool), RestError> {
        let wanted = CallSignature { schema: "public", name, keys: keys.iter().copied().collect(), body };
        choose(cache, &wanted).map(|found| (found.routine.parameters.len(), found.whole))
    }

    #[test]
    fn keys_must_hold_all_required_parameters_and_nothing_unknown() {
        let cache = cache(vec![routine("f", &[("a", "integer", true), ("b", "text", false)])]);
        for (keys, found) in [(&["a"][..], true), (&["a", "b"], true), (&["b"], false), (&["a", "c"], false)] {
            assert_eq!(call(&cache, "f", keys, ArgumentSource::Named).is_ok(), found, "{keys:?}");
            assert_eq!(call(&cache, "f", keys, ArgumentSource::Json).is_ok(), found, "{keys:?}");
        }
    }

    #[test]
    fn a_function_without_parameters_takes_no_raw_body() {
        let cache = cache(vec![routine("f", &[])]);
        for (body, found) in [
            (ArgumentSource::Named, true),
            (ArgumentSource::Json, true),
            (ArgumentSource::Text, false),
            (ArgumentSource::Xml, false),
            (ArgumentSource::Binary, false),
        ] {
            assert_eq!(call(&cache, "f", &[], body).is_ok(), found, "{body:?}");
        }
    }

    #[test]
    fn an_unnamed_parameter_takes_the_body_that_fits_its_type() {
        let cache = cache(vec![
            routine("f", &[("", "text", true)]),
            routine("f", &[("", "xml", true)]),
            routine("f", &[("", "bytea", true)]),
            routine("f", &[("", "jsonb", true)]),
        ]);
        for body in [ArgumentSource::Text, ArgumentSource::Xml, ArgumentSource::Binary, ArgumentSource::Json] {
            assert_eq!(call(&cache, "f", &[], body), Ok((1, true)), "{body:?}");
        }
        assert!(call(&cache, "f", &[], ArgumentSource::Named).is_err());
        assert!(call(&cache, "f", &[""], ArgumentSource::Named).is_err());
        assert_eq!(call(&cache, "f", &["x", "y"], ArgumentSource::Json), Ok((1, true)));
    }

    #[test]
    fn the_empty_key_names_a_parameter_without_a_name() {
        for sql_type in ["text", "xml", "bytea", "json", "jsonb"] {
            let cache = cache(vec![routine("f", &[("", sql_type, true)]), routine("f", &[("a", "integer", true)])]);
            for body in [ArgumentSource::Named, ArgumentSource::Json] {
                assert_eq!(call(&cache, "f", &[""], body), Ok((1, true)), "{sql_type}");
                assert_eq!(call(&cache, "f", &["a"], body), Ok((1, false)), "{sql_type}");
            }
            assert!(call(&cache, "f", &["", "a"], ArgumentSource::Named).is_err());
        }
        let several = cache(vec![routine("g", &[("", "json", true)]), routine("g", &[("", "text", true)])]);
        let error = call(&several, "g", &[""], ArgumentSource::Json).unwrap_err();
        assert_eq!(
            error.message(),
            "Could not choose the best candidate function between: public.g( => json), public.g( => text)"
        );
        assert_eq!(call(&several, "g", &["b"], ArgumentSource::Json), Ok((1, true)));
    }

    #[test]
    fn named_parameters_come_before_the_unnamed_one() {
        let cache = cache(vec![routine("f", &[("", "json", true)]), routine("f", &[("a", "integer", true)])]);
        assert_eq!(call(&cache, "f", &["a"], ArgumentSource::Json), Ok((1, false)));
        assert_eq!(call(&cache, "f", &["b"], ArgumentSource::Json), Ok((1, true)));
    }

    #[test]
    fn several_matches_are_listed_with_their_signatures() {
        let cache = cache(vec![
            routine("f", &[("arg", "integer", true)]),
            routine("f", &[("arg", "text", true), ("num", "integer", false)]),
        ]);
        let error = call(&cache, "f", &["arg"], ArgumentSource::Json).unwrap_err();
        assert_eq!(
            error.message(),
            "Could not choose the best candidate function between: public.f(arg => integer), public.f(arg => text, num => integer)"
        );
        let cache = self::cache(vec![routine("g", &[("", "json", true)]), routine("g", &[("", "jsonb", true)])]);
        assert!(matches!(call(&cache, "g", &[], ArgumentSource::Json), Err(RestError::AmbiguousFunction(_))));
    }

    #[test]
    fn an_error_describes_the_searched_function() {
        let cache = cache(vec![routine("add_them", &[("a", "integer", true), ("b", "integer", true)])]);
        let texts = |name: &str, keys: &[&str], body| {
            let error = call(&cache, name, keys, body).unwrap_err();
            assert_eq!(error.code(), "PGRST202");
            let details = error.details().unwrap().as_str().unwrap().to_owned();
            (error.message(), details, error.hint())
        };
        let (message, details, hint) = texts("add_them", &["c", "b", "a"], ArgumentSource::Named);
        assert_eq!(message, "Could not find the function public.add_them(a, b, c) in the schema cache");
        assert_eq!(
            details,
            "Searched for the function public.add_them with parameters a, b, c, but no matches were found in the schema cache."
        );
        assert_eq!(hint.as_deref(), Some("Perhaps you meant to call the function public.add_them(a, b)"));

        let (message, details, _) = texts("add_them", &[], ArgumentSource::Json);
        assert_eq!(message, "Could not find the function public.add_them without parameters in the schema cache");
        assert_eq!(
            details,
            "Searched for the function public.add_them without parameters or with a single unnamed json/jsonb parameter, \
             but no matches were found in the schema cache."
        );

        let (_, details, _) = texts("add_them", &["a"], ArgumentSource::Json);
        assert_eq!(
            details,
            "Searched for the function public.add_them with parameter a or with a single unnamed json/jsonb parameter, \
             but no matches were found in the schema cache."
        );

        for (body, name) in
            [(ArgumentSource::Text, "text"), (ArgumentSource::Xml, "xml"), (ArgumentSource::Binary, "bytea")]
        {
            let (message, details, hint) = texts("add_them", &[], body);
            assert_eq!(message, "Could not find the function public.add_them in the schema cache");
            assert_eq!(
                details,
                format!(
                    "Searched for the function public.add_them with a single unnamed {name} parameter, \
                     but no matches were found in the schema cache."
                )
            );
            assert_eq!(hint, None);
        }

        let (_, _, hint) = texts("add_then", &[], ArgumentSource::Named);
        assert_eq!(hint.as_deref(), Some("Perhaps you meant to call the function public.add_them"));
        let (_, _, hint) = texts("subtract", &[], ArgumentSource::Named);
        assert_eq!(hint, None);
    }
}
