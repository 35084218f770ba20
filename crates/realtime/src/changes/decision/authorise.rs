//! The questions to PostgreSQL about what readers may read of changes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use tokio::time::Instant;

use super::access::{TableAccess, TableRead, role_access, row_access};
use super::verdict::{
    AccessAnswers, AccessQuestion, AccessQuestions, Candidate, CohortAnswers, ask_about_role, ask_about_row, is_keyless,
};
use crate::changes::entries::entry::ChangeAction;
use crate::changes::reads::role_reads::{ReadFailure, RoleReads, retrying};
use crate::changes::slice::committed_change::CommittedChange;
use crate::changes::slice::slice_keys::NumberedKey;
use crate::changes::slice::slice_keys::SliceKeys;
use crate::changes::subscriptions::registry::Registry;
use crate::decode::DescribedTable;

/// The largest number of reads of a cohort that wait at once.
const MAX_READS: usize = 64;

/// The tables and roles that can read the whole primary key.
pub(in crate::changes) type KeyReaders = HashSet<(u32, Box<str>)>;
/// The reads of the tables of a slice, by their ids.
pub(in crate::changes) type TableReads<'a> = HashMap<u32, TableRead<'a>>;

/// Returns the reads of the tables of changes.
pub(in crate::changes) fn read_tables(changes: &[CommittedChange]) -> TableReads<'_> {
    let tables: HashMap<u32, &DescribedTable> =
        changes.iter().map(|change| (change.table.table.oid, &*change.table)).collect();
    tables.into_iter().map(|(oid, table)| (oid, TableRead::of(table))).collect()
}

/// Asks PostgreSQL what the readers of changes may read of them.
#[derive(Debug)]
pub(crate) struct RowAccess {
    pub registry: Arc<Registry>,
    pub reads: RoleReads,
    /// The time after which it is asked again, for a cohort, what roles may read.
    pub max_age: Duration,
}

/// The answers about roles for all cohorts of a slice.
#[derive(Debug)]
pub(in crate::changes) struct RoleAnswers {
    answers: AccessAnswers,
    asked_at: Instant,
}

impl RoleAnswers {
    /// Returns the answers.
    pub fn answers(&self) -> &AccessAnswers {
        &self.answers
    }
}

impl RowAccess {
    /// Asks PostgreSQL what roles may read: those of candidates for which only the role counts, and
    /// those that are not among `key_readers`. A role that cannot read the key receives an error
    /// for every change, whatever its filters.
    pub(in crate::changes) async fn ask_about_roles(
        &self,
        key_readers: &KeyReaders,
        tables: &TableReads<'_>,
        keys: &SliceKeys,
        changes: &[CommittedChange],
        candidates: &[Candidate],
    ) -> RoleAnswers {
        let asked_at = Instant::now();
        let mut questions = AccessQuestions::default();
        let mut before = None;
        for candidate in candidates.iter().filter(|candidate| candidate.is_undecided()) {
            if let Some(change) = changes.get(candidate.change)
                && !change.needs_rows()
            {
                let (oid, role) = (change.table.table.oid, &*candidate.reader().role);
                // Most candidates have the role of the one before
                if before.replace((oid, role)) != Some((oid, role)) {
                    ask_about_role(&mut questions, oid, role);
                }
            }
        }
        let mut looked_at = HashSet::new();
        let written = changes.iter().filter(|change| change.action() != ChangeAction::Delete && !is_keyless(change));
        for change in written {
            let oid = change.table.table.oid;
            if !looked_at.insert(oid) {
                continue;
            }
            for role in self.registry.roles(change.table_name()) {
                if !key_readers.contains(&(oid, role.clone())) {
                    ask_about_role(&mut questions, oid, &role);
                }
            }
        }
        RoleAnswers { answers: self.ask_all(tables, keys, questions).await, asked_at }
    }

