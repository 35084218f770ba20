//! Runs batches on a connection, with the session reset after them.

use std::io;
use std::sync::Arc;

use bytes::BufMut;
use postgres_protocol::message::frontend;

use super::connection::{ConnectionState, WireConnection};
use super::mode::SessionMode;
use super::prepared_statements::ParseStep;
use super::receive::Responses;
use super::reset::{ResetCheck, discard_everything, has_kept_values};
use crate::wire::protocol::batch::{Batch, Preparation};
use crate::wire::protocol::encode::{EXECUTE, SYNC, bind, check, message, parse, put_name};
use crate::wire::protocol::error::{PostgresError, WireError};
use crate::wire::protocol::message_channel::LargeValue;
use crate::wire::protocol::result_sets::ResultSets;

impl WireConnection {
    /// Runs SQL of ours without values whose rows are not needed. Several statements are possible.
    pub async fn execute(&mut self, sql: &str) -> Result<(), WireError> {
        if sql.contains('\0') {
            return Err(WireError::ZeroByte);
        }
        self.channel.out.clear();
        // A simple query replaces the unnamed statement
        self.statements.remove_unnamed();
        frontend::query(sql, &mut self.channel.out).map_err(|_| WireError::TooLarge("a statement"))?;
        let responses = self.exchange(&[], 1, None).await?;
        match responses.error {
            None => Ok(()),
            Some(error) => Err(WireError::Postgres(error)),
        }
    }

    /// Runs a batch, followed by the session reset if the batch [ends](Batch::ending) its
    /// transaction; see [`PooledConnection::run`](crate::wire::PooledConnection::run). Also returns
    /// the result of the reset check.
    pub async fn run(
        &mut self,
        batch: &Batch<'_>,
        mode: SessionMode,
    ) -> Result<(ResultSets, Option<ResetCheck>), WireError> {
        if mode.pooled {
            return Ok((self.run_pooled(batch, mode).await?, None));
        }
        let Some(access) = batch.ends else {
            self.session.mark_dirty();
            return Ok((self.run_with_reset(batch, batch.len(), mode.prepared).await?, None));
        };
        let own = batch.len();
        let reset = self.session.reset(access, mode);
        let origin = Arc::clone(&self.session.origin);
        let mut with_reset = batch.clone();
        if mode.prepared {
            with_reset.statements.extend(reset.statements());
        } else {
            with_reset.statements.extend(discard_everything(&origin.assume_role, mode.traits));
        }
        self.session.mark_dirty();
        let mut results = self.run_with_reset(&with_reset, own, mode.prepared).await?;
        if results.len() == own && with_reset.len() > own {
            // The reset failed, and the connection has ended
            return Ok((results, None));
        }
        let mut check = None;
        if self.in_transaction {
            // The transaction did not end with the batch
        } else if !mode.prepared {
            let Some(keeps) = has_kept_values(&results, mode.traits) else { return Err(self.response_mismatch()) };
            self.session.record_discard(keeps);
        } else {
            let Some(found) = reset.check(&results, own) else { return Err(self.response_mismatch()) };
            check = Some(self.session.apply_reset_check(found));
        }
        results.truncate(own);
        Ok((results, check))
    }

    /// Runs a batch whose first `own` statements are the caller's; the statements after them reset
    /// the session. A result with only `own` statements means that the reset failed and that the
    /// connection has ended.
    pub(super) async fn run_with_reset(
        &mut self,
        batch: &Batch<'_>,
        own: usize,
        prepared: bool,
    ) -> Result<ResultSets, WireError> {
        check(batch)?;
        let is_whole_transaction = !self.in_transaction;
        let mut was_retried = false;
        loop {
            // An implicit transaction ends after the last statement, and may fail there
            let has_ended = |results: &ResultSets| {
                let is_end = matches!(results.tag(own.wrapping_sub(1)), "COMMIT" | "ROLLBACK");
                is_end && results.len() >= own && own < batch.len()
            };
            let attempt = self.attempt(batch, prepared).await;
            let mut responses = match (attempt, self.interrupted.take()) {
                (Ok(responses), _) => responses,
                // The connection was lost after the end of the transaction, whose result has
                // arrived
                (Err(error), Some(mut results)) if has_ended(&results) => {
                    tracing::debug!(error = %error, "a session ended after its transaction");
                    self.terminate();
                    results.truncate(own);
                    return Ok(results);
                }
                (Err(error), interrupted) => {
                    self.interrupted = interrupted;
                    return Err(error);
                }
            };
            let Some(error) = responses.error else { return self.complete(batch, responses.results) };
            if has_ended(&responses.results) && !self.in_transaction {
                // The statements of the caller took effect
                tracing::warn!(error = %error, "a session could not be reset and is closed");
                self.terminate();
                responses.results.truncate(own);
                return Ok(responses.results);
            }
            let may_retry = is_whole_transaction && !contains_commit(&responses.results);
            if is_out_of_sync(&error) {
                // The prepared statements of the server are not the ones that we believe it has
                self.terminate();
                self.is_out_of_sync = may_retry;
                return Err(WireError::Postgres(error));
            }
            let is_stale = !was_retried && may_retry && self.remove_stale(&responses.results, responses.bound, &error);
            if !is_stale {
                return Err(WireError::Postgres(error));
            }
            if self.in_transaction {
                // The batch began it, and the failed statement is its only effect
                self.execute("rollback").await?;
            }
            was_retried = true;
        }
    }

