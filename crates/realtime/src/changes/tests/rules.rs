//! The rules by which a channel receives a change.

use std::collections::HashSet;

use portico_database::connect;
use serde_json::{Value, json};

use super::{Live, entry};
use crate::changes::reads::pauses::PAUSE;
use crate::fixture::{identity, person};
use crate::settings::{ChangesSettings, RealtimeSettings};

/// Returns what does not depend on the time.
fn data(payload: &Value) -> Value {
    let mut data = payload["data"].clone();
    let time = data.as_object_mut().unwrap().remove("commit_timestamp").unwrap();
    assert!(time.as_str().is_none_or(|time| time.len() == 24 && time.ends_with('Z')), "{time}");
    data
}

#[tokio::test]
async fn an_event_has_the_columns_that_the_role_may_select() {
    let live = Live::new(
        "create table public.todos (id int primary key, title text, secret text, tags text[]);
         alter table public.todos disable row level security;
         revoke all on public.todos from anon, authenticated;
         grant select (id, title, tags) on public.todos to authenticated;
         alter publication supabase_realtime add table public.todos",
    )
    .await;
    let all = live.join(&person("a"), "a", &[entry("*", "todos", "")]).await;
    let some = json!({ "event": "*", "schema": "public", "table": "todos", "select": ["title"] });
    let selected = live.join(&person("a"), "a", &[some]).await;
    let sql = "insert into public.todos values (1, 'x', 'hidden', '{a,null}')";
    let [events, selection] = live.received(sql, [&all, &selected]).await;
    assert_eq!(events[0]["ids"], json!([all.ids[0]]));
    assert!(events[0]["data"]["commit_timestamp"].is_string());
    let columns = json!([{ "name": "id", "type": "int4" }, { "name": "title", "type": "text" }, { "name": "tags", "type": "_text" }]);
    assert_eq!(
        data(&events[0]),
        json!({ "schema": "public", "table": "todos", "type": "INSERT", "columns": columns,
                "record": { "id": 1, "title": "x", "tags": ["a", null] }, "errors": null })
    );
    let columns = json!([{ "name": "id", "type": "int4" }, { "name": "title", "type": "text" }]);
    assert_eq!(
        data(&selection[0]),
        json!({ "schema": "public", "table": "todos", "type": "INSERT", "columns": columns,
                "record": { "id": 1, "title": "x" }, "errors": null })
    );
    let [events, _] = live.received("update public.todos set secret = 'other', title = 'y'", [&all, &selected]).await;
    assert_eq!(
        (&events[0]["data"]["record"]["title"], &events[0]["data"]["old_record"]),
        (&json!("y"), &json!({ "id": 1 }))
    );
    live.run("alter table public.todos replica identity full").await;
    let [events, selection] = live.received("update public.todos set title = 'z', id = 2", [&all, &selected]).await;
    assert_eq!(events[0]["data"]["old_record"], json!({ "id": 1, "title": "y", "tags": ["a", null] }));
    assert_eq!(selection[0]["data"]["old_record"], json!({ "id": 1, "title": "y" }));
    live.run("revoke select (title) on public.todos from authenticated").await;
    let [events, selection] = live.received("update public.todos set title = 'w'", [&all, &selected]).await;
    assert_eq!(events[0]["data"]["record"], json!({ "id": 2, "tags": ["a", null] }), "rights are read for each change");
    assert_eq!(selection[0]["data"]["record"], json!({ "id": 2 }));
}

#[tokio::test]
async fn a_dropped_column_does_not_move_the_rights_of_the_others() {
    let live = Live::new(
        "create table public.wide (id int primary key, x text, secret text, title text);
         alter table public.wide disable row level security;
         revoke all on public.wide from anon, authenticated;
         grant select (id, x, title) on public.wide to authenticated;
         alter publication supabase_realtime add table public.wide",
    )
    .await;
    let joined = live.join(&person("a"), "a", &[entry("*", "wide", "")]).await;
    // The table is described with all its columns here, and anew in the middle of the transaction
    live.received("insert into public.wide values (1, 'x', 'hidden', 't')", [&joined]).await;
    let sql = "begin;
               insert into public.wide values (2, 'x', 'hidden', 't');
               alter table public.wide drop column x;
               insert into public.wide values (3, 'hidden', 't');
               commit";
    let [events] = live.received(sql, [&joined]).await;
    assert!(!json!(events).to_string().contains("hidden"), "{events:?}");
    assert_eq!(events.len(), 2);
    assert_eq!(events[1]["data"]["record"], json!({ "id": 3, "title": "t" }));
}

