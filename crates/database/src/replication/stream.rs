//! The stream: a connection with a temporary slot.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, timeout, timeout_at};

use super::error::ReplicationError;
use super::messages::{Lsn, ServerMessage, WalMessage, status};
use crate::endpoint::Endpoint;
use crate::quote;
use crate::tls::Tls;
use crate::wire::protocol::authentication::authenticate;
use crate::wire::protocol::connect::open_stream;
use crate::wire::protocol::message_channel::MessageChannel;
use crate::wire::protocol::server_stream::ServerStream;
use crate::wire::{PostgresError, WireError};

/// The status updates in the time after which a silent connection is lost.
const STATUSES: u32 = 6;
/// One batch ends after this number of messages or of bytes, so that a large transaction does not
/// have to fit into memory at once.
const BATCH_MESSAGES: usize = 1024;
const BATCH_BYTES: usize = 1 << 20;
/// The name of the connection in `pg_stat_activity`.
const APPLICATION_NAME: &str = "realtime_replication_connection";
/// PostgreSQL's limit for the names of slots and publications.
const MAX_NAME: usize = 63;

/// The slot and the publications of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicationSettings {
    /// The name of the temporary slot: lower-case letters, digits and underscores, at most 63.
    pub slot: String,
    /// The names of the publications whose tables are sent.
    pub publications: Vec<String>,
    /// The time after which a silent connection is lost, for both sides. The stream ends when
    /// nothing arrives for this long, although a status has requested an answer; the server closes
    /// the connection, and with it drops the slot, when it receives no status for this long.
    pub silence: Duration,
}

/// The committed changes of the tables of some publications, from the moment the stream was opened.
/// Dropping it closes the connection, and with it the slot.
pub struct ReplicationStream {
    channel: MessageChannel,
    /// Status updates that are not yet written completely.
    out: BytesMut,
    is_flushed: bool,
    /// The end of the last transaction that was returned.
    returned: Lsn,
    /// A transaction was returned in part.
    in_transaction: bool,
    /// Everything before this position was processed.
    processed: Lsn,
    last_arrival: Instant,
    next_status: Instant,
    status_interval: Duration,
    silence: Duration,
}

impl ReplicationStream {
    /// Opens a stream, past a connection pooler if the endpoint has a way. Changes that are
    /// committed after this returns are sent.
    ///
    /// Waits until the transactions that were writing when the slot was created have ended. The
    /// endpoint's connect timeout covers the login and the start, and not this wait, in which only
    /// TCP detects that the server has vanished.
    ///
    /// # Errors
    /// [`ReplicationError`], with the remedy where the server's configuration is the reason.
    pub async fn open(endpoint: &Endpoint, settings: &ReplicationSettings) -> Result<Self, ReplicationError> {
        let start = settings.start_command()?;
        let endpoint = endpoint.direct().with_application_name(APPLICATION_NAME);
        let tls = Tls::new(endpoint.tls(), endpoint.host())?;
        let patience = endpoint.connect_timeout();
        let timed_out = || WireError::Lost(io::ErrorKind::TimedOut.into());
        let mut channel = match timeout(patience, log_in(&endpoint, &tls, settings.silence)).await {
            Ok(outcome) => outcome.map_err(|error| ReplicationError::connecting(&endpoint, error))?,
            Err(_) => {
                return Err(ReplicationError::Unreachable { server: endpoint.description(), source: timed_out() });
            }
        };
        let create = format!("CREATE_REPLICATION_SLOT {} TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT", settings.slot);
        let created = query(&mut channel, &create, b'Z').await;
        created.map_err(|error| ReplicationError::creating(&endpoint, error))?;
        // The answer is `CopyBothResponse`, behind which the stream begins
        let started = timeout(patience, query(&mut channel, &start, b'W')).await;
        started.unwrap_or_else(|_| Err(timed_out())).map_err(ReplicationError::streaming)?;
        let (now, status_interval) = (Instant::now(), settings.silence / STATUSES);
        Ok(Self {
            channel,
            out: BytesMut::new(),
            is_flushed: true,
            returned: Lsn(0),
            in_transaction: false,
            processed: Lsn(0),
            last_arrival: now,
            next_status: now + status_interval,
            status_interval,
            silence: settings.silence,
        })
    }

