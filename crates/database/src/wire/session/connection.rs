//! One connection: a batch goes out, its answers come in.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::{BufMut, BytesMut};
use postgres_protocol::message::frontend;
use tokio::runtime::{self, Handle};

use super::prepared_statements::{PreparedStatements, StatementPlan};
use super::reset::{FunctionTraits, ResetCheck, SessionOrigin, SessionReset, SessionState, discard_everything};
use crate::wire::protocol::authentication::BackendKey;
use crate::wire::protocol::batch::{Access, Batch, Preparation, Statement};
use crate::wire::protocol::encode::{EXECUTE, SYNC, bind, check, message, parse, put_name};
use crate::wire::protocol::error::{PostgresError, WireError};
use crate::wire::protocol::joined_rows::{RowJoiner, RowSeparators};
use crate::wire::protocol::message_channel::{LargeValue, MessageChannel};
use crate::wire::protocol::result_sets::{ResultSets, Row, first_value};

const TERMINATE: &[u8] = b"X\0\0\0\x04";

/// A connection and what the server keeps for it.
pub(crate) struct WireConnection {
    channel: MessageChannel,
    statements: PreparedStatements,
    /// How each statement of the batch under way is sent. Kept for its memory.
    plans: Vec<StatementPlan>,
    state: ConnectionState,
    /// Whether a transaction is open.
    in_transaction: bool,
    key: BackendKey,
    made: Instant,
    home: runtime::Id,
    session: SessionState,
    /// It ended since the server's state was not what we believe, before the batch took effect.
    is_in_doubt: bool,
    /// The answers that had arrived when the last batch was broken off.
    interrupted: Option<ResultSets>,
}

/// The way in which a pool runs batches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionMode {
    /// The session is ours between two batches.
    pub prepared: bool,
    /// The known properties of the database's functions.
    pub traits: FunctionTraits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    /// Everything up to `ReadyForQuery` was read.
    Ready,
    /// The server may still have something to say.
    Busy,
    /// The connection has ended.
    Broken,
}

/// What the server did, message by message.
#[derive(Default)]
pub(crate) struct Responses {
    pub answers: ResultSets,
    parsed: usize,
    bound: usize,
    /// The first error. Everything behind the failed message is passed over by the server.
    pub error: Option<Box<PostgresError>>,
}

impl WireConnection {
    /// Takes a session that is ready.
    pub fn new(channel: MessageChannel, key: BackendKey, statements: PreparedStatements) -> Self {
        Self {
            channel,
            statements,
            plans: Vec::new(),
            state: ConnectionState::Ready,
            in_transaction: false,
            key,
            made: Instant::now(),
            home: Handle::current().id(),
            session: SessionState::default(),
            is_in_doubt: false,
            interrupted: None,
        }
    }

    /// Begins the session: from here on statements of callers may run in it.
    pub fn begin_session(&mut self, origin: SessionOrigin) {
        self.session = SessionState::new(origin);
    }

    /// Returns whether another caller may have it: it waits for a batch, outside a transaction, in a session in which
    /// nothing of the last one is left.
    pub fn is_reusable(&self) -> bool {
        self.is_ready() && !self.in_transaction && self.session.is_clean()
    }

    /// Returns whether the last batch failed for the connection's state alone, so that it can be run on another one.
    pub fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// Returns how a session ends whose reads travel together.
    pub fn tail(&self, way: SessionMode) -> SessionReset {
        self.session.tail(Access::ReadOnly, way.traits)
    }

    /// Returns the session, for reads that travel together.
    pub fn session(&mut self) -> &mut SessionState {
        &mut self.session
    }

    /// When it was opened.
    pub fn made(&self) -> Instant {
        self.made
    }

    /// The runtime that it wakes.
    pub fn home(&self) -> runtime::Id {
        self.home
    }

