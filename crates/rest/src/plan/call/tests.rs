use super::*;
use crate::config::PlanSettings;
use crate::query::{self, parse};
use crate::schema::testing::cinema;

/// The form of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sent {
    /// GET
    Get,
    /// A form
    Form(&'static [(&'static str, &'static str)]),
    /// JSON
    Json(&'static str),
    /// A raw body
    Raw(ArgumentSource, &'static str),
}

/// Plans `function?query`.
pub(crate) fn plan(cache: &SchemaCache, url: &str, sent: Sent, settings: &PlanSettings) -> Result<CallPlan, RestError> {
    let context = PlanContext { cache, schema: "public", settings };
    let (name, text) = url.split_once('?').unwrap_or((url, ""));
    let query = parse(text, query::QueryTarget::Function { read: matches!(sent, Sent::Get) })?;
    let json: serde_json::Value = match sent {
        Sent::Json(text) => serde_json::from_str(text).unwrap(),
        _ => serde_json::Value::Null,
    };
    let object = json.as_object().or_else(|| json.as_array()?.first()?.as_object());
    let keys: Vec<String> = object.into_iter().flat_map(|object| object.keys().cloned()).collect();
    let form: Vec<(String, String)>;
    let given = match sent {
        Sent::Get => CallInput::Pairs(&query.arguments),
        Sent::Form(pairs) => {
            form = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            CallInput::Pairs(&form)
        }
        Sent::Json(text) => {
            let body = JsonBody { json: Bytes::from_static(text.as_bytes()), is_object: json.is_object() };
            CallInput::Object { body, keys: query.columns.as_deref().unwrap_or(&keys), is_json: true }
        }
        Sent::Raw(kind, text) => CallInput::Whole { source: kind, body: Bytes::from_static(text.as_bytes()) },
    };
    find(cache, "public", name, given)?.plan(&context, &query)
}

fn planned(url: &str, sent: Sent) -> CallPlan {
    plan(&cinema(), url, sent, &PlanSettings::default()).unwrap()
}

fn values(plan: CallPlan) -> Vec<(String, String)> {
    match plan.arguments {
        CallArguments::Values(values) => {
            values.into_iter().map(|argument| (argument.parameter.name, argument.value)).collect()
        }
        arguments => panic!("{arguments:?}"),
    }
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn the_last_of_equal_arguments_is_used() {
    assert_eq!(values(planned("add_them?a=1&b=2&a=3", Sent::Get)), [pair("a", "3"), pair("b", "2")]);
}

#[test]
fn arguments_of_a_variadic_parameter_are_collected() {
    assert_eq!(values(planned("sum_of?numbers=1&numbers=2", Sent::Get)), [pair("numbers", r#"{"1","2"}"#)]);
    let odd = Sent::Form(&[("numbers", "a\"b\\c,{}")]);
    assert_eq!(values(planned("sum_of", odd)), [pair("numbers", r#"{"a\"b\\c,{}"}"#)]);
    assert!(matches!(planned("sum_of", Sent::Get).arguments, CallArguments::None));
}

#[test]
fn a_parameter_that_parses_as_a_filter_is_no_argument() {
    let plan = planned("films_since?since=2000&year=gt.2005", Sent::Get);
    assert_eq!(plan.read.root.conditions.len(), 1);
    assert_eq!(values(plan), [pair("since", "2000")]);
}

#[test]
fn only_parameters_in_the_object_are_passed() {
    let CallArguments::Object { parameters, body } = planned("greet", Sent::Json(r#"{"greeting":"Hi"}"#)).arguments
    else {
        panic!("no object")
    };
    assert_eq!(parameters.iter().map(|parameter| parameter.name.as_str()).collect::<Vec<_>>(), ["greeting"]);
    assert!(body.is_object);
    assert!(matches!(planned("greet", Sent::Json("{}")).arguments, CallArguments::None));
    assert!(matches!(planned("greet", Sent::Json("[]")).arguments, CallArguments::None));
    let listed = planned("greet?columns=name", Sent::Json(r#"{"greeting":"Hi"}"#)).arguments;
    let CallArguments::Object { parameters, .. } = listed else { panic!("no object") };
    assert_eq!(parameters[0].name, "name");
}

#[test]
fn a_whole_body_is_the_unnamed_argument() {
    for (name, sent, value, sql_type) in [
        ("whole_json", Sent::Json(r#"{"a": 1}"#), r#"{"a": 1}"#, "json"),
        ("whole_jsonb", Sent::Json("[1, 2]"), "[1, 2]", "jsonb"),
        ("whole_text", Sent::Raw(ArgumentSource::Text, "x"), "x", "text"),
        ("whole_xml", Sent::Raw(ArgumentSource::Xml, "<a/>"), "<a/>", "xml"),
        ("whole_bytes", Sent::Raw(ArgumentSource::Binary, "\0a~"), "\\x00617e", "bytea"),
    ] {
        let CallArguments::Whole { value: found, sql_type: found_type } = planned(name, sent).arguments else {
            panic!("not whole")
        };
        assert_eq!((found.as_bytes(), found_type.as_str()), (value.as_bytes(), sql_type));
    }
}

#[test]
fn a_raw_body_calls_a_function_that_needs_no_argument() {
    assert!(matches!(planned("greet", Sent::Raw(ArgumentSource::Text, "x")).arguments, CallArguments::None));
}

#[test]
fn only_a_posted_volatile_function_may_write() {
    let cache = cinema();
    let routine = |name| Arc::clone(&cache.routines_named("public", name)[0]);
    for (name, posted, read_only) in [
        ("book_guest", true, false),
        ("book_guest", false, true),
        ("greet", true, true),
        ("hello", true, true),
        ("hello", false, true),
    ] {
        assert_eq!(is_read_only(&routine(name), posted), read_only, "{name} {posted}");
    }
}

#[test]
fn settings_are_hoisted_when_they_match() {
    let mut routine = Routine::clone(&cinema().routines_named("public", "hello")[0]);
    routine.settings = vec![("statement_timeout".into(), "1s".into()), ("work_mem".into(), "5MB".into())];
    let hoisted = [Regex::new("statement_timeout").unwrap(), Regex::new("default_transaction_isolation").unwrap()];
    let found: Vec<_> = hoisted_settings(&routine, &hoisted).collect();
    assert_eq!(found, [("statement_timeout", "1s")]);
}

#[test]
fn results_are_rows_or_values() {
    for (url, rows) in [
        ("hello", ResultShape::Scalar),
        ("nothing", ResultShape::Scalar),
        ("any_record", ResultShape::Scalar),
        ("with_out?a=1", ResultShape::One),
        ("film_by_id?id=1", ResultShape::One),
        ("films_since?since=1", ResultShape::Set),
        ("numbers_as_table?up_to=1", ResultShape::Set),
        ("numbers_as_set?up_to=1", ResultShape::ScalarSet),
    ] {
        assert_eq!(planned(url, Sent::Get).shape(), rows, "{url}");
    }
}

#[test]
fn only_rows_of_a_relation_can_have_embeds() {
    planned("films_since?since=1&select=title,directors(last_name)", Sent::Get);
    let error = plan(&cinema(), "numbers_as_table?up_to=1&select=directors(*)", Sent::Get, &PlanSettings::default());
    assert_eq!(error.unwrap_err().code(), "PGRST200");
}
