//! Sends what was encoded and receives the responses.

use std::io;

use bytes::BytesMut;

use super::connection::{ConnectionState, WireConnection};
use super::prepared_statements::PreparedStatements;
use crate::wire::protocol::error::{PostgresError, WireError};
use crate::wire::protocol::joined_rows::{RowJoiner, RowSeparators};
use crate::wire::protocol::message_channel::LargeValue;
use crate::wire::protocol::result_sets::{ResultSets, Row, first_value};

/// The position of the statement whose rows are joined, and their separators.
pub(crate) type JoinedStatement = (usize, RowSeparators);

/// The responses up to a `ReadyForQuery`.
#[derive(Default)]
pub(crate) struct Responses {
    pub results: ResultSets,
    /// The number of statements that were parsed.
    pub parsed: usize,
    /// The number of statements whose values were bound.
    pub bound: usize,
    /// The first error. The server skips everything after the failed message.
    pub error: Option<Box<PostgresError>>,
}

impl WireConnection {
    /// Sends the encoded messages and receives the responses up to `ReadyForQuery`.
    pub(super) async fn exchange(
        &mut self,
        large_values: &[LargeValue<'_>],
        statements: usize,
        joined: Option<JoinedStatement>,
    ) -> Result<Responses, WireError> {
        if self.state != ConnectionState::Ready {
            return Err(WireError::Lost(io::ErrorKind::NotConnected.into()));
        }
        // The state that remains if the future is dropped at one of the awaits below
        self.state = ConnectionState::Busy;
        // A server that closes the connection has often sent the reason, which can still be read
        let sent = self.channel.send(large_values).await;
        let outcome = self.receive(statements, joined).await;
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
            // The server has not finished: the connection stays busy, and its statement is
            // cancelled later
            (Err(_), _) => outcome,
        }
    }

    /// Sends what `write` encodes: several transactions, each with a `Sync` of its own. `false`:
    /// `write` refused, and nothing was sent. Afterwards call
    /// [`receive_transaction`](Self::receive_transaction) for each of them, and then
    /// [`finish_receiving`](Self::finish_receiving).
    pub async fn send_transactions(
        &mut self,
        write: impl FnOnce(&mut BytesMut, &mut PreparedStatements) -> bool,
    ) -> Result<bool, WireError> {
        self.channel.out.clear();
        if !write(&mut self.channel.out, &mut self.statements) {
            self.channel.out.clear();
            return Ok(false);
        }
        // The state that remains if the future is dropped before all responses were received
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

    /// Receives the responses up to the next `ReadyForQuery`.
    pub async fn receive_transaction(
        &mut self,
        statements: usize,
        joined: Option<JoinedStatement>,
    ) -> Result<Responses, WireError> {
        let outcome = self.receive(statements, joined).await;
        if matches!(outcome, Err(WireError::Lost(_) | WireError::Postgres(_))) {
            self.state = ConnectionState::Broken;
        }
        outcome
    }

    /// Ends the receiving of several transactions: the connection is ready for the next batch.
    pub fn finish_receiving(&mut self) {
        self.state = ConnectionState::Ready;
        self.channel.reader.shrink();
    }

    /// Marks the connection as broken because the number of responses does not match the
    /// statements: nothing that follows can be attributed to a statement.
    pub fn response_mismatch(&mut self) -> WireError {
        self.state = ConnectionState::Broken;
        WireError::Protocol("more or fewer answers than statements")
    }

    async fn receive(&mut self, statements: usize, joined: Option<JoinedStatement>) -> Result<Responses, WireError> {
        let mut responses = Responses { results: ResultSets::with_capacity(statements), ..Responses::default() };
        let mut joiner = joined.map(|(position, separators)| (position, RowJoiner::new(separators)));
        let outcome = self.receive_into(&mut responses, &mut joiner).await;
        responses.results.joined_rows = joiner.map(|(_, joiner)| joiner.finish());
        match outcome {
            Ok(()) => Ok(responses),
            Err(error) => {
                self.interrupted = Some(responses.results);
                Err(error)
            }
        }
    }

    async fn receive_into(
        &mut self,
        responses: &mut Responses,
        joiner: &mut Option<(usize, RowJoiner)>,
    ) -> Result<(), WireError> {
        loop {
            let message = self.channel.message().await?;
            let reader = &mut self.channel.reader;
            match message.tag {
                b'D' if joiner.as_ref().is_some_and(|(position, _)| *position == responses.results.len()) => {
                    if let Some((_, joiner)) = joiner {
                        joiner.add(first_value(reader.body(message))?);
                    }
                }
                b'D' => {
                    responses.results.add_row(Row::new(reader.take(message))?);
                    continue;
                }
                b'1' => responses.parsed += 1,
                b'2' => responses.bound += 1,
                b'C' => {
                    let body = reader.body(message);
                    responses.results.complete(body.strip_suffix(&[0]).unwrap_or(body));
                }
                b'I' => responses.results.complete(b""),
                b'E' => {
                    let error = Box::new(PostgresError::read(reader.body(message)));
                    if error.is_fatal() {
                        return Err(WireError::Postgres(error));
                    }
                    responses.error.get_or_insert(error);
                }
                b'Z' => {
                    self.in_transaction = reader.body(message) != b"I";
                    reader.skip(message);
                    return Ok(());
                }
                b'N' => responses.results.notices += 1,
                // NotificationResponse, CloseComplete, NoData, RowDescription, ParameterStatus
                b'A' | b'3' | b'n' | b'T' | b'S' => {}
                b'G' | b'H' | b'W' => return Err(WireError::Protocol("`copy` is not possible here")),
                _ => return Err(WireError::Protocol("a message that has no place in an answer")),
            }
            self.channel.reader.skip(message);
        }
    }
}
