//! Pauses of readers for whom policies take too long, and of subscribers whose filters do.

use std::time::Duration;

use serde_json::json;

use super::{Joined, Live, entry};
use crate::changes::DatabaseChanges;
use crate::changes::reads::pauses::PAUSE;
use crate::fixture::{TestChannel, identity, person, room};
use crate::socket::frame::Version;

/// A table whose policy takes an hour for one person, and for many.
const SLOW_POLICY: &str = "
    create function public.decides(sub text) returns bool language plpgsql as $$
      begin
        if sub like 'slow%' then perform pg_sleep(3600); end if;
        return true;
      end $$;
    create table public.items (id int primary key);
    alter table public.items enable row level security;
    grant select on public.items to authenticated;
    create policy a on public.items for select to authenticated using (public.decides(auth.jwt() ->> 'sub'));
    alter publication supabase_realtime add table public.items";
const QUICK_POLICY: &str =
    "create or replace function public.decides(sub text) returns bool language sql as 'select true'";

fn paused() -> (String, String) {
    ("error".to_owned(), "Changes of public.items are paused: its policies take too long".to_owned())
}

fn subscribed() -> (String, String) {
    ("ok".to_owned(), "Subscribed to PostgreSQL".to_owned())
}

#[tokio::test]
async fn a_policy_that_takes_too_long_pauses_its_reader_alone() {
    let live = Live::with_pause(SLOW_POLICY, PAUSE).await;
    let slow = live.join(&person("slow"), "a", &[entry("*", "items", "")]).await;
    let other = live.join(&person("other"), "b", &[entry("*", "items", "")]).await;
    let [events] = live.received("insert into public.items values (1)", [&other]).await;
    assert_eq!(events.len(), 1);
    assert_eq!(slow.system().await, paused());
    live.run(QUICK_POLICY).await;
    let [paused, events] = live.received("insert into public.items values (2)", [&slow, &other]).await;
    assert_eq!((paused.len(), events.len()), (0, 1), "the policy of the paused reader is not evaluated");
    // Policies do not decide about deletions
    let [paused, events] = live.received("delete from public.items where id = 2", [&slow, &other]).await;
    assert_eq!((paused.len(), events.len()), (1, 1));
}

#[tokio::test]
async fn a_pause_ends_without_another_change() {
    let live = Live::with_pause(SLOW_POLICY, Duration::from_millis(1)).await;
    let slow = live.join(&person("slow"), "a", &[entry("*", "items", "")]).await;
    let deletions = live.join(&person("slow"), "b", &[entry("DELETE", "items", "")]).await;
    live.run("insert into public.items values (1)").await;
    assert_eq!((slow.system().await, slow.system().await), (paused(), subscribed()));
    live.run(QUICK_POLICY).await;
    let [events, others] = live.received("insert into public.items values (3)", [&slow, &deletions]).await;
    assert_eq!((events.len(), others.len()), (1, 0), "and what no policy decides about was not paused");
}

#[tokio::test]
async fn a_channel_that_joins_during_a_pause_of_its_reader_receives_its_error() {
    let live = Live::with_pause(SLOW_POLICY, Duration::from_secs(4)).await;
    let slow = live.join(&person("slow"), "a", &[entry("*", "items", "")]).await;
    let mut renewed = live.join(&person("quick"), "b", &[entry("INSERT", "items", "")]).await;
    live.run("insert into public.items values (1)").await;
    assert_eq!(slow.system().await, paused());
    live.run(QUICK_POLICY).await;
    // Another token of the person, and a token of the person for a channel of another one
    let token = identity(json!({ "role": "authenticated", "sub": "slow", "iat": 7 }));
    let joined = live.try_join(&token, "c", &[entry("*", "items", "")]);
    assert_eq!(joined.system().await, paused());
    assert_eq!(renewed.next().await.1[4]["data"]["record"]["id"], 1);
    assert!(renewed.subscription.as_mut().unwrap().renew(&token));
    assert_eq!(renewed.system().await, paused());
    // A channel without an entry for the table
    live.join(&token, "d", &[]).await;
    let channels = [&slow, &joined, &renewed];
    let missed = live.received("insert into public.items values (2)", channels).await;
    assert!(missed.iter().all(Vec::is_empty), "{missed:?}");
    for channel in channels {
        assert_eq!(channel.system().await, subscribed());
    }
    let events = live.received("insert into public.items values (3)", channels).await;
    assert_eq!(events.map(|events| events[0]["data"]["record"].clone()), [(); 3].map(|()| json!({ "id": 3 })));
}

#[tokio::test]
async fn a_role_is_paused_when_many_of_its_readers_are_slow() {
    let live = Live::with_pause(SLOW_POLICY, PAUSE).await;
    live.run("grant select on public.items to service_role").await;
    // Fewer at once than connections
    let mut slow: Vec<Joined> = Vec::new();
    for round in 0..4 {
        for number in 0..8 {
            slow.push(live.join(&person(&format!("slow {round} {number}")), "a", &[entry("*", "items", "")]).await);
        }
        live.run(&format!("insert into public.items values ({round})")).await;
        for channel in slow.iter().skip(8 * round) {
            assert_eq!(channel.system().await, paused());
        }
    }
    let last = live.join(&person("slow at last"), "a", &[entry("*", "items", "")]).await;
    let quick = live.join(&person("quick"), "a", &[entry("*", "items", "")]).await;
    let other_role = live.join(&identity(json!({ "role": "service_role" })), "a", &[entry("*", "items", "")]).await;
    live.run("insert into public.items values (5)").await;
    assert_eq!(last.system().await, paused());
    // Of one set of changes: the rows that are decided about are still delivered
    let messages = [quick.next().await.1, quick.next().await.1];
    let is_error = |message: &serde_json::Value| message[4]["status"] == "error";
    assert_eq!(messages.iter().filter(|message| is_error(message)).count(), 1, "{messages:?}");
    live.run(QUICK_POLICY).await;
    let [events, others] = live.received("insert into public.items values (6)", [&quick, &other_role]).await;
    assert_eq!((events.len(), others.len()), (0, 2));
    slow.iter().for_each(|channel| assert_eq!(channel.channel.received().len(), 1, "a mark, and no second error"));
    let channel = TestChannel::new(&room(false, "b"), Version::V2);
    let prepared = DatabaseChanges::prepare(&[entry("*", "items", "")]);
    let late = live.subscribe(channel, &person("late"), &prepared);
    assert_eq!(late.system().await, paused());
}

