//! One connection: a batch goes out, its answers come in.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::{BufMut, BytesMut};
use postgres_protocol::message::frontend;
use tokio::runtime::{self, Handle};

use super::answers::{Answers, Row, first_value};
use super::authentication::SessionKey;
use super::batch::{Batch, Kind};
use super::beginning::Beginning;
use super::channel::{Aside, Channel};
use super::encode::{EXECUTE, SYNC, bind, check, message, parse, put_name};
use super::error::{PostgresError, WireError};
use super::gathered::{Gathering, Joining};
use super::held::{Change, Held, Within};
use super::reported::Reported;
use super::statements::{Plan, Statements};

const TERMINATE: &[u8] = b"X\0\0\0\x04";

/// A connection and what the server keeps for it.
pub(super) struct Connection {
    channel: Channel,
    statements: Statements,
    /// How each statement of the batch under way is sent. Kept for its memory.
    plans: Vec<Plan>,
    state: State,
    /// Whether a transaction is open.
    in_transaction: bool,
    key: SessionKey,
    made: Instant,
    home: runtime::Id,
    beginning: Arc<Beginning>,
    held: Held,
    /// How many statements of the last batch that failed were done before.
    failed: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Everything up to `ReadyForQuery` was read.
    Ready,
    /// The server may still have something to say.
    Busy,
    /// The connection has ended.
    Broken,
}

/// What the server did, message by message.
#[derive(Default)]
pub(super) struct Tally {
    pub answers: Answers,
    parsed: usize,
    bound: usize,
    /// The first error. Everything behind the failed message is passed over by the server.
    pub error: Option<Box<PostgresError>>,
}

impl Connection {
    /// Takes a session that is ready.
    pub fn new(channel: Channel, key: SessionKey, statements: Statements) -> Self {
        Self {
            channel,
            statements,
            plans: Vec::new(),
            state: State::Ready,
            in_transaction: false,
            key,
            made: Instant::now(),
            home: Handle::current().id(),
            beginning: Arc::default(),
            held: Held::default(),
            failed: 0,
        }
    }

    /// What the session began with.
    pub fn beginning(&self) -> Arc<Beginning> {
        Arc::clone(&self.beginning)
    }

    /// Says what the session began with.
    pub fn begin_with(&mut self, beginning: Beginning) {
        self.beginning = Arc::new(beginning);
        self.channel.reported.begin();
    }

    /// Whether the session's settings are known to differ from those that it should have.
    pub fn has_changed(&self) -> bool {
        self.channel.reported.has_changed()
    }

    /// The session has what it began with.
    pub fn begins_anew(&mut self) {
        self.held.clear();
    }