    /// Asks PostgreSQL what the readers of some candidates may read. `of_slice` are the answers
    /// about their roles, which are asked for again if they are old: a right may have been revoked
    /// meanwhile. A role that cannot read a key any more receives nothing then, and the error
    /// events from the next slice on. Returns the candidates with the answers.
    pub(in crate::changes) async fn authorise<'a>(
        &self,
        tables: &TableReads<'_>,
        changes: &[CommittedChange],
        candidates: Vec<Candidate>,
        keys: &'a SliceKeys,
        of_slice: &'a RoleAnswers,
    ) -> (Vec<Candidate>, CohortAnswers<'a>) {
        let mut questions = AccessQuestions::default();
        for candidate in candidates.iter().filter(|candidate| candidate.is_undecided()) {
            if let Some(change) = changes.get(candidate.change)
                && change.needs_rows()
            {
                ask_about_row(
                    &mut questions,
                    change.table.table.oid,
                    candidate.reader(),
                    keys.number(candidate.change),
                );
            }
        }
        let of_cohort = self.ask_all(tables, keys, questions).await;
        let of_slice_again = if of_slice.asked_at.elapsed() >= self.max_age {
            let again = of_slice.answers.keys().map(|question| (question.clone(), Vec::new()));
            self.ask_all(tables, keys, again.collect()).await
        } else {
            AccessAnswers::new()
        };
        let mut answers = CohortAnswers { of_slice: &of_slice.answers, of_slice_again, of_cohort, keys };

        // Changes since the table was described, and reads that the role may not make
        let has_other_security = |oid: u32, access: &TableAccess| {
            access.has_row_security && tables.get(&oid).is_some_and(|read| !read.table.table.has_row_security)
        };
        let is_secured = |(question, answer): (&AccessQuestion, &Result<Option<TableAccess>, ReadFailure>)| matches!((question, answer), (AccessQuestion::Role(oid, _), Ok(Some(access))) if has_other_security(*oid, access));
        if answers.of_cohort.values().all(Result::is_ok) && !answers.of_roles().iter().any(is_secured) {
            return (candidates, answers);
        }
        let mut questions = AccessQuestions::default();
        let undecided = candidates.iter().filter(|candidate| candidate.is_undecided());
        for candidate in undecided {
            let Some(change) = changes.get(candidate.change) else { continue };
            let (oid, reader) = (change.table.table.oid, candidate.reader());
            let of_role = AccessQuestion::Role(oid, reader.role.clone());
            match answers.get(&AccessQuestion::Rows(oid, Arc::clone(reader))) {
                None => {
                    if let Some(Ok(Some(access))) = answers.get(&of_role)
                        && access.has_row_security
                        && change.action() != ChangeAction::Delete
                    {
                        ask_about_row(&mut questions, oid, reader, keys.number(candidate.change));
                    }
                }
                Some(Err(failure)) if failure.has_code("42501") && answers.get(&of_role).is_none() => {
                    ask_about_role(&mut questions, oid, &reader.role);
                }
                Some(_) => {}
            }
        }
        answers.of_cohort.extend(self.ask_all(tables, keys, questions).await);
        (candidates, answers)
    }

    async fn ask_all(&self, tables: &TableReads<'_>, keys: &SliceKeys, questions: AccessQuestions) -> AccessAnswers {
        let mut reads: Vec<BoxFuture<'_, _>> = Vec::with_capacity(questions.len());
        for (question, numbers) in questions {
            let oid = match &question {
                AccessQuestion::Role(oid, _) | AccessQuestion::Rows(oid, _) => oid,
            };
            if let Some(table) = tables.get(oid) {
                reads.push(self.ask_one(table, question, keys.with_numbers(numbers)).boxed());
            }
        }
        stream::iter(reads).buffer_unordered(MAX_READS).collect().await
    }

    async fn ask_one(
        &self,
        read: &TableRead<'_>,
        question: AccessQuestion,
        keys: Vec<NumberedKey<'_>>,
    ) -> (AccessQuestion, Result<Option<TableAccess>, ReadFailure>) {
        let answer = retrying(|| match &question {
            AccessQuestion::Role(_, role) => role_access(&self.reads, role, read.table).boxed(),
            AccessQuestion::Rows(_, reader) => row_access(&self.reads, reader, read, &keys).boxed(),
        })
        .await;
        (question, answer)
    }
}
