//! Reads that travel together.
//!
//! When all connections are in use, callers wait, and whoever gets a connection next finds others waiting behind him. Where all of them want
//! no more than a quick read, he takes theirs along: one write carries all, PostgreSQL works through them without falling asleep in between,
//! and each gets his answer as it comes in. That saves both sides most of what a wake-up costs, which is more than a row by its key does.
//!
//! Each read is a transaction of its own (it ends with its own `Sync`), in settings of its own. Before any of them is known to have gone
//! well, nothing is known of the settings behind it; so whatever differs anywhere among them and the session is set by each of them, and
//! everything else is the same for all ([`Party`]). A read that fails in company, or whose driver went away, is run once more alone: it
//! only reads.

use std::fmt;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::sync::oneshot;
use tokio::time::Sleep;

use super::answers::Answers;
use super::batch::{Batch, Kind, Param, Statement};
use super::beginning::Beginning;
use super::connection::Connection;
use super::encode::{EXECUTE, SYNC, bind, parse};
use super::error::WireError;
use super::gathered::Joining;
use super::held::{Change, Within, is_own};
use super::shelf::Granted;
use super::statements::{Plan, Statements};
use super::times::Times;

/// How many reads travel together at most.
pub(super) const MOST: usize = 8;
/// Who waits for longer is let go, to try elsewhere.
const PATIENCE: Duration = Duration::from_millis(20);
/// A read of more bytes, statement and settings included, travels alone: they would have to be copied.
const SMALL: usize = 16 * 1024;

/// A read, taken along by somebody else: a copy of a batch.
pub(super) struct Rider {
    /// All texts and values, one after the other.
    bytes: Vec<u8>,
    text: Range<usize>,
    scope: Range<usize>,
    params: Vec<Option<Range<usize>>>,
    settings: Vec<(Range<usize>, Range<usize>)>,
    unseen: Vec<Range<usize>>,
    key: u64,
    binary: bool,
    gathered: Option<Joining>,
}

/// A rider, and where the answer goes.
pub(super) type Riding = (Rider, oneshot::Sender<Granted>);

impl fmt::Debug for Rider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Claims and values are nobody's business
        write!(f, "Rider({:x})", self.key)
    }
}

impl Rider {
    /// Copies a batch that may travel with others: one statement that is prepared, with small values.
    pub fn of(batch: &Batch<'_>, key: u64) -> Option<Self> {
        let statement = only(batch)?;
        let mut bytes = Vec::with_capacity(statement.text.len() + 1024);
        let mut put = |value: &[u8]| {
            let begin = bytes.len();
            bytes.extend_from_slice(value);
            begin..bytes.len()
        };
        let (text, scope) = (put(statement.text.as_bytes()), put(statement.scope.as_bytes()));
        let params = statement.params.iter().map(|param| param.map(&mut put)).collect();
        let settings = batch.within.settings.iter();
        let settings = settings.map(|(name, value)| (put(name.as_bytes()), put(value.as_bytes()))).collect();
        let unseen = batch.within.unseen.iter().map(|name| put(name.as_bytes())).collect();
        let Statement { binary, gathered, .. } = *statement;
        Some(Self { bytes, text, scope, params, settings, unseen, key, binary, gathered })
    }

    fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    fn str(&self, range: &Range<usize>) -> &str {
        // It was copied from text
        std::str::from_utf8(self.bytes(range)).unwrap_or_default()
    }

    fn params(&self) -> Vec<Param<'_>> {
        self.params.iter().map(|param| param.as_ref().map(|value| self.bytes(value))).collect()
    }

    fn statement<'a>(&'a self, params: &'a [Param<'a>]) -> Statement<'a> {
        let (text, scope) = (self.str(&self.text), self.str(&self.scope));
        let Self { binary, gathered, .. } = *self;
        Statement { text, scope, params, kind: Kind::Named, binary, gathered }
    }

    fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings.iter().map(|(name, value)| (self.str(name), self.str(value)))
    }
}

/// The only statement of a batch that may travel with others.
pub(super) fn only<'b, 'a>(batch: &'b Batch<'a>) -> Option<&'b Statement<'a>> {
    let [statement] = batch.statements.as_slice() else { return None };
    let values: usize = statement.params.iter().flatten().map(|value| value.len()).sum();
    let settings: usize = batch.within.settings.iter().map(|(_, value)| value.len()).sum();
    let size = statement.text.len() + values + settings;
    let fits = statement.kind == Kind::Named && size <= SMALL && !batch.restores && batch.place == 0;
    fits.then_some(statement)
}