    /// Waits for messages and appends those that have arrived to `batch`: one at least, and as many
    /// as were received together. Messages come in the order of the log, transactions in the order
    /// of their commits and whole.
    ///
    /// Status updates are sent and answered while this is running, so it has to be called again
    /// soon. Can be cancelled: no message is lost then.
    ///
    /// # Errors
    /// [`ReplicationError`]; the stream is not usable after it.
    pub async fn next_batch(&mut self, batch: &mut Vec<WalMessage>) -> Result<(), ReplicationError> {
        self.receive(batch).await.map_err(ReplicationError::streaming)
    }

    /// Records that everything before `position` was processed, for the next status update. The
    /// position is that of [`WalMessage::transaction_end`].
    pub fn confirm(&mut self, position: Lsn) {
        self.processed = self.processed.max(position);
    }

    /// Sends status updates until the connection fails, and receives nothing. For a caller that has
    /// to wait before it can process the next batch. Can be cancelled.
    ///
    /// # Errors
    /// Returns only with an error; the stream is not usable after it.
    pub async fn keep_alive(&mut self) -> ReplicationError {
        loop {
            self.last_arrival = Instant::now();
            let due = self.next_status;
            let failed = poll_fn(|context| match self.poll_write(context) {
                Poll::Ready(Err(error)) => Poll::Ready(error),
                Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
            });
            match timeout_at(due, failed).await {
                Ok(error) => return ReplicationError::Lost(WireError::Lost(error)),
                // Nothing is read meanwhile, so silence is no sign of a failure
                Err(_) => self.queue_status(false),
            }
        }
    }

    async fn receive(&mut self, batch: &mut Vec<WalMessage>) -> Result<(), WireError> {
        let before = batch.len();
        let mut bytes = 0;
        loop {
            while let Some(head) = self.channel.reader.next()? {
                let body = self.channel.reader.take(head);
                match head.tag {
                    b'd' => match ServerMessage::read(body)? {
                        ServerMessage::Data(message) => {
                            self.note_data(&message);
                            bytes += message.body.len();
                            batch.push(message);
                            if batch.len() - before == BATCH_MESSAGES || bytes >= BATCH_BYTES {
                                return Ok(());
                            }
                        }
                        ServerMessage::KeepAlive { sent, wants_status } => self.note_keep_alive(sent, wants_status),
                    },
                    b'E' => return Err(WireError::Postgres(Box::new(PostgresError::read(&body)))),
                    // Notices and settings
                    b'N' | b'S' | b'A' => {}
                    // `CopyDone` or `CommandComplete`: the server shuts down
                    b'c' | b'C' => return Err(WireError::Lost(io::ErrorKind::UnexpectedEof.into())),
                    _ => return Err(WireError::Protocol("a message that has no place in a replication stream")),
                }
            }
            // Data that has arrived is returned before the connection is read again
            if batch.len() > before {
                return Ok(());
            }
            self.exchange().await?;
        }
    }

    /// Waits until bytes have arrived, and meanwhile sends the status updates that are due.
    async fn exchange(&mut self) -> Result<(), WireError> {
        loop {
            let due = self.next_status;
            match timeout_at(due, poll_fn(|context| self.poll_exchange(context))).await {
                Ok(outcome) => {
                    self.last_arrival = Instant::now();
                    return outcome.map_err(WireError::Lost);
                }
                Err(_) if self.last_arrival.elapsed() >= self.silence => {
                    return Err(WireError::Lost(io::ErrorKind::TimedOut.into()));
                }
                // A server that has nothing to send is silent, unless it is requested to answer
                Err(_) => self.queue_status(self.last_arrival.elapsed() >= self.status_interval),
            }
        }
    }

