//! Batches behind a connection pooler that lends another server session for each transaction.
//!
//! [`cleaning`](crate::pooler::cleaning) has the rules. Here they are kept within one batch, which
//! has one `Sync`: its transaction begins with statements that clean the session or end it, and
//! what follows the `commit` arrives before the pooler takes the session away. After an error
//! inside of the transaction the session is still lent, and is restored with the `rollback`.

use std::sync::Arc;

use super::connection::WireConnection;
use super::function_traits::FunctionTraits;
use super::mode::SessionMode;
use crate::pooler::cleaning::{
    END, END_UNLESS_BARE, END_UNLESS_BARE_OR_KEPT, END_UNLESS_CLEAN, END_UNLESS_CLEAN_AT_VERSION, END_UNLESS_UNUSED,
    MARK_AS_USED, RESET,
};
use crate::wire::protocol::batch::{Batch, Param, Statement};
use crate::wire::protocol::error::WireError;
use crate::wire::protocol::result_sets::ResultSets;

/// Sets one setting for a transaction.
const SET: &str = "select pg_catalog.set_config($1, $2, true)";

/// Returns the statement that ends an unclean session at the beginning of a transaction. `version`
/// is that of the expressions and the time at which it was read, if the statement compares them.
fn check<'a>(mode: SessionMode, version: &'a [Param<'a>]) -> Statement<'a> {
    match mode.traits {
        _ if !mode.runs_project_code => Statement::unnamed(END_UNLESS_BARE, &[]),
        FunctionTraits { keeps: true, .. } => Statement::unnamed(END_UNLESS_UNUSED, &[]),
        FunctionTraits { unwatched: None, .. } => Statement::unnamed(END_UNLESS_CLEAN, &[]),
        FunctionTraits { unwatched: Some(_), .. } => Statement::unnamed(END_UNLESS_CLEAN_AT_VERSION, version),
    }
}

impl WireConnection {
    /// Runs a batch; see [`run`](WireConnection::run).
    pub(super) async fn run_pooled(&mut self, batch: &Batch<'_>, mode: SessionMode) -> Result<ResultSets, WireError> {
        let begins = !self.in_transaction();
        let origin = Arc::clone(&self.session().origin);
        let settings: Vec<[Param<'_>; 2]> =
            origin.settings.iter().map(|(name, value)| [Some(name.as_bytes()), Some(value.as_bytes())]).collect();
        let version = mode.traits.unwatched.map(|known| [known.version.to_string(), known.read_at.to_string()]);
        let version = version.as_ref().map(|texts| texts.each_ref().map(|text| Some(text.as_bytes())));
        let version = version.as_ref().map_or(&[][..], |params| &params[..]);
        let plain = |text| Statement::unnamed(text, &[]);
        let mut whole = Batch::new();
        let (first, rest) = match batch.statements.split_first() {
            Some((first, rest)) if begins && first.text.starts_with("begin") => (Some(first), rest),
            _ => (None, &batch.statements[..]),
        };
        whole.statements.extend(first);
        let start = whole.len();
        if begins {
            whole.statements.extend(RESET.into_iter().map(plain));
            whole.statements.push(check(mode, version));
            whole.statements.extend(mode.runs_project_code.then(|| plain(MARK_AS_USED)));
            whole.statements.extend((!origin.assume_role.is_empty()).then(|| plain(&origin.assume_role)));
            whole.statements.extend(settings.iter().map(|setting| Statement::unnamed(SET, setting)));
        }
        let end = whole.len();
        whole.statements.extend(rest);
        let wanted = whole.len();
        if batch.ends.is_some() {
            whole.statements.extend(RESET.into_iter().map(plain));
            // Without an end of its own the batch's transaction is still open here, and would be
            // lost with the session
            let has_end = batch.statements.last().is_some_and(|last| matches!(last.text, "commit" | "rollback"));
            let end = if mode.traits.keeps { END } else { END_UNLESS_BARE_OR_KEPT };
            whole.statements.extend(has_end.then(|| plain(end)));
        }
        self.session().mark_dirty();
        let outcome = self.run_with_reset(&whole, wanted, false).await;
        let mut results = match outcome {
            Err(error) => {
                // The session was ended before it had run anything of the batch
                let completed = self.interrupted.as_ref().map(ResultSets::len);
                self.is_out_of_sync |= begins && completed.is_some_and(|completed| completed < end);
                return Err(error);
            }
            Ok(results) => results,
        };
        if results.len() > wanted && !self.in_transaction() {
            // The pooler's session keeps the remainder, which does not concern this connection
            self.session().record_discard(false);
        }
        results.truncate(wanted);
        results.leave_out(start..end);
        Ok(results)
    }
}
