//! Attempts to learn about rows and columns that a subscriber may not select.

use serde_json::{Value, json};

use super::{Live, entry};
use crate::fixture::person;

/// A table whose rows belong to their owners. A comparison of the mood `bad` as `authenticated`
/// takes an hour; it is quick for operands, and for the superuser's inserts.
const OWNED: &str = "
    create function public.slowly(mood text) returns bool language plpgsql as $$
      begin
        if current_user = 'authenticated' and mood = 'bad' then perform pg_sleep(3600); end if;
        return true;
      end $$;
    create domain public.mood as text check (public.slowly(value));
    create table public.items (id int primary key, owner text, name text, mood public.mood, secret text);
    alter table public.items enable row level security;
    revoke all on public.items from anon, authenticated;
    grant select (id, owner, name, mood) on public.items to authenticated;
    create policy a on public.items for select to authenticated using (owner = auth.jwt() ->> 'sub');
    alter publication supabase_realtime add table public.items";

fn ids(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["data"]["record"]["id"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_condition_is_not_evaluated_for_a_hidden_row() {
    let live = Live::new(OWNED).await;
    let owner = live.join(&person("owner"), "a", &[entry("*", "items", "mood=neq.good")]).await;
    let attacker = live.join(&person("attacker"), "b", &[entry("*", "items", "mood=neq.good")]).await;
    // Slow for its owner, whose condition pauses; the attacker's own rows still arrive
    let sql = "insert into public.items values (1, 'owner', 'x', 'bad'), (2, 'attacker', 'x', 'fine')";
    live.run(sql).await;
    assert_eq!(owner.system().await.0, "error");
    let [owners, attackers] = live.received("", [&owner, &attacker]).await;
    assert_eq!((ids(&owners), ids(&attackers)), (vec![], vec![2]));
    let sql = "insert into public.items values (3, 'owner', 'x', 'fine'), (4, 'attacker', 'x', 'fine')";
    let [owners, attackers] = live.received(sql, [&owner, &attacker]).await;
    assert_eq!((ids(&owners), ids(&attackers)), (vec![], vec![4]));
}

#[tokio::test]
async fn the_errors_of_a_condition_tell_nothing_about_hidden_rows() {
    let live = Live::new(OWNED).await;
    // The pattern fails for every name that begins with an a
    let attacker = live.join(&person("attacker"), "a", &[entry("*", "items", "name=not.like.a\\")]).await;
    for (first, hidden) in [(1, "a"), (1001, "b")] {
        let sql = format!(
            "insert into public.items
             select {first} + n, case when n % 30 = 7 then 'attacker' else 'owner' end, case when n % 30 = 7 then 'x' else '{hidden}' end
               from generate_series(0, 599) as n"
        );
        let [events] = live.received(&sql, [&attacker]).await;
        let expected: Vec<u64> = (0..600).filter(|n| n % 30 == 7).map(|n| first + n).collect();
        assert_eq!(ids(&events), expected, "{hidden}");
    }
}

#[tokio::test]
async fn the_size_of_hidden_values_has_no_effect_on_an_event() {
    let live = Live::new(OWNED).await;
    live.run("alter table public.items replica identity full").await;
    let reader = live.join(&person("owner"), "a", &[entry("*", "items", "")]).await;
    let name = "n".repeat(100);
    let sql = format!("insert into public.items values (1, 'owner', '{name}', 'fine', repeat('s', 1048576))");
    let [events] = live.received(&sql, [&reader]).await;
    let data = &events[0]["data"];
    assert_eq!((&data["errors"], &data["record"]["name"]), (&Value::Null, &json!(name)));
    let [events] = live.received("delete from public.items", [&reader]).await;
    assert_eq!((&events[0]["data"]["errors"], &events[0]["data"]["old_record"]), (&Value::Null, &json!({ "id": 1 })));
}