    /// Writes what is queued. Ready when everything is written, or with the stream's error.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = &mut self.channel.stream;
        while !self.out.is_empty() {
            match ready!(Pin::new(&mut *stream).poll_write(context, &self.out))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.out.advance(written),
            }
        }
        // The other streams have no buffer of their own
        if let (ServerStream::Tls(_), false) = (&*stream, self.is_flushed) {
            ready!(Pin::new(&mut *stream).poll_flush(context))?;
        }
        self.is_flushed = true;
        Poll::Ready(Ok(()))
    }

    /// Writes what is queued, and reads. Ready when bytes have arrived, or with the stream's error.
    fn poll_exchange(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(written) = self.poll_write(context) {
            written?;
        }
        let stream = &mut self.channel.stream;
        let mut space = self.channel.reader.space();
        let read = pin!(stream.read_buf(&mut space)).poll(context);
        match ready!(read) {
            Ok(0) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            outcome => Poll::Ready(outcome.map(drop)),
        }
    }

    fn note_data(&mut self, message: &WalMessage) {
        match message.transaction_end() {
            Some(end) => (self.returned, self.in_transaction) = (end, false),
            None => self.in_transaction |= message.begins_transaction(),
        }
    }

    fn note_keep_alive(&mut self, sent: Lsn, wants_status: bool) {
        // Nothing that was sent waits to be processed, so the log is not needed up to here, though
        // no change of a published table is in it
        if !self.in_transaction && self.processed >= self.returned {
            self.processed = self.processed.max(sent);
        }
        if wants_status {
            self.queue_status(false);
        }
    }

    fn queue_status(&mut self, wants_answer: bool) {
        // A server that does not read gets no further status
        if self.out.is_empty() {
            status(&mut self.out, self.processed, wants_answer);
            self.is_flushed = false;
        }
        self.next_status = Instant::now() + self.status_interval;
    }
}

impl Drop for ReplicationStream {
    fn drop(&mut self) {
        // Otherwise the server logs that the connection broke
        if self.out.is_empty() {
            frontend::terminate(&mut self.out);
            self.channel.stream.try_write(&self.out);
        }
    }
}

impl std::fmt::Debug for ReplicationStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicationStream").field("processed", &self.processed).finish_non_exhaustive()
    }
}

impl ReplicationSettings {
    /// Checks the names and returns the command that starts the stream.
    fn start_command(&self) -> Result<String, ReplicationError> {
        let is_slot_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if self.slot.is_empty() || self.slot.len() > MAX_NAME || !self.slot.bytes().all(is_slot_name) {
            return Err(ReplicationError::InvalidName("slot"));
        }
        let is_name = |name: &String| !name.is_empty() && name.len() <= MAX_NAME && !name.contains('\0');
        if self.publications.is_empty() || !self.publications.iter().all(is_name) {
            return Err(ReplicationError::InvalidName("publication"));
        }
        let names: Vec<_> = self.publications.iter().map(|name| quote::identifier(name)).collect();
        // The value is a literal in which a quote is doubled and a backslash has no meaning
        let names = names.join(",").replace('\'', "''");
        Ok(format!("START_REPLICATION SLOT {} LOGICAL 0/0 (proto_version '1', publication_names '{names}')", self.slot))
    }
}

/// Connects and authenticates.
async fn log_in(endpoint: &Endpoint, tls: &Tls, silence: Duration) -> Result<MessageChannel, WireError> {
    let silence = format!("{}ms", silence.as_millis());
    // Values are decoded as text by this session. Its settings take precedence over those that the
    // owner of the database can make, except for the time zone and the styles that clients see
    let mut settings = vec![
        ("replication", "database"),
        ("search_path", "pg_catalog, pg_temp"),
        ("datestyle", "ISO"),
        ("bytea_output", "hex"),
        ("statement_timeout", "0"),
        ("lock_timeout", "0"),
        // The server's own value may be any, and may be off
        ("wal_sender_timeout", &silence),
    ];
    if endpoint.trusts_any_role() {
        // The session is a superuser's: no trigger of the project runs in it
        settings.push(("session_replication_role", "replica"));
    }
    let settings: Vec<_> = settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let mut channel = MessageChannel::new(open_stream(endpoint, tls).await?);
    authenticate(&mut channel, endpoint, &settings).await?;
    Ok(channel)
}

