//! The order in which the readers of a change are served.

use std::time::Duration;

use portico_database::connect;
use serde_json::json;
use tokio_postgres::Client;

use super::{Live, entry, short_times};
use crate::changes::DatabaseChanges;
use crate::changes::reads::times::DeliveryTimes;
use crate::fixture::{TestChannel, identity, json_of, person, room};
use crate::settings::{RealtimeLimits, RealtimeSettings};
use crate::socket::frame::{Frame, Version};

/// A table whose policy waits for a lock for the persons `slow …`.
const WAITING_POLICY: &str = "
    create function public.waits() returns boolean language plpgsql stable as $$
      begin
        if auth.jwt() ->> 'sub' like 'slow%' then perform pg_advisory_xact_lock_shared(7); end if;
        return true;
      end $$;
    create table public.items (id int primary key, note text default 'x');
    alter table public.items enable row level security;
    create policy p on public.items for select to authenticated using (public.waits());
    create table public.notes (id int primary key);
    alter table public.notes enable row level security;
    create policy p on public.notes for select to authenticated using (true);
    grant select on public.items, public.notes to authenticated;
    alter publication supabase_realtime add table public.items, public.notes";

/// Has the policy wait for the slow persons. Returns a client whose `RELEASE` ends it.
async fn blocked(live: &Live) -> Client {
    let blocker = connect(live.database.endpoint()).await.unwrap();
    blocker.batch_execute("select pg_advisory_lock(7)").await.unwrap();
    blocker
}

const RELEASE: &str = "select pg_advisory_unlock(7)";

#[tokio::test]
async fn readers_whose_policy_waits_do_not_delay_the_others() {
    // Exceeded by the first byte
    let limits = RealtimeLimits { max_all_waiting_bytes: 0, ..RealtimeLimits::default() };
    let live = Live::with_settings(WAITING_POLICY, RealtimeSettings { limits, ..RealtimeSettings::default() }).await;
    let mut slow = Vec::new();
    for number in 0..6 {
        slow.push(live.join(&person(&format!("slow {number}")), "a", &[entry("*", "items", "")]).await);
    }
    let filtering = live.join(&person("filtering"), "a", &[entry("*", "items", "note=like.x%")]).await;
    let quick = live.join(&person("quick"), "a", &[entry("*", "items", "")]).await;
    let of_notes = live.join(&person("of notes"), "a", &[entry("*", "notes", "")]).await;
    // Would receive an error for the item if the role could not read it
    let of_both = [entry("*", "notes", ""), entry("*", "items", "id=eq.7")];
    let of_both = live.join(&person("of both"), "a", &of_both).await;
    let blocker = blocked(&live).await;
    live.run("insert into public.items values (1); insert into public.notes values (1)").await;
    for other in [&quick, &of_notes] {
        let (_, event) = other.next().await;
        assert_eq!(event[4]["data"]["record"]["id"], 1);
    }
    assert!(slow.iter().chain([&filtering, &of_both]).all(|other| other.channel.received().is_empty()));
    assert!(!live.memory.is_exceeded(), "a frame that was taken is still in memory");
    blocker.batch_execute(RELEASE).await.unwrap();
    for other in slow.iter().chain([&filtering, &of_both]) {
        let (_, event) = other.next().await;
        assert_eq!(event[4]["data"]["record"]["id"], 1, "{event}");
    }
}