    /// Moves it to the runtime of the caller, `home`, as far as it can be moved. `false`: it is of no use any more, perhaps because the
    /// server has hung up.
    pub fn settle(&mut self, home: runtime::Id) -> bool {
        if self.home == home {
            return true;
        }
        let MessageChannel { stream, reader, .. } = &mut self.channel;
        match stream.move_to_current_runtime(&mut reader.space()) {
            Ok(true) => self.home = home,
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(%error, "a connection could not be moved to another runtime");
                self.state = ConnectionState::Broken;
            }
        }
        !self.is_broken()
    }

    /// Whether it waits for a batch.
    pub fn is_ready(&self) -> bool {
        self.state == ConnectionState::Ready
    }

    /// Whether it has ended.
    pub fn is_broken(&self) -> bool {
        self.state == ConnectionState::Broken
    }

    /// Whether a transaction is open, be it only to be rolled back.
    pub fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// The server's process.
    pub fn process(&self) -> i32 {
        self.key.process
    }

    /// What a cancellation needs.
    pub fn key(&self) -> BackendKey {
        self.key
    }

    /// Whether the server is still there, as far as is known without asking: it has neither hung up nor said good-bye.
    pub fn is_alive(&mut self) -> bool {
        while self.state == ConnectionState::Ready {
            match self.channel.try_next_message() {
                Ok(None) => return true,
                Ok(Some(message)) if matches!(message.tag, b'S' | b'N' | b'A') => self.channel.reader.skip(message),
                Ok(Some(_)) | Err(_) => self.state = ConnectionState::Broken,
            }
        }
        false
    }

    /// Tells the server that we go. The connection is of no use afterwards.
    pub fn terminate(&mut self) {
        if self.state == ConnectionState::Ready {
            self.channel.stream.try_write(TERMINATE);
        }
        self.state = ConnectionState::Broken;
    }

    /// Runs SQL of ours that takes no values and whose rows nobody needs; several statements are possible.
    pub async fn execute(&mut self, sql: &str) -> Result<(), WireError> {
        if sql.contains('\0') {
            return Err(WireError::ZeroByte);
        }
        self.channel.out.clear();
        // A simple query takes its place
        self.statements.forget_unnamed();
        frontend::query(sql, &mut self.channel.out).map_err(|_| WireError::TooLarge("a statement"))?;
        let tally = self.exchange(&[], 1, None).await?;
        match tally.error {
            None => Ok(()),
            Some(error) => Err(WireError::Postgres(error)),
        }
    }

    /// Runs a batch, and behind one that [ends](Batch::ending) its transaction what takes the session back; see
    /// [`PooledConnection::run`](crate::wire::PooledConnection::run). Also returns PostgreSQL's verdict on the session.
    pub async fn run(
        &mut self,
        batch: &Batch<'_>,
        way: SessionMode,
    ) -> Result<(ResultSets, Option<ResetCheck>), WireError> {
        let Some(access) = batch.ends else {
            self.session.mark_dirty();
            return Ok((self.run_wanting(batch, batch.len(), way.prepared).await?, None));
        };
        let wanted = batch.len();
        let tail = self.session.tail(access, way.traits);
        let origin = Arc::clone(&self.session.origin);
        let mut whole = batch.clone();
        if way.prepared {
            whole.statements.extend(tail.statements());
        } else {
            whole.statements.extend(discard_everything(&origin.take_role));
        }
        self.session.mark_dirty();
        let mut answers = self.run_wanting(&whole, wanted, way.prepared).await?;
        if answers.len() == wanted {
            // The tail failed, and the connection has ended
            return Ok((answers, None));
        }
        let mut verdict = None;
        if self.in_transaction {
            // Not the end that it was to be
        } else if !way.prepared {
            // The session goes back to the pooler, which lends another one next time
            self.session.discarded(way.traits);
        } else {
            let Some(found) = tail.verdict(&answers, wanted) else { return Err(self.answer_mismatch()) };
            verdict = Some(self.session.settle(found));
        }
        answers.truncate(wanted);
        Ok((answers, verdict))
    }

    /// Makes the session what it was when it began. A transaction that is open is rolled back.
    ///
    /// # Errors
    /// An error means that the connection is of no use any more: it has ended.
    pub async fn restore(&mut self, way: SessionMode) -> Result<(), WireError> {
        let outcome = self.try_to_restore(way).await;
        if outcome.is_err() {
            self.terminate();
        }
        outcome
    }

    async fn try_to_restore(&mut self, way: SessionMode) -> Result<(), WireError> {
        if self.is_reusable() {
            return Ok(());
        }
        if self.session.must_end() {
            return Err(WireError::Lost(io::ErrorKind::NotConnected.into()));
        }
        let mut batch = Batch::new();
        if self.in_transaction {
            batch.push(Statement::named("rollback", &[]));
        }
        self.run(&batch.ending(Access::ReadWrite), way).await?;
        if self.is_reusable() {
            return Ok(());
        }
        if self.state != ConnectionState::Ready || self.session.must_end() {
            return Err(WireError::Lost(io::ErrorKind::NotConnected.into()));
        }
        // Something is left that only this takes away, for the price of the parsed statements
        self.execute("discard all").await?;
        self.statements.forget_all();
        let origin = Arc::clone(&self.session.origin);
        if !origin.take_role.is_empty() {
            self.execute(&origin.take_role).await?;
        }
        let way = SessionMode { traits: way.traits.with_unknown(), ..way };
        self.run(&Batch::new().ending(Access::ReadWrite), way).await?;
        if self.is_reusable() { Ok(()) } else { Err(WireError::Lost(io::ErrorKind::NotConnected.into())) }
    }

    /// Runs a batch whose first statements are the `wanted` ones; the ones behind them take the session back.
    /// Fewer answers than statements mean that those failed, and that the connection has ended.
    async fn run_wanting(&mut self, batch: &Batch<'_>, wanted: usize, prepared: bool) -> Result<ResultSets, WireError> {
        check(batch)?;
        let is_whole = !self.in_transaction;
        let mut was_repeated = false;
        loop {
            // The end of an implicit transaction comes behind the last statement, and may fail there
            let has_ended = |answers: &ResultSets| {
                let is_end = matches!(answers.tag(wanted.wrapping_sub(1)), "COMMIT" | "ROLLBACK");
                is_end && answers.len() >= wanted && wanted < batch.len()
            };
            let attempt = self.attempt(batch, prepared).await;
            let mut tally = match (attempt, self.interrupted.take()) {
                (Ok(tally), _) => tally,
                // The server went away behind the end of the transaction, whose answer is here
                (Err(error), Some(mut answers)) if has_ended(&answers) => {
                    tracing::debug!(%error, "a session ended behind its transaction");
                    self.terminate();
                    answers.truncate(wanted);
                    return Ok(answers);
                }
                (Err(error), _) => return Err(error),
            };
            let Some(error) = tally.error else { return self.finished(batch, tally.answers) };
            if has_ended(&tally.answers) && !self.in_transaction {
                // What was wanted is done
                tracing::warn!(%error, "a session could not be taken back, and ends");
                self.terminate();
                tally.answers.truncate(wanted);
                return Ok(tally.answers);
            }
            let may_be_repeated = is_whole && !contains_commit(&tally.answers);
            if is_in_doubt(&error) {
                // The server no longer has what we believe that it has
                self.terminate();
                self.is_in_doubt = may_be_repeated;
                return Err(WireError::Postgres(error));
            }
            let is_stale = !was_repeated && may_be_repeated && self.forget_stale(&tally.answers, tally.bound, &error);
            if !is_stale {
                return Err(WireError::Postgres(error));
            }
            if self.in_transaction {
                // The batch began it, and had no more than failed in it.
                self.execute("rollback").await?;
            }
            was_repeated = true;
        }
    }

    /// Every statement has its answer, or we and the server do not mean the same.
    fn finished(&mut self, batch: &Batch<'_>, mut answers: ResultSets) -> Result<ResultSets, WireError> {
        if answers.len() != batch.len() {
            return Err(self.answer_mismatch());
        }
        answers.in_transaction = self.in_transaction;
        Ok(answers)
    }

    async fn attempt(&mut self, batch: &Batch<'_>, prepared: bool) -> Result<Responses, WireError> {
        if self.state != ConnectionState::Ready {
            return Err(WireError::Lost(io::ErrorKind::NotConnected.into()));
        }
        let aside = self.encode(batch, prepared);
        let joins = batch.statements.iter().rposition(|statement| statement.joined.is_some());
        let joins = joins.and_then(|at| Some((at, batch.statements.get(at)?.joined?)));
        let tally = self.exchange(&aside, batch.len(), joins).await?;
        if tally.error.is_some() {
            // What was behind the failed message was not parsed.
            let sent = self.plans.iter().filter(|plan| plan.parses());
            for plan in sent.skip(tally.parsed) {
                if let StatementPlan::Parse { key, .. } = plan {
                    self.statements.forget_unparsed(*key);
                }
            }
            self.statements.forget_unnamed();
        }
        Ok(tally)
    }

    /// Puts the batch into the write buffer, but for its large values.
    fn encode<'a>(&mut self, batch: &Batch<'a>, prepared: bool) -> Vec<LargeValue<'a>> {
        let out = &mut self.channel.out;
        out.clear();
        self.plans.clear();
        let statements = &mut self.statements;
        statements.begin();
        self.plans.extend(batch.statements.iter().map(|statement| match statement.preparation {
            Preparation::Named if prepared => match statements.plan(statement.text, statement.scope) {
                StatementPlan::Unnamed => statements.plan_unnamed(None),
                plan => plan,
            },
            Preparation::Named | Preparation::Unnamed => statements.plan_unnamed(None),
            Preparation::KeptUnnamed(text) => statements.plan_unnamed(Some(text)),
        }));
        // In front of everything else, so that no error keeps the server from them.
        for name in statements.obsolete_names() {
            message(out, b'C', 0, |out| {
                out.put_u8(b'S');
                put_name(out, Some(name));
            });
        }
        let mut aside = Vec::new();
        for (statement, plan) in batch.statements.iter().zip(&self.plans) {
            let name = match plan {
                StatementPlan::Known { name, .. } | StatementPlan::Parse { name, .. } => Some(*name),
                StatementPlan::Unnamed | StatementPlan::KnownUnnamed => None,
            };
            if plan.parses() {
                parse(out, name, statement.text);
            }
            bind(out, name, statement, &mut aside);
            out.put_slice(EXECUTE);
        }
        out.put_slice(SYNC);
        aside
    }

    /// Sends what `write` puts into the write buffer: reads for several callers, each with an end of its own. `false`: nothing is to be
    /// sent. The answers to each are for [`receive_one`](Self::receive_one) to read, and then it has to be told that these were
    /// [`all`](Self::finish_receiving).
    pub async fn send_together(
        &mut self,
        write: impl FnOnce(&mut BytesMut, &mut PreparedStatements) -> bool,
    ) -> Result<bool, WireError> {
        self.channel.out.clear();
        if !write(&mut self.channel.out, &mut self.statements) {
            self.channel.out.clear();
            return Ok(false);
        }
        // Should we be dropped before everything was heard, this is what remains.
        self.state = ConnectionState::Busy;
        self.session.mark_dirty();
        match self.channel.send(&[]).await {
            Ok(()) => Ok(true),
            Err(error) => {
                self.state = ConnectionState::Broken;
                Err(WireError::Lost(error))
            }
        }
    }

    /// Reads the answers up to the next `ReadyForQuery`.
    pub async fn receive_one(
        &mut self,
        statements: usize,
        joins: Option<(usize, RowSeparators)>,
    ) -> Result<Responses, WireError> {
        let outcome = self.listen(statements, joins).await;
        if matches!(outcome, Err(WireError::Lost(_) | WireError::Postgres(_))) {
            self.state = ConnectionState::Broken;
        }
        outcome
    }

    /// The server and we do not mean the same: nothing that it says can be believed any more.
    pub fn answer_mismatch(&mut self) -> WireError {
        self.state = ConnectionState::Broken;
        WireError::Protocol("more or fewer answers than statements")
    }

    /// A statement that was parsed earlier failed: if that may be why, it is forgotten.
    pub fn forget_if_stale(&mut self, key: u64, error: &PostgresError) {
        if means_stale(error, true) {
            self.statements.forget(key);
        }
    }

    /// Everything that was sent together is answered.
    pub fn finish_receiving(&mut self) {
        self.state = ConnectionState::Ready;
        self.channel.reader.shrink();
    }

    /// The statements that the server keeps.
    pub fn statements(&mut self) -> &mut PreparedStatements {
        &mut self.statements
    }

    /// Sends what was collected and reads everything up to `ReadyForQuery`.
    async fn exchange(
        &mut self,
        aside: &[LargeValue<'_>],
        statements: usize,
        joins: Option<(usize, RowSeparators)>,
    ) -> Result<Responses, WireError> {
        if self.state != ConnectionState::Ready {
            return Err(WireError::Lost(io::ErrorKind::NotConnected.into()));
        }
        // Should we be dropped at one of the awaits below, this is what remains.
        self.state = ConnectionState::Busy;
        // A server that hangs up has often said why, which is still there to be read.
        let sent = self.channel.send(aside).await;
        let outcome = self.listen(statements, joins).await;
        match (&outcome, sent) {
            (Ok(_), Ok(())) => {
                self.state = ConnectionState::Ready;
                self.channel.reader.shrink();
                outcome
            }
            (Ok(_) | Err(WireError::Lost(_)), Err(error)) => {
                self.state = ConnectionState::Broken;
                Err(WireError::Lost(error))
            }
            (Err(WireError::Lost(_) | WireError::Postgres(_)), _) => {
                self.state = ConnectionState::Broken;
                outcome
            }
            // The server is in the middle of something: it stays busy, and is told to stop.
            (Err(_), _) => outcome,
        }
    }

    async fn listen(
        &mut self,
        statements: usize,
        joins: Option<(usize, RowSeparators)>,
    ) -> Result<Responses, WireError> {
        let mut tally = Responses { answers: ResultSets::with_capacity(statements), ..Responses::default() };
        let mut joiner = joins.map(|(at, separators)| (at, RowJoiner::new(separators)));
        let outcome = self.receive_into(&mut tally, &mut joiner).await;
        tally.answers.joined_rows = joiner.map(|(_, joiner)| joiner.finish());
        match outcome {
            Ok(()) => Ok(tally),
            Err(error) => {
                self.interrupted = Some(tally.answers);
                Err(error)
            }
        }
    }

    async fn receive_into(
        &mut self,
        tally: &mut Responses,
        joiner: &mut Option<(usize, RowJoiner)>,
    ) -> Result<(), WireError> {
        loop {
            let message = self.channel.message().await?;
            let reader = &mut self.channel.reader;
            match message.tag {
                b'D' if joiner.as_ref().is_some_and(|(at, _)| *at == tally.answers.len()) => {
                    if let Some((_, joiner)) = joiner {
                        joiner.add(first_value(reader.body(message))?);
                    }
                }
                b'D' => {
                    tally.answers.add_row(Row::new(reader.take(message))?);
                    continue;
                }
                b'1' => tally.parsed += 1,
                b'2' => tally.bound += 1,
                b'C' => {
                    let body = reader.body(message);
                    tally.answers.complete(body.strip_suffix(&[0]).unwrap_or(body));
                }
                b'I' => tally.answers.complete(b""),
                b'E' => {
                    let error = Box::new(PostgresError::read(reader.body(message)));
                    if error.is_fatal() {
                        return Err(WireError::Postgres(error));
                    }
                    tally.error.get_or_insert(error);
                }
                b'Z' => {
                    self.in_transaction = reader.body(message) != b"I";
                    reader.skip(message);
                    return Ok(());
                }
                b'N' => tally.answers.notices += 1,
                // A notification; the end of a close; no rows, and what rows look like; the value of a setting.
                b'A' | b'3' | b'n' | b'T' | b'S' => {}
                b'G' | b'H' | b'W' => return Err(WireError::Protocol("`copy` is not possible here")),
                _ => return Err(WireError::Protocol("a message that has no place in an answer")),
            }
            self.channel.reader.skip(message);
        }
    }

    /// Whether the failed statement may have failed for having been parsed by an earlier batch, before something it depends on
    /// changed. Then what the batch took from earlier ones is forgotten.
    fn forget_stale(&mut self, answers: &ResultSets, bound: usize, error: &PostgresError) -> bool {
        let failed = answers.len();
        let Some(StatementPlan::Known { key, name }) = self.plans.get(failed).copied() else { return false };
        let is_new = self.plans.contains(&StatementPlan::Parse { key, name });
        if is_new || !means_stale(error, bound <= failed) {
            return false;
        }
        for plan in &self.plans {
            if let StatementPlan::Known { key, .. } = plan {
                self.statements.forget(*key);
            }
        }
        true
    }
}

impl fmt::Debug for WireConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, in_transaction, .. } = self;
        write!(f, "Connection({}, {state:?}, in_transaction: {in_transaction})", self.key.process)
    }
}

/// Whether the error can come from a statement that was parsed under an earlier schema.
fn means_stale(error: &PostgresError, while_binding: bool) -> bool {
    match &*error.code {
        // "cached plan must not change result type".
        "0A000" => true,
        // Permissions are looked up each time, and row level security refuses many a request.
        "42501" => false,
        "XX000" => error.message.starts_with("cache lookup failed"),
        // A value that does not fit the type that its column had.
        "22P02" | "22003" | "22007" | "22008" => while_binding,
        code => code.starts_with("42"),
    }
}

/// Returns whether the server does not have the statements that we believe it has, or no longer understands us. A
/// function may raise the same codes itself: then the batch costs a connection.
pub(crate) fn is_in_doubt(error: &PostgresError) -> bool {
    matches!(&*error.code, "26000" | "42P05" | "08P01")
}

/// Whether something of the batch remains in spite of its error.
fn contains_commit(answers: &ResultSets) -> bool {
    (0..answers.len()).any(|statement| matches!(answers.tag(statement), "COMMIT" | "PREPARE TRANSACTION"))
}