#[tokio::test]
async fn a_table_without_a_readable_key_gives_an_error_event_to_the_whole_role() {
    let live = Live::new(
        "create table public.keyless (id int, title text);
         create table public.closed (id int primary key, title text);
         create table public.policed (id int primary key, title text);
         alter table public.keyless disable row level security;
         alter table public.closed disable row level security;
         alter table public.policed enable row level security;
         alter table public.keyless replica identity full;
         grant all on public.keyless, public.closed, public.policed to service_role;
         revoke all on public.keyless, public.closed, public.policed from anon, authenticated;
         grant select (title) on public.keyless, public.closed, public.policed to authenticated;
         alter publication supabase_realtime add table public.keyless, public.closed, public.policed",
    )
    .await;
    let no_key = json!(["Error 400: Bad Request, no primary key"]);
    let unauthorized = json!(["Error 401: Unauthorized"]);
    let service = identity(json!({ "role": "service_role" }));
    for (table, errors) in [("keyless", &no_key), ("closed", &unauthorized), ("policed", &unauthorized)] {
        let matching = live.join(&person("a"), "a", &[entry("*", table, "title=eq.x")]).await;
        let other = live.join(&person("b"), "b", &[entry("*", table, "title=eq.never")]).await;
        let service = live.join(&service, "c", &[entry("*", table, "")]).await;
        let sql = format!("insert into public.{table} values (1, 'x')");
        let [first, second, third] = live.received(&sql, [&matching, &other, &service]).await;
        let event = json!({ "schema": "public", "table": table, "type": "INSERT", "columns": [], "record": {}, "errors": errors });
        assert_eq!((data(&first[0]), data(&second[0])), (event.clone(), event), "{table}");
        assert_eq!(first[0]["data"]["commit_timestamp"], Value::Null);
        assert_eq!((first.len(), second.len(), third.len()), (1, 1, 1));
        assert_eq!(third[0]["data"]["errors"], if table == "keyless" { no_key.clone() } else { Value::Null });
        let [first] = live.received(&format!("update public.{table} set title = 'y'"), [&matching]).await;
        let event = json!({ "schema": "public", "table": table, "type": "UPDATE", "columns": [], "record": {}, "old_record": {}, "errors": errors });
        assert_eq!(data(&first[0]), event, "{table}");
    }
}

#[tokio::test]
async fn a_role_that_loses_the_key_gives_one_error_event_to_each_of_its_readers() {
    let live = Live::new(
        "create table public.items (id int primary key, title text);
         alter table public.items enable row level security;
         create policy p on public.items for select to authenticated using (true);
         grant select on public.items to authenticated;
         alter publication supabase_realtime add table public.items",
    )
    .await;
    let matching = live.join(&person("a"), "a", &[entry("*", "items", "title=eq.x")]).await;
    let also_matching = live.join(&person("b"), "b", &[entry("*", "items", "")]).await;
    let other = live.join(&person("c"), "c", &[entry("*", "items", "title=eq.never")]).await;
    let all = [&matching, &also_matching, &other];
    let received = live.received("insert into public.items values (1, 'x')", all).await;
    assert_eq!(received.map(|events| events.len()), [1, 1, 0]);
    live.run("revoke select on public.items from authenticated").await;
    for events in live.received("insert into public.items values (2, 'x')", all).await {
        assert_eq!(events.len(), 1);
        assert_eq!(events[0]["data"]["errors"], json!(["Error 401: Unauthorized"]));
    }
}

