//! The stream against a real server.

use std::time::Duration;

use portico_testkit::TestServer;
use tokio::sync::{mpsc, watch};

use super::*;
use crate::decode::{ChangeKind, ColumnValue};

/// A stream with both of its consumers.
struct Consumed {
    server: TestServer,
    stream: ChangeStream,
    state: watch::Receiver<StreamState>,
    changes: mpsc::Receiver<ChangeBatch>,
    messages: mpsc::Receiver<MessageBatch>,
}

impl Consumed {
    async fn new(times: StreamTimes) -> Self {
        let server = TestServer::start().await;
        server
            .execute(
                "create table todos (
                   id int primary key, title text, size int generated always as (length(title)) stored
                 );
                 alter publication supabase_realtime add table todos",
            )
            .await;
        let (changes_sender, changes) = mpsc::channel(16);
        let (messages_sender, messages) = mpsc::channel(16);
        let suffix = server.endpoint().database().rsplit_once('_').unwrap().1.to_owned();
        let settings = ChangeStreamSettings {
            database: server.database().clone(),
            suffix: format!("{}_{suffix}", std::process::id()),
            consumers: StreamConsumers { changes: changes_sender, messages: messages_sender },
            times,
        };
        let stream = ChangeStream::new(settings);
        let state = stream.state();
        Self { server, stream, state, changes, messages }
    }

    async fn wait_for(&mut self, wanted: fn(&StreamState) -> bool) {
        self.state.wait_for(wanted).await.unwrap();
    }

    async fn running(&mut self) {
        self.wait_for(|state| *state == StreamState::Running).await;
    }

    /// Returns the server's process that sends the changes, if there is one.
    async fn process(&self) -> Option<i32> {
        let rows =
            self.server.query("select active_pid from pg_replication_slots where database = current_database()").await;
        rows.first().and_then(|row| row.get(0))
    }

    /// Waits until the stream is running with another process than `before`.
    async fn replaced(&mut self, before: Option<i32>) {
        while self.process().await.is_none_or(|process| Some(process) == before) {
            tokio::task::yield_now().await;
        }
        self.running().await;
    }

    /// Returns the next batch of changes. Panics when the stream fails instead.
    async fn next_changes(&mut self) -> ChangeBatch {
        tokio::select! {
            batch = self.changes.recv() => batch.unwrap(),
            state = self.state.wait_for(|state| matches!(state, StreamState::Failed(_))) => panic!("{state:?}"),
        }
    }

    /// Returns the titles of the next batch of changes.
    async fn titles(&mut self) -> Vec<String> {
        Self::titles_of(&self.next_changes().await)
    }

    fn titles_of(batch: &ChangeBatch) -> Vec<String> {
        let title = |item: &TableChange| match &item.change.kind {
            ChangeKind::Insert { new } | ChangeKind::Update { new, .. } => match item.table.value(new, 1).unwrap() {
                ColumnValue::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
                other => panic!("{other:?}"),
            },
            ChangeKind::Delete { .. } => "deleted".to_owned(),
        };
        batch.changes.iter().map(title).collect()
    }
}

