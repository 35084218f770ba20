//! Reads that travel together: where callers wait for a connection, one who has a connection sends the reads of
//! several callers in one write, and each gets its answer as it comes in. That saves both sides most of the cost
//! of a wake-up, which is more than the cost of a row by its key.
//!
//! Each read is a transaction of its own, with settings of its own, its own [`SessionReset`] and its own `Sync`: PostgreSQL
//! keeps them apart as it does when they come one after the other. The tails are read before the answers are
//! believed: what comes behind a transaction that left something in the session is thrown away. A read that
//! failed, was thrown away or whose driver went away is run once more alone: it only reads.

use std::fmt;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::sync::oneshot;
use tokio::time::Sleep;

use super::times::Times;
use crate::wire::pool::checkout_queue::Granted;
use crate::wire::protocol::batch::{Access, Batch, Param, Preparation, Statement};
use crate::wire::protocol::encode::{EXECUTE, SYNC, bind};
use crate::wire::protocol::error::WireError;
use crate::wire::protocol::joined_rows::RowSeparators;
use crate::wire::protocol::result_sets::ResultSets;
use crate::wire::session::connection::{SessionMode, WireConnection, is_in_doubt};
use crate::wire::session::prepared_statements::PreparedStatements;

/// The most reads that travel together.
pub(crate) const MOST: usize = 8;
/// A caller that has waited for longer is let go, to try elsewhere.
const PATIENCE: Duration = Duration::from_millis(20);
/// A read of more bytes, statements and values together, travels alone: it would have to be copied.
const SMALL: usize = 16 * 1024;

/// A copy of a batch that only reads, for another caller to send along.
pub(crate) struct PendingRead {
    /// All texts and values, one after the other.
    bytes: Vec<u8>,
    statements: Vec<PendingStatement>,
    /// The key of the main statement.
    key: u64,
}

struct PendingStatement {
    key: u64,
    text: Range<usize>,
    scope: Range<usize>,
    params: Vec<Option<Range<usize>>>,
    binary: bool,
    joined: Option<RowSeparators>,
}

/// A read, and where its answer goes.
pub(crate) type Pending = (PendingRead, oneshot::Sender<Granted>);

impl fmt::Debug for PendingRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Claims and values stay out of logs
        write!(f, "PendingRead({:x})", self.key)
    }
}

impl PendingRead {
    /// Copies a batch whose [main statement](main_of) has the key `key`; `key_of` gives the keys of the others.
    pub fn of(batch: &Batch<'_>, key: u64, key_of: impl Fn(&Statement<'_>) -> u64) -> Self {
        let mut bytes = Vec::with_capacity(size(batch));
        let mut put = |value: &[u8]| {
            let begin = bytes.len();
            bytes.extend_from_slice(value);
            begin..bytes.len()
        };
        let copy = |statement: &Statement<'_>| PendingStatement {
            key: key_of(statement),
            text: put(statement.text.as_bytes()),
            scope: put(statement.scope.as_bytes()),
            params: statement.params.iter().map(|param| param.map(&mut put)).collect(),
            binary: statement.binary,
            joined: statement.joined,
        };
        let statements = batch.statements.iter().map(copy).collect();
        Self { bytes, statements, key }
    }

    fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    fn text(&self, range: &Range<usize>) -> &str {
        // It was copied from text
        std::str::from_utf8(self.bytes(range)).unwrap_or_default()
    }

    /// Returns whether the connection has parsed all of its statements.
    fn is_known(&self, statements: &mut PreparedStatements) -> bool {
        let mut each = self.statements.iter();
        each.all(|it| statements.name(it.key, self.text(&it.text), self.text(&it.scope)).is_some())
    }

    /// Puts its statements into the write buffer. `false`: one would have to be parsed first.
    fn write(&self, out: &mut BytesMut, statements: &mut PreparedStatements) -> bool {
        self.statements.iter().all(|it| {
            let params: Vec<Param<'_>> =
                it.params.iter().map(|param| param.as_ref().map(|value| self.bytes(value))).collect();
            let (text, scope) = (self.text(&it.text), self.text(&it.scope));
            let statement = Statement { binary: it.binary, ..Statement::named(text, &params) }.scope(scope);
            write(out, statements, it.key, &statement)
        })
    }

    fn joined(&self) -> Option<(usize, RowSeparators)> {
        let mut each = self.statements.iter().enumerate();
        each.find_map(|(at, statement)| Some((at, statement.joined?)))
    }
}