/// Returns the ids of the entries that an event is for.
fn ids(event: &Value) -> HashSet<Value> {
    event["ids"].as_array().unwrap().iter().cloned().collect()
}

/// Tables with and without row-level security, of whose deleted rows the log has all columns.
const DELETIONS: &str = "
    create table public.open (id int primary key, title text);
    create table public.policed (id int primary key, title text);
    alter table public.open disable row level security;
    alter table public.policed enable row level security;
    alter table public.open replica identity full;
    alter table public.policed replica identity full;
    revoke all on public.open, public.policed from anon, authenticated;
    grant select on public.open, public.policed to authenticated;
    alter publication supabase_realtime add table public.open, public.policed;
    insert into public.open values (1, 'x'), (2, 'y');
    insert into public.policed values (1, 'x'), (2, 'y')";

#[tokio::test]
async fn a_deleted_row_shows_its_key_alone_where_policies_exist() {
    let live = Live::new(DELETIONS).await;
    let anon = identity(json!({ "role": "anon" }));
    let filters = ["title=eq.y", "title=neq.x", "id=gt.1,title=like.y", "id=eq.2"];
    for (table, old, matching) in
        [("open", json!({ "id": 1, "title": "x" }), 0..4), ("policed", json!({ "id": 1 }), 3..4)]
    {
        let all = live.join(&person("a"), "a", &[entry("DELETE", table, "")]).await;
        let filtered = live.join(&person("b"), "b", &filters.map(|filter| entry("*", table, filter))).await;
        let expected: HashSet<_> = filtered.ids[matching].iter().cloned().collect();
        let without = live.join(&anon, "c", &[entry("*", table, "")]).await;
        let inserts = live.join(&person("a"), "d", &[entry("INSERT", table, "")]).await;
        let sql = format!("delete from public.{table}");
        let [all, filtered, without, inserts] = live.received(&sql, [&all, &filtered, &without, &inserts]).await;
        assert_eq!((all.len(), filtered.len(), without.len(), inserts.len()), (2, 1, 0, 0), "{table}");
        assert_eq!(all[0]["data"]["old_record"], old);
        assert_eq!(all[0]["data"].get("record"), None);
        assert_eq!((&filtered[0]["data"]["old_record"]["id"], ids(&filtered[0])), (&json!(2), expected), "{table}");
    }
}

#[tokio::test]
async fn filters_compare_hidden_values_of_deleted_rows_if_the_operator_says_so() {
    let settings = ChangesSettings { deletes_compared_whole: true, ..ChangesSettings::default() };
    let live =
        Live::with_settings(DELETIONS, RealtimeSettings { changes: settings, ..RealtimeSettings::default() }).await;
    let filters = ["title=eq.y", "title=like.y"].map(|filter| entry("*", "policed", filter));
    let joined = live.join(&person("a"), "a", &filters).await;
    let [events] = live.received("delete from public.policed", [&joined]).await;
    assert_eq!(events.len(), 1);
    let expected: HashSet<_> = joined.ids[..2].iter().cloned().collect();
    assert_eq!((&events[0]["data"]["old_record"], ids(&events[0])), (&json!({ "id": 2 }), expected));
}

#[tokio::test]
async fn deletions_reach_roles_without_rights_if_the_operator_says_so() {
    let settings = ChangesSettings { deletes_without_privilege: true, ..ChangesSettings::default() };
    let live = Live::with_settings(
        "create table public.policed (id int primary key);
         alter table public.policed enable row level security;
         revoke all on public.policed from anon, authenticated;
         alter publication supabase_realtime add table public.policed;
         insert into public.policed values (1)",
        RealtimeSettings { changes: settings, ..RealtimeSettings::default() },
    )
    .await;
    let joined = live.join(&person("a"), "a", &[entry("*", "policed", "")]).await;
    let [events] = live.received("delete from public.policed", [&joined]).await;
    assert_eq!((&events[0]["data"]["old_record"], &events[0]["data"]["columns"]), (&json!({}), &json!([])));
}