/// What those who travel together have to have in common: the same settings but for the values of an application's own, all of which but for
/// those the session has already.
struct Party<'a> {
    within: Within<'a>,
    /// Names of the settings that not everybody has alike, the session included: each sets them for himself.
    differing: Vec<&'a str>,
}

impl<'a> Party<'a> {
    /// The driver alone. `None`: what his batch changes of the session is for him alone.
    fn of(within: Within<'a>, change: &Change<'_>) -> Option<Self> {
        if !change.is_of_own_settings() {
            return None;
        }
        let differing =
            within.settings.iter().map(|(name, _)| *name).filter(|name| change.names().any(|it| it == *name));
        Some(Self { within, differing: differing.collect() })
    }

    /// Takes somebody in, if he fits.
    fn admits(&mut self, rider: &Rider) -> bool {
        let is_alike = rider.settings.len() == self.within.settings.len()
            && rider
                .settings()
                .zip(self.within.settings)
                .all(|((name, value), (own, wanted))| name == *own && (value == *wanted || is_own(name)))
            && rider.unseen.len() == self.within.unseen.len()
            && rider.unseen.iter().zip(self.within.unseen).all(|(name, own)| rider.str(name) == *own);
        if is_alike {
            for ((_, value), (name, wanted)) in rider.settings().zip(self.within.settings) {
                if value != *wanted && !self.differing.contains(name) {
                    self.differing.push(name);
                }
            }
        }
        is_alike
    }

    /// What a member sets.
    fn values<'b>(&self, settings: impl Iterator<Item = (&'b str, &'b str)>) -> Vec<(&'b str, &'b str)> {
        settings.filter(|(name, _)| self.differing.contains(name)).collect()
    }
}

/// What became of a company.
enum Trip {
    /// There was nobody to drive for.
    Alone,
    /// The driver's own answers; `None`: his read failed.
    Done(Option<Answers>),
    /// The connection stands still or is broken.
    Stuck,
}

impl Connection {
    /// Runs a read, together with those of others: `waiting` gives them, of those that it is told will do. Whatever usually takes longer than
    /// `quick` travels alone.
    ///
    /// `None`: in company it did not get through, and the connection is of no use any more; the read has to be run on another.
    pub async fn run_together(
        &mut self,
        batch: &Batch<'_>,
        times: &Times,
        quick: Duration,
        waiting: impl FnOnce(&mut dyn FnMut(&Rider) -> bool) -> Vec<Riding>,
    ) -> Result<Option<Answers>, WireError> {
        let Some(statement) = only(batch).filter(|_| self.is_ready() && !self.in_transaction()) else {
            return self.run(batch, true).await.map(Some);
        };
        let key = self.statements().key(statement.text, statement.scope);
        if times.is_quick(key, quick) {
            let beginning = self.beginning();
            match self.drive(batch, statement, key, &beginning, times, waiting).await {
                Ok(Trip::Alone) => {}
                Ok(Trip::Done(Some(answers))) => return Ok(Some(answers)),
                // One of the others may have changed the session, though nobody expected it to
                Ok(Trip::Done(None)) => self.restore(true).await?,
                Ok(Trip::Stuck) => return Ok(None),
                // Perhaps for what one of the others did
                Err(error) => {
                    tracing::debug!(%error, "reads that travelled together did not get through");
                    return Ok(None);
                }
            }
        }
        let begun = Instant::now();
        let outcome = self.run(batch, true).await;
        if outcome.is_ok() {
            times.add(key, begun.elapsed());
        }
        outcome.map(Some)
    }