/// Sends a command, and waits for the message `until`. Rows of the answer are discarded.
async fn query(channel: &mut MessageChannel, command: &str, until: u8) -> Result<(), WireError> {
    frontend::query(command, &mut channel.out).map_err(WireError::Lost)?;
    channel.send(&[]).await.map_err(WireError::Lost)?;
    loop {
        let head = channel.message().await?;
        let body = channel.reader.take(head);
        match head.tag {
            b'E' => return Err(WireError::Postgres(Box::new(PostgresError::read(&body)))),
            tag if tag == until => return Ok(()),
            b'T' | b'D' | b'C' | b'N' | b'S' | b'A' => {}
            _ => return Err(WireError::Protocol("a message that has no place in the answer of a replication command")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::{UnixListener, UnixStream};

    use super::*;

    /// Reads what a server receives until it has a message that ends with `end`.
    async fn received(server: &mut UnixStream, bytes: &mut Vec<u8>, end: &[u8]) {
        while !bytes.windows(end.len()).any(|window| window == end) {
            assert!(server.read_buf(bytes).await.unwrap() > 0);
        }
        bytes.clear();
    }

    /// Opens a stream at a server that answers as one that replicates, and then sends nothing.
    async fn silent() -> (ReplicationStream, UnixStream) {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.1")).unwrap();
        let endpoint = Endpoint::socket(folder.path(), 1, "someone", "db");
        let silence = Duration::from_millis(20);
        let settings = ReplicationSettings { slot: "slot".into(), publications: vec!["p".into()], silence };
        let server = async {
            let (mut server, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            received(&mut server, &mut bytes, b"replica\0\0").await;
            server.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").await.unwrap();
            received(&mut server, &mut bytes, b"SNAPSHOT\0").await;
            server.write_all(b"Z\0\0\0\x05I").await.unwrap();
            received(&mut server, &mut bytes, b"'\"p\"')\0").await;
            server.write_all(b"W\0\0\0\x07\0\0\0").await.unwrap();
            server
        };
        let (stream, server) = tokio::join!(ReplicationStream::open(&endpoint, &settings), server);
        (stream.unwrap(), server)
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_lost() {
        let (mut stream, mut server) = silent().await;
        let mut batch = Vec::new();
        let error = stream.next_batch(&mut batch).await.unwrap_err();
        assert!(matches!(error, ReplicationError::Lost(WireError::Lost(_))) && batch.is_empty(), "{error}");
        drop(stream);
        let mut statuses = Vec::new();
        server.read_to_end(&mut statuses).await.unwrap();
        // Status updates of 39 bytes, the last of which request an answer, and the end
        let (statuses, end) = statuses.split_at(statuses.len() - 5);
        assert_eq!(end, b"X\0\0\0\x04");
        let last = statuses.chunks(39).next_back().unwrap();
        assert!(last.starts_with(b"d\0\0\0\x26r") && last.ends_with(&[1]), "{last:?}");
    }

    #[tokio::test]
    async fn statuses_are_sent_while_nothing_is_received() {
        let (mut stream, mut server) = silent().await;
        stream.confirm(Lsn(0x0102));
        let mut bytes = Vec::new();
        tokio::select! {
            error = stream.keep_alive() => panic!("{error}"),
            () = received(&mut server, &mut bytes, b"\x01\x02\0\0\0\0\0\0\0\0\0") => {}
        }
        drop(server);
        let error = stream.keep_alive().await;
        assert!(matches!(error, ReplicationError::Lost(_)), "{error}");
    }

    #[test]
    fn names_are_quoted_or_rejected() {
        let command = |slot: &str, publications: &[&str]| {
            let publications = publications.iter().map(ToString::to_string).collect();
            ReplicationSettings { slot: slot.into(), publications, silence: Duration::ZERO }.start_command().ok()
        };
        assert_eq!(
            command("slot_1", &["a", "B'\"c"]).as_deref(),
            Some(r#"START_REPLICATION SLOT slot_1 LOGICAL 0/0 (proto_version '1', publication_names '"a","B''""c"')"#)
        );
        for slot in ["", "a b", "a\"b", "Slot", "a;b", &"s".repeat(64)] {
            assert_eq!(command(slot, &["a"]), None, "{slot}");
        }
        for publications in [&[][..], &[""], &["a\0b"]] {
            assert_eq!(command("slot", publications), None, "{publications:?}");
        }
    }
}
