//! Subscriptions over time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portico_database::connect;
use portico_database::wire::{CoalescingSettings, ReadCoalescer, WirePoolSettings};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::super::{DatabaseChanges, PreparedEntries};
use super::{Joined, Live, entry};
use crate::changes::reads::times::DeliveryTimes;
use crate::decode::{CommitTime, TransactionId, described_table, inserted};
use crate::fixture::{ScratchDatabase, TestChannel, identity, json_of, open, person, room};
use crate::settings::RealtimeSettings;
use crate::socket::FrameMemory;
use crate::socket::frame::Version;
use crate::stream::{ChangeBatch, FollowedStream, StreamState, TableChange};

const SET_UP: &str = "
    create table public.items (id int primary key, value text);
    alter table public.items enable row level security;
    grant select on public.items to authenticated;
    create policy a on public.items for select to authenticated using (value = auth.jwt() ->> 'sub');
    alter publication supabase_realtime add table public.items";

#[tokio::test]
async fn nothing_is_sent_with_an_identity_after_its_subscription_ended() {
    let live = Live::new(SET_UP).await;
    let mut joined = live.join(&person("a"), "room", &[entry("*", "items", "")]).await;
    let witness = live.join(&person("a"), "room", &[entry("*", "items", "")]).await;
    let [events, _] = live.received("insert into public.items values (1, 'a'), (2, 'b')", [&joined, &witness]).await;
    assert_eq!(events[0]["data"]["record"]["id"], 1);
    assert_eq!(events.len(), 1);
    live.run("insert into public.items values (3, 'a')").await;
    joined.subscription = None;
    while !joined.channel.received().is_empty() {}
    let [events] = live.received("insert into public.items values (4, 'a')", [&witness]).await;
    assert_eq!(events.len(), 2);
    assert_eq!(joined.channel.received(), []);
    // Another identity on the same channel
    let entries = [entry("*", "items", ""), entry("INSERT", "marks", "")];
    let joined = live.subscribe(joined.channel, &person("b"), &DatabaseChanges::prepare(&entries));
    assert_eq!(joined.system().await.0, "ok");
    let [events] = live.received("insert into public.items values (5, 'a'), (6, 'b')", [&joined]).await;
    assert_eq!(events.iter().map(|event| event["data"]["record"]["id"].clone()).collect::<Vec<_>>(), [json!(6)]);
}

/// With synchronous replication a commit is in the log, and so in the stream, long before other
/// sessions see it.
#[tokio::test]
async fn no_permission_is_read_before_a_commit_is_visible() {
    let live = Live::new(SET_UP).await;
    live.run("insert into public.items values (1, 'a')").await;
    let a = live.join(&person("a"), "room", &[entry("UPDATE", "items", "")]).await;
    let b = live.join(&person("b"), "room", &[entry("UPDATE", "items", "")]).await;
    // The stream describes the table, so that its own wait is over
    let [of_a, of_b] = live.received("update public.items set value = 'a' where id = 1", [&a, &b]).await;
    assert_eq!((of_a.len(), of_b.len()), (1, 0));
    let waiting = connect(live.database.endpoint()).await.unwrap();
    let commit = tokio::spawn(async move {
        waiting.batch_execute("set synchronous_commit = on; update public.items set value = 'b' where id = 1").await
    });
    let looked = "select coalesce(bool_or(query ~ 'pg_current_snapshot' and query !~ 'pg_stat_activity'), false)::text || \
                  coalesce(bool_or(wait_event = 'SyncRep'), false)::text \
                  from pg_stat_activity where datname = current_database()";
    let begun = Instant::now();
    while live.database.value(looked).await != "truetrue" && begun.elapsed() < Duration::from_secs(30) {
        tokio::task::yield_now().await;
    }
    let before = live.database.value(looked).await;
    live.run("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep' and datname = current_database()")
        .await;
    commit.await.unwrap().unwrap();
    assert_eq!(before, "truetrue", "the commit waits, and the delivery waits for it");
    let mark = live.mark().await;
    assert_eq!(a.until(mark).await, Vec::<serde_json::Value>::new());
    assert_eq!(b.until(mark).await[0]["data"]["record"], json!({ "id": 1, "value": "b" }));
}

