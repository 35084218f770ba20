//! Replay: the stored messages of a private channel that a join asks for.

use portico_database::wire::{Access, Batch, Pool, ResultSets, Row, Statement, WireError};
use serde_json::{Value, json};
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

use crate::error::JoinError;
use crate::rooms::Subscriber;
use crate::socket::frame::{Frame, UserBroadcast, UserPayload, Version, broadcast_payload, encode_user_broadcast};
use crate::sql::{SERVICE_ROLE, SET_2, service_settings};

/// The largest number of messages of a replay, which is the default too.
const MAX_MESSAGES: i64 = 25;
/// The bytes of all messages of a replay. They wait for the client at once, so there is a limit
/// below that of the outbox; the oldest ones beyond it are left out.
const MAX_BYTES: &str = "4194304";
/// The oldest time that is compared: nothing is stored for so long.
const OLDEST: OffsetDateTime = time::macros::datetime!(2000-01-01 0:00 UTC);
/// The time after now of messages that count: the clocks of two machines differ.
const AHEAD: Duration = Duration::minutes(1);

/// A time as the column has it: in UTC, without a zone.
const TIMESTAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second].[subsecond digits:6]");

const BEGIN: &str = "begin isolation level read committed read only";
/// The newest messages, oldest first. Messages of one transaction have one time; `ctid` has the
/// order in which they were written.
const SELECT: &str = "
    with newest as (
      select id, event, payload, binary_payload, inserted_at, ctid as place
        from realtime.messages
       where topic = $1 and private is true and extension = 'broadcast' and inserted_at >= $2 and inserted_at < $3
       order by inserted_at desc, place desc
       limit $4
    ), measured as (
      select *, coalesce(pg_catalog.octet_length(payload::pg_catalog.text), pg_catalog.octet_length(binary_payload), 0) as size
        from newest
    ), counted as (
      select *, pg_catalog.sum(size) filter (where size <= $5) over (order by inserted_at desc, place desc) as total
        from measured
    )
    select id, event, payload::pg_catalog.text, binary_payload
      from counted
     where size <= $5 and total <= $5
     order by inserted_at, place";

/// `config.broadcast.replay` of a join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplayParameters {
    /// Messages from this time on.
    since: OffsetDateTime,
    /// The number of messages, the newest ones.
    limit: i64,
}

/// A stored message for one channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredMessage {
    /// The id of the row.
    pub id: Uuid,
    /// `None`: the version of the client's protocol cannot carry it.
    pub frame: Option<Frame>,
}

impl ReplayParameters {
    /// Parses `replay`: `since` in milliseconds since 1970, and `limit`.
    ///
    /// # Errors
    /// [`JoinError::ReplayParameters`] if one is not an integer, or `since` is out of range.
    pub fn parse(replay: &Value) -> Result<Self, JoinError> {
        let limit = match replay.get("limit") {
            None => Some(MAX_MESSAGES),
            // Larger than the type has room for is too large as well
            Some(limit) => limit.as_i64().or_else(|| limit.as_u64().map(|_| MAX_MESSAGES)),
        };
        let since = replay.get("since").and_then(Value::as_i64).and_then(time_of);
        match (since, limit) {
            (Some(since), Some(limit)) => Ok(Self { since, limit: limit.clamp(1, MAX_MESSAGES) }),
            _ => Err(JoinError::ReplayParameters),
        }
    }
}

fn time_of(milliseconds: i64) -> Option<OffsetDateTime> {
    OffsetDateTime::UNIX_EPOCH.checked_add(Duration::milliseconds(milliseconds))
}

/// Returns the stored messages of a channel, oldest first. The caller has checked that the channel
/// may receive broadcasts, sends the frames, and ends the replay with the ids.
///
/// # Errors
/// [`JoinError::ReplayFailed`] if PostgreSQL does not return them in time.
pub(crate) async fn replay(
    pool: &Pool,
    channel: &Subscriber,
    parameters: &ReplayParameters,
    now: OffsetDateTime,
) -> Result<Vec<StoredMessage>, JoinError> {
    let results = select(pool, &channel.room().topic, parameters, now).await.map_err(|error| {
        tracing::error!(error = %error, error_code = "UnableToReplayMessages", "stored messages could not be read");
        JoinError::ReplayFailed
    })?;
    Ok(results.rows(2).iter().filter_map(|row| stored_message(row, channel)).collect())
}

async fn select(
    pool: &Pool,
    topic: &str,
    parameters: &ReplayParameters,
    now: OffsetDateTime,
) -> Result<ResultSets, WireError> {
    let since = timestamp(parameters.since.max(OLDEST));
    let until = timestamp(now.saturating_add(AHEAD));
    let limit = parameters.limit.to_string();
    let values = [topic, &since, &until, &limit, MAX_BYTES].map(|text| Some(text.as_bytes()));
    let service = service_settings();
    let batch = Batch::new()
        .statement(Statement::named(BEGIN, &[]))
        .statement(Statement::named(SET_2, &service))
        .statement(Statement::named(SELECT, &values).scope(SERVICE_ROLE).binary())
        .statement(Statement::named("commit", &[]))
        .ending(Access::ReadOnly);
    pool.checkout().await?.run(&batch).await
}

fn timestamp(time: OffsetDateTime) -> String {
    // Only a year with five digits has no such text
    time.format(TIMESTAMP).unwrap_or_else(|_| format!("{} 00:00", Date::MAX))
}

/// Returns a row as a message. `None`: it is not a broadcast that is ever delivered.
fn stored_message(row: &Row, channel: &Subscriber) -> Option<StoredMessage> {
    let id = Uuid::from_slice(row.bytes(0)?).ok()?;
    let event = row.text(1)?.into();
    let payload = match row.get(2) {
        Some(json) => UserPayload::Json(json),
        None => UserPayload::Binary(row.get(3)?),
    };
    let metadata = json!({ "replayed": true, "id": id }).to_string();
    let broadcast = UserBroadcast { event, payload };
    let frame = match (&broadcast.payload, channel.version()) {
        (UserPayload::Json(_), _) => {
            broadcast_payload(&broadcast, &metadata).map(|payload| channel.event_frame("broadcast", &payload))
        }
        (UserPayload::Binary(_), Version::V2) => encode_user_broadcast(&channel.wire_topic(), &broadcast, &metadata),
        (UserPayload::Binary(_), Version::V1) => None,
    };
    Some(StoredMessage { id, frame })
}

#[cfg(test)]
mod tests;
