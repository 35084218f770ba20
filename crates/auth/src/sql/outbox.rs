//! `portico.mail_outbox`: emails that were written in a transaction and are not delivered yet.
//!
//! Uses PostgreSQL's clock: the servers on a database coordinate by it, and no request's time
//! matters.

use std::time::Duration;

use serde_json::Value;
use tokio_postgres::Error;

use super::{Run, Tx};

statements! {
    const INSERT = "
        insert into portico.mail_outbox (kind, recipient, subject, html, headers) values ($1, $2, $3, $4, $5)";
    /// A row that no other transaction sees: it is deleted in the transaction that inserts it.
    const INSERT_NOTHING = "
        insert into portico.mail_outbox (kind, recipient, subject, html) values ($1, '', $2, $3) returning id";
    /// Claims due emails for a while. If this server stops meanwhile, another one claims them
    /// afterwards.
    const CLAIM = "
        update portico.mail_outbox
           set attempts = attempts + 1, next_attempt_at = now() + interval '2 minutes'
         where id in (select due.id
                        from portico.mail_outbox as due
                       where due.next_attempt_at <= now()
                       order by due.next_attempt_at
                       limit 16
                         for update skip locked)
        returning id, kind, recipient, subject, html, headers, attempts, created_at < now() - interval '1 day',
                  extract(epoch from created_at)::bigint";
    const DELETE = "delete from portico.mail_outbox where id = $1";
    const POSTPONE = "
        update portico.mail_outbox
           set next_attempt_at = now() + make_interval(secs => $2), last_error = left($3, 500)
         where id = $1";
    const NEXT = "
        select extract(epoch from min(next_attempt_at) - now())::double precision from portico.mail_outbox";
}

/// An email in the outbox.
#[derive(Debug, Clone)]
pub struct QueuedMail {
    /// Primary key.
    pub id: i64,
    /// Key of the kind of email.
    pub kind: String,
    /// Address.
    pub recipient: String,
    /// Subject line.
    pub subject: String,
    /// Body.
    pub html: String,
    /// `[[name, value], ...]`
    pub headers: Value,
    /// The number of attempts, including the one that begins now.
    pub attempts: i32,
    /// The email is too old to be of use.
    pub is_stale: bool,
    /// The time at which it was written, in seconds since 1970.
    pub promised_at: i64,
}

/// Writes an email, in the transaction that makes it necessary.
pub async fn insert(
    tx: &Tx,
    kind: &str,
    recipient: &str,
    subject: &str,
    html: &str,
    headers: &Value,
) -> Result<(), Error> {
    tx.execute(INSERT, &[&kind, &recipient, &subject, &html, headers]).await.map(drop)
}

/// Does the work of [`insert`], and leaves no row.
pub async fn insert_decoy(tx: &Tx, kind: &str, subject: &str, html: &str) -> Result<(), Error> {
    if let Some(row) = tx.query_opt(INSERT_NOTHING, &[&kind, &subject, &html]).await? {
        tx.execute(DELETE, &[&row.get::<_, i64>(0)]).await?;
    }
    Ok(())
}

/// Claims some due emails.
pub async fn claim(run: &impl Run) -> Result<Vec<QueuedMail>, Error> {
    let rows = run.rows(CLAIM, &[]).await?;
    Ok(rows
        .iter()
        .map(|row| QueuedMail {
            id: row.get(0),
            kind: row.get(1),
            recipient: row.get(2),
            subject: row.get(3),
            html: row.get(4),
            headers: row.get(5),
            attempts: row.get(6),
            is_stale: row.get(7),
            promised_at: row.get(8),
        })
        .collect())
}

/// Deletes an email that was delivered or given up.
pub async fn delete(run: &impl Run, id: i64) -> Result<(), Error> {
    run.rows(DELETE, &[&id]).await.map(drop)
}

/// Schedules the next attempt at an email that could not be delivered.
pub async fn postpone(run: &impl Run, id: i64, wait: Duration, error: &str) -> Result<(), Error> {
    run.rows(POSTPONE, &[&id, &wait.as_secs_f64(), &error]).await.map(drop)
}

/// Returns the time until the next email is due; `None` if there is none.
pub async fn next(run: &impl Run) -> Result<Option<Duration>, Error> {
    let rows = run.rows(NEXT, &[]).await?;
    let seconds: Option<f64> = rows.first().and_then(|row| row.get(0));
    Ok(seconds.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)))
}