#[tokio::test]
async fn a_right_that_is_revoked_during_a_delivery_is_missing_in_its_last_cohort() {
    let times = DeliveryTimes { role_answers: Duration::ZERO, ..DeliveryTimes::default() };
    let live = Live::with_times(WAITING_POLICY, RealtimeSettings::default(), times).await;
    live.run(
        "create table public.open (id int primary key, title text, secret text);
         alter table public.open disable row level security;
         grant select on public.open to authenticated;
         alter publication supabase_realtime add table public.open",
    )
    .await;
    let slow = live.join(&person("slow"), "a", &[entry("*", "items", "")]).await;
    let quick = live.join(&person("quick"), "a", &[entry("*", "items", "")]).await;
    let last = live.join(&person("last"), "a", &[entry("*", "open", "title=like.x%")]).await;
    let blocker = blocked(&live).await;
    live.run("insert into public.open values (1, 'x', 'y'); insert into public.items values (1)").await;
    quick.next().await;
    live.run(
        "revoke select on public.open from authenticated; grant select (id, title) on public.open to authenticated",
    )
    .await;
    blocker.batch_execute(RELEASE).await.unwrap();
    slow.next().await;
    let (_, event) = last.next().await;
    assert_eq!(event[4]["data"]["record"], json!({ "id": 1, "title": "x" }));
}

#[tokio::test]
async fn sockets_of_the_same_thread_write_while_a_cohort_is_sent() {
    let live = Live::new(WAITING_POLICY).await;
    // Fewer than are sent: it is closed unless it is emptied meanwhile
    let limits = RealtimeLimits { max_waiting_frames: 600, ..RealtimeLimits::default() };
    let channel = TestChannel::with_limits(&room(false, "a"), Version::V2, &limits);
    let joined = live.subscribe(channel, &person("a"), &DatabaseChanges::prepare(&[entry("*", "items", "")]));
    assert_eq!(joined.system().await.0, "ok");
    let receive = async {
        for id in 1..=1000 {
            assert_eq!(joined.next().await.1[4]["data"]["record"]["id"], id);
        }
    };
    tokio::join!(live.run("insert into public.items select generate_series(1, 1000)"), receive);
}