#[tokio::test]
async fn changes_and_messages_reach_their_consumers_in_the_order_of_their_commits() {
    let mut consumed = Consumed::new(StreamTimes::default()).await;
    let _use = consumed.stream.use_stream();
    consumed.running().await;
    let execute = async |sql: &str| consumed.server.execute(sql).await;
    execute("insert into todos values (1, 'a'), (2, 'b')").await;
    execute(
        "begin;
         select realtime.send('{\"b\": 1, \"id\": \"x\"}', 'first', 'room', true);
         insert into realtime.messages (topic, extension, payload, private) values ('no event', 'broadcast', '{}', true);
         insert into realtime.messages (topic, extension, event, private) values ('no payload', 'broadcast', 'e', true);
         insert into todos values (3, 'with a message');
         commit",
    )
    .await;
    execute("begin; select realtime.send('{}', 'rolled back', 'room'); rollback").await;
    execute("select realtime.send_binary('\\x00ff', 'second', 'room', false)").await;
    execute("delete from todos where id = 1; update realtime.messages set event = 'changed'").await;
    assert_eq!(consumed.titles().await, ["a", "b"]);
    let with_message = consumed.next_changes().await;
    assert_eq!(Consumed::titles_of(&with_message), ["with a message"]);
    assert_eq!(consumed.titles().await, ["deleted"]);

    let first = consumed.messages.recv().await.unwrap();
    let second = consumed.messages.recv().await.unwrap();
    assert_eq!(first.transaction, with_message.transaction);
    assert_ne!(first.transaction, second.transaction);
    let ids = "select id::text from realtime.messages where payload is not null and topic = 'room'";
    let id: String = consumed.server.query(ids).await[0].get(0);
    let message = |topic: &str, event: &str, private, payload| DatabaseMessage {
        id: id.clone(),
        topic: topic.into(),
        event: event.into(),
        private,
        payload,
    };
    let json = MessagePayload::Json(bytes::Bytes::from_static(br#"{"b": 1, "id": "x"}"#));
    assert_eq!(first.messages, [message("room", "first", true, json)]);
    let binary = MessagePayload::Binary(bytes::Bytes::from_static(&[0, 255]));
    let DatabaseMessage { id: second_id, .. } = &second.messages[0];
    assert_eq!(
        second.messages,
        [DatabaseMessage { id: second_id.clone(), ..message("room", "second", false, binary) }]
    );
}

/// Returns the SQL of a section of the guide.
fn documented_sql(section: &str) -> String {
    let guide = include_str!("../../../../docs/realtime.md");
    let section = guide.split_once(&format!("## {section}")).unwrap().1;
    section.split_once("```sql").unwrap().1.split_once("```").unwrap().0.to_owned()
}

#[tokio::test]
async fn the_documented_trigger_broadcasts_the_changes_of_a_table() {
    let mut consumed = Consumed::new(StreamTimes::default()).await;
    consumed.server.execute("create table products (id int primary key, price int)").await;
    let _use = consumed.stream.use_stream();
    consumed.running().await;
    consumed.server.execute(&documented_sql("Messages from the database")).await;
    consumed.server.execute("insert into products values (1, 12); update products set price = 13").await;
    consumed.server.execute("delete from products").await;
    let mut received = Vec::new();
    while received.len() < 4 {
        received.extend(consumed.messages.recv().await.unwrap().messages);
    }
    let events: Vec<_> = received.iter().map(|message| (&*message.topic, &*message.event, message.private)).collect();
    let event = |name| ("product:1", name, true);
    assert_eq!(events, [event("changed"), event("INSERT"), event("UPDATE"), event("DELETE")]);
    let MessagePayload::Json(json) = &received[2].payload else { panic!() };
    let payload: serde_json::Value = serde_json::from_slice(json).unwrap();
    let row = |price| serde_json::json!({ "id": 1, "price": price });
    assert_eq!((&payload["old_record"], &payload["record"]), (&row(12), &row(13)));
    assert_eq!(payload["id"], *received[2].id, "the function adds the id of the row");
}

#[tokio::test]
async fn generated_columns_are_sent_with_the_others() {
    let mut consumed = Consumed::new(StreamTimes::default()).await;
    let _use = consumed.stream.use_stream();
    consumed.running().await;
    consumed.server.execute("insert into todos values (1, 'four')").await;
    let batch = consumed.next_changes().await;
    let TableChange { table, change } = &batch.changes[0];
    let ChangeKind::Insert { new } = &change.kind else { panic!("{change:?}") };
    assert_eq!(table.value(new, 2), Some(ColumnValue::Text(b"4")));
}

#[tokio::test]
async fn other_published_tables_are_noticed_while_the_stream_runs_on() {
    let times = StreamTimes { publications: Duration::from_millis(50), ..StreamTimes::default() };
    let mut consumed = Consumed::new(times).await;
    let _use = consumed.stream.use_stream();
    consumed.running().await;
    let process = consumed.process().await;
    let mut changes = consumed.stream.follow().table_changes;
    assert!(!changes.has_changed().unwrap(), "the tables at the start are known");
    for sql in [
        "alter publication supabase_realtime drop table todos",
        "alter publication supabase_realtime add table todos",
        "alter table todos rename to tasks",
        "drop table tasks",
        "create schema shop; alter publication supabase_realtime add tables in schema shop; create table shop.items (id int)",
    ] {
        consumed.server.execute(sql).await;
        changes.changed().await.unwrap();
    }
    assert_eq!(consumed.process().await, process);
}

#[tokio::test]
async fn a_stream_runs_again_after_its_connection_or_its_publication_was_lost() {
    let times = StreamTimes { publications: Duration::from_millis(50), ..StreamTimes::default() };
    let mut consumed = Consumed::new(times).await;
    let _use = consumed.stream.use_stream();
    consumed.running().await;
    consumed.server.execute("insert into todos values (1, 'before')").await;
    assert_eq!(consumed.titles().await, ["before"]);

    let process = consumed.process().await;
    let terminate =
        "select pg_terminate_backend(active_pid) from pg_replication_slots where database = current_database()";
    consumed.server.query(terminate).await;
    consumed.replaced(process).await;
    consumed.server.execute("insert into todos values (2, 'after the connection')").await;
    assert_eq!(consumed.titles().await, ["after the connection"]);

    // As the migrations of projects do
    let process = consumed.process().await;
    let drop_both =
        "begin; drop publication supabase_realtime; drop publication supabase_realtime_messages_publication; commit";
    consumed.server.execute(drop_both).await;
    consumed.replaced(process).await;
    let process = consumed.process().await;
    consumed.server.execute("create publication supabase_realtime for table todos").await;
    consumed.replaced(process).await;
    consumed.server.execute("insert into todos values (3, 'after the publication')").await;
    assert_eq!(consumed.titles().await, ["after the publication"]);
    consumed.server.execute("select realtime.send('{}', 'event', 'topic')").await;
    assert_eq!(consumed.messages.recv().await.unwrap().messages[0].topic, "topic");
}

#[tokio::test]
async fn a_stream_runs_while_it_is_used_and_some_time_longer() {
    let times = StreamTimes { idle: Duration::from_millis(1), ..StreamTimes::default() };
    let mut consumed = Consumed::new(times).await;
    let slots = "select count(*) from pg_replication_slots where database = current_database()";
    assert_eq!(*consumed.state.borrow(), StreamState::Stopped);
    assert_eq!(consumed.server.count(slots).await, 0);
    let (one, two) = (consumed.stream.use_stream(), consumed.stream.use_stream());
    consumed.running().await;
    drop(one);
    consumed.server.execute("insert into todos values (1, 'a')").await;
    assert_eq!(consumed.titles().await, ["a"]);
    assert_eq!(consumed.server.count(slots).await, 1, "there is one slot for both publications");
    drop(two);
    consumed.wait_for(|state| *state == StreamState::Stopped).await;
    let again = consumed.stream.use_stream();
    consumed.running().await;
    consumed.server.execute("insert into todos values (2, 'b')").await;
    assert_eq!(consumed.titles().await, ["b"]);
    drop(again);
}

#[tokio::test]
async fn a_large_transaction_arrives_in_parts_while_a_slow_consumer_catches_up() {
    let mut consumed = Consumed::new(StreamTimes::default()).await;
    let _use = consumed.stream.use_stream();
    consumed.running().await;
    consumed.server.execute("insert into todos select n, 'many' from generate_series(1, 50000) as n").await;
    let (mut count, mut batches, mut time) = (0, 0, None);
    while count < 50_000 {
        let batch = consumed.next_changes().await;
        assert!(time.is_none_or(|time| time == batch.commit_time), "one transaction has one time");
        (count, batches, time) = (count + batch.changes.len(), batches + 1, Some(batch.commit_time));
    }
    assert!(count == 50_000 && batches > 10, "{count} in {batches}");
}

#[tokio::test]
async fn a_commit_that_stays_invisible_ends_the_run_that_it_may_wait_for() {
    let times = StreamTimes { visible: Duration::from_millis(100), ..StreamTimes::default() };
    let mut consumed = Consumed::new(times).await;
    let _use = consumed.stream.use_stream();
    consumed.running().await;
    let waiting = portico_database::connect(consumed.server.endpoint()).await.unwrap();
    let commit = tokio::spawn(async move {
        waiting.batch_execute("set synchronous_commit = on; insert into todos values (1, 'a')").await
    });
    consumed.wait_for(|state| matches!(state, StreamState::Failed(_))).await;
    let cancel = "select pg_cancel_backend(pid) from pg_stat_activity \
                  where wait_event = 'SyncRep' and datname = current_database()";
    consumed.server.execute(cancel).await;
    commit.await.unwrap().unwrap();
    consumed.running().await;
    consumed.server.execute("insert into todos values (2, 'b')").await;
    assert_eq!(consumed.titles().await, ["b"]);
}