#[tokio::test]
async fn a_change_that_is_too_large_keeps_its_small_values() {
    let live = Live::new(
        "create table public.notes (id int primary key, title text, body text);
         alter table public.notes disable row level security;
         grant select on public.notes to authenticated;
         alter publication supabase_realtime add table public.notes",
    )
    .await;
    let joined = live.join(&person("a"), "a", &[entry("*", "notes", "")]).await;
    let sql = "insert into public.notes values (1, repeat('t', 62), repeat('b', 1048576)), (2, repeat('t', 63), repeat('b', 1048000))";
    let [events] = live.received(sql, [&joined]).await;
    assert_eq!(events[0]["data"]["record"], json!({ "id": 1, "title": "t".repeat(62) }));
    assert_eq!(events[0]["data"]["errors"], json!(["Error 413: Payload Too Large"]));
    assert_eq!(events[0]["data"]["columns"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&events[1]["data"]["errors"], &events[1]["data"]["record"]["title"]),
        (&Value::Null, &json!("t".repeat(63)))
    );
    let [events] = live.received("update public.notes set title = repeat('t', 63) where id = 1", [&joined]).await;
    assert_eq!(
        events[0]["data"]["record"],
        json!({ "id": 1, "title": "t".repeat(63) }),
        "an unchanged large value is absent"
    );
    assert_eq!(events[0]["data"]["errors"], Value::Null);
}

#[tokio::test]
async fn a_failing_policy_hides_its_rows_from_its_reader_alone() {
    let live = Live::new(
        "create table public.rows (id int primary key, level int);
         alter table public.rows enable row level security;
         grant select on public.rows to authenticated;
         create policy a on public.rows for select to authenticated
           using (10 / (level - (auth.jwt() ->> 'level')::int) <> 0);
         alter publication supabase_realtime add table public.rows",
    )
    .await;
    let reader = |level: Value| identity(json!({ "role": "authenticated", "level": level }));
    let first = live.join(&reader(json!(1)), "a", &[entry("*", "rows", "")]).await;
    let second = live.join(&reader(json!(2)), "b", &[entry("*", "rows", "")]).await;
    let broken = live.join(&reader(json!("x")), "c", &[entry("*", "rows", "")]).await;
    let sql = "insert into public.rows values (1, 1), (2, 2), (3, 3)";
    let [first, second, broken] = live.received(sql, [&first, &second, &broken]).await;
    let ids = |events: Vec<Value>| events.iter().map(|event| event["data"]["record"]["id"].clone()).collect::<Vec<_>>();
    assert_eq!((ids(first), ids(second), ids(broken)), (vec![json!(2), json!(3)], vec![json!(1), json!(3)], vec![]));
}

#[tokio::test]
async fn a_schema_that_a_role_may_not_use_is_closed() {
    let live = Live::new(
        "create schema hidden;
         create table hidden.rows (id int primary key);
         grant select on hidden.rows to authenticated;
         alter publication supabase_realtime add table hidden.rows",
    )
    .await;
    let entry = json!({ "schema": "hidden", "table": "rows" });
    let joined = live.join(&person("a"), "a", &[entry]).await;
    let [events] = live.received("insert into hidden.rows values (1); delete from hidden.rows", [&joined]).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["data"]["errors"], json!(["Error 401: Unauthorized"]));
}

