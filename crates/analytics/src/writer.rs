//! Writes events to the database, many in one statement.

use std::time::Duration;

use portico_database::{Database, DatabaseError};
use serde_json::Value;
use time::OffsetDateTime;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use crate::event::Event;

/// The time for which an event waits for others.
const PATIENCE: Duration = Duration::from_millis(500);
/// The number of events that are written at once.
const FULL: usize = 500;
/// The number of events in memory while the database is unavailable; further ones are discarded.
const MAX_HELD: usize = 5_000;
/// The number of requests that wait for the task.
const MAX_QUEUED: usize = 1_000;
/// The number of attempts for a statement that PostgreSQL rejects.
const MAX_REJECTIONS: u32 = 3;
/// The pauses while the database is unavailable.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

const INSERT: &str = "
    insert into portico.analytics_events (name, properties, user_id, route, occurred_at, received_at)
    select name, properties, user_id, route, occurred_at, received_at
      from unnest($1::text[], $2::jsonb[], $3::uuid[], $4::text[], $5::timestamptz[], $6::timestamptz[])
           as event (name, properties, user_id, route, occurred_at, received_at)";

/// In steps, so that no statement runs long or locks much.
const DELETE: &str = "
    delete from portico.analytics_events
     where id in (select id
                    from portico.analytics_events
                   where received_at < $1
                   limit 5000)";

/// Deletes events that arrived before `limit`.
pub(crate) async fn delete_before(database: &Database, limit: OffsetDateTime) -> Result<u64, DatabaseError> {
    let client = database.login_client().await?;
    let mut deleted = 0;
    loop {
        match client.execute(DELETE, &[&limit]).await? {
            0 => return Ok(deleted),
            some => deleted += some,
        }
    }
}

/// The oldest events beyond a number. Ids only grow, so the newest id is at least as far from the
/// oldest as there are events.
const DELETE_SURPLUS: &str = "
    delete from portico.analytics_events
     where id in (select id
                    from portico.analytics_events
                   where id <= (select max(id) from portico.analytics_events) - $1
                   order by id
                   limit 5000)";

/// The number of events that may be written before the size of the table is checked again, and the
/// number of [`DELETE_SURPLUS`] statements then: these delete as many as were written, and more.
const LOOK_EVERY: u32 = 10_000;
const LOOK_STEPS: u32 = 4;

/// Deletes the oldest events beyond `kept`, in at most `steps` statements.
pub(crate) async fn delete_surplus(database: &Database, kept: u32, steps: u32) -> Result<u64, DatabaseError> {
    let client = database.login_client().await?;
    let mut deleted = 0;
    for _ in 0..steps {
        match client.execute(DELETE_SURPLUS, &[&i64::from(kept)]).await? {
            0 => break,
            some => deleted += some,
        }
    }
    Ok(deleted)
}

enum WriterMessage {
    Events(Vec<Event>),
    /// Replies whether nothing waits any more.
    Flush(oneshot::Sender<bool>),
}

/// The channel to the task that writes.
pub(crate) struct Writer {
    queue: mpsc::Sender<WriterMessage>,
}

/// The error of a full queue.
pub(crate) struct Overloaded;

impl Writer {
    /// Starts the task. The table keeps `kept` events, and briefly a few more.
    pub(crate) fn start(database: Database, kept: u32) -> Self {
        let (queue, messages) = mpsc::channel(MAX_QUEUED);
        let task = Task {
            database,
            held: Vec::new(),
            rejections: 0,
            pause: FIRST_PAUSE,
            due: None,
            is_paused: false,
            kept,
            since_look: u32::MAX,
        };
        tokio::spawn(task.run(messages));
        Self { queue }
    }

    pub(crate) fn add(&self, events: Vec<Event>) -> Result<(), Overloaded> {
        self.queue.try_send(WriterMessage::Events(events)).map_err(|_| Overloaded)
    }

    pub(crate) async fn flush(&self) -> bool {
        let (answer, done) = oneshot::channel();
        self.queue.send(WriterMessage::Flush(answer)).await.is_ok() && done.await.unwrap_or(false)
    }
}

