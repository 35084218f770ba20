//! Subscriptions in memory.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;

use super::{Live, entry};
use crate::changes::PreparedEntries;
use crate::changes::entries::column_test::{ColumnTest, CompiledFilter, FieldValue, LocalTest, Test};
use crate::changes::entries::entry::{ChangeAction, ChangeMessageForm, ChangesEntry};
use crate::changes::entries::validate::{TableName, ValidEntry};
use crate::changes::reads::role_reads::ChangeReader;
use crate::changes::subscriptions::group::GroupKey;
use crate::changes::subscriptions::registry::Registry;
use crate::fixture::{TestChannel, identity, json_of, person, room};
use crate::socket::DeferredWakes;
use crate::socket::frame::{Frame, Version};

const ITEMS: (&str, &str) = ("public", "items");

fn valid(entries: &[serde_json::Value], values: &[&str]) -> (Arc<[Arc<ChangesEntry>]>, Vec<ValidEntry>) {
    let prepared = PreparedEntries::of_entries(entries);
    let entries = Arc::clone(prepared.entries().unwrap());
    let test = |value: &&str| ColumnTest {
        column: "id".into(),
        type_oid: 23,
        test: Test::Local(LocalTest::OneOf { values: [(*value).into()].into(), has_null: false, is_negated: false }),
    };
    let filter = CompiledFilter { tests: values.iter().map(test).collect() };
    let name = TableName { schema: "public".into(), table: "items".into() };
    let valid = entries.iter().map(|entry| ValidEntry {
        entry: Arc::clone(entry),
        filters: if values.is_empty() {
            HashMap::new()
        } else {
            HashMap::from([(name.clone(), Arc::new(filter.clone()))])
        },
    });
    let valid = valid.collect();
    (entries, valid)
}

fn key(topic: &str, claims: &str, entries: &Arc<[Arc<ChangesEntry>]>) -> GroupKey {
    GroupKey {
        reader: Arc::new(ChangeReader::new("authenticated".into(), claims.into(), None)),
        topic: topic.into(),
        version: Version::V2,
        form: ChangeMessageForm::Ids,
        entries: Arc::clone(entries),
    }
}

#[test]
fn a_value_finds_its_subscribers_among_many() {
    let registry = Registry::default();
    let channel = TestChannel::new(&room(false, "a"), Version::V2);
    let mut registrations = Vec::new();
    for number in 0..10_000 {
        let (entries, valid) = valid(&[entry("*", "items", &format!("id=eq.{number}"))], &[&number.to_string()]);
        let key = key("a", &format!("{{\"sub\":{number}}}"), &entries);
        registrations.push(registry.insert(key, &valid, Arc::clone(&channel.subscriber)));
    }
    let looked_at = std::cell::Cell::new(0);
    let found = registry.matching(ITEMS, ChangeAction::Insert, |_| {
        looked_at.set(looked_at.get() + 1);
        FieldValue::Text("77")
    });
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].group.key.reader.claims, "{\"sub\":77}".into());
    assert_eq!(looked_at.get(), 2, "one look-up, and the condition of the one that was found");
    assert_eq!(registry.matching(ITEMS, ChangeAction::Insert, |_| FieldValue::Null).len(), 0);
    registrations.iter().for_each(|registration| registry.remove(registration));
    assert!(!registry.names(ITEMS));
    assert_eq!(format!("{registry:?}").matches("claims").count(), 0, "nothing is left");
}

#[test]
fn subscriptions_of_the_same_content_are_one_group() {
    let registry = Registry::default();
    let (entries, valid) = valid(&[entry("INSERT", "items", "")], &[]);
    let channels: Vec<_> = (0..3).map(|_| TestChannel::new(&room(false, "a"), Version::V2)).collect();
    let insert = |at: usize, topic: &str, claims: &str| {
        registry.insert(key(topic, claims, &entries), &valid, Arc::clone(&channels[at].subscriber))
    };
    let first = insert(0, "a", "{}");
    let second = insert(1, "a", "{}");
    let third = insert(2, "a", "{\"sub\":1}");
    let field = |_: &str| FieldValue::Absent;
    let groups = registry.matching(ITEMS, ChangeAction::Insert, field);
    assert_eq!(groups.len(), 2);
    assert_eq!(registry.matching(ITEMS, ChangeAction::Update, field).len(), 0);
    let frame = [Frame::Text("x".into())];
    let last = registry.last_number();
    let mut wakes = DeferredWakes::default();
    let mut send = || groups.iter().map(|target| target.group.send(&frame, last, &mut wakes)).sum::<usize>();
    assert_eq!(send(), 3);
    registry.remove(&first);
    registry.remove(&third);
    assert_eq!(send(), 1, "also for groups that were found before");
    let received = |channel: &TestChannel| channel.received().iter().filter(|received| **received == frame[0]).count();
    assert_eq!(channels.iter().map(received).collect::<Vec<_>>(), [1, 2, 1]);
    registry.remove(&second);
    assert!(!registry.names(ITEMS));
}

