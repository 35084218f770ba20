//! The content of events that depends on the project's own types and tables.

use std::time::Duration;

use serde_json::json;

use super::{Live, entry};
use crate::changes::reads::times::DeliveryTimes;
use crate::fixture::person;
use crate::settings::RealtimeSettings;

#[tokio::test]
async fn a_cast_of_the_project_renders_values_with_the_fewest_rights() {
    let live = Live::new(
        "create type public.kind as enum ('quick', 'slow', 'writes');
         create table public.items (id int primary key, kind public.kind);
         create function public.kind_json(kind public.kind) returns json language plpgsql as $$
           begin
             if kind = 'slow' then perform pg_sleep(3600); end if;
             if kind = 'writes' then delete from public.items; end if;
             return json_build_array(kind::text, current_user);
           end $$;
         create cast (public.kind as json) with function public.kind_json(public.kind);
         alter table public.items disable row level security;
         grant all on public.items to anon, authenticated;
         alter publication supabase_realtime add table public.items",
    )
    .await;
    let joined = live.join(&person("a"), "a", &[entry("INSERT", "items", "")]).await;
    let slow = (3, "slow", json!("slow"));
    let paused = (4, "quick", json!("quick"));
    for (id, kind, rendered) in [(1, "quick", json!(["quick", "anon"])), (2, "writes", json!("writes")), slow, paused] {
        let [events] = live.received(&format!("insert into public.items values ({id}, '{kind}')"), [&joined]).await;
        assert_eq!(events[0]["data"]["record"], json!({ "id": id, "kind": rendered }));
    }
    assert_eq!(live.database.value("select count(*)::text from public.items").await, "4");
}

#[tokio::test]
async fn a_value_whose_cast_fails_is_text_and_the_others_are_rendered() {
    let set_up = "
         create type public.kind as enum ('good', 'bad');
         create table public.items (id int primary key, kind public.kind);
         create function public.kind_json(kind public.kind) returns json language plpgsql as $$
           begin
             if kind = 'bad' then raise 'no'; end if;
             return json_build_array(kind::text);
           end $$;
         create cast (public.kind as json) with function public.kind_json(public.kind);
         alter table public.items disable row level security;
         grant all on public.items to anon, authenticated;
         alter publication supabase_realtime add table public.items";
    let times = DeliveryTimes { rendering: Duration::from_secs(3600), ..DeliveryTimes::default() };
    let live = Live::with_times(set_up, RealtimeSettings::default(), times).await;
    let joined = live.join(&person("a"), "a", &[entry("INSERT", "items", "")]).await;
    let sql = "insert into public.items
               select n, case when n in (3, 70) then 'bad' else 'good' end::public.kind from generate_series(1, 100) n";
    let [events] = live.received(sql, [&joined]).await;
    for (number, event) in (1..).zip(&events) {
        let kind = if matches!(number, 3 | 70) { json!("bad") } else { json!(["good"]) };
        assert_eq!(event["data"]["record"], json!({ "id": number, "kind": kind }));
    }
    assert_eq!(events.len(), 100);
    // More than are searched for: all of them arrive
    let sql = "insert into public.items select n, 'bad' from generate_series(101, 300) n";
    let [events] = live.received(sql, [&joined]).await;
    assert!(events.iter().all(|event| event["data"]["record"]["kind"] == "bad"));
    assert_eq!(events.len(), 200);
}

#[tokio::test]
async fn a_partitioned_table_has_changes_of_its_own_where_the_publication_says_so() {
    let live = Live::new(
        "create table public.events (id int, part int, owner text, primary key (id, part)) partition by list (part);
         create table public.events_1 partition of public.events for values in (1);
         create table public.events_2 partition of public.events for values in (2);
         alter table public.events enable row level security;
         create policy a on public.events for select to authenticated using (owner = auth.jwt() ->> 'sub');
         grant select on public.events to authenticated;
         alter publication supabase_realtime add table public.events;
         alter publication supabase_realtime set (publish_via_partition_root = true)",
    )
    .await;
    let joined = live.join(&person("a"), "a", &[entry("*", "events", "part=gt.0")]).await;
    let sql = "insert into public.events values (1, 1, 'a'), (2, 2, 'b'), (3, 2, 'a'); update public.events set part = 1 where id = 3";
    let [events] = live.received(sql, [&joined]).await;
    let seen: Vec<_> = events
        .iter()
        .map(|event| {
            let data = &event["data"];
            (data["table"].clone(), data["type"].clone(), data["record"]["id"].clone())
        })
        .collect();
    // A row that moves to another partition is deleted in one and inserted into the other
    let expected = [("INSERT", json!(1)), ("DELETE", json!(null)), ("INSERT", json!(3))];
    assert_eq!(seen, expected.map(|(action, id)| (json!("events"), json!(action), id)));
}