/// Returns the main statement of a batch that may travel with others: its rows are gathered, all its statements are
/// prepared, and its transaction, which only reads, ends with it.
pub(crate) fn main_of<'b, 'a>(batch: &'b Batch<'a>) -> Option<&'b Statement<'a>> {
    let main = batch.statements.iter().find(|statement| statement.joined.is_some())?;
    let may_travel = batch.ends == Some(Access::ReadOnly)
        && batch.statements.iter().all(|statement| statement.preparation == Preparation::Named)
        && size(batch) <= SMALL;
    may_travel.then_some(main)
}

fn size(batch: &Batch<'_>) -> usize {
    let of = |statement: &Statement<'_>| {
        let values: usize = statement.params.iter().flatten().map(|value| value.len()).sum();
        statement.text.len() + statement.scope.len() + values
    };
    batch.statements.iter().map(of).sum()
}

/// The outcome of reads that were sent together.
enum Trip {
    /// There was no other read to send.
    Alone,
    /// The driver's own answers; `None`: its read failed or cannot be believed.
    Done(Option<ResultSets>),
    /// The connection stands still.
    Stuck,
}

/// The outcome of [`WireConnection::run_together`].
pub(crate) struct Outcome {
    /// `None`: the read did not get through in company, and the connection is of no use any more. It has to be
    /// run on another one.
    pub answers: Option<ResultSets>,
    /// PostgreSQL reported functions with properties that were not known.
    pub has_new_traits: bool,
}

impl WireConnection {
    /// Runs a read, together with those of others: `waiting` gives them, of those that the connection can send.
    /// A read that usually takes longer than `quick` travels alone.
    pub async fn run_together(
        &mut self,
        batch: &Batch<'_>,
        way: SessionMode,
        times: &Times,
        quick: Duration,
        waiting: impl FnOnce(&mut dyn FnMut(&PendingRead) -> bool) -> Vec<Pending>,
    ) -> Result<Outcome, WireError> {
        let mut has_new_traits = false;
        let main = main_of(batch).filter(|_| way.prepared && self.is_ready() && !self.in_transaction());
        let key = main.map(|main| self.statements().key(main.text, main.scope));
        if let Some(key) = key.filter(|key| times.is_quick(*key, quick)) {
            match self.drive(batch, key, way, times, &mut has_new_traits, waiting).await {
                Ok(Trip::Alone) => {}
                Ok(Trip::Done(Some(answers))) => return Ok(Outcome { answers: Some(answers), has_new_traits }),
                Ok(Trip::Done(None)) => {
                    if self.restore(way).await.is_err() {
                        return Ok(Outcome { answers: None, has_new_traits });
                    }
                }
                Ok(Trip::Stuck) => return Ok(Outcome { answers: None, has_new_traits }),
                // Perhaps for what one of the others did
                Err(error) => {
                    tracing::debug!(%error, "reads that travelled together did not get through");
                    return Ok(Outcome { answers: None, has_new_traits });
                }
            }
        }
        let begun = Instant::now();
        let (answers, verdict) = self.run(batch, way).await?;
        if let Some(key) = key {
            times.add(key, begun.elapsed());
        }
        has_new_traits |= verdict.is_some_and(|verdict| verdict.has_new_traits);
        Ok(Outcome { answers: Some(answers), has_new_traits })
    }