    /// What the server said of the session's settings.
    pub fn reported(&mut self) -> &mut Reported {
        &mut self.channel.reported
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
        let Channel { stream, reader, .. } = &mut self.channel;
        match stream.register_here(&mut reader.space()) {
            Ok(true) => self.home = home,
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(%error, "a connection could not be moved to another runtime");
                self.state = State::Broken;
            }
        }
        !self.is_broken()
    }

    /// Whether it waits for a batch.
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Whether it has ended.
    pub fn is_broken(&self) -> bool {
        self.state == State::Broken
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
    pub fn key(&self) -> SessionKey {
        self.key
    }

    /// Whether the server is still there, as far as is known without asking: it has neither hung up nor said good-bye.
    pub fn is_alive(&mut self) -> bool {
        while self.state == State::Ready {
            match self.channel.message_now() {
                Ok(None) => return true,
                Ok(Some(message)) if matches!(message.tag, b'S' | b'N' | b'A') => self.channel.reader.skip(message),
                Ok(Some(_)) | Err(_) => self.state = State::Broken,
            }
        }
        false
    }

    /// Tells the server that we go. The connection is of no use afterwards.
    pub fn say_goodbye(&mut self) {
        if self.state == State::Ready {
            self.channel.stream.write_now(TERMINATE);
        }
        self.state = State::Broken;
    }

    /// Runs SQL of ours that takes no values and whose rows nobody needs; several statements are possible.
    pub async fn execute(&mut self, sql: &str) -> Result<(), WireError> {
        if sql.contains('\0') {
            return Err(WireError::ZeroByte);
        }
        self.channel.out.clear();
        frontend::query(sql, &mut self.channel.out).map_err(|_| WireError::TooLarge("a statement"))?;
        let tally = self.converse(&[], 1, None).await?;
        // Nobody asks for more than the end of a transaction that came to nothing
        self.held.undone();
        match tally.error {
            None => Ok(()),
            Some(error) => Err(WireError::Postgres(error)),
        }
    }

    /// Runs a batch in its settings; see [`Lease::run`](super::Lease::run).
    pub async fn run(&mut self, batch: &Batch<'_>, prepared: bool) -> Result<Answers, WireError> {
        let now = Instant::now();
        if self.in_transaction {
            return self.run_around(batch, &Change::default(), prepared, now).await;
        }
        let beginning = self.beginning();
        if !prepared {
            return self.run_around(batch, &Change::local(batch.within), prepared, now).await;
        }
        let change = self.held.change(batch.within, &beginning, now);
        match self.run_around(batch, &change, prepared, now).await {
            // Somebody took the right to set anything from the roles: the one that the connection began with has it
            Err(error)
                if (batch.place..batch.place + change.len()).contains(&self.failed)
                    && is_about_set_config(&error)
                    && self.held.rises() =>
            {
                if self.in_transaction {
                    self.execute("rollback").await?;
                }
                let change = self.held.change(batch.within, &beginning, now);
                self.run_around(batch, &change, prepared, now).await
            }
            outcome => outcome,
        }
    }

    /// Runs a batch as it is, in whatever settings the session has.
    pub async fn run_plain(&mut self, batch: &Batch<'_>, prepared: bool) -> Result<Answers, WireError> {
        self.run_wanting(batch, batch.len(), prepared).await
    }

    /// Runs a batch with what has to be set before it, and what brings back the beginning behind it.
    async fn run_around(
        &mut self,
        batch: &Batch<'_>,
        change: &Change<'_>,
        prepared: bool,
        now: Instant,
    ) -> Result<Answers, WireError> {
        let beginning = self.beginning();
        let (params, settings) = (change.params(), beginning.params());
        let mut whole = Cow::Borrowed(batch);
        let set = change.len();
        if set > 0 {
            whole.to_mut().statements.splice(batch.place..batch.place, change.statements(&params));
        }
        let wanted = whole.len();
        if batch.restores {
            whole = Cow::Owned(beginning.behind(&whole, &settings));
        }
        let outcome = self.run_wanting(&whole, wanted, prepared).await;
        match outcome {
            Ok(mut answers) => {
                let rolled_back = (0..answers.len()).any(|statement| answers.tag(statement) == "ROLLBACK");
                if batch.restores {
                    self.held.clear();
                } else if prepared {
                    self.held.done(change, self.in_transaction, rolled_back, now);
                    self.channel.reported.accept(change.names());
                }
                answers.forget(batch.place..batch.place + set);
                Ok(answers)
            }
            Err(error) => {
                self.held.undone();
                Err(error)
            }
        }
    }

    /// Runs a batch whose first statements are the `wanted` ones; what stands behind them is for the session.
    async fn run_wanting(&mut self, batch: &Batch<'_>, wanted: usize, prepared: bool) -> Result<Answers, WireError> {
        check(batch)?;
        let is_whole = !self.in_transaction;
        let tally = self.attempt(batch, prepared).await?;
        let Some(error) = tally.error else { return self.finished(batch, tally.answers) };
        if tally.answers.len() >= wanted && has_committed(&tally.answers) && !self.in_transaction {
            // What was wanted is done. Nobody else may have the session as it is now
            tracing::warn!(%error, "a session did not get its settings back, and ends");
            self.say_goodbye();
            return Ok(tally.answers);
        }
        if !(self.forget_stale(&tally.answers, tally.bound, &error) && is_whole && !has_committed(&tally.answers)) {
            return Err(WireError::Postgres(error));
        }
        if self.in_transaction {
            // The batch began it, and had no more than failed in it.
            self.execute("rollback").await?;
        }
        let tally = self.attempt(batch, prepared).await?;
        match tally.error {
            None => self.finished(batch, tally.answers),
            Some(error) => Err(WireError::Postgres(error)),
        }
    }

    /// Every statement has its answer, or we and the server do not mean the same.
    fn finished(&mut self, batch: &Batch<'_>, mut answers: Answers) -> Result<Answers, WireError> {
        if answers.len() != batch.len() {
            return Err(self.misunderstood());
        }
        answers.in_transaction = self.in_transaction;
        Ok(answers)
    }

    async fn attempt(&mut self, batch: &Batch<'_>, prepared: bool) -> Result<Tally, WireError> {
        if self.state != State::Ready {
            return Err(WireError::Lost(io::ErrorKind::NotConnected.into()));
        }
        let aside = self.encode(batch, prepared);
        let gathers = batch.statements.iter().rposition(|statement| statement.gathered.is_some());
        let gathers = gathers.and_then(|at| Some((at, batch.statements.get(at)?.gathered?)));
        let tally = self.converse(&aside, batch.len(), gathers).await?;
        if tally.error.is_some() {
            self.failed = tally.answers.len();
            // What was behind the failed message was not parsed.
            let sent = self.plans.iter().filter(|plan| !matches!(plan, Plan::Known { .. }));
            for plan in sent.skip(tally.parsed) {
                if let Plan::Parse { key, .. } = plan {
                    self.statements.unlearn(*key);
                }
            }
        }
        Ok(tally)
    }

    /// Puts the batch into the write buffer, but for its large values.
    fn encode<'a>(&mut self, batch: &Batch<'a>, prepared: bool) -> Vec<Aside<'a>> {
        let out = &mut self.channel.out;
        out.clear();
        self.plans.clear();
        let statements = &mut self.statements;
        statements.begin();
        self.plans.extend(batch.statements.iter().map(|statement| match statement.kind {
            Kind::Named if prepared => statements.plan(statement.text, statement.scope),
            Kind::Named | Kind::Unnamed => Plan::Unnamed,
        }));
        // In front of everything else, so that no error keeps the server from them.
        for name in statements.obsolete() {
            message(out, b'C', 0, |out| {
                out.put_u8(b'S');
                put_name(out, Some(name));
            });
        }
        let mut aside = Vec::new();
        for (statement, plan) in batch.statements.iter().zip(&self.plans) {
            let name = match plan {
                Plan::Known { name, .. } | Plan::Parse { name, .. } => Some(*name),
                Plan::Unnamed => None,
            };
            if !matches!(plan, Plan::Known { .. }) {
                parse(out, name, statement.text);
            }
            bind(out, name, statement, &mut aside);
            out.put_slice(EXECUTE);
        }
        out.put_slice(SYNC);
        aside
    }

    /// Sends what `write` puts into the write buffer: reads for several callers, each with an end of its own. `false`: nothing is to be
    /// sent. The answers to each are for [`hear_one`](Self::hear_one) to read, and then it has to be told that these were
    /// [`all`](Self::heard_all).
    pub async fn send_together(
        &mut self,
        write: impl FnOnce(&mut BytesMut, &mut Statements) -> bool,
    ) -> Result<bool, WireError> {
        self.channel.out.clear();
        if !write(&mut self.channel.out, &mut self.statements) {
            self.channel.out.clear();
            return Ok(false);
        }
        // Should we be dropped before everything was heard, this is what remains.
        self.state = State::Busy;
        match self.channel.send(&[]).await {
            Ok(()) => Ok(true),
            Err(error) => {
                self.state = State::Broken;
                Err(WireError::Lost(error))
            }
        }
    }

    /// Reads the answers up to the next `ReadyForQuery`.
    pub async fn hear_one(&mut self, statements: usize, gathered: Option<Joining>) -> Result<Tally, WireError> {
        let gathers = gathered.map(|joining| (statements.saturating_sub(1), joining));
        let outcome = self.listen(statements, gathers).await;
        if matches!(outcome, Err(WireError::Lost(_) | WireError::Postgres(_))) {
            self.state = State::Broken;
        }
        outcome
    }

    /// The server and we do not mean the same: nothing that it says can be believed any more.
    pub fn misunderstood(&mut self) -> WireError {
        self.state = State::Broken;
        WireError::Protocol("more or fewer answers than statements")
    }

    /// A statement that was parsed earlier failed: if that may be why, it is forgotten.
    pub fn forget_if_stale(&mut self, key: u64, error: &PostgresError) {
        match means_stale(error, true) {
            true if error.code == "26000" => self.statements.forget_all(),
            true => self.statements.forget(key),
            false => {}
        }
    }

    /// Whether the role of the beginning has to set everything.
    pub fn is_as_begun(&self) -> bool {
        self.held.is_as_begun()
    }

    /// Everything that was sent together is answered.
    pub fn heard_all(&mut self) {
        self.state = State::Ready;
        self.channel.reader.shrink();
    }

    /// The statements that the server keeps.
    pub fn statements(&mut self) -> &mut Statements {
        &mut self.statements
    }

    /// What has to be set for a batch, as far as is known now.
    pub fn change<'a>(&self, within: Within<'a>, beginning: &'a Beginning) -> Change<'a> {
        self.held.change(within, beginning, Instant::now())
    }

    /// A batch that made this change has committed.
    pub fn keep(&mut self, change: &Change<'_>) {
        self.held.done(change, false, false, Instant::now());
    }

    /// Sends what was collected and reads everything up to `ReadyForQuery`.
    async fn converse(
        &mut self,
        aside: &[Aside<'_>],
        statements: usize,
        gathers: Option<(usize, Joining)>,
    ) -> Result<Tally, WireError> {
        if self.state != State::Ready {
            return Err(WireError::Lost(io::ErrorKind::NotConnected.into()));
        }
        // Should we be dropped at one of the awaits below, this is what remains.
        self.state = State::Busy;
        // A server that hangs up has often said why, which is still there to be read.
        let sent = self.channel.send(aside).await;
        let outcome = self.listen(statements, gathers).await;
        match (&outcome, sent) {
            (Ok(_), Ok(())) => {
                self.state = State::Ready;
                self.channel.reader.shrink();
                outcome
            }
            (Ok(_) | Err(WireError::Lost(_)), Err(error)) => {
                self.state = State::Broken;
                Err(WireError::Lost(error))
            }
            (Err(WireError::Lost(_) | WireError::Postgres(_)), _) => {
                self.state = State::Broken;
                outcome
            }
            // The server is in the middle of something: it stays busy, and is told to stop.
            (Err(_), _) => outcome,
        }
    }

    async fn listen(&mut self, statements: usize, gathers: Option<(usize, Joining)>) -> Result<Tally, WireError> {
        let mut tally = Tally { answers: Answers::with_capacity(statements), ..Tally::default() };
        let mut gathering = gathers.map(|(at, joining)| (at, Gathering::new(joining)));
        loop {
            let message = self.channel.message().await?;
            let reader = &mut self.channel.reader;
            match message.tag {
                b'D' if gathering.as_ref().is_some_and(|(at, _)| *at == tally.answers.len()) => {
                    if let Some((_, gathering)) = &mut gathering {
                        gathering.add(first_value(reader.body(message))?);
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
                    tally.answers.gathered = gathering.map(|(_, gathering)| gathering.finish());
                    return Ok(tally);
                }
                b'N' => tally.answers.notices += 1,
                b'S' => self.channel.reported.hear(reader.body(message)),
                // A notification; the end of a close; no rows, and what rows look like.
                b'A' | b'3' | b'n' | b'T' => {}
                b'G' | b'H' | b'W' => return Err(WireError::Protocol("`copy` is not possible here")),
                _ => return Err(WireError::Protocol("a message that has no place in an answer")),
            }
            self.channel.reader.skip(message);
        }
    }

    /// Whether the failed statement may have failed for having been parsed by an earlier batch, before something it depends on
    /// changed. Then what the batch took from earlier ones is forgotten.
    fn forget_stale(&mut self, answers: &Answers, bound: usize, error: &PostgresError) -> bool {
        let failed = answers.len();
        let Some(Plan::Known { key, name }) = self.plans.get(failed).copied() else { return false };
        let is_new = self.plans.contains(&Plan::Parse { key, name });
        if is_new || !means_stale(error, bound <= failed) {
            return false;
        }
        if error.code == "26000" {
            // `deallocate all` or `discard all`
            self.statements.forget_all();
        } else {
            for plan in &self.plans {
                if let Plan::Known { key, .. } = plan {
                    self.statements.forget(*key);
                }
            }
        }
        true
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, in_transaction, .. } = self;
        write!(f, "Connection({}, {state:?}, in_transaction: {in_transaction})", self.key.process)
    }
}

/// Whether the error can come from a statement that was parsed under an earlier schema.
fn means_stale(error: &PostgresError, while_binding: bool) -> bool {
    match &*error.code {
        // It is gone; "cached plan must not change result type".
        "26000" | "0A000" => true,
        // Permissions are looked up each time, and row level security refuses many a request.
        "42501" => false,
        "XX000" => error.message.starts_with("cache lookup failed"),
        // A value that does not fit the type that its column had.
        "22P02" | "22003" | "22007" | "22008" => while_binding,
        code => code.starts_with("42"),
    }
}

/// Whether the right to call `set_config` is what is missing, and not the right to take on a role.
fn is_about_set_config(error: &WireError) -> bool {
    matches!(error, WireError::Postgres(error) if error.code == "42501" && error.message.contains("set_config"))
}

/// Whether something of the batch remains in spite of its error.
fn has_committed(answers: &Answers) -> bool {
    (0..answers.len()).any(|statement| matches!(answers.tag(statement), "COMMIT" | "PREPARE TRANSACTION"))
}