#[tokio::test]
async fn readers_of_several_cohorts_share_the_bytes_of_what_each_may_see() {
    let live = Live::new(
        "create table public.items (id int primary key, owner text);
         alter table public.items enable row level security;
         create policy own on public.items for select to authenticated
           using (owner = 'all' or owner = (select auth.jwt() ->> 'sub'));
         grant select on public.items to authenticated;
         revoke select on public.items from service_role;
         grant select (id) on public.items to service_role;
         alter publication supabase_realtime add table public.items",
    )
    .await;
    let entries = [entry("*", "items", "")];
    let (ann, bob) =
        (live.join(&person("ann"), "room", &entries).await, live.join(&person("bob"), "room", &entries).await);
    let hall = live.join(&person("carl"), "hall", &entries).await;
    let narrow = live.join(&identity(json!({ "role": "service_role" })), "room", &entries).await;
    live.run("insert into public.items values (1, 'all'), (2, 'ann')").await;
    let mark = live.mark().await;
    let mut first = Vec::new();
    for joined in [&ann, &bob, &hall, &narrow] {
        let (Frame::Text(frame), event) = joined.next().await else { panic!("a binary frame") };
        assert_eq!(event[4]["data"]["record"]["id"], 1);
        first.push(frame);
    }
    assert_eq!(first[0].as_ptr(), first[1].as_ptr());
    assert_ne!(first[0].as_ptr(), first[2].as_ptr(), "another topic");
    let rows = |events: Vec<serde_json::Value>| {
        events.into_iter().map(|event| event["data"]["record"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(rows(ann.until(mark).await), [json!({ "id": 2, "owner": "ann" })]);
    assert_eq!(rows(bob.until(mark).await), [] as [serde_json::Value; 0]);
    assert_eq!(rows(hall.until(mark).await), [] as [serde_json::Value; 0]);
    assert_eq!(json_of(&Frame::Text(first[3].clone()))[4]["data"]["record"], json!({ "id": 1 }), "other columns");
    assert_eq!(rows(narrow.until(mark).await), [json!({ "id": 2 })]);
}

/// Changes of one slice: with more tables than a cohort may have reads, few cohorts have a turn at
/// once.
const MANY_TABLES: &str = "
    do $$ begin
      for number in 1..50 loop
        execute format('create table public.t%s (id int primary key)', number);
        execute format('alter table public.t%s enable row level security', number);
        execute format('create policy p on public.t%s for select to authenticated using (true)', number);
        execute format('grant select on public.t%s to authenticated', number);
        execute format('alter publication supabase_realtime add table public.t%s', number);
      end loop;
    end $$";
const CHANGE_MANY_TABLES: &str = "
    do $$ begin
      insert into public.items values (1);
      for number in 1..50 loop execute format('insert into public.t%s values (1)', number); end loop;
    end $$";

#[tokio::test]
async fn a_pause_that_an_earlier_cohort_begins_holds_for_the_later_ones() {
    // The wait for a lock is part of a slow policy here
    let times = DeliveryTimes { lock: Duration::from_secs(60), ..short_times() };
    let live = Live::with_times(WAITING_POLICY, RealtimeSettings::default(), times).await;
    live.run(MANY_TABLES).await;
    // The reads of three cohorts wait at once, and those of the fourth and the last one come later
    let mut of_person = Vec::new();
    for number in 0..4 {
        let token = identity(json!({ "role": "authenticated", "sub": "slow", "iat": number }));
        of_person.push(live.join(&token, "a", &[json!({ "schema": "public" })]).await);
    }
    let token = identity(json!({ "role": "authenticated", "sub": "slow", "iat": 4 }));
    of_person.push(live.join(&token, "a", &[entry("*", "items", "note=like.x%")]).await);
    let filtering = live.join(&person("filtering"), "a", &[entry("*", "items", "note=like.x%")]).await;
    let blocker = blocked(&live).await;
    live.run(CHANGE_MANY_TABLES).await;
    let error = "Changes of public.items are paused: its policies take too long";
    assert_eq!(of_person[4].system().await, ("error".to_owned(), error.to_owned()));
    // From now on the policy would show the row
    blocker.batch_execute(RELEASE).await.unwrap();
    let mark = live.mark().await;
    assert_eq!(filtering.until(mark).await.len(), 1);
    assert_eq!(of_person[4].until(mark).await.len(), 0, "the last cohort");
    assert_eq!(of_person[3].system().await, ("error".to_owned(), error.to_owned()));
    let events = of_person[3].until(mark).await;
    assert!(events.iter().all(|event| event["data"]["table"] != "items"), "{events:?}");
    assert_eq!(events.len(), 50, "the other tables are not paused");
}

#[tokio::test]
async fn reads_go_on_while_a_cohort_is_sent() {
    let live = Live::with_one_connection(WAITING_POLICY).await;
    let limits =
        RealtimeLimits { max_waiting_frames: usize::MAX, max_waiting_bytes: usize::MAX, ..RealtimeLimits::default() };
    let first = TestChannel::with_limits(&room(false, "0"), Version::V2, &limits);
    let prepared = DatabaseChanges::prepare(&[entry("*", "items", "")]);
    let mut subscriptions = Vec::new();
    for topic in 1..20 {
        let beside = first.beside(&room(false, &topic.to_string()));
        subscriptions.push(live.subscribe(beside, &person("a"), &prepared));
        assert_eq!(json_of(&first.next().await)[4]["status"], "ok");
    }
    let first = live.subscribe(first, &person("a"), &prepared);
    assert_eq!(first.system().await.0, "ok");
    // Its read waits for the connection, and gets it before the messages of the others are sent
    let next = live.join(&person("b"), "b", &[entry("*", "items", "")]).await;
    live.run("insert into public.items select generate_series(1, 1000)").await;
    first.next().await;
    // Behind that read
    live.reads.read_as_role("anon", "select '1'::pg_catalog.text", &[]).await.unwrap();
    let received = 1 + first.channel.received().len();
    assert!(received < 20 * 1000 && next.channel.received().is_empty(), "{received}");
    for id in 1..=1000 {
        assert_eq!(next.next().await.1[4]["data"]["record"]["id"], id);
    }
}
