//! Streams of committed changes.

use std::time::Duration;

use portico_database::replication::{
    Lsn, RefusedChange, ReplicationError, ReplicationSettings, ReplicationStream, WalMessage, prepare_publications,
};
use portico_database::scratch::{ClusterFolder, OrdinaryServer};
use portico_database::{BootstrapSettings, Endpoint, connect, scratch};
use tokio_postgres::Client;

use crate::bootstrap::{column, empty, majors, ready, value};
use crate::cluster::reachable;
use crate::external;
use crate::wire::Scratch;

pub(crate) fn settings(slot: &str) -> ReplicationSettings {
    ReplicationSettings {
        slot: slot.into(),
        publications: vec!["all \"of\" 'them".into()],
        silence: Duration::from_secs(60),
    }
}

/// Creates a table and publishes it.
pub(crate) async fn published(endpoint: &Endpoint) -> Client {
    let client = connect(endpoint).await.unwrap();
    let statements = "create table items (id int primary key, name text);
                      create publication \"all \"\"of\"\" 'them\" for table items";
    client.batch_execute(statements).await.unwrap();
    client
}

/// Reads until the end of a transaction. Returns its messages and the end's position.
async fn transaction(stream: &mut ReplicationStream, waiting: &mut Vec<WalMessage>) -> (Vec<WalMessage>, Lsn) {
    loop {
        if let Some(last) = waiting.iter().position(|message| message.transaction_end().is_some()) {
            let messages: Vec<_> = waiting.drain(..=last).collect();
            let end = messages[last].transaction_end().unwrap();
            return (messages, end);
        }
        // Cancelled whenever nothing has arrived, which loses nothing
        tokio::select! {
            biased;
            received = stream.next_batch(waiting) => received.unwrap(),
            () = tokio::task::yield_now() => {}
        }
    }
}

