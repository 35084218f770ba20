//! `portico.attempts` and `portico.known_networks`: the guesses at codes and passwords, and the
//! pauses between messages, counted by all servers on the database together.
//!
//! A row is a bucket, and `full_at` is the time at which it will be full again: a guess moves it by
//! the time in which one guess is allowed again. A guess is allowed while at least one is left,
//! which is while `full_at` is near enough. A clock that is set back only makes it farther away.

use std::time::Duration;

use time::OffsetDateTime;
use tokio_postgres::Error;

use super::{Run, Tx};

/// One limit of [`CHARGE`]: writes the row if the limits before it allowed the guess and this one
/// does too. The upsert reads the newest version of the row and holds it until the statement ends,
/// so that two servers cannot both take the last guess.
macro_rules! limit {
    ($place:literal, $before:literal) => {
        concat!(
            "insert into portico.attempts as known (kind, account, full_at)
             select ($2::text[])[",
            $place,
            "], ($3::bytea[])[",
            $place,
            "],
                    $1::timestamptz + make_interval(secs => ($4::double precision[])[",
            $place,
            "])
              where ",
            $before,
            "
             on conflict (kind, account) do update
                set full_at = greatest(known.full_at, $1)
                              + make_interval(secs => ($4::double precision[])[",
            $place,
            "])
              where known.full_at
                    <= $1 + make_interval(secs => ($4::double precision[])[",
            $place,
            "]
                                                 * (($5::double precision[])[",
            $place,
            "] - 1))
             returning 1"
        )
    };
}

statements! {
    /// The limits are charged one after the other, and none after the first that rejects: a guess
    /// beyond the limit of its network does not use up the account's. After the first come the
    /// second and third, or, from a network that the account knows, only the fourth. All statements
    /// write the limits in one order, so they never wait for each other in a circle.
    const CHARGE = concat!(
        "with known_network as (
           select 1
             from portico.known_networks
            where known_networks.account = $6
              and known_networks.network = $7
         ),
         first as (",
        limit!("1", "true"),
        "),
         second as (",
        limit!(
            "2",
            "($2::text[])[2] is not null and exists (select from first) and not exists (select from known_network)"
        ),
        "),
         third as (",
        limit!("3", "($2::text[])[3] is not null and exists (select from second)"),
        "),
         fourth as (",
        limit!("4", "($2::text[])[4] is not null and exists (select from first) and exists (select from known_network)"),
        ")
        select exists (select from known_network),
               array[(select count(*) from first), (select count(*) from second),
                     (select count(*) from third), (select count(*) from fourth)],
               (select array_agg(known.full_at order by given.place)
                  from unnest($2::text[], $3::bytea[]) with ordinality as given (kind, account, place)
                  left join portico.attempts as known on known.kind = given.kind and known.account = given.account)"
    );
    /// The rows are locked in the order of [`CHARGE`].
    const GIVE_BACK = "
        with charged as (
          select known.kind, known.account, given.seconds
            from unnest($1::text[], $2::bytea[], $3::double precision[]) with ordinality
                   as given (kind, account, seconds, place)
            join portico.attempts as known on known.kind = given.kind and known.account = given.account
           order by given.place
             for update of known
        )
        update portico.attempts
           set full_at = attempts.full_at - make_interval(secs => charged.seconds)
          from charged
         where attempts.kind = charged.kind
           and attempts.account = charged.account";
    /// A bucket for one message. An end that is more than two pauses away was written before the
    /// clock was set back; concurrent requests write ends that are about one pause away.
    const START_PAUSE = "
        insert into portico.attempts as known (kind, account, full_at)
        values ($1, $2, $4)
        on conflict (kind, account) do update
           set full_at = excluded.full_at
         where known.full_at <= $3
            or known.full_at > $4::timestamptz + ($4::timestamptz - $3::timestamptz)";
    const END_OF_PAUSE = "select full_at from portico.attempts where kind = $1 and account = $2";
    const CANCEL_PAUSE = "delete from portico.attempts where kind = $1 and account = $2 and full_at = $3";
    /// A bucket of messages. A time farther away than an empty bucket takes to fill was written
    /// before the clock was set back.
    const CHARGE_MESSAGE = "
        insert into portico.attempts as known (kind, account, full_at)
        values ($1, $2, $3::timestamptz + make_interval(secs => $4::double precision))
        on conflict (kind, account) do update
           set full_at = case
                           when known.full_at > $3 + make_interval(secs => $4 * $5::double precision) then $3
                           else greatest(known.full_at, $3)
                         end + make_interval(secs => $4)
         where known.full_at <= $3 + make_interval(secs => $4 * ($5 - 1))
            or known.full_at > $3 + make_interval(secs => $4 * $5)";
    /// No bucket takes longer than a day to fill: a time that is farther away was written while the
    /// clock was wrong.
    const DELETE_OLD = "
        delete from portico.attempts
         where (kind, account) in (select old.kind, old.account
                                     from portico.attempts as old
                                    where old.full_at < $1
                                       or old.full_at > $1 + interval '2 days'
                                    limit 5000
                                      for update skip locked)";
    /// A network is written at most once a day, and an account keeps the ten newest.
    const REMEMBER_NETWORK = "
        with remembered as (
          insert into portico.known_networks as known (account, network, seen_at)
          select given.account, given.network, $3
            from unnest($1::bytea[], $2::bytea[]) as given (account, network)
          on conflict (account, network) do update
             set seen_at = excluded.seen_at
           where known.seen_at < excluded.seen_at - interval '1 day'
        )
        delete from portico.known_networks
         where (account, network) in (select placed.account, placed.network
                                        from (select known.account, known.network,
                                                     row_number() over (partition by known.account
                                                                        order by known.seen_at desc) as place
                                                from portico.known_networks as known
                                               where known.account = any ($1)
                                                 and known.network <> all ($2)) as placed
                                       where placed.place > 9)";
    const DELETE_OLD_NETWORKS = "
        delete from portico.known_networks
         where (account, network) in (select old.account, old.network
                                        from portico.known_networks as old
                                       where old.seen_at < $1
                                       limit 500
                                         for update skip locked)";
}

/// A limit that a guess or a message is charged to.
#[derive(Debug, Clone, PartialEq)]
pub struct ChargedLimit {
    /// The name of the limit.
    pub kind: &'static str,
    /// The digest of what is limited: an account, or an account at one network.
    pub account: Vec<u8>,
    /// The time in which one guess is allowed again.
    pub each: Duration,
    /// The guesses that are allowed at once.
    pub size: u32,
}

/// An account and the network that guesses come from, as digests.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// The digest of the account.
    pub account: Vec<u8>,
    /// The digest of the account and the network.
    pub network: Vec<u8>,
}

/// The outcome of a charge.
#[derive(Debug, Clone, PartialEq)]
pub enum ChargeOutcome {
    /// The guess is allowed; these limits were charged.
    Allowed(Vec<ChargedLimit>),
    /// A limit rejects the guess.
    Refused {
        /// The name of the limit.
        by: &'static str,
        /// The time until a guess is allowed again.
        wait: Duration,
        /// The limits that were charged before it.
        before: Vec<ChargedLimit>,
    },
}

fn columns(charges: &[ChargedLimit]) -> (Vec<&str>, Vec<&[u8]>, Vec<f64>) {
    (
        charges.iter().map(|charge| charge.kind).collect(),
        charges.iter().map(|charge| charge.account.as_slice()).collect(),
        charges.iter().map(|charge| charge.each.as_secs_f64()).collect(),
    )
}

/// Counts a guess and decides whether it is allowed, in one statement. `charges` are that of the
/// account at its network, two of the account, and one that replaces those where the account knows
/// the network. The last ones may be missing.
pub async fn charge(
    run: &impl Run,
    charges: &[ChargedLimit],
    network: Option<&Network>,
    now: OffsetDateTime,
) -> Result<ChargeOutcome, Error> {
    let (kinds, accounts, seconds) = columns(charges);
    let sizes: Vec<f64> = charges.iter().map(|charge| f64::from(charge.size)).collect();
    let account = network.map(|network| network.account.as_slice());
    let known = network.map(|network| network.network.as_slice());
    let rows = run.rows(CHARGE, &[&now, &kinds, &accounts, &seconds, &sizes, &account, &known]).await?;
    let (is_known, written, full_at) = match rows.first() {
        Some(row) => (row.get(0), row.get(1), row.get::<_, Option<Vec<_>>>(2).unwrap_or_default()),
        None => (false, Vec::<i64>::new(), Vec::<Option<OffsetDateTime>>::new()),
    };
    let subject_to: &[usize] = if is_known { &[0, 3] } else { &[0, 1, 2] };
    let mut charged = Vec::new();
    for (index, charge) in subject_to.iter().filter_map(|&index| Some((index, charges.get(index)?))) {
        if written.get(index).is_some_and(|count| *count > 0) {
            charged.push(charge.clone());
            continue;
        }
        // Unknown when the row was written while this statement ran
        let full_at = full_at.get(index).copied().flatten().unwrap_or(now + charge.each * charge.size);
        let allowed_at = full_at - charge.each * charge.size.saturating_sub(1);
        let wait = (allowed_at - now).try_into().unwrap_or(Duration::ZERO);
        return Ok(ChargeOutcome::Refused { by: charge.kind, wait, before: charged });
    }
    Ok(ChargeOutcome::Allowed(charged))
}

/// Undoes what [`charge`] counted in these limits.
pub async fn give_back(run: &impl Run, charges: &[ChargedLimit]) -> Result<(), Error> {
    let (kinds, accounts, seconds) = columns(charges);
    run.rows(GIVE_BACK, &[&kinds, &accounts, &seconds]).await.map(drop)
}

/// A pause after a message, in which no other one may be sent.
#[derive(Debug, Clone)]
pub struct MessagePause {
    /// The name of the limit.
    pub kind: &'static str,
    /// The digest of what is limited.
    pub account: Vec<u8>,
    /// The time of the message, in whole microseconds.
    pub start: OffsetDateTime,
    /// The time at which the next message may be sent.
    pub end: OffsetDateTime,
}

/// Starts a pause. Returns the time until the end of the one before it if that is not over; then
/// nothing is written.
pub async fn start_pause(tx: &Tx, pause: &MessagePause) -> Result<Option<Duration>, Error> {
    let MessagePause { kind, account, start, end } = pause;
    if tx.execute(START_PAUSE, &[kind, account, start, end]).await? > 0 {
        return Ok(None);
    }
    let ends = tx.query_opt(END_OF_PAUSE, &[kind, account]).await?.map_or(*end, |row| row.get(0));
    Ok(Some((ends - *start).try_into().unwrap_or(Duration::ZERO)))
}

/// Undoes [`start_pause`], unless another pause has started since.
pub async fn cancel_pause(tx: &Tx, pause: &MessagePause) -> Result<(), Error> {
    tx.execute(CANCEL_PAUSE, &[&pause.kind, &pause.account, &pause.end]).await.map(drop)
}

/// Counts a message. Returns the time until one is allowed if none is allowed now; then nothing is
/// written. [`give_back`] undoes it.
pub async fn charge_message(tx: &Tx, limit: &ChargedLimit, now: OffsetDateTime) -> Result<Option<Duration>, Error> {
    let ChargedLimit { kind, account, each, size } = limit;
    let (seconds, count) = (each.as_secs_f64(), f64::from(*size));
    if tx.execute(CHARGE_MESSAGE, &[kind, account, &now, &seconds, &count]).await? > 0 {
        return Ok(None);
    }
    let full_at = tx.query_opt(END_OF_PAUSE, &[kind, account]).await?.map_or(now + *each * *size, |row| row.get(0));
    let allowed_at = full_at - *each * size.saturating_sub(1);
    Ok(Some((allowed_at - now).try_into().unwrap_or(Duration::ZERO)))
}

/// Deletes limits that have been full since `before`. Returns their number.
pub async fn delete_old(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(DELETE_OLD, &[&before]).await
}

/// Remembers that accounts were signed in to from these networks.
pub async fn remember_networks(tx: &Tx, networks: &[Network], now: OffsetDateTime) -> Result<(), Error> {
    let accounts: Vec<&[u8]> = networks.iter().map(|network| network.account.as_slice()).collect();
    let digests: Vec<&[u8]> = networks.iter().map(|network| network.network.as_slice()).collect();
    tx.execute(REMEMBER_NETWORK, &[&accounts, &digests, &now]).await.map(drop)
}

/// Deletes networks from which no account was signed in to since `before`. Returns their number.
pub async fn delete_old_networks(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(DELETE_OLD_NETWORKS, &[&before]).await
}
