//! The `system` messages of subscriptions.

use serde_json::json;

use super::{Live, entry};
use crate::changes::reads::pauses::PAUSE;
use crate::fixture::{identity, person};

const SET_UP: &str = "
    create type public.mood as enum ('good', 'bad');
    create table public.things (
      id int primary key, name text, code char(4), at timestamptz, price numeric, done bool, mood public.mood,
      doc json, raw bytea, label varchar(3), hidden text, small int2, token uuid);
    create table public.unpublished (id int primary key);
    grant select (id, name, code, at, price, done, mood, doc, raw, label, small, token) on public.things to authenticated;
    revoke select on public.things from authenticated;
    grant select (id, name, code, at, price, done, mood, doc, raw, label, small, token) on public.things to authenticated;
    alter publication supabase_realtime add table public.things";

#[tokio::test]
async fn an_entry_that_does_not_fit_the_database_has_the_text_of_the_protocol() {
    let live = Live::new(SET_UP).await;
    let person = person("a");
    let many = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    for (filter, printed, exception) in [
        ("nope=eq.1", r#"{"nope", "eq", "1", false}"#, "P0001 (raise_exception) invalid column for filter nope"),
        ("hidden=eq.1", r#"{"hidden", "eq", "1", false}"#, "P0001 (raise_exception) invalid column for filter hidden"),
        (
            "id=eq.hey",
            r#"{"id", "eq", "hey", false}"#,
            "22P02 (invalid_text_representation) invalid input syntax for type integer: \"hey\"",
        ),
        (
            "id=not.lt.hey",
            r#"{"id", "lt", "hey", true}"#,
            "22P02 (invalid_text_representation) invalid input syntax for type integer: \"hey\"",
        ),
        (
            "small=eq.40000",
            r#"{"small", "eq", "40000", false}"#,
            "22003 (numeric_value_out_of_range) value \"40000\" is out of range for type smallint",
        ),
        (
            "id=in.(1,x)",
            r#"{"id", "in", "{1,x}", false}"#,
            "22P02 (invalid_text_representation) invalid input syntax for type integer: \"x\"",
        ),
        (
            "price=in.(1,x)",
            r#"{"price", "in", "{1,x}", false}"#,
            "22P02 (invalid_text_representation) invalid input syntax for type numeric: \"x\"",
        ),
        (
            "mood=eq.meh",
            r#"{"mood", "eq", "meh", false}"#,
            "22P02 (invalid_text_representation) invalid input value for enum mood: \"meh\"",
        ),
        (
            "at=gt.never",
            r#"{"at", "gt", "never", false}"#,
            "22007 (invalid_datetime_format) invalid input syntax for type timestamp with time zone: \"never\"",
        ),
        (
            "token=eq.1",
            r#"{"token", "eq", "1", false}"#,
            "22P02 (invalid_text_representation) invalid input syntax for type uuid: \"1\"",
        ),
        (
            "name=is.maybe",
            r#"{"name", "is", "maybe", false}"#,
            "P0001 (raise_exception) invalid value for is filter: must be null, true, false, or unknown",
        ),
        (
            "name=is.true",
            r#"{"name", "is", "true", false}"#,
            "P0001 (raise_exception) is true filter requires a boolean column, got text",
        ),
        (
            "id=like.1%",
            r#"{"id", "like", "1%", false}"#,
            "P0001 (raise_exception) operator like requires a text-compatible column type, got integer",
        ),
        (
            "at=imatch.1",
            r#"{"at", "imatch", "1", false}"#,
            "P0001 (raise_exception) operator imatch requires a text-compatible column type, got timestamp with time zone",
        ),
        (
            "name=match.(",
            r#"{"name", "match", "(", false}"#,
            "P0001 (raise_exception) invalid regular expression for match filter: invalid regular expression: parentheses () not balanced",
        ),
        (
            "id=eq.1,name=imatch.[",
            r#"{"id", "eq", "1", false}, {"name", "imatch", "[", false}"#,
            "P0001 (raise_exception) invalid regular expression for imatch filter: invalid regular expression: brackets [] not balanced",
        ),
    ] {
        let joined = live.try_join(&person, "a", &[entry("*", "things", filter)]);
        let (status, message) = joined.system().await;
        let expected = format!(
            "Unable to subscribe to changes with given parameters. An exception happened so please check your connect parameters: \
             [event: *, schema: public, table: things, filters: [{printed}], select: nil]. Exception: ERROR {exception}"
        );
        assert_eq!((&*status, message), ("error", expected), "{filter}");
    }
    for list in
        [format!("id=in.({})", many(101)), format!("price=in.({})", many(101)), format!("name=in.({})", many(101))]
    {
        let (status, message) = live.try_join(&person, "a", &[entry("*", "things", &list)]).system().await;
        assert_eq!(status, "error");
        assert!(
            message.ends_with("Exception: ERROR P0001 (raise_exception) too many values for `in` filter. Maximum 100"),
            "{message}"
        );
    }
    let unknown = |entry: &str| {
        format!(
            "Unable to subscribe to changes with given parameters. Please check Realtime is enabled for the given connect parameters: {entry}"
        )
    };
    for (entry, message) in [
        (
            entry("*", "unpublished", ""),
            unknown("[event: *, schema: public, table: unpublished, filters: [], select: nil]"),
        ),
        (entry("INSERT", "th%", ""), unknown("[event: INSERT, schema: public, table: th%, filters: [], select: nil]")),
        (json!({ "schema": "nope" }), unknown("[event: *, schema: nope, table: *, filters: [], select: nil]")),
        (
            json!({ "schema": "public", "table": "things", "filter": "wrong" }),
            "Error parsing `filter` params: [\"wrong\"]".to_owned(),
        ),
    ] {
        assert_eq!(live.try_join(&person, "a", &[entry]).system().await, ("error".to_owned(), message));
    }
    let select = json!({ "schema": "public", "table": "things", "select": ["name", "hidden"] });
    let (_, message) = live.try_join(&person, "a", &[select]).system().await;
    assert!(
        message.ends_with(
            "select: [\"hidden\", \"name\"]]. Exception: ERROR P0001 (raise_exception) invalid column for select hidden"
        ),
        "{message}"
    );
    let nobody = identity(json!({ "role": "no_such_role" }));
    let (status, message) = live.try_join(&nobody, "a", &[entry("*", "things", "")]).system().await;
    assert_eq!(status, "error");
    assert!(message.ends_with("role \"no_such_role\" does not exist"), "{message}");
}

#[tokio::test]
async fn one_bad_entry_fails_all() {
    let live = Live::new(SET_UP).await;
    let joined = live.try_join(&person("a"), "a", &[entry("*", "things", ""), entry("*", "things", "nope=eq.1")]);
    assert_eq!(joined.system().await.0, "error");
    let other = live.join(&person("b"), "b", &[]).await;
    let [_] = live.received("insert into public.things (id) values (1)", [&other]).await;
    assert_eq!(joined.channel.received(), []);
}

#[tokio::test]
async fn valid_filters_of_every_kind_are_accepted() {
    let live = Live::new(SET_UP).await;
    let hundred = (0..100).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    for filter in [
        "id=eq. 7 ",
        "id=in.()",
        &format!("id=in.({hundred})"),
        "small=isdistinct.3",
        "name=eq.",
        "code=eq.ab",
        "at=gte.2024-02-29",
        "price=in.(1.50,\"2\",null)",
        "done=eq.yes",
        "done=is.unknown",
        "mood=lt.bad",
        "raw=eq.\\xDEAD",
        "raw=in.(\"\\\\xde\",ad)",
        "label=eq.longer than the column",
        "token=eq.A0EEBC999C0B4EF8BB6D6BB9BD380A11",
        "name=match.^(a|b)+$",
        "label=ilike.%x%",
        "code=like.a%",
        "doc=is.null",
        "mood=is.null",
        "done=gt.false",
        "name=gt.m",
        "token=lte.a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    ] {
        live.join(&person("a"), "a", &[entry("*", "things", filter)]).await;
    }
    // An operator that the type does not have is reported instead of never being true
    let (_, message) = live.try_join(&person("a"), "a", &[entry("*", "things", "doc=eq.{}")]).system().await;
    assert!(message.ends_with("ERROR 42883 (undefined_function) operator does not exist: json = json"), "{message}");
}

#[tokio::test]
async fn a_lock_of_a_migration_delays_a_subscription_and_does_not_end_it() {
    let live = Live::with_pause(SET_UP, PAUSE).await;
    live.run("begin; lock table public.things in access exclusive mode").await;
    let joined = live.try_join(&person("a"), "a", &[entry("*", "things", "id=gt.1")]);
    let (status, text) = joined.system().await;
    assert_eq!(status, "error");
    assert!(text.ends_with("(55P03)"), "{text}");
    live.run("rollback").await;
    loop {
        // One more attempt may have begun before
        let (status, text) = joined.system().await;
        if status == "ok" {
            break;
        }
        assert!(text.ends_with("(55P03)"), "{text}");
    }
    let [events] = live.received("insert into public.things (id) values (2)", [&joined]).await;
    assert_eq!(events.len(), 1);
}