    /// Drives for others too.
    async fn drive(
        &mut self,
        batch: &Batch<'_>,
        statement: &Statement<'_>,
        key: u64,
        beginning: &Beginning,
        times: &Times,
        waiting: impl FnOnce(&mut dyn FnMut(&Rider) -> bool) -> Vec<Riding>,
    ) -> Result<Trip, WireError> {
        let change = self.change(batch.within, beginning);
        let Some(mut party) = Party::of(batch.within, &change).filter(|_| !self.is_as_begun()) else {
            return Ok(Trip::Alone);
        };
        let statements = self.statements();
        // What is named from here on is not made way for
        statements.begin();
        if statements.name(key, statement.text, statement.scope).is_none() {
            return Ok(Trip::Alone);
        }
        let mut admits = |rider: &Rider| {
            statements.name(rider.key, rider.str(&rider.text), rider.str(&rider.scope)).is_some() && party.admits(rider)
        };
        let (riders, mut answers): (Vec<_>, Vec<_>) =
            waiting(&mut admits).into_iter().map(|(rider, answer)| (rider, Some(answer))).unzip();
        if riders.is_empty() {
            return Ok(Trip::Alone);
        }
        // The riders first: the driver has to wait for all of them anyway
        let mut values: Vec<_> = riders.iter().map(|rider| party.values(rider.settings())).collect();
        values.push(party.values(batch.within.settings.iter().copied()));
        let changes: Vec<_> = values.iter().map(|values| Change::setting(values)).collect();
        let mut parsed = None;
        let write = |out: &mut BytesMut, statements: &mut Statements| {
            let set = match changes.first().map_or("", Change::set) {
                "" => None,
                set => match statements.plan(set, "") {
                    Plan::Known { name, .. } => Some(name),
                    Plan::Parse { key, name } => {
                        parsed = Some(key);
                        parse(out, Some(name), set);
                        out.extend_from_slice(SYNC);
                        Some(name)
                    }
                    Plan::Unnamed => return false,
                },
            };
            let fits = riders.iter().zip(&changes).all(|(rider, change)| {
                let params = rider.params();
                write_one(out, statements, rider.key, &rider.statement(&params), set, change)
            });
            fits && changes.last().is_some_and(|change| write_one(out, statements, key, statement, set, change))
        };
        let mut patience = pin!(tokio::time::sleep(PATIENCE));
        let sent = while_patient(self.send_together(write), patience.as_mut(), &mut answers).await;
        let is_sent = match sent {
            Some(sent) => sent?,
            None => return Ok(Trip::Stuck),
        };
        if let Some(key) = parsed {
            let is_parsed = match is_sent {
                true => match while_patient(self.hear_one(0, None), patience.as_mut(), &mut answers).await {
                    Some(tally) => tally?.error.is_none(),
                    None => return Ok(Trip::Stuck),
                },
                false => false,
            };
            if !is_parsed {
                // Then nobody's read goes well, and all try alone
                self.statements().unlearn(key);
            }
        }
        if !is_sent {
            return Ok(Trip::Alone);
        }
        let mut own = None;
        let mut begun = Instant::now();
        let reads = riders.iter().map(|rider| (rider.key, rider.gathered)).chain([(key, statement.gathered)]);
        for ((at, (key, gathered)), change) in reads.enumerate().zip(&changes) {
            let count = change.len() + 1;
            // By one of those before
            let is_spoilt = self.has_changed();
            let hearing = self.hear_one(count, gathered);
            let tally = match at == riders.len() {
                // The driver's own takes as long as it takes
                true => hearing.await?,
                false => match while_patient(hearing, patience.as_mut(), &mut answers).await {
                    Some(tally) => tally?,
                    None => return Ok(Trip::Stuck),
                },
            };
            let now = Instant::now();
            times.add(key, now - std::mem::replace(&mut begun, now));
            let mut got = tally.answers;
            if let Some(error) = tally.error {
                // Tries alone, and learns why
                self.forget_if_stale(key, &error);
                continue;
            }
            if got.len() != count || self.in_transaction() {
                return Err(self.misunderstood());
            }
            self.keep(change);
            if is_spoilt {
                continue;
            }
            got.forget(0..change.len());
            if at == riders.len() {
                own = Some(got);
            } else if let Some(answer) = answers.get_mut(at).and_then(Option::take) {
                // Gone, perhaps
                let _ = answer.send(Granted::Answer(got));
            }
        }
        self.heard_all();
        Ok(Trip::Done(own))
    }
}

/// Does something that riders wait for, until they have waited long enough: then they are let go. `None`: it is not done by then.
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

/// Puts a read into the write buffer, with what it sets before. `false`: it would have to be parsed first, or its values are too large.
fn write_one(
    out: &mut BytesMut,
    statements: &mut Statements,
    key: u64,
    statement: &Statement<'_>,
    set: Option<u32>,
    change: &Change<'_>,
) -> bool {
    let Some(name) = statements.name(key, statement.text, statement.scope) else { return false };
    let mut aside = Vec::new();
    let params = change.params();
    if !params.is_empty() {
        bind(out, set, &Statement::named(change.set(), &params), &mut aside);
        out.extend_from_slice(EXECUTE);
    }
    bind(out, Some(name), statement, &mut aside);
    out.extend_from_slice(EXECUTE);
    out.extend_from_slice(SYNC);
    aside.is_empty()
}
