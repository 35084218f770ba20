//! The disturbances of a stress test: cancels, kills, locks, changes of the schema.

use std::time::Duration;

use portico_database::scratch;
use tokio_postgres::Client;

use super::random::SeededRandom;
use crate::directed::changing::SchemaChange;
use crate::server::{IsolationServer, sql};

/// A random backend of the data API.
const ONE_BACKEND: &str = "from (select pid from pg_stat_activity
   where datname = current_database() and usename = 'authenticator' order by random() limit 1) as one";

/// Runs the disturbances until the future is dropped.
pub async fn all(stage: &IsolationServer, changes: &[SchemaChange], random: &mut SeededRandom) {
    tokio::join!(
        cancels(stage, random.fork()),
        kills(stage, random.fork()),
        locks(stage, random.fork()),
        alters(stage, changes, random.fork())
    );
}

/// Waits for a random time below `most` milliseconds.
async fn pause(random: &mut SeededRandom, most: u64) {
    tokio::time::sleep(Duration::from_millis(random.below(most))).await;
}

async fn other_session(stage: &IsolationServer) -> Client {
    let session = scratch::connect(stage.endpoint()).await.unwrap();
    session.batch_execute("set lock_timeout = '300ms'; set deadlock_timeout = '50ms'").await.unwrap();
    session
}

async fn cancels(stage: &IsolationServer, mut random: SeededRandom) {
    let session = other_session(stage).await;
    loop {
        pause(&mut random, 40).await;
        session.batch_execute(&format!("select pg_cancel_backend(pid) {ONE_BACKEND}")).await.unwrap();
    }
}

async fn kills(stage: &IsolationServer, mut random: SeededRandom) {
    let session = other_session(stage).await;
    loop {
        pause(&mut random, 250).await;
        session.batch_execute(&format!("select pg_terminate_backend(pid) {ONE_BACKEND}")).await.unwrap();
    }
}

/// Locks a table for a moment.
async fn locks(stage: &IsolationServer, mut random: SeededRandom) {
    let session = other_session(stage).await;
    let tables = stage
        .query("select c.oid::regclass::text from pg_class as c where relkind = 'r' and relnamespace = 'public'::regnamespace")
        .await;
    let tables: Vec<String> = tables.iter().map(|row| row.get(0)).collect();
    loop {
        pause(&mut random, 100).await;
        let table = random.choose(&tables);
        // It may come too late, or cause a deadlock
        if session.batch_execute(&format!("begin; lock table {table} in access exclusive mode")).await.is_ok() {
            pause(&mut random, 20).await;
        }
        session.batch_execute("rollback").await.unwrap();
    }
}

/// Changes the schema back and forth.
async fn alters(stage: &IsolationServer, changes: &[SchemaChange], mut random: SeededRandom) {
    /// Changes that affect only the plans of requests.
    const HARMLESS: &[&str] = &[
        "alter table default_inline add column if not exists extra integer",
        "alter table default_inline drop column if exists extra",
        "alter function private.who() immutable",
        "alter function private.who() stable",
        "alter function private.subject() volatile",
        "alter function private.subject() stable",
        "create index if not exists extra on written (mark); analyze written",
        "drop index if exists extra",
        "notify pgrst",
        "notify pgrst, 'reload config'",
    ];
    let session = other_session(stage).await;
    loop {
        pause(&mut random, 60).await;
        if random.below(2) == 0 {
            alter(&session, random.choose::<&str>(HARMLESS)).await;
        } else {
            let change = random.choose(changes);
            alter(&session, if random.below(2) == 0 { change.before } else { change.after }).await;
        }
    }
}

/// Makes a change of the schema, if it gets its locks in time.
pub async fn alter(session: &Client, change: &str) {
    let outcome = session.batch_execute(&format!("begin; set local role postgres; {}; commit", sql(change))).await;
    if outcome.is_err() {
        session.batch_execute("rollback").await.unwrap();
    }
}
