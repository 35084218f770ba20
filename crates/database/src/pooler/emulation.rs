//! A session as the driver expects it, over a pooler that lends another server session for each
//! transaction.

use std::collections::{HashMap, VecDeque};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::cleaning::{END_IF_VALUES_ARE_KEPT, END_UNLESS_BARE, MARK_AS_USED, RESET};
use super::messages::{PoolerMessage, put, put_error, put_query, split_text, take};
use super::session_statements::{SessionStatement, ends_transaction, sets_role};
use crate::endpoint::Endpoint;
use crate::tls::Tls;
use crate::wire::{PostgresError, RawConnection, WireError};

/// Attempts to run a transaction on a clean server session: each one that fails ends a session that
/// is not, and no pooler lends more sessions of one login than this.
const ATTEMPTS: usize = 100;
/// Messages to the driver that are collected before they are written.
const COLLECTED: usize = 32 * 1024;
/// The bytes that fit between the driver and the task that emulates its session.
const BUFFER: usize = 64 * 1024;

/// Emulates a session, as its `preamble` begins it.
///
/// - Each transaction begins with [`RESET`] and [`END_UNLESS_BARE`], the preamble (`set local` and
///   the like), [`MARK_AS_USED`], and the settings that the driver's own `set` and `reset` outside
///   of transactions stand for. What is sent outside of a transaction gets one of its own, as long
///   as PostgreSQL allows that.
/// - Each transaction ends with the same statements behind the `commit`, in the same message.
/// - Prepared statements are kept here, and parsed again without a name where they are used.
///
/// What else belongs to a session does not work: `listen`, temporary tables, advisory locks and
/// cursors outlive no transaction, and settings made by functions neither.
pub(crate) struct SessionEmulation {
    endpoint: Endpoint,
    tls: Tls,
    driver: DuplexStream,
    read: BytesMut,
    /// Messages for the driver that are not written yet.
    collected: BytesMut,
    /// The connection to the pooler. `None` after its server session was ended.
    pooler: Option<RawConnection>,
    preamble: String,
    /// Further statements of each transaction's beginning, from the driver's own `set` and `reset`.
    settings: Vec<String>,
    /// The prepared statements of the driver: what follows the name in their `Parse`.
    prepared: HashMap<Bytes, Bytes>,
    in_transaction: bool,
}

/// The reason for which the emulation ends.
enum EmulationEnd {
    /// The driver has closed the session.
    ByDriver,
    /// The connection to the pooler was lost.
    ByPooler,
    /// The server session was not clean, and nothing of the driver's ran in it.
    Unclean,
}

/// The messages of the driver up to the one that expects a response.
struct DriverRequest {
    messages: Vec<PoolerMessage>,
}

/// A part of an exchange with the server; each ends with a `ReadyForQuery`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExchangePart {
    /// The `begin` of the driver.
    Begin,
    /// Statements of the emulation at the beginning of a transaction.
    Preamble,
    /// The request of the driver.
    Request,
    /// A `commit` of the emulation, and the statements behind it.
    Commit,
    /// The `commit` or `rollback` of the driver, and the statements behind it.
    End,
}