struct Task {
    database: Database,
    held: Vec<Event>,
    /// The number of times that PostgreSQL has rejected the waiting events.
    rejections: u32,
    /// The wait after the next failure.
    pause: Duration,
    /// The time at which the waiting events are written.
    due: Option<Instant>,
    /// The database failed recently, so a full batch waits for `due` too.
    is_paused: bool,
    /// The number of events that the table keeps.
    kept: u32,
    /// The number of events that were written since the size of the table was checked.
    since_look: u32,
}

impl Task {
    async fn run(mut self, mut messages: mpsc::Receiver<WriterMessage>) {
        loop {
            let message = match self.due {
                None => messages.recv().await.map(Some),
                Some(due) => tokio::select! {
                    message = messages.recv() => message.map(Some),
                    () = tokio::time::sleep_until(due) => Some(None),
                },
            };
            match message {
                Some(Some(WriterMessage::Events(events))) => self.hold(events).await,
                Some(Some(WriterMessage::Flush(answer))) => {
                    self.write().await;
                    let _ = answer.send(self.held.is_empty());
                }
                Some(None) => self.write().await,
                // All senders are gone
                None => {
                    self.write().await;
                    return;
                }
            }
        }
    }

    async fn hold(&mut self, mut events: Vec<Event>) {
        let room = MAX_HELD - self.held.len();
        if events.len() > room {
            tracing::warn!(events = events.len() - room, "events are discarded: the database is unavailable");
            events.truncate(room);
        }
        self.held.append(&mut events);
        if self.is_paused {
            return;
        }
        if self.held.len() >= FULL {
            self.write().await;
        } else if self.due.is_none() && !self.held.is_empty() {
            self.due = Some(Instant::now() + PATIENCE);
        }
    }

    async fn write(&mut self) {
        (self.due, self.is_paused) = (None, false);
        if self.held.is_empty() {
            return;
        }
        match self.insert().await {
            Ok(()) => {
                self.since_look = self.since_look.saturating_add(u32::try_from(self.held.len()).unwrap_or(u32::MAX));
                self.held.clear();
                self.bound_table().await;
                (self.rejections, self.pause) = (0, FIRST_PAUSE);
            }
            Err(DatabaseError::Closed) => self.held.clear(),
            Err(error) => {
                if !error.is_unavailable() {
                    self.rejections += 1;
                }
                if self.rejections >= MAX_REJECTIONS {
                    tracing::error!(
                        error = %error,
                        events = self.held.len(),
                        "events are discarded: PostgreSQL rejects them"
                    );
                    self.held.clear();
                    (self.rejections, self.pause) = (0, FIRST_PAUSE);
                    return;
                }
                tracing::warn!(
                    error = %error,
                    events = self.held.len(),
                    "events could not be written and are kept for now"
                );
                (self.due, self.is_paused) = (Some(Instant::now() + self.pause), true);
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Deletes the oldest events beyond those that the table keeps.
    async fn bound_table(&mut self) {
        // At most a tenth more
        if self.since_look < (self.kept / 10).min(LOOK_EVERY) {
            return;
        }
        match delete_surplus(&self.database, self.kept, LOOK_STEPS).await {
            Ok(_) => self.since_look = 0,
            // Repeated with the next events
            Err(error) => tracing::warn!(error = %error, "the oldest events could not be deleted"),
        }
    }

    async fn insert(&self) -> Result<(), DatabaseError> {
        fn column<'a, T>(held: &'a [Event], of: impl Fn(&'a Event) -> T) -> Vec<T> {
            held.iter().map(of).collect()
        }
        let held = &self.held;
        let names: Vec<&str> = column(held, |event| event.name);
        let properties: Vec<&Value> = column(held, |event| &event.properties);
        let users: Vec<Option<Uuid>> = column(held, |event| event.user_id);
        let routes: Vec<Option<&str>> = column(held, |event| event.route.as_deref());
        let occurred: Vec<OffsetDateTime> = column(held, |event| event.occurred_at);
        let received: Vec<OffsetDateTime> = column(held, |event| event.received_at);
        let client = self.database.login_client().await?;
        let statement = client.prepare_cached(INSERT).await?;
        let written = client.execute(&statement, &[&names, &properties, &users, &routes, &occurred, &received]).await;
        if written.is_err() {
            // The schema may have been recreated, which invalidates prepared statements
            client.statement_cache.clear();
        }
        written?;
        Ok(())
    }
}