    /// Returns the results of a batch that did not fail. It is an error when they do not match its
    /// statements.
    fn complete(&mut self, batch: &Batch<'_>, mut results: ResultSets) -> Result<ResultSets, WireError> {
        if results.len() != batch.len() {
            return Err(self.response_mismatch());
        }
        results.in_transaction = self.in_transaction;
        Ok(results)
    }

    async fn attempt(&mut self, batch: &Batch<'_>, prepared: bool) -> Result<Responses, WireError> {
        if self.state != ConnectionState::Ready {
            return Err(WireError::Lost(io::ErrorKind::NotConnected.into()));
        }
        let large_values = self.encode(batch, prepared);
        let joined = batch.statements.iter().rposition(|statement| statement.joined.is_some());
        let joined = joined.and_then(|position| Some((position, batch.statements.get(position)?.joined?)));
        let responses = self.exchange(&large_values, batch.len(), joined).await?;
        if responses.error.is_some() {
            // The server has not parsed the statements after the failed message
            let sent = self.steps.iter().filter(|step| step.parses());
            for step in sent.skip(responses.parsed) {
                if let ParseStep::Parse { key, .. } = step {
                    self.statements.remove_unparsed(*key);
                }
            }
            self.statements.remove_unnamed();
        }
        Ok(responses)
    }

    /// Encodes the batch into the write buffer, except for its large values.
    fn encode<'a>(&mut self, batch: &Batch<'a>, prepared: bool) -> Vec<LargeValue<'a>> {
        let out = &mut self.channel.out;
        out.clear();
        self.steps.clear();
        let statements = &mut self.statements;
        statements.begin_batch();
        self.steps.extend(batch.statements.iter().map(|statement| match statement.preparation {
            Preparation::Named if prepared => match statements.step(statement.text, statement.scope) {
                ParseStep::Unnamed => statements.unnamed_step(None),
                step => step,
            },
            Preparation::Named | Preparation::Unnamed => statements.unnamed_step(None),
            Preparation::KeptUnnamed(text) => statements.unnamed_step(Some(text)),
        }));
        // Before everything else, so that the server does not skip them after an error
        for name in statements.obsolete_names() {
            message(out, b'C', 0, |out| {
                out.put_u8(b'S');
                put_name(out, Some(name));
            });
        }
        let mut large_values = Vec::new();
        for (statement, step) in batch.statements.iter().zip(&self.steps) {
            let name = match step {
                ParseStep::Prepared { name, .. } | ParseStep::Parse { name, .. } => Some(*name),
                ParseStep::Unnamed | ParseStep::PreparedUnnamed => None,
            };
            if step.parses() {
                parse(out, name, statement.text);
            }
            bind(out, name, statement, &mut large_values);
            out.put_slice(EXECUTE);
        }
        out.put_slice(SYNC);
        large_values
    }

    /// Removes a statement that was parsed earlier and has failed, if that may be the cause.
    pub fn remove_if_stale(&mut self, key: u64, error: &PostgresError) {
        if means_stale(error, true) {
            self.statements.remove(key);
        }
    }

    /// Returns true if the failed statement may have failed because an earlier batch parsed it,
    /// before something it depends on changed. Then all statements of the batch that earlier
    /// batches parsed are forgotten.
    fn remove_stale(&mut self, results: &ResultSets, bound: usize, error: &PostgresError) -> bool {
        let failed = results.len();
        let Some(ParseStep::Prepared { key, name }) = self.steps.get(failed).copied() else { return false };
        let is_new = self.steps.contains(&ParseStep::Parse { key, name });
        if is_new || !means_stale(error, bound <= failed) {
            return false;
        }
        for step in &self.steps {
            if let ParseStep::Prepared { key, .. } = step {
                self.statements.remove(*key);
            }
        }
        true
    }
}

/// Returns true if the error can come from a statement that was parsed under an earlier schema.
fn means_stale(error: &PostgresError, while_binding: bool) -> bool {
    match &*error.code {
        // "cached plan must not change result type"
        "0A000" => true,
        // Permissions are checked at each execution, and row-level security rejects many requests
        "42501" => false,
        "XX000" => error.message.starts_with("cache lookup failed"),
        // A value that does not fit the type that its column had
        "22P02" | "22003" | "22007" | "22008" => while_binding,
        code => code.starts_with("42"),
    }
}

/// Returns true if the server does not have the prepared statements that we believe it has, or no
/// longer follows the protocol. A function may raise the same codes itself: then the batch costs a
/// connection.
pub(crate) fn is_out_of_sync(error: &PostgresError) -> bool {
    matches!(&*error.code, "26000" | "42P05" | "08P01")
}

/// Returns true if a part of the batch took effect in spite of its error.
fn contains_commit(results: &ResultSets) -> bool {
    (0..results.len()).any(|statement| matches!(results.tag(statement), "COMMIT" | "PREPARE TRANSACTION"))
}