/// Drops a stream and waits until its slot is gone, which a database has to wait for.
pub(crate) async fn close(stream: ReplicationStream, client: &Client) {
    drop(stream);
    let slots = "select from pg_replication_slots where database = current_database()";
    while !client.query(slots, &[]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
}

fn kinds(messages: &[WalMessage]) -> String {
    messages.iter().map(|message| char::from(message.body[0])).collect()
}

fn holds(message: &WalMessage, text: &str) -> bool {
    message.body.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn transactions_arrive_whole_and_in_the_order_of_their_commits() {
    for major in majors() {
        let database = empty(major).await;
        transactions_arrive(database.endpoint()).await;
    }
}

async fn transactions_arrive(endpoint: &Endpoint) {
    let client = published(endpoint).await;
    client.batch_execute("insert into items values (0, 'before the stream')").await.unwrap();
    let mut stream = ReplicationStream::open(endpoint, &settings(endpoint.database())).await.unwrap();

    let mut other = connect(endpoint).await.unwrap();
    let late = other.transaction().await.unwrap();
    late.execute("insert into items values (1, 'first insert, second commit')", &[]).await.unwrap();
    client.batch_execute("begin; insert into items values (9, 'rolled back'); rollback").await.unwrap();
    client.batch_execute("insert into items select n, 'many' from generate_series(10, 5009) as n").await.unwrap();
    late.commit().await.unwrap();
    client.batch_execute("truncate items").await.unwrap();

    let mut waiting = Vec::new();
    let (mut many, end) = transaction(&mut stream, &mut waiting).await;
    assert!(kinds(&many).starts_with("BRI"));
    let (mut second, second_end) = transaction(&mut stream, &mut waiting).await;
    // The server describes a table again when other databases have changed much meanwhile
    let described = many.remove(1);
    for messages in [&mut many, &mut second] {
        messages.retain(|message| kinds(std::slice::from_ref(message)) != "R");
    }
    many.insert(1, described);
    assert_eq!(kinds(&many), format!("BR{}C", "I".repeat(5000)));
    assert_eq!(kinds(&second), "BIC");
    assert!(holds(&second[1], "first insert, second commit"));
    assert!(second_end > end && second[1].start < many[2].start);
    let (truncated, _) = transaction(&mut stream, &mut waiting).await;
    assert!(kinds(&truncated).ends_with("TC"));
    close(stream, &client).await;
}

#[tokio::test]
async fn a_confirmed_position_releases_the_log_and_a_dropped_stream_its_slot() {
    let scratch = Scratch::new().await;
    let client = published(&scratch.endpoint).await;
    let slot = scratch.endpoint.database().to_owned();
    // The server requests a status after half of this time, whatever its own setting is
    client.batch_execute(&format!("alter database {slot} set wal_sender_timeout = 0")).await.unwrap();
    let soon = ReplicationSettings { silence: Duration::from_secs(4), ..settings(&slot) };
    let mut stream = ReplicationStream::open(&scratch.endpoint, &soon).await.unwrap();
    let activity = "select application_name, temporary, plugin from pg_replication_slots
                      join pg_stat_activity on pid = active_pid where slot_name = $1";
    let row = client.query_one(activity, &[&slot]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "realtime_replication_connection");
    assert!(row.get::<_, bool>(1));
    assert_eq!(row.get::<_, &str>(2), "pgoutput");
    let refused = ReplicationStream::open(&scratch.endpoint, &settings(&slot)).await.unwrap_err();
    assert!(matches!(refused, ReplicationError::SlotInUse(_)), "{refused}");

    client.batch_execute("insert into items values (1, 'a')").await.unwrap();
    let mut waiting = Vec::new();
    let (_, end) = transaction(&mut stream, &mut waiting).await;
    stream.confirm(end);
    let is_released = "select confirmed_flush_lsn >= $2::text::pg_lsn from pg_replication_slots where slot_name = $1";
    let reading = async {
        loop {
            stream.next_batch(&mut waiting).await.unwrap();
        }
    };
    let released = async {
        while !client.query_one(is_released, &[&slot, &end.to_string()]).await.unwrap().get::<_, bool>(0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = released => {}
        () = reading => {}
    }
    close(stream, &client).await;
    scratch.drop().await;
}

#[tokio::test]
async fn a_publication_that_is_dropped_ends_the_stream_or_its_changes() {
    let scratch = Scratch::new().await;
    let client = published(&scratch.endpoint).await;
    let slot = scratch.endpoint.database().to_owned();
    let both = ReplicationSettings { publications: vec!["all \"of\" 'them".into(), "other".into()], ..settings(&slot) };
    client
        .batch_execute("create table others (id int primary key); create publication other for table others")
        .await
        .unwrap();
    let mut stream = ReplicationStream::open(&scratch.endpoint, &both).await.unwrap();
    client.batch_execute("drop publication other; insert into items values (1, 'a')").await.unwrap();
    let mut waiting = Vec::new();
    // Since PostgreSQL 18 a missing publication is left out with a warning
    match stream.next_batch(&mut waiting).await {
        Ok(()) => assert_eq!(waiting[0].body[0], b'B'),
        Err(error) => assert!(matches!(error, ReplicationError::MissingPublication(_)), "{error}"),
    }
    close(stream, &client).await;
    scratch.drop().await;
}

#[tokio::test]
async fn a_connection_that_the_server_ends_is_lost() {
    let scratch = Scratch::new().await;
    let client = published(&scratch.endpoint).await;
    let slot = scratch.endpoint.database().to_owned();
    let mut stream = ReplicationStream::open(&scratch.endpoint, &settings(&slot)).await.unwrap();
    let end = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1";
    client.execute(end, &[&slot]).await.unwrap();
    let error = stream.next_batch(&mut Vec::new()).await.unwrap_err();
    assert!(matches!(error, ReplicationError::Lost(_)), "{error}");
    let stream = ReplicationStream::open(&scratch.endpoint, &settings(&slot)).await.unwrap();
    close(stream, &client).await;
    scratch.drop().await;
}

#[tokio::test]
async fn a_server_that_cannot_replicate_is_an_error_with_its_remedy() {
    let folder = ClusterFolder::new();
    let cluster = reachable(folder.path(), |settings| {
        settings.parameters =
            vec![("max_replication_slots".into(), "1".into()), ("max_wal_senders".into(), "1".into())];
    })
    .await;
    let admin = published(&cluster.endpoint()).await;
    admin.batch_execute("create role visitor login password 'secret'").await.unwrap();
    // By TCP, with a password
    let url = format!("postgresql://visitor:secret@127.0.0.1:{}/postgres", cluster.tcp_port().unwrap());
    let visitor = Endpoint::parse(&url).unwrap();
    let error = ReplicationStream::open(&visitor, &settings("s")).await.unwrap_err();
    assert!(
        error.needs_configuration() && error.to_string().contains("alter role \"visitor\" with replication"),
        "{error}"
    );

    admin.batch_execute("alter role visitor with replication").await.unwrap();
    let mut stream = ReplicationStream::open(&visitor, &settings("s")).await.unwrap();
    admin.batch_execute("insert into items values (1, 'by password')").await.unwrap();
    let (messages, _) = transaction(&mut stream, &mut Vec::new()).await;
    assert_eq!(kinds(&messages), "BRIC");
    let error = ReplicationStream::open(&cluster.endpoint(), &settings("t")).await.unwrap_err();
    assert!(matches!(error, ReplicationError::NoFreeSender(_)), "{error}");
    close(stream, &admin).await;

    // A slot that stays, in the only place
    admin.batch_execute("select pg_create_logical_replication_slot('kept', 'pgoutput')").await.unwrap();
    let error = ReplicationStream::open(&cluster.endpoint(), &settings("t")).await.unwrap_err();
    assert!(matches!(error, ReplicationError::NoFreeSlot(_)), "{error}");
    cluster.stop().await;
    let error = ReplicationStream::open(&visitor, &settings("s")).await.unwrap_err();
    assert!(matches!(error, ReplicationError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_server_with_a_smaller_log_names_the_setting() {
    let Some(binaries) = scratch::older_binaries() else { return };
    let server = OrdinaryServer::start(binaries.folder()).await.unwrap();
    let error = ReplicationStream::open(&server.superuser("postgres"), &settings("s")).await.unwrap_err();
    assert!(matches!(error, ReplicationError::NotLogical(_)), "{error}");
    assert!(error.to_string().contains("alter system set wal_level = logical"), "{error}");
}

#[tokio::test]
async fn a_database_is_recreated_although_a_stream_is_open() {
    let database = empty(18).await;
    published(database.endpoint()).await;
    let mut stream = ReplicationStream::open(database.endpoint(), &settings("open_at_reset")).await.unwrap();
    database.recreate(&BootstrapSettings::default()).await.unwrap();
    let error = stream.next_batch(&mut Vec::new()).await.unwrap_err();
    assert!(matches!(error, ReplicationError::Lost(_)), "{error}");
    // The new database has the publications of realtime, and both are as they should be
    let both = ["supabase_realtime", "supabase_realtime_messages_publication"];
    assert_eq!(prepare_publications(&database).await.unwrap().existing, both);
}

#[tokio::test]
async fn the_publication_of_messages_has_only_its_table() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        let tables = "select pg_get_publication_tables.relid::regclass::text
                        from pg_get_publication_tables('supabase_realtime_messages_publication')";
        for wrong in [
            "drop publication supabase_realtime_messages_publication",
            "create table other (); alter publication supabase_realtime_messages_publication add table other",
            "alter publication supabase_realtime_messages_publication set (publish = 'update')",
            "drop publication supabase_realtime_messages_publication;
             create publication supabase_realtime_messages_publication for all tables",
        ] {
            client.batch_execute(wrong).await.unwrap();
            prepare_publications(&database).await.unwrap();
            let published = column(&client, tables).await;
            assert!(!published.is_empty(), "{wrong}");
            assert!(published.iter().all(|table| table.starts_with("realtime.messages_")), "{wrong}: {published:?}");
            let inserts =
                "select pubinsert from pg_publication where pubname = 'supabase_realtime_messages_publication'";
            assert_eq!(value(&client, inserts).await, "t", "{wrong}");
        }
        client.batch_execute("drop publication supabase_realtime").await.unwrap();
        assert_eq!(prepare_publications(&database).await.unwrap().existing, ["supabase_realtime_messages_publication"]);
    }
}

#[tokio::test]
async fn a_server_that_stops_ends_the_stream() {
    let folder = ClusterFolder::new();
    let cluster = reachable(folder.path(), |_| {}).await;
    let client = published(&cluster.endpoint()).await;
    let mut stream = ReplicationStream::open(&cluster.endpoint(), &settings("s")).await.unwrap();
    client.batch_execute("insert into items values (1, 'x')").await.unwrap();
    let mut waiting = Vec::new();
    let (_, end) = transaction(&mut stream, &mut waiting).await;
    stream.confirm(end);
    // The server waits until the stream has confirmed the whole log
    client.batch_execute("create table other as select generate_series(1, 10000)").await.unwrap();
    let reading = async {
        loop {
            if let Err(error) = stream.next_batch(&mut waiting).await {
                return error;
            }
        }
    };
    let (error, ()) = tokio::join!(reading, cluster.stop());
    assert!(matches!(error, ReplicationError::Lost(_)), "{error}");
}

#[tokio::test]
async fn a_publication_that_the_login_may_not_change_is_left_and_the_refusal_is_returned() {
    let server = external::start(18).await;
    let endpoint = external::tenant(&server, "publisher").await;
    let database = external::set_up(&endpoint, "publisher").await;
    let admin = connect(&server.superuser("publisher")).await.unwrap();
    let of_another = "drop publication if exists supabase_realtime_messages_publication;
         create publication supabase_realtime_messages_publication for table realtime.messages with (publish = 'update')";
    admin.batch_execute(of_another).await.unwrap();
    let first = prepare_publications(&database).await.unwrap();
    assert!(first.existing.contains(&"supabase_realtime_messages_publication".to_owned()), "{first:?}");
    let reason = "must be owner of publication supabase_realtime_messages_publication".to_owned();
    let publication = "supabase_realtime_messages_publication";
    assert_eq!(first.refused, [RefusedChange { publication, reason }]);
    assert_eq!(prepare_publications(&database).await.unwrap(), first);
}
