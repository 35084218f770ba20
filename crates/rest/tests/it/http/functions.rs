//! Functions with one unnamed parameter.

use serde_json::json;

use super::CinemaServer;

#[tokio::test]
async fn the_empty_key_names_the_parameter_without_a_name() {
    let server = CinemaServer::open().await;
    server
        .execute(
            "create function take_json(json) returns text language sql as $$ select 'json ' || $1::text $$;
             create function take_jsonb(jsonb) returns text language sql as $$ select 'jsonb ' || $1::text $$;
             create function take_text(text) returns text language sql as $$ select 'text ' || $1 $$;
             create function take_xml(xml) returns text language sql as $$ select 'xml ' || $1::text $$;
             create function take_bytes(bytea) returns text language sql as $$ select 'bytea ' || encode($1, 'escape') $$;
             create function take_default(json default '\"nothing\"') returns json language sql as $$ select $1 $$;
             create function take_any_of(json) returns text language sql as $$ select 'json' $$;
             create function take_any_of(text) returns text language sql as $$ select 'text' $$;
             create function take_any_of(a int) returns text language sql as $$ select 'a' $$;
             create function take_any_of() returns text language sql as $$ select 'none' $$;
             notify pgrst",
        )
        .await;
    server.read("not_there").send().await.expect(404);
    let post = |function: &str, media: &str, body: &'static str| {
        let request = server.post(&format!("/rest/v1/rpc/{function}")).header("content-type", media).body(body);
        async move { request.send().await }
    };
    let json_of = |function: &'static str, body: &'static str| post(function, "application/json", body);
    // The whole body is the value, whatever the type of the parameter is
    let body = r#"{"": 5}"#;
    for (function, value) in [
        ("take_json", r#"json {"": 5}"#),
        ("take_jsonb", r#"jsonb {"": 5}"#),
        ("take_text", r#"text {"": 5}"#),
        ("take_bytes", r#"bytea {"": 5}"#),
        ("take_xml", r#"xml {"": 5}"#),
    ] {
        assert_eq!(json_of(function, body).await.expect(200).json(), value, "{function}");
        let form = post(function, "application/x-www-form-urlencoded", "=5").await.expect(200);
        assert_eq!(form.json(), value.replace(body, "5"), "{function}");
    }
    // Among overloads, the key matches every unnamed parameter, and no other
    let refused = json_of("take_any_of", body).await.expect(300).json();
    assert_eq!(refused["code"], "PGRST203");
    assert_eq!(
        refused["message"],
        "Could not choose the best candidate function between: public.take_any_of( => json), public.take_any_of( => text)"
    );
    assert_eq!(json_of("take_any_of", r#"{"a": 5}"#).await.expect(200).json(), "a");
    assert_eq!(json_of("take_any_of", "{}").await.expect(200).json(), "none");
    assert_eq!(json_of("take_any_of", r#"{"b": 5}"#).await.expect(200).json(), "json");
    assert_eq!(post("take_any_of", "text/plain", "x").await.expect(200).json(), "text");
    // Other keys do not address such a function, unless it takes JSON as a whole
    assert_eq!(json_of("take_text", r#"{"a": 5}"#).await.expect(404).json()["code"], "PGRST202");
    assert_eq!(json_of("take_text", r#"{"": 5, "a": 5}"#).await.expect(404).json()["code"], "PGRST202");
    assert_eq!(json_of("take_json", r#"{"": 5, "a": 5}"#).await.expect(200).json(), r#"json {"": 5, "a": 5}"#);
    // A default applies to calls without a body
    assert_eq!(server.read("rpc/take_default").send().await.expect(200).json(), "nothing");
    assert_eq!(json_of("take_default", r#"{"": 5}"#).await.expect(200).json(), json!({ "": 5 }));
}