#[test]
fn wildcards_name_tables_that_appear_later() {
    let registry = Registry::default();
    let (all, valid_all) = valid(&[json!({ "schema": "*" }), json!({ "schema": "public" })], &[]);
    let channel = TestChannel::new(&room(false, "a"), Version::V2);
    let wild = registry.insert(key("a", "{}", &all), &valid_all, Arc::clone(&channel.subscriber));
    let field = |_: &str| FieldValue::Absent;
    assert_eq!(registry.matching(ITEMS, ChangeAction::Delete, field).len(), 2);
    assert_eq!(registry.matching(("other", "x"), ChangeAction::Delete, field).len(), 1);
    let (exact, valid_exact) = valid(&[entry("*", "items", "")], &[]);
    let named = registry.insert(key("a", "{}", &exact), &valid_exact, Arc::clone(&channel.subscriber));
    assert_eq!(registry.matching(ITEMS, ChangeAction::Delete, field).len(), 3);
    assert_eq!(&*registry.roles(ITEMS), ["authenticated".into()]);
    registry.remove(&named);
    assert_eq!(registry.matching(ITEMS, ChangeAction::Delete, field).len(), 2);
    registry.remove(&wild);
    assert!(!registry.names(ITEMS) && !registry.names(("other", "x")));
}

#[tokio::test]
async fn channels_of_one_topic_and_reader_share_the_bytes_of_a_message() {
    let live = Live::new(
        "create table public.items (id int primary key);
         alter table public.items disable row level security;
         grant select on public.items to anon, authenticated;
         alter publication supabase_realtime add table public.items",
    )
    .await;
    let reader = person("a");
    let first = live.join(&reader, "room", &[entry("*", "items", "")]).await;
    let second = live.join(&reader, "room", &[entry("*", "items", "")]).await;
    let other_claims = live.join(&identity(json!({ "role": "anon" })), "room", &[entry("*", "items", "")]).await;
    let other_topic = live.join(&reader, "hall", &[entry("*", "items", "")]).await;
    live.run("insert into public.items values (1)").await;
    let mut frames = Vec::new();
    for joined in [&first, &second, &other_claims, &other_topic] {
        match joined.next().await {
            (Frame::Text(text), _) => frames.push(text),
            (Frame::Binary(_), _) => panic!("a binary frame"),
        }
    }
    let address = |at: usize| frames[at].as_ptr();
    assert_eq!(address(0), address(1));
    assert_eq!(address(0), address(2), "the same columns, so the same message");
    assert_ne!(address(0), address(3));
    assert_eq!(json_of(&Frame::Text(frames[3].clone()))[2], "realtime:hall");
}

#[tokio::test]
async fn a_channel_receives_one_message_for_all_entries_of_the_same_columns() {
    let live = Live::new(
        "create table public.items (id int primary key, a int, b int);
         alter table public.items disable row level security;
         grant select on public.items to authenticated;
         alter publication supabase_realtime add table public.items",
    )
    .await;
    let mut selected = entry("*", "items", "");
    selected["select"] = json!(["a"]);
    let entries = [
        entry("*", "items", ""),
        entry("INSERT", "items", "a=eq.1"),
        entry("INSERT", "items", "a=eq.2"),
        json!({ "schema": "public", "event": "insert" }),
        selected,
    ];
    let joined = live.join(&person("a"), "a", &entries).await;
    let [events] = live.received("insert into public.items values (1, 1, 1)", [&joined]).await;
    assert_eq!(events.len(), 2);
    let mut ids = events[0]["ids"].as_array().unwrap().clone();
    let mut expected = vec![joined.ids[0].clone(), joined.ids[1].clone(), joined.ids[3].clone()];
    ids.sort_by_key(serde_json::Value::as_u64);
    expected.sort_by_key(serde_json::Value::as_u64);
    assert_eq!(ids, expected);
    assert_eq!(
        (&events[1]["ids"], &events[1]["data"]["record"]),
        (&json!([joined.ids[4]]), &json!({ "id": 1, "a": 1 }))
    );
}

#[test]
fn an_entry_without_a_filter_for_its_table_is_prepared_again_until_it_has_one() {
    let registry = Registry::default();
    let channel = TestChannel::new(&room(false, "a"), Version::V2);
    for table in ["items", "*"] {
        let (entries, valid) = valid(&[entry("*", table, "id=eq.1")], &["1"]);
        let filter = Arc::clone(valid[0].filters.values().next().unwrap());
        let registration = registry.insert(key("a", "{}", &entries), &valid, Arc::clone(&channel.subscriber));
        let outdated = |column_type: u32| registry.outdated(ITEMS, |_| Some(column_type), true);
        let matching = || registry.matching(ITEMS, ChangeAction::Insert, |_| FieldValue::Text("1")).len();
        assert_eq!((outdated(23).len(), matching()), (0, 1), "{table}");
        registry.refresh(ITEMS, &outdated(25)[0], None);
        assert_eq!(matching(), 0);
        // The database is not available when it is prepared
        assert_eq!(outdated(23).len(), 1);
        let again = outdated(23);
        assert_eq!(again.len(), 1);
        registry.refresh(ITEMS, &again[0], Some(Arc::clone(&filter)));
        assert_eq!((outdated(23).len(), matching()), (0, 1), "{table}");
        registry.remove(&registration);
        assert_eq!(matching(), 0);
    }
}