#[tokio::test]
async fn a_policy_takes_effect_at_the_next_change() {
    let live = Live::new(SET_UP).await;
    let joined = live.join(&person("a"), "room", &[entry("*", "items", "")]).await;
    live.run(
        "drop policy a on public.items; create policy b on public.items for select to authenticated using (id > 1)",
    )
    .await;
    let [events] = live.received("insert into public.items values (1, 'a'), (2, 'x')", [&joined]).await;
    assert_eq!(events.iter().map(|event| event["data"]["record"]["id"].clone()).collect::<Vec<_>>(), [json!(2)]);
    live.run("alter table public.items disable row level security").await;
    let [events] = live.received("update public.items set value = 'y' where id = 1", [&joined]).await;
    assert_eq!(events.len(), 1);
    // Enabled again in the transaction after the change, when the change may be under way
    let [events] = live
        .received("begin; update public.items set value = 'z' where id = 1; alter table public.items enable row level security; commit", [&joined])
        .await;
    assert_eq!(events.len(), 0);
}

#[tokio::test]
async fn filters_follow_the_types_of_their_columns() {
    let live = Live::new(SET_UP).await;
    live.run("alter table public.items disable row level security; alter table public.items add column n int").await;
    let joined = live.join(&person("a"), "room", &[entry("*", "items", "n=gt.5")]).await;
    let [events] = live.received("insert into public.items values (1, 'a', 10)", [&joined]).await;
    assert_eq!(events.len(), 1);
    live.run("alter table public.items alter column n type text collate \"C\" using n::text").await;
    let [events] =
        live.received("insert into public.items values (2, 'a', '10'), (3, 'a', '6'), (4, 'a', 'x')", [&joined]).await;
    assert_eq!(
        events.iter().map(|event| event["data"]["record"]["id"].clone()).collect::<Vec<_>>(),
        [json!(3), json!(4)]
    );
    live.run("alter table public.items drop column n; insert into public.items values (5, 'a')").await;
    let (status, text) = joined.system().await;
    assert_eq!(status, "error");
    assert!(text.ends_with("P0001 (raise_exception) invalid column for filter n"), "{text}");
    let [events] = live.received("insert into public.items values (6, 'a')", [&joined]).await;
    assert_eq!(events.len(), 0, "and no further message");
    live.run("alter table public.items add column n text; insert into public.items values (7, 'a', '9')").await;
    assert_eq!(joined.system().await, ("ok".to_owned(), "Subscribed to PostgreSQL".to_owned()));
    let mark = live.mark().await;
    assert_eq!(joined.until(mark).await.len(), 1);
}

#[tokio::test]
async fn filters_that_cannot_be_prepared_are_a_gap_and_their_waits_do_not_add_up() {
    let live = Live::new(
        "create table public.locked (id int primary key);
         create table public.items (id int primary key, n int);
         alter table public.items disable row level security;
         grant select on public.items to authenticated;
         alter publication supabase_realtime add table public.items, public.locked",
    )
    .await;
    let mut channels = Vec::new();
    // All of their waits, one after the other, take longer than a test waits for a message
    for number in 1..=20 {
        channels.push(live.join(&person("a"), "room", &[entry("*", "items", &format!("n=eq.{number}"))]).await);
    }
    let migration = connect(live.database.endpoint()).await.unwrap();
    migration.batch_execute("begin; lock table public.locked in access exclusive mode").await.unwrap();
    live.run(
        "alter table public.items alter column n type text using n::text; insert into public.items values (1, 'x')",
    )
    .await;
    for joined in &channels {
        assert_eq!(joined.system().await, ("ok".to_owned(), "Subscribed to PostgreSQL".to_owned()));
    }
    migration.batch_execute("rollback").await.unwrap();
    let [events] = live.received("insert into public.items values (2, '1')", [&channels[0]]).await;
    assert_eq!(events.len(), 1);
}

