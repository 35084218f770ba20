//! `portico.wrong_codes`: how many wrong codes were typed, across restarts.

use time::OffsetDateTime;
use tokio_postgres::Error;

use super::{Run, Tx};

/// Every statement of this file.
pub const ALL: &[(&str, &str)] =
    &[("wrong_codes::COUNT", COUNT), ("wrong_codes::NOT_FULL", NOT_FULL), ("wrong_codes::DELETE_OLD", DELETE_OLD)];

/// All servers write the kinds in one order, so they never wait for each other in a circle.
const COUNT: &str = "
    insert into portico.wrong_codes as known (kind, account, full_at)
    select wrong.kind, wrong.account, $4::timestamptz + make_interval(secs => wrong.seconds)
      from unnest($1::text[], $2::bytea[], $3::double precision[]) as wrong (kind, account, seconds)
    on conflict (kind, account) do update
       set full_at = greatest(known.full_at, $4) + (excluded.full_at - $4)";
const NOT_FULL: &str = "
    select kind, account, full_at
      from portico.wrong_codes
     where full_at > $1
     order by full_at desc
     limit $2";
const DELETE_OLD: &str = "
    delete from portico.wrong_codes
     where (kind, account) in (select old.kind, old.account
                                 from portico.wrong_codes as old
                                where old.full_at < $1
                                limit 500
                                  for update skip locked)";

/// One limit, and how much of it one wrong code takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Wrong {
    /// Name of the limit.
    pub kind: &'static str,
    /// Whose limit it is.
    pub account: Vec<u8>,
    /// How long it takes until one more code is allowed.
    pub seconds: f64,
}

/// A limit of which something was used.
#[derive(Debug, Clone)]
pub struct Used {
    /// Name of the limit.
    pub kind: String,
    /// Whose limit it is.
    pub account: Vec<u8>,
    /// When nothing of it will be used any more.
    pub full_at: OffsetDateTime,
}

/// Counts a wrong code in each of these limits.
pub async fn count(run: &impl Run, wrong: &[Wrong], now: OffsetDateTime) -> Result<(), Error> {
    let kinds: Vec<&str> = wrong.iter().map(|wrong| wrong.kind).collect();
    let accounts: Vec<&[u8]> = wrong.iter().map(|wrong| wrong.account.as_slice()).collect();
    let seconds: Vec<f64> = wrong.iter().map(|wrong| wrong.seconds).collect();
    run.rows(COUNT, &[&kinds, &accounts, &seconds, &now]).await.map(drop)
}

/// At most `limit` limits of which something is used now, the fullest last.
pub async fn not_full(run: &impl Run, now: OffsetDateTime, limit: i64) -> Result<Vec<Used>, Error> {
    let rows = run.rows(NOT_FULL, &[&now, &limit]).await?;
    Ok(rows.iter().map(|row| Used { kind: row.get(0), account: row.get(1), full_at: row.get(2) }).collect())
}

/// Removes limits that are full since `before`. Returns how many.
pub async fn delete_old(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(DELETE_OLD, &[&before]).await
}