impl SessionEmulation {
    /// Starts the emulation. Returns the stream for the driver, which has to speak without TLS and
    /// may use any password.
    pub fn start(endpoint: Endpoint, tls: Tls, preamble: String) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(BUFFER);
        let emulation = Self {
            endpoint,
            tls,
            driver: ours,
            read: BytesMut::new(),
            collected: BytesMut::new(),
            pooler: None,
            preamble,
            settings: Vec::new(),
            prepared: HashMap::new(),
            in_transaction: false,
        };
        tokio::spawn(emulation.run());
        theirs
    }

    async fn run(mut self) {
        let Err(ended) = self.serve().await;
        let _ = self.flush().await;
        if !matches!(ended, EmulationEnd::ByDriver) {
            tracing::debug!("a database session behind a pooler ended");
        }
    }

    async fn serve(&mut self) -> Result<std::convert::Infallible, EmulationEnd> {
        self.read_startup().await?;
        self.connect().await?;
        put(&mut self.collected, b'R', &0_u32.to_be_bytes());
        put(&mut self.collected, b'S', b"client_encoding\0UTF8\0");
        put(&mut self.collected, b'Z', b"I");
        loop {
            self.flush().await?;
            let request = self.read_request().await?;
            let mut attempts = 1;
            loop {
                self.connect().await?;
                match self.answer(&request).await {
                    Err(EmulationEnd::Unclean) if attempts < ATTEMPTS && !self.in_transaction => {
                        tracing::debug!(attempts, "a server session of the pooler was not clean and has been ended");
                        self.pooler = None;
                        self.collected.clear();
                        attempts += 1;
                    }
                    outcome => break outcome?,
                }
            }
        }
    }

    /// Connects to the pooler, unless that is done. An error goes to the driver.
    async fn connect(&mut self) -> Result<(), EmulationEnd> {
        if self.pooler.is_some() {
            return Ok(());
        }
        match RawConnection::open(&self.endpoint, &self.tls).await {
            Ok(pooler) => self.pooler = Some(pooler),
            Err(error) => {
                // The driver retries after a connection that is lost, and not after an error
                if !matches!(error, WireError::Lost(_)) {
                    put_error(&mut self.collected, &error);
                }
                return Err(EmulationEnd::ByPooler);
            }
        }
        Ok(())
    }

    async fn read_more(&mut self) -> Result<(), EmulationEnd> {
        match self.driver.read_buf(&mut self.read).await {
            Ok(read) if read > 0 => Ok(()),
            _ => Err(EmulationEnd::ByDriver),
        }
    }

    /// Reads the driver's startup message, which has a length and no tag.
    async fn read_startup(&mut self) -> Result<(), EmulationEnd> {
        loop {
            let length = self.read.first_chunk().map(|length| u32::from_be_bytes(*length) as usize);
            match length {
                Some(length) if self.read.len() >= length => {
                    let _ = self.read.split_to(length);
                    return Ok(());
                }
                _ => self.read_more().await?,
            }
        }
    }

    async fn read_request(&mut self) -> Result<DriverRequest, EmulationEnd> {
        let mut messages = Vec::new();
        loop {
            let Some((tag, body)) = take(&mut self.read) else {
                self.read_more().await?;
                continue;
            };
            match tag {
                b'X' => {
                    if let Some(mut pooler) = self.pooler.take() {
                        let _ = pooler.send(b"X\0\0\0\x04").await;
                    }
                    return Err(EmulationEnd::ByDriver);
                }
                b'Q' | b'S' => {
                    messages.push((tag, body));
                    return Ok(DriverRequest { messages });
                }
                _ => messages.push((tag, body)),
            }
        }
    }

    async fn flush(&mut self) -> Result<(), EmulationEnd> {
        let written = self.driver.write_all(&self.collected).await;
        self.collected.clear();
        written.map_err(|_| EmulationEnd::ByDriver)
    }

    /// Returns the statements of a transaction's beginning.
    fn preamble(&self) -> String {
        let mut text = RESET.join("; ");
        text.push(';');
        text.push_str(END_UNLESS_BARE);
        for statement in [&self.preamble, MARK_AS_USED] {
            text.push(';');
            text.push_str(statement);
        }
        for setting in &self.settings {
            text.push(';');
            text.push_str(setting);
        }
        text
    }

    /// Sends a request, with what belongs to it, and collects the answer.
    async fn answer(&mut self, request: &DriverRequest) -> Result<(), EmulationEnd> {
        let text = request.text();
        let statement = match (self.in_transaction, &text) {
            (true, _) => None,
            (false, Some(text)) => Some(SessionStatement::read(text)),
            (false, None) => Some(SessionStatement::Other),
        };
        let reset = || format!("{}; {END_UNLESS_BARE}; {END_IF_VALUES_ARE_KEPT}", RESET.join("; "));
        let mut out = BytesMut::new();
        let mut hidden = VecDeque::new();
        let mut parts = Vec::new();
        match &statement {
            Some(SessionStatement::Begin { begin, .. }) => {
                put_query(&mut out, begin);
                put_query(&mut out, &self.preamble());
                parts.extend([ExchangePart::Begin, ExchangePart::Preamble]);
            }
            Some(SessionStatement::OutsideTransaction) => {
                self.write(request, &mut out, &mut hidden);
                parts.push(ExchangePart::Request);
            }
            Some(SessionStatement::Settings(_) | SessionStatement::Other) => {
                put_query(&mut out, &format!("begin read write; {}", self.preamble()));
                // Sent alone: a pooler that closes the connection together with the server session
                // may discard the error of that session if there is more to read
                if !self.exchange(&out, &[ExchangePart::Preamble], VecDeque::new()).await? {
                    put(&mut self.collected, b'Z', b"I");
                    return Ok(());
                }
                out.clear();
                self.write(request, &mut out, &mut hidden);
                put_query(&mut out, &format!("commit; {}", reset()));
                parts.extend([ExchangePart::Request, ExchangePart::Commit]);
            }
            None => match text.as_deref().filter(|text| request.is_simple() && ends_transaction(text)) {
                Some(end) => {
                    put_query(&mut out, &format!("{}; {}", end.trim_end().trim_end_matches(';'), reset()));
                    parts.push(ExchangePart::End);
                }
                None => {
                    self.write(request, &mut out, &mut hidden);
                    parts.push(ExchangePart::Request);
                }
            },
        }
        let succeeded = self.exchange(&out, &parts, hidden).await?;
        match statement {
            Some(SessionStatement::Settings(settings)) if succeeded => self.keep(settings),
            // Sent only now, since it must not run where the beginning has failed
            Some(SessionStatement::Begin { rest, .. }) if succeeded && !rest.is_empty() => {
                out.clear();
                put_query(&mut out, rest);
                self.exchange(&out, &[ExchangePart::Request], VecDeque::new()).await?;
            }
            _ => {}
        }
        put(&mut self.collected, b'Z', if self.in_transaction { b"T" } else { b"I" });
        Ok(())
    }

    /// Writes a request with its prepared statements parsed again. Records for each
    /// `ParseComplete` whether the driver did not ask for it.
    fn write(&mut self, request: &DriverRequest, out: &mut BytesMut, hidden: &mut VecDeque<bool>) {
        // The statement that the server has parsed without a name
        let mut parsed: Option<Bytes> = None;
        let mut parse = |out: &mut BytesMut, prepared: &HashMap<Bytes, Bytes>, name: &Bytes, is_ours: bool| {
            if is_ours && parsed.as_ref() == Some(name) {
                return;
            }
            // A name that is not known becomes an error of the server
            let Some(rest) = prepared.get(name) else { return };
            put(out, b'P', &[&[0], &rest[..]].concat());
            hidden.push_back(is_ours);
            parsed = Some(name.clone());
        };
        for (tag, body) in &request.messages {
            match tag {
                b'P' => {
                    let (name, rest) = split_text(body);
                    self.prepared.insert(name.clone(), rest);
                    parse(out, &self.prepared, &name, false);
                }
                b'B' => {
                    let (portal, rest) = split_text(body);
                    let (name, rest) = split_text(&rest);
                    parse(out, &self.prepared, &name, true);
                    put(out, b'B', &[&portal[..], &[0, 0], &rest[..]].concat());
                }
                b'D' | b'C' if body.first() == Some(&b'S') => {
                    let (name, _) = split_text(&body.slice(1..));
                    match tag {
                        b'D' => parse(out, &self.prepared, &name, true),
                        _ => drop(self.prepared.remove(&name)),
                    }
                    put(out, *tag, b"S\0");
                }
                // The driver waits for `Sync` in any case
                b'H' => {}
                _ => put(out, *tag, body),
            }
        }
    }

    /// Sends the messages of `parts`, and collects for the driver the response of the server.
    /// Returns true if nothing failed.
    async fn exchange(
        &mut self,
        out: &[u8],
        parts: &[ExchangePart],
        mut hidden: VecDeque<bool>,
    ) -> Result<bool, EmulationEnd> {
        let Some(pooler) = &mut self.pooler else { return Err(EmulationEnd::ByPooler) };
        // A pooler that closes the connection has often sent an error, which can still be read
        let _ = pooler.send(out).await;
        let mut has_failed = false;
        // The error of the preamble stands for those that follow from it
        let mut preamble_failed = false;
        'parts: for part in parts {
            let mut completed = 0;
            loop {
                let Some(pooler) = &mut self.pooler else { return Err(EmulationEnd::ByPooler) };
                let (tag, body) = match pooler.message().await {
                    Ok(message) => message,
                    // Behind the end of the transaction there is nothing that the driver waits for
                    Err(_) if matches!(part, ExchangePart::Commit | ExchangePart::End) && completed > 0 => {
                        self.pooler = None;
                        self.in_transaction = false;
                        break 'parts;
                    }
                    Err(_) => return Err(EmulationEnd::ByPooler),
                };
                let is_behind_end = matches!(part, ExchangePart::Commit | ExchangePart::End) && completed > 0;
                let is_shown = match tag {
                    b'Z' => {
                        self.in_transaction = body.first() != Some(&b'I');
                        break;
                    }
                    b'E' => {
                        let error = PostgresError::read(&body);
                        if is_behind_end {
                            tracing::debug!(error = %error, "a server session of the pooler could not be taken back");
                            if error.is_fatal() {
                                self.pooler = None;
                                self.in_transaction = false;
                                break 'parts;
                            }
                        } else if *part == ExchangePart::Preamble && error.is_fatal() {
                            self.in_transaction = false;
                            if error.code == "57P01" {
                                return Err(EmulationEnd::Unclean);
                            }
                            put(&mut self.collected, tag, &body);
                            return Err(EmulationEnd::ByPooler);
                        }
                        let follows = preamble_failed;
                        preamble_failed |= *part == ExchangePart::Preamble;
                        has_failed |= !is_behind_end;
                        !is_behind_end && !follows
                    }
                    b'C' => {
                        completed += 1;
                        match part {
                            ExchangePart::Begin | ExchangePart::Request => true,
                            ExchangePart::End => completed == 1,
                            ExchangePart::Preamble | ExchangePart::Commit => false,
                        }
                    }
                    b'1' => *part == ExchangePart::Request && hidden.pop_front() == Some(false),
                    // The server would wait for data
                    b'G' | b'W' => return Err(EmulationEnd::ByPooler),
                    _ => *part == ExchangePart::Request,
                };
                if is_shown {
                    put(&mut self.collected, tag, &body);
                }
                if *part == ExchangePart::Request && self.collected.len() > COLLECTED {
                    self.flush().await?;
                }
            }
        }
        if preamble_failed && self.in_transaction {
            // The driver knows of no transaction whose beginning has failed
            self.roll_back().await?;
        }
        Ok(!has_failed)
    }

    async fn roll_back(&mut self) -> Result<(), EmulationEnd> {
        let Some(pooler) = &mut self.pooler else { return Err(EmulationEnd::ByPooler) };
        let mut out = BytesMut::new();
        put_query(&mut out, "rollback");
        pooler.send(&out).await.map_err(|_| EmulationEnd::ByPooler)?;
        while pooler.message().await.map_err(|_| EmulationEnd::ByPooler)?.0 != b'Z' {}
        self.in_transaction = false;
        Ok(())
    }

    /// Keeps settings for the transactions to come.
    fn keep(&mut self, settings: Vec<String>) {
        for setting in settings {
            if setting.eq_ignore_ascii_case("reset all") {
                self.settings.retain(|kept| sets_role(kept));
            }
            if sets_role(&setting) {
                self.settings.retain(|kept| !sets_role(kept));
            }
            // A reset returns to the preamble
            if setting.starts_with("set") || !sets_role(&setting) {
                self.settings.push(setting);
            }
        }
    }
}

impl DriverRequest {
    /// Returns the text of its first statement, where it has one.
    fn text(&self) -> Option<String> {
        let (tag, body) = self.messages.first()?;
        let text = match tag {
            b'Q' => split_text(body).0,
            b'P' => split_text(&split_text(body).1).0,
            _ => return None,
        };
        String::from_utf8(text.to_vec()).ok()
    }

    /// Returns true if it is a simple query.
    fn is_simple(&self) -> bool {
        self.messages.first().is_some_and(|(tag, _)| *tag == b'Q')
    }
}