#[tokio::test]
async fn filters_that_could_not_be_prepared_are_not_waited_for_with_each_change() {
    let set_up = "create table public.locked (id int primary key);
         create table public.items (id int primary key, n int);
         alter table public.items disable row level security;
         grant select on public.items to authenticated;
         alter publication supabase_realtime add table public.items, public.locked";
    let live = Live::with_pause(set_up, Duration::from_secs(3)).await;
    let joined = live.join(&person("a"), "room", &[entry("*", "items", "n=eq.1")]).await;
    let migration = connect(live.database.endpoint()).await.unwrap();
    migration.batch_execute("begin; lock table public.locked in access exclusive mode").await.unwrap();
    // More than are worked on at once
    live.run(
        "alter table public.items alter column n type text using n::text;
         insert into public.items select id, 'x' from generate_series(1, 5000) id",
    )
    .await;
    // One report with the first of them, and one about all others
    for _ in 0..2 {
        assert_eq!(joined.system().await, ("ok".to_owned(), "Subscribed to PostgreSQL".to_owned()));
    }
    let mark = live.mark().await;
    assert!(joined.until(mark).await.is_empty());
    migration.batch_execute("rollback").await.unwrap();
    let [events] = live.received("insert into public.items values (0, '1')", [&joined]).await;
    assert_eq!(events.len(), 1);
}

#[tokio::test]
async fn a_table_that_is_published_later_is_part_of_a_wildcard() {
    let live = Live::new(SET_UP).await;
    let all = live.join(&person("a"), "a", &[json!({ "schema": "public" })]).await;
    let filtered = json!({ "schema": "public", "table": "*", "filter": "id=gt.1" });
    let filtered = live.join(&person("b"), "b", &[filtered]).await;
    live.run(
        "create table public.later (id int primary key);
         alter table public.later disable row level security;
         grant select on public.later to authenticated;
         alter publication supabase_realtime add table public.later",
    )
    .await;
    let of_later = |events: &[serde_json::Value]| {
        let later = events.iter().filter(|event| event["data"]["table"] == "later");
        later.map(|event| event["data"]["record"]["id"].clone()).collect::<Vec<_>>()
    };
    let [all, filtered] = live.received("insert into public.later values (1), (2)", [&all, &filtered]).await;
    assert_eq!((of_later(&all), of_later(&filtered)), (vec![json!(1), json!(2)], vec![json!(2)]));
}

#[tokio::test]
async fn a_legacy_channel_receives_events_named_after_the_change() {
    let live = Live::new(SET_UP).await;
    live.run("alter table public.items disable row level security").await;
    let prepared = DatabaseChanges::prepare_topic("public:items:id=eq.2").unwrap();
    let channel = TestChannel::new(&room(false, "public:items:id=eq.2"), Version::V1);
    let joined = live.subscribe(channel, &person("a"), &prepared);
    let message = json_of(&joined.channel.next().await);
    assert_eq!((&message["event"], &message["payload"]["status"]), (&json!("system"), &json!("ok")));
    live.run("insert into public.items values (1, 'a'), (2, 'b')").await;
    let message = json_of(&joined.channel.next().await);
    assert_eq!((&message["topic"], &message["event"]), (&json!("realtime:public:items:id=eq.2"), &json!("INSERT")));
    assert_eq!((&message["payload"]["record"]["id"], message.get("ids")), (&json!(2), None));
}