#[tokio::test]
async fn claims_are_the_only_setting_of_a_request() {
    let live = Live::new(
        "create table public.rows (id int primary key);
         alter table public.rows enable row level security;
         grant select on public.rows to authenticated;
         create policy a on public.rows for select to authenticated
           using (auth.uid()::text = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11' and current_setting('request.headers', true) is null);
         alter publication supabase_realtime add table public.rows",
    )
    .await;
    let owner = live.join(&person("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), "a", &[entry("*", "rows", "")]).await;
    let other = live.join(&person("b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), "b", &[entry("*", "rows", "")]).await;
    let [owner, other] = live.received("insert into public.rows values (1)", [&owner, &other]).await;
    assert_eq!((owner.len(), other.len()), (1, 0));
}

#[tokio::test]
async fn a_failing_condition_holds_for_no_row_and_disturbs_no_other() {
    let live = Live::new(
        "create table public.items (id int primary key, name text);
         alter table public.items disable row level security;
         grant select on public.items to authenticated;
         alter publication supabase_realtime add table public.items",
    )
    .await;
    let broken = live.join(&person("a"), "a", &[entry("*", "items", "name=like.a\\")]).await;
    let whole = live.join(&person("b"), "b", &[entry("*", "items", "name=like.a%")]).await;
    let negated = live.join(&person("c"), "c", &[entry("*", "items", "name=not.like.%7")]).await;
    let sql = "insert into public.items select i, 'a' || i from generate_series(1, 300) i; insert into public.items values (0, null)";
    let [broken, whole, negated] = live.received(sql, [&broken, &whole, &negated]).await;
    assert_eq!((broken.len(), whole.len(), negated.len()), (0, 300, 270));
}

#[tokio::test]
async fn a_policy_that_fails_for_every_row_of_a_reader_hides_none_from_others() {
    let live = Live::new(
        "create table public.rows (id int primary key);
         alter table public.rows enable row level security;
         grant select on public.rows to authenticated;
         create policy a on public.rows for select to authenticated using ((auth.jwt() ->> 'level')::int > 0);
         alter publication supabase_realtime add table public.rows",
    )
    .await;
    let reader = |level: Value| identity(json!({ "role": "authenticated", "level": level }));
    let broken = live.join(&reader(json!("x")), "a", &[entry("*", "rows", "")]).await;
    let whole = live.join(&reader(json!(1)), "b", &[entry("*", "rows", "")]).await;
    let sql = "insert into public.rows select generate_series(1, 900)";
    let [broken, whole] = live.received(sql, [&broken, &whole]).await;
    assert_eq!((broken.len(), whole.len()), (0, 900));
}

#[tokio::test]
async fn a_lock_that_a_policy_waits_for_is_a_gap_and_no_pause() {
    let live = Live::with_pause(
        "create table public.rights (sub text);
         grant select on public.rights to authenticated;
         alter table public.rights disable row level security;
         insert into public.rights values ('a');
         create table public.items (id int primary key);
         alter table public.items enable row level security;
         grant select on public.items to authenticated;
         create policy a on public.items for select to authenticated
           using (exists (select from public.rights where sub = auth.jwt() ->> 'sub'));
         alter publication supabase_realtime add table public.items",
        PAUSE,
    )
    .await;
    let joined = live.join(&person("a"), "a", &[entry("*", "items", "")]).await;
    let migration = connect(live.database.endpoint()).await.unwrap();
    migration.batch_execute("begin; lock table public.rights in access exclusive mode").await.unwrap();
    live.run("insert into public.items values (1)").await;
    assert_eq!(joined.system().await, ("ok".to_owned(), "Subscribed to PostgreSQL".to_owned()));
    migration.batch_execute("rollback").await.unwrap();
    let [events] = live.received("insert into public.items values (2)", [&joined]).await;
    assert_eq!(events.len(), 1);
}

#[tokio::test]
async fn a_condition_that_fails_for_one_value_still_holds_for_others() {
    // Of a domain, whose check fails for the role that evaluates the condition
    let live = Live::new(
        "create function public.checked(mood text) returns bool language plpgsql as $$
           begin
             if current_user = 'authenticated' and mood = 'bad' then raise 'no'; end if;
             return true;
           end $$;
         create domain public.mood as text check (public.checked(value));
         create table public.items (id int primary key, mood public.mood);
         alter table public.items disable row level security;
         grant select on public.items to authenticated;
         alter publication supabase_realtime add table public.items",
    )
    .await;
    let joined = live.join(&person("a"), "a", &[entry("*", "items", "mood=neq.good")]).await;
    for (id, mood, received) in [(1, "bad", 0), (2, "fine", 1)] {
        let [events] = live.received(&format!("insert into public.items values ({id}, '{mood}')"), [&joined]).await;
        assert_eq!(events.len(), received, "{mood}");
    }
}
