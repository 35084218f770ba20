//! Tests of bodies of every type.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn rows(media_type: MediaType, body: &str) -> Result<JsonPayload, String> {
    match parse(BodyPurpose::Rows, &media_type, false, body.to_owned().into()) {
        Ok(Payload::Json(payload)) => Ok(payload),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.message()),
    }
}

/// Returns the keys, and the number of objects.
fn known(body: &str) -> Result<(Vec<String>, usize), String> {
    let payload = rows(MediaType::Json, body)?;
    assert_eq!(payload.text, body.as_bytes());
    let known = payload.known.unwrap();
    Ok((known.keys, known.objects))
}

fn keys(names: &[&str], objects: usize) -> Result<(Vec<String>, usize), String> {
    Ok((names.iter().map(|&name| name.to_owned()).collect(), objects))
}

const INVALID: &str = "Empty or invalid json";
const DIFFERS: &str = "All object keys must match";

#[test]
fn the_keys_of_json_are_read_without_changing_it() {
    assert_eq!(known(r#"{"b":[1,{"x":2}],"a":null}"#), keys(&["a", "b"], 1));
    assert_eq!(known(" [ {\"b\":1,\"a\":2} , {\"a\":3,\"b\":{\"c\":[]}} ] "), keys(&["a", "b"], 2));
    assert_eq!(known("{}"), keys(&[], 1));
    assert_eq!(known("[]"), keys(&[], 0));
    assert_eq!(known("[{},{}]"), keys(&[], 2));
    assert_eq!(known(r#"[{"a":1,"a":2},{"a":3}]"#), keys(&["a"], 2));
    assert_eq!(known(r#"[{"a":1,"b":2},{"b":1,"b":2,"a":3}]"#), keys(&["a", "b"], 2));
    assert_eq!(known(r#"{"a\"\u00e9":1e999}"#), keys(&["a\"é"], 1));
    assert!(rows(MediaType::Json, "{\"a\":1}").unwrap().is_object);
    assert!(!rows(MediaType::Json, "[{\"a\":1}]").unwrap().is_object);
}

#[test]
fn objects_with_other_keys_and_other_elements_are_rejected() {
    for body in [
        r#"[{"a":1},{"b":1}]"#,
        r#"[{"a":1},{"a":1,"b":2}]"#,
        r#"[{"a":1,"b":2},{"a":1}]"#,
        r#"[{"a":1,"b":2},{"a":1,"a":2}]"#,
        r#"[{},{"a":1}]"#,
        r#"[{"a":1},null]"#,
        "[1]",
        "[-1, 2.5, true, \"x\"]",
        "[[{}]]",
    ] {
        assert_eq!(known(body), Err(DIFFERS.into()), "{body}");
    }
}

#[test]
fn invalid_json_is_rejected() {
    for body in [
        "",
        " ",
        "{",
        "[",
        "[{]",
        "{}x",
        "{a:1}",
        "{\"a\":01}",
        "[1,{}",
        "[1] ]",
        "nul",
        "{\"a\":\"\u{1}\"}",
        "\u{feff}{}",
    ] {
        assert_eq!(known(body), Err(INVALID.into()), "{body}");
    }
    let refused = parse(BodyPurpose::Rows, &MediaType::Json, false, Bytes::from_static(b"{\"a\":\"\xff\"}"));
    assert_eq!(refused.unwrap_err().message(), INVALID);
}

#[test]
fn a_scalar_counts_as_no_rows() {
    for body in ["1", "\"x\"", "null", " true ", "-1.5e3", "1e999"] {
        let payload = rows(MediaType::Json, body).unwrap();
        assert_eq!((payload.text, payload.is_object), (Bytes::from_static(b"[]"), false), "{body}");
        assert_eq!(payload.known, Some(ObjectKeys::default()));
    }
}

#[test]
fn json_is_not_parsed_if_columns_are_given() {
    for (body, is_object) in [("[{\"a\":1},{\"b\":1}]", false), (" \n{", true), ("", false), ("x", false)] {
        let payload = parse(BodyPurpose::Rows, &MediaType::Json, true, Bytes::from_static(body.as_bytes())).unwrap();
        assert_eq!(payload, Payload::Json(JsonPayload { text: body.into(), is_object, known: None }));
        let Payload::Json(payload) = payload else { panic!() };
        assert_eq!(payload.columns(Some(&["c".to_owned()])), ["c"]);
    }
}

#[test]
fn deep_json_is_read_in_constant_stack() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(known(&deep), keys(&["a"], 1));
}

#[test]
fn a_function_may_be_called_without_a_body() {
    let payload = parse(BodyPurpose::Arguments, &MediaType::Json, false, Bytes::new()).unwrap();
    let known = Some(ObjectKeys { keys: Vec::new(), objects: 1 });
    assert_eq!(payload, Payload::Json(JsonPayload { text: Bytes::from_static(b"{}"), is_object: true, known }));
}

#[test]
fn csv_becomes_rows() {
    let csv = |body: &str| {
        rows(MediaType::Csv, body).map(|payload| {
            let known = payload.known.unwrap();
            (serde_json::from_slice::<Value>(&payload.text).unwrap(), known.keys, known.objects)
        })
    };
    let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        csv("b,a\r\n1,NULL\r\n\"x,\"\"y\"\"\nz\",\n\n,é\n"),
        Ok((json!([{"b": "1", "a": null}, {"b": "x,\"y\"\nz", "a": ""}, {"b": "", "a": "é"}]), names(&["a", "b"]), 3))
    );
    assert_eq!(csv("a"), Ok((json!([]), names(&["a"]), 0)));
    assert_eq!(csv("a\rx"), Ok((json!([{"a": "x"}]), names(&["a"]), 1)));
    assert_eq!(csv("a,b\n1,2\n3\n"), Err("All lines must have same number of fields".into()));
    assert_eq!(csv("a,b\n1,2,3\n"), Err("All lines must have same number of fields".into()));
    assert_eq!(csv("\n\n"), Err("CSV without a header line".into()));
    assert_eq!(csv("a\n\"x\ny\"\n\"b"), Err("CSV line 4: a quote is not closed".into()));
    assert_eq!(csv("a\n\"x\"y"), Err("CSV line 2: text after a closing quote".into()));
}

#[test]
fn forms_are_one_row_or_arguments() {
    let body = "b=1&a=x+y%C3%A9&b=2&&c";
    let payload = rows(MediaType::Form, body).unwrap();
    let row: Value = serde_json::from_slice(&payload.text).unwrap();
    assert_eq!(row, json!({"a": "x yé", "b": "2", "c": ""}));
    assert_eq!(payload.columns(None), ["a", "b", "c"]);
    let arguments = parse(BodyPurpose::Arguments, &MediaType::Form, false, body.into()).unwrap();
    let expected = [("b", "1"), ("a", "x yé"), ("b", "2"), ("c", "")];
    assert_eq!(arguments, Payload::Form(expected.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec()));
    assert!(parse(BodyPurpose::Rows, &MediaType::Form, false, "a=%ff".into()).is_err());
}

#[test]
fn raw_bodies_are_for_functions_only() {
    for media_type in [MediaType::Text, MediaType::Xml, MediaType::Binary] {
        let bytes = Bytes::from_static(b"\xff\0");
        let payload = parse(BodyPurpose::Arguments, &media_type, false, bytes.clone()).unwrap();
        assert_eq!(payload, Payload::Raw { media_type: media_type.clone(), bytes });
        let expected = format!("Content-Type not acceptable: {}", media_type.text());
        assert_eq!(rows(media_type, "x"), Err(expected));
    }
    let other = MediaType::parse("Application/YAML; charset=utf-8");
    assert_eq!(rows(other, ""), Err("Content-Type not acceptable: application/yaml".into()));
}

/// Returns keys and number of objects by building all values.
fn by_values(body: &str) -> Result<(Vec<String>, usize), String> {
    let sorted = |object: &serde_json::Map<String, Value>| {
        let mut keys: Vec<String> = object.keys().cloned().collect();
        keys.sort_unstable();
        keys
    };
    match serde_json::from_str(body).map_err(|_| INVALID.to_owned())? {
        Value::Object(object) => Ok((sorted(&object), 1)),
        Value::Array(elements) => {
            let lists: Option<Vec<_>> = elements.iter().map(|element| element.as_object().map(sorted)).collect();
            let lists = lists.ok_or(DIFFERS)?;
            if lists.windows(2).any(|pair| pair[0] != pair[1]) {
                return Err(DIFFERS.into());
            }
            Ok((lists.first().cloned().unwrap_or_default(), lists.len()))
        }
        _ => Ok((Vec::new(), 0)),
    }
}

proptest! {
    #[test]
    fn scanning_finds_the_same_keys_as_building_values(words in prop::collection::vec(prop::sample::select(vec![
        "{", "}", "[", "]", ",", ":", "\"a\"", "\"b\"", "\"a\":1", "\"b\":[2]", "{\"a\":1}", "{\"b\":2}", "{\"b\":2,\"a\":1}", "1", "null", " ",
    ]), 0..10)) {
        let body = words.concat();
        let scanned = rows(MediaType::Json, &body).map(|payload| {
            let known = payload.known.unwrap();
            (known.keys, known.objects)
        });
        prop_assert_eq!(scanned, by_values(&body));
    }

    #[test]
    fn written_csv_parses_to_the_same_rows(table in (1usize..4).prop_flat_map(|width| {
        prop::collection::vec(prop::collection::vec("[a,\"\r\n ]{0,4}", width), 1..5)
    })) {
        let quoted = |field: &String| format!("\"{}\"", field.replace('"', "\"\""));
        let line = |row: &Vec<String>| row.iter().map(quoted).collect::<Vec<_>>().join(",");
        let csv = table.iter().map(line).collect::<Vec<_>>().join("\n");
        let payload = rows(MediaType::Csv, &csv).unwrap();
        let read: Vec<serde_json::Map<String, Value>> = serde_json::from_slice(&payload.text).unwrap();
        let objects = table[1..].iter().map(|row| {
            table[0].iter().cloned().zip(row.iter().map(|field| Value::from(field.as_str()))).collect()
        });
        prop_assert_eq!(read, objects.collect::<Vec<serde_json::Map<String, Value>>>());
    }

    #[test]
    fn any_body_is_parsed_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        for media_type in [MediaType::Json, MediaType::Csv, MediaType::Form, MediaType::Text] {
            for purpose in [BodyPurpose::Rows, BodyPurpose::Arguments] {
                let _ = parse(purpose, &media_type, false, bytes.clone().into());
            }
        }
    }
}