#[tokio::test]
async fn changes_reach_a_channel_in_the_order_of_their_commits() {
    let live = Live::new(SET_UP).await;
    live.run("alter table public.items disable row level security").await;
    let joined = live.join(&person("a"), "a", &[entry("INSERT", "items", "")]).await;
    let reader = live.join(&person("b"), "b", &[entry("INSERT", "items", "value=like.%7")]).await;
    let sql = "do $$ begin for i in 1..3000 loop insert into public.items values (i, i::text); if i % 7 = 0 then commit; end if; end loop; end $$";
    let [events, sevens] = live.received(sql, [&joined, &reader]).await;
    let ids = |events: &[serde_json::Value]| {
        events.iter().map(|event| event["data"]["record"]["id"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&events), (1..=3000).collect::<Vec<_>>());
    assert_eq!(ids(&sevens), (1..=3000).filter(|number| number % 10 == 7).collect::<Vec<_>>());
}

/// Changes are committed and under way while tokens replace each other.
#[tokio::test]
async fn a_new_token_keeps_the_subscription_without_loss_or_repetition() {
    let live = Live::new(SET_UP).await;
    let mut joined = live.join(&person("a"), "room", &[entry("INSERT", "items", "")]).await;
    let subscription = joined.subscription.as_mut().unwrap();
    for number in 1..=40 {
        live.run(&format!("insert into public.items values ({number}, 'a')")).await;
        let refreshed = identity(json!({ "role": "authenticated", "sub": "a", "iat": number }));
        assert!(subscription.renew(&refreshed), "without another check");
    }
    let mark = live.mark().await;
    let mut ids = Vec::new();
    loop {
        let (_, message) = joined.next().await;
        if message[3] == "system" {
            assert_eq!(message[4]["message"], "Subscribed to PostgreSQL");
            continue;
        }
        let data = &message[4]["data"];
        if data["table"] == "marks" && data["record"]["id"] == mark {
            break;
        }
        ids.push(data["record"]["id"].clone());
    }
    assert_eq!(ids, (1..=40).map(|number| json!(number)).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_new_token_is_in_force_for_the_changes_after_it() {
    let live = Live::new(SET_UP).await;
    let mut joined = live.join(&person("a"), "room", &[entry("INSERT", "items", "")]).await;
    let subscription = joined.subscription.as_mut().unwrap();
    assert!(subscription.renew(&person("b")));
    assert_eq!(joined.system().await.1, "Subscribed to PostgreSQL");
    let [events] = live.received("insert into public.items values (1, 'a'), (2, 'b')", [&joined]).await;
    assert_eq!(events.iter().map(|event| event["data"]["record"]["id"].clone()).collect::<Vec<_>>(), [json!(2)]);
    let other_role = identity(json!({ "role": "anon" }));
    assert!(!joined.subscription.as_mut().unwrap().renew(&other_role), "its entries are to be checked");
    // A subscription that is not complete
    let channel = TestChannel::new(&room(false, "a"), Version::V2);
    let entries = DatabaseChanges::prepare(&[entry("*", "absent", "")]);
    let mut failed = live.subscribe(channel, &person("a"), &entries);
    assert_eq!(failed.system().await.0, "error");
    assert!(!failed.subscription.as_mut().unwrap().renew(&person("a")));
}

/// Subscriptions on a stream whose state the test sets.
struct Streamless {
    changes: DatabaseChanges,
    state: watch::Sender<StreamState>,
    table_changes: watch::Sender<u64>,
    database: ScratchDatabase,
    batches: mpsc::Sender<ChangeBatch>,
}

impl Streamless {
    async fn new() -> Self {
        Self::with_times(DeliveryTimes::default()).await
    }

    async fn with_times(times: DeliveryTimes) -> Self {
        let database = ScratchDatabase::new().await;
        database.run(SET_UP).await;
        let (state, followed_state) = watch::channel(StreamState::Connecting);
        let (table_changes, followed_tables) = watch::channel(0);
        let stream = FollowedStream { state: followed_state, table_changes: followed_tables };
        let reads = ReadCoalescer::new(database.pool(WirePoolSettings::default()), &CoalescingSettings::default());
        let memory = FrameMemory::new(usize::MAX);
        let (pools, settings) = (open(database.endpoint()), RealtimeSettings::default());
        let changes = DatabaseChanges::with_times(&pools, reads, &settings, stream, &memory, times);
        let (batches, receiver) = mpsc::channel(1);
        tokio::spawn(changes.clone().run(receiver));
        Self { changes, state, table_changes, database, batches }
    }

    fn join(&self) -> Joined {
        self.join_table("items")
    }

    fn join_table(&self, table: &str) -> Joined {
        let channel = TestChannel::new(&room(false, "a"), Version::V2);
        let prepared = PreparedEntries::of_entries(&[entry("*", table, "")]);
        let subscription = Some(self.changes.subscribe(Arc::clone(&channel.subscriber), &prepared, &person("a")));
        Joined { channel, ids: Vec::new(), subscription }
    }
}

#[tokio::test]
async fn a_channel_is_subscribed_when_the_stream_runs_and_again_after_a_gap() {
    let live = Streamless::new().await;
    let joined = live.join();
    live.state.send_replace(StreamState::Failed("the reason".into()));
    assert_eq!(joined.system().await, ("error".to_owned(), "the reason".to_owned()));
    live.state.send_replace(StreamState::Running);
    assert_eq!(joined.system().await, ("ok".to_owned(), "Subscribed to PostgreSQL".to_owned()));
    for _ in 0..2 {
        live.state.send_replace(StreamState::Failed("lost".into()));
        let late = live.join();
        assert_eq!(late.system().await, ("error".to_owned(), "lost".to_owned()));
        live.state.send_replace(StreamState::Running);
        assert_eq!(joined.system().await.0, "ok");
        assert_eq!(late.system().await.0, "ok");
        assert_eq!((joined.channel.received(), late.channel.received()), (vec![], vec![]), "once each");
    }
}

#[tokio::test]
async fn a_subscription_that_does_not_fit_after_a_gap_ends_with_an_error() {
    let live = Streamless::new().await;
    live.state.send_replace(StreamState::Running);
    let joined = live.join();
    assert_eq!(joined.system().await.0, "ok");
    live.state.send_replace(StreamState::Failed("lost".into()));
    live.database.run("alter publication supabase_realtime drop table public.items").await;
    live.state.send_replace(StreamState::Running);
    let (status, text) = joined.system().await;
    assert_eq!(status, "error");
    assert!(text.contains("Please check Realtime is enabled"), "{text}");
    // Nothing is left that the next gap would report
    live.database.run("alter publication supabase_realtime add table public.items").await;
    live.state.send_replace(StreamState::Failed("lost".into()));
    let other = live.join();
    assert_eq!(other.system().await.0, "error");
    live.state.send_replace(StreamState::Running);
    assert_eq!(other.system().await.0, "ok");
    assert_eq!(joined.channel.received(), []);
}

#[tokio::test]
async fn a_table_that_is_no_longer_published_ends_its_subscriptions_without_a_gap() {
    let live = Streamless::new().await;
    live.database.run("create table public.others (id int primary key); alter publication supabase_realtime add table public.others").await;
    live.state.send_replace(StreamState::Running);
    let [joined, other] = [live.join(), live.join_table("others")];
    for channel in [&joined, &other] {
        assert_eq!(channel.system().await.0, "ok");
    }
    live.database.run("alter publication supabase_realtime drop table public.items").await;
    live.table_changes.send_modify(|changes| *changes += 1);
    let (status, text) = joined.system().await;
    assert_eq!(status, "error");
    assert!(text.contains("Please check Realtime is enabled"), "{text}");
    // A check that ends reports nothing to those that fit. The next one has begun after it
    live.database.run("alter publication supabase_realtime drop table public.others").await;
    live.table_changes.send_modify(|changes| *changes += 1);
    assert_eq!(other.system().await.0, "error");
    assert_eq!(joined.channel.received(), []);
}

#[tokio::test]
async fn changes_that_do_not_become_visible_are_discarded_as_in_a_gap() {
    let live = Streamless::with_times(DeliveryTimes { visible: Duration::ZERO, ..DeliveryTimes::default() }).await;
    live.database.run("create table public.table_1 (id text primary key); alter publication supabase_realtime add table public.table_1").await;
    live.state.send_replace(StreamState::Running);
    let joined = live.join_table("table_1");
    assert_eq!(joined.system().await.0, "ok");
    // A number that the server gives to no transaction of the test
    let id: String = live.database.value("select (pg_current_xact_id()::text::bigint + 1000000)::text").await;
    let batch = ChangeBatch {
        transaction: TransactionId(id.parse().unwrap()),
        commit_time: CommitTime(0),
        changes: vec![TableChange { table: described_table(1, &["id"]), change: inserted(&["1"]) }],
        after_gap: false,
    };
    live.batches.send(batch).await.unwrap();
    assert_eq!(joined.system().await, ("ok".to_owned(), "Subscribed to PostgreSQL".to_owned()));
}