/// A table with a domain that takes a time for each comparison with a value of the person, which is
/// quick for operands, and for the superuser's inserts.
const SLOW_FILTERS: &str = "
    create function public.compares(mood text) returns bool language plpgsql as $$
      begin
        if current_user = 'authenticated' and mood like 'hours%' then perform pg_sleep(3600); end if;
        if current_user = 'authenticated' and mood like 'share%' then perform pg_sleep(0.3); end if;
        return true;
      end $$;
    create domain public.mood as text check (public.compares(value));
    create table public.items (id int primary key, name text, mood public.mood);
    alter table public.items disable row level security;
    grant select on public.items to anon, authenticated;
    alter publication supabase_realtime add table public.items";
fn filters_paused() -> (String, String) {
    let text = "Changes for filters that the database evaluates are paused: they take too long";
    ("error".to_owned(), text.to_owned())
}

#[tokio::test]
async fn a_condition_that_takes_too_long_pauses_its_subscriber_alone() {
    let live = Live::with_pause(SLOW_FILTERS, Duration::from_secs(3)).await;
    let entries = [entry("*", "items", "mood=neq.good"), entry("*", "items", "id=gt.0")];
    let moody = live.join(&person("slow"), "a", &entries).await;
    let named = live.join(&person("other"), "b", &[entry("*", "items", "name=like.a%")]).await;
    live.run("insert into public.items values (1, 'a', 'hours')").await;
    assert_eq!(moody.system().await, filters_paused());
    let [of_moody, of_named] = live.received("insert into public.items values (2, 'a', 'x')", [&moody, &named]).await;
    let ids = |events: &[serde_json::Value]| events.iter().map(|event| event["ids"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&of_moody), vec![json!([moody.ids[1]]); 2], "a filter that needs no database is not paused");
    assert_eq!(of_named.len(), 2);
    // Another channel of the person
    let late = live.try_join(&person("slow"), "c", &[entry("*", "items", "name=like.a%")]);
    assert_eq!(late.system().await, filters_paused());
    assert_eq!((moody.system().await, late.system().await), (subscribed(), subscribed()));
    let [of_moody, of_late] = live.received("insert into public.items values (3, 'a', 'x')", [&moody, &late]).await;
    assert_eq!((ids(&of_moody)[0].as_array().unwrap().len(), of_late.len()), (2, 1));
}

#[tokio::test]
async fn conditions_that_take_a_share_of_the_time_again_and_again_pause_their_subscriber() {
    let live = Live::new(SLOW_FILTERS).await;
    let slow = live.join(&person("slow"), "a", &[entry("*", "items", "mood=neq.good")]).await;
    let other = live.join(&person("other"), "b", &[entry("*", "items", "name=like.a%")]).await;
    let mut delivered = 0;
    for id in 0..20 {
        live.run(&format!("insert into public.items values ({id}, 'a', 'share')")).await;
        let (_, message) = slow.next().await;
        if message[3] == "system" {
            assert_eq!(message[4]["status"], "error");
            break;
        }
        delivered += 1;
    }
    assert!((1..20).contains(&delivered), "{delivered}");
    let [of_slow, of_other] = live.received("insert into public.items values (-1, 'a', 'x')", [&slow, &other]).await;
    assert!(of_slow.len() <= 1, "{of_slow:?}");
    assert_eq!(of_other.len(), delivered + 2);
}

#[tokio::test]
async fn many_slow_conditions_of_one_subscriber_leave_the_time_of_others() {
    let live = Live::new(
        "create table public.switch (is_on bool);
         alter table public.switch disable row level security;
         grant select on public.switch to authenticated;
         create function public.compares(mood text) returns bool language plpgsql as $$
           begin
             if mood like 'slow%' and exists (select from public.switch) then perform pg_sleep(3600); end if;
             return true;
           end $$;
         create domain public.mood as text check (public.compares(value));
         create table public.items (id int primary key, mood public.mood);
         alter table public.items disable row level security;
         grant select on public.items to authenticated;
         alter publication supabase_realtime add table public.items",
    )
    .await;
    // Each of them alone takes longer than a read may
    let filters: Vec<_> = (0..90).map(|number| entry("*", "items", &format!("mood=neq.slow {number}"))).collect();
    let slow = live.join(&person("slow"), "a", &filters).await;
    let quick = live.join(&person("other"), "b", &[entry("*", "items", "mood=neq.good")]).await;
    live.run("insert into public.switch values (true); insert into public.items values (1, 'x')").await;
    assert_eq!(slow.system().await, filters_paused());
    let [of_slow, of_quick] = live.received("insert into public.items values (2, 'x')", [&slow, &quick]).await;
    assert_eq!((of_slow.len(), of_quick.len()), (0, 2));
}