    /// Sends the reads of others along with its own, and hands out their answers.
    async fn drive(
        &mut self,
        batch: &Batch<'_>,
        key: u64,
        way: SessionMode,
        times: &Times,
        has_new_traits: &mut bool,
        waiting: impl FnOnce(&mut dyn FnMut(&PendingRead) -> bool) -> Vec<Pending>,
    ) -> Result<Trip, WireError> {
        if way.traits.prepares || way.traits.keeps {
            // A read could exchange the prepared statements of those behind it, or its session ends with it
            return Ok(Trip::Alone);
        }
        let tail = self.tail(way);
        let statements = self.statements();
        // Statements that are named from here on are not made way for
        statements.begin();
        let key_of = |statements: &PreparedStatements, statement: &Statement<'_>| {
            statements.key(statement.text, statement.scope)
        };
        let tail_keys: Vec<_> =
            tail.statements().map(|statement| (key_of(statements, &statement), statement)).collect();
        let is_parsed = |(key, statement): &(u64, Statement<'_>), statements: &mut PreparedStatements| match statement
            .preparation
        {
            Preparation::KeptUnnamed(text) => statements.is_unnamed(text),
            Preparation::Named | Preparation::Unnamed => {
                statements.name(*key, statement.text, statement.scope).is_some()
            }
        };
        let own: Vec<_> =
            batch.statements.iter().map(|statement| (key_of(statements, statement), *statement)).collect();
        if !own.iter().chain(&tail_keys).all(|each| is_parsed(each, statements)) {
            return Ok(Trip::Alone);
        }
        let mut admits = |read: &PendingRead| read.is_known(statements);
        let (reads, mut answers): (Vec<_>, Vec<_>) =
            waiting(&mut admits).into_iter().map(|(read, answer)| (read, Some(answer))).unzip();
        if reads.is_empty() {
            return Ok(Trip::Alone);
        }
        let write_all = |out: &mut BytesMut, statements: &mut PreparedStatements| {
            let end = |out: &mut BytesMut, statements: &mut PreparedStatements| {
                let fits = tail_keys.iter().all(|(key, statement)| write(out, statements, *key, statement));
                out.extend_from_slice(SYNC);
                fits
            };
            // The others first: the driver has to wait for all of them anyway
            reads.iter().all(|read| read.write(out, statements) && end(out, statements))
                && own.iter().all(|(key, statement)| write(out, statements, *key, statement))
                && end(out, statements)
        };
        let mut patience = pin!(tokio::time::sleep(PATIENCE));
        match while_patient(self.send_together(write_all), patience.as_mut(), &mut answers).await {
            Some(Ok(true)) => {}
            Some(Ok(false)) => return Ok(Trip::Alone),
            Some(Err(error)) => return Err(error),
            None => return Ok(Trip::Stuck),
        }
        let own_joined = own.iter().enumerate().find_map(|(at, (_, statement))| Some((at, statement.joined?)));
        let counts = reads.iter().map(|read| (read.key, read.statements.len(), read.joined()));
        let mut own_answers = None;
        let mut is_spoilt = false;
        let mut begun = Instant::now();
        for (at, (key, wanted, joins)) in counts.chain([(key, own.len(), own_joined)]).enumerate() {
            let count = wanted + tail.len();
            let receiving = self.receive_one(count, joins);
            let tally = match at == reads.len() {
                // The driver's own takes as long as it takes
                true => receiving.await?,
                false => match while_patient(receiving, patience.as_mut(), &mut answers).await {
                    Some(tally) => tally?,
                    None => return Ok(Trip::Stuck),
                },
            };
            let now = Instant::now();
            times.add(key, now - std::mem::replace(&mut begun, now));
            let mut got = tally.answers;
            if let Some(error) = tally.error {
                if is_in_doubt(&error) || got.len() >= wanted {
                    return Err(WireError::Postgres(error));
                }
                // It is run alone, and learns why
                self.forget_if_stale(key, &error);
                is_spoilt = true;
                // None of those behind it is answered here: they go on alone, at once
                answers.clear();
                continue;
            }
            let verdict = tail.verdict(&got, wanted).filter(|_| got.len() == count && !self.in_transaction());
            let Some(verdict) = verdict else { return Err(self.answer_mismatch()) };
            let was_spoilt = is_spoilt;
            *has_new_traits |= self.session().settle(verdict).has_new_traits;
            is_spoilt |= !self.session().is_clean();
            if was_spoilt {
                continue;
            }
            got.truncate(wanted);
            if at == reads.len() {
                own_answers = Some(got);
            } else if let Some(answer) = answers.get_mut(at).and_then(Option::take) {
                // Its caller may have gone away
                let _ = answer.send(Granted::CompletedStatement(got));
            }
            if is_spoilt {
                answers.clear();
            }
        }
        if is_spoilt {
            self.session().mark_dirty();
        }
        self.finish_receiving();
        Ok(Trip::Done(own_answers))
    }
}

/// Does something that the others wait for. Once they have waited long enough, they are let go, and it ends in `None`.
async fn while_patient<T>(
    work: impl Future<Output = T>,
    patience: Pin<&mut Sleep>,
    answers: &mut Vec<Option<oneshot::Sender<Granted>>>,
) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = patience => {
            answers.clear();
            None
        }
    }
}

/// Puts a statement into the write buffer. `false`: it would have to be parsed first, or its values are too large.
fn write(out: &mut BytesMut, statements: &mut PreparedStatements, key: u64, statement: &Statement<'_>) -> bool {
    let name = match statement.preparation {
        Preparation::KeptUnnamed(text) if statements.is_unnamed(text) => None,
        Preparation::KeptUnnamed(_) => return false,
        Preparation::Named | Preparation::Unnamed => match statements.name(key, statement.text, statement.scope) {
            Some(name) => Some(name),
            None => return false,
        },
    };
    let mut aside = Vec::new();
    bind(out, name, statement, &mut aside);
    out.extend_from_slice(EXECUTE);
    aside.is_empty()
}
