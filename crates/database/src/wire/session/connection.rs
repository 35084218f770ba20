//! A connection and its session.

use std::fmt;
use std::time::Instant;

use tokio::runtime::{self, Handle};

use super::mode::SessionMode;
use super::origin::SessionOrigin;
use super::prepared_statements::{ParseStep, PreparedStatements};
use super::reset::SessionReset;
use super::state::SessionState;
use crate::wire::protocol::authentication::BackendKey;
use crate::wire::protocol::batch::Access;
use crate::wire::protocol::message_channel::MessageChannel;
use crate::wire::protocol::result_sets::ResultSets;

const TERMINATE: &[u8] = b"X\0\0\0\x04";

/// A connection, with the state of its session and the statements that the server keeps for it.
pub(crate) struct WireConnection {
    pub(super) channel: MessageChannel,
    pub(super) statements: PreparedStatements,
    /// The steps of the statements of the current batch. Kept between batches to reuse the memory.
    pub(super) steps: Vec<ParseStep>,
    pub(super) state: ConnectionState,
    pub(super) in_transaction: bool,
    pub(super) session: SessionState,
    /// The connection ended because its prepared statements were not what we believed, before the
    /// batch took effect.
    pub(super) is_out_of_sync: bool,
    /// The results that had arrived when the last batch was interrupted.
    pub(super) interrupted: Option<ResultSets>,
    key: BackendKey,
    opened_at: Instant,
    runtime: runtime::Id,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// Everything up to `ReadyForQuery` was received.
    Ready,
    /// Further responses may arrive.
    Busy,
    /// The connection has ended.
    Broken,
}

impl WireConnection {
    /// Returns a connection that has authenticated.
    pub fn new(channel: MessageChannel, key: BackendKey, statements: PreparedStatements) -> Self {
        Self {
            channel,
            statements,
            steps: Vec::new(),
            state: ConnectionState::Ready,
            in_transaction: false,
            session: SessionState::default(),
            is_out_of_sync: false,
            interrupted: None,
            key,
            opened_at: Instant::now(),
            runtime: Handle::current().id(),
        }
    }

    /// Begins the session: from now on statements of callers may run in it.
    pub fn begin_session(&mut self, origin: SessionOrigin) {
        self.session = SessionState::new(origin);
    }

    /// Returns true if another caller may use the connection: it is ready, outside a transaction,
    /// and nothing of the last batch is left in the session.
    pub fn is_reusable(&self) -> bool {
        self.is_ready() && !self.in_transaction && self.session.is_clean()
    }

    /// Returns true if the last batch failed only because of the state of the connection, so that
    /// it can be run on another one.
    pub fn is_out_of_sync(&self) -> bool {
        self.is_out_of_sync
    }

    /// Returns the session reset after a transaction that only reads.
    pub fn read_only_reset(&self, mode: SessionMode) -> SessionReset {
        self.session.reset(Access::ReadOnly, mode)
    }

    /// Returns the state of the session.
    pub fn session(&mut self) -> &mut SessionState {
        &mut self.session
    }

    /// Returns the statements that the server keeps.
    pub fn statements(&mut self) -> &mut PreparedStatements {
        &mut self.statements
    }

    /// Returns the time at which the connection was opened.
    pub fn opened_at(&self) -> Instant {
        self.opened_at
    }

    /// Returns the runtime that the connection is registered with.
    pub fn runtime(&self) -> runtime::Id {
        self.runtime
    }

    /// Registers the connection with the caller's runtime, if it can be moved. `false`: it has
    /// become unusable, perhaps because the server has closed it.
    pub fn move_to_runtime(&mut self, runtime: runtime::Id) -> bool {
        if self.runtime == runtime {
            return true;
        }
        let MessageChannel { stream, reader, .. } = &mut self.channel;
        match stream.move_to_current_runtime(&mut reader.space()) {
            Ok(true) => self.runtime = runtime,
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(error = %error, "a connection could not be moved to another runtime");
                self.state = ConnectionState::Broken;
            }
        }
        !self.is_broken()
    }

    /// Returns true if the connection is ready for a batch.
    pub fn is_ready(&self) -> bool {
        self.state == ConnectionState::Ready
    }

    /// Returns true if the connection has ended.
    pub fn is_broken(&self) -> bool {
        self.state == ConnectionState::Broken
    }

    /// Returns true if a transaction is open, including one that can only be rolled back.
    pub fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// Returns the number of the server's process.
    pub fn process(&self) -> i32 {
        self.key.process
    }

    /// Returns the key for a cancel request.
    pub fn key(&self) -> BackendKey {
        self.key
    }

    /// Returns true if the connection is open, as far as is known without a round trip: the server
    /// has neither closed it nor announced that it will.
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

    /// Closes the session. The connection is unusable afterwards.
    pub fn terminate(&mut self) {
        if self.state == ConnectionState::Ready {
            self.channel.stream.try_write(TERMINATE);
        }
        self.state = ConnectionState::Broken;
    }
}

impl fmt::Debug for WireConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, in_transaction, .. } = self;
        write!(f, "WireConnection({}, {state:?}, in_transaction: {in_transaction})", self.key.process)
    }
}
