//! The decision which entries receive a change, and which columns of it.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;

use super::access::TableAccess;
use crate::changes::entries::entry::ChangeAction;
use crate::changes::reads::role_reads::{ChangeReader, ReadFailure};
use crate::changes::slice::committed_change::CommittedChange;
use crate::changes::slice::event::EventContent;
use crate::changes::slice::slice_keys::SliceKeys;
use crate::changes::subscriptions::group::{EntryTarget, SubscriptionGroup};
use crate::settings::ChangesSettings;

/// An entry that a change may have to be sent to.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// The position of the change in its batch.
    pub change: usize,
    pub target: Arc<EntryTarget>,
    pub verdict: CandidateOutcome,
}

/// The decision about a candidate.
#[derive(Debug, Clone)]
pub(crate) enum CandidateOutcome {
    Undecided,
    Dropped,
    Sent(EventContent),
}

impl Candidate {
    /// Returns the reader.
    pub fn reader(&self) -> &Arc<ChangeReader> {
        &self.target.group.key.reader
    }

    /// Returns true before the decision.
    pub fn is_undecided(&self) -> bool {
        matches!(self.verdict, CandidateOutcome::Undecided)
    }

    /// Returns true if the change is not sent.
    pub fn is_dropped(&self) -> bool {
        matches!(self.verdict, CandidateOutcome::Dropped)
    }
}

/// A question about what may be read of a table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum AccessQuestion {
    /// Of the role, the columns.
    Role(u32, Box<str>),
    /// Of the reader, the columns and rows.
    Rows(u32, Arc<ChangeReader>),
}

/// The numbers of the keys that each question is about.
pub(crate) type AccessQuestions = IndexMap<AccessQuestion, Vec<usize>>;
/// The answers. `None`: the table does not exist any more.
pub(crate) type AccessAnswers = HashMap<AccessQuestion, Result<Option<TableAccess>, ReadFailure>>;

/// The answers about the candidates of a cohort.
#[derive(Debug)]
pub(crate) struct CohortAnswers<'a> {
    /// The answers about roles, for all cohorts of the slice.
    pub of_slice: &'a AccessAnswers,
    /// Later answers to the same questions, if those had become old.
    pub of_slice_again: AccessAnswers,
    pub of_cohort: AccessAnswers,
    pub keys: &'a SliceKeys,
}

impl CohortAnswers<'_> {
    /// Returns the answers about roles.
    pub fn of_roles(&self) -> &AccessAnswers {
        if self.of_slice_again.is_empty() { self.of_slice } else { &self.of_slice_again }
    }

    /// Returns the answer to a question, if it was asked.
    pub fn get(&self, question: &AccessQuestion) -> Option<&Result<Option<TableAccess>, ReadFailure>> {
        self.of_cohort.get(question).or_else(|| self.of_roles().get(question))
    }

    /// Returns true if the rows of a table were asked about for a reader.
    pub fn has_asked(&self, table: u32, reader: &Arc<ChangeReader>) -> bool {
        self.of_cohort.contains_key(&AccessQuestion::Rows(table, Arc::clone(reader)))
    }
}

/// Returns true for a new row of a table without a primary key.
pub(crate) fn is_keyless(change: &CommittedChange) -> bool {
    change.action() != ChangeAction::Delete && !change.table.table.has_primary_key()
}

/// Adds the question whether a reader may read the row of a table with a key.
pub(crate) fn ask_about_row(questions: &mut AccessQuestions, oid: u32, reader: &Arc<ChangeReader>, key: Option<usize>) {
    let keys = questions.entry(AccessQuestion::Rows(oid, Arc::clone(reader))).or_default();
    // The entries of a reader follow each other
    if keys.last().copied() != key {
        keys.extend(key);
    }
}

/// Adds the question which columns of a table a role may read.
pub(crate) fn ask_about_role(questions: &mut AccessQuestions, oid: u32, role: &str) {
    questions.entry(AccessQuestion::Role(oid, role.into())).or_default();
}

/// The table, its readable columns and the address of the entry's selection: the shown columns
/// depend on them.
type ShownKey = (u32, Arc<[bool]>, usize);

/// Returns the groups of the undecided candidates about which the database gave no answer, for
/// other reasons than a slow policy, by their ids. They miss changes.
pub(crate) fn unanswered(
    changes: &[CommittedChange],
    candidates: &[Candidate],
    answers: &CohortAnswers<'_>,
) -> IndexMap<u64, Arc<SubscriptionGroup>> {
    if answers.of_cohort.values().chain(answers.of_roles().values()).all(Result::is_ok) {
        return IndexMap::new();
    }
    let undecided = candidates.iter().filter(|candidate| candidate.is_undecided());
    let missing = undecided.filter(|candidate| {
        let Some(change) = changes.get(candidate.change) else { return false };
        let (oid, reader) = (change.table.table.oid, candidate.reader());
        let of_rows = answers.get(&AccessQuestion::Rows(oid, Arc::clone(reader)));
        // A right that is missing shows in the answer about the role
        let is_of_rows = |answer: &&Result<Option<TableAccess>, ReadFailure>| {
            change.action() != ChangeAction::Delete && !answer.as_ref().is_err_and(|failure| failure.has_code("42501"))
        };
        match of_rows.filter(is_of_rows) {
            Some(answer) => answer.as_ref().is_err_and(ReadFailure::is_unanswered),
            None => {
                let of_role = answers.get(&AccessQuestion::Role(oid, reader.role.clone()));
                of_role.is_some_and(|answer| answer.as_ref().is_err_and(ReadFailure::is_temporary))
            }
        }
    });
    missing.map(|candidate| (candidate.target.group.id(), Arc::clone(&candidate.target.group))).collect()
}

/// Decides on the candidates.
pub(crate) fn decide(
    settings: &ChangesSettings,
    changes: &[CommittedChange],
    candidates: &mut [Candidate],
    answers: &CohortAnswers<'_>,
) {
    let mut shown: HashMap<ShownKey, Arc<[bool]>> = HashMap::new();
    for candidate in candidates.iter_mut().filter(|candidate| candidate.is_undecided()) {
        candidate.verdict = CandidateOutcome::Dropped;
        let Some(change) = changes.get(candidate.change) else { continue };
        let Some(access) = permitting_access(settings, change, candidate, answers) else { continue };
        // A right to read a column that a filter compares may have been revoked
        let mut tests = candidate.target.filter.tests.iter();
        let compares = |name: &str| access.reads(&change.table, name) && is_compared(settings, change, access, name);
        if !tests.all(|test| compares(&test.column)) {
            continue;
        }
        let entry = candidate.target.entry();
        let identity = entry.select.as_ref().map_or(0, |select| select.as_ptr() as usize);
        let key = (change.table.table.oid, Arc::clone(&access.columns), identity);
        let columns = shown.entry(key).or_insert_with(|| {
            let selects = |name: &str, is_key| {
                is_key || entry.select.as_ref().is_none_or(|select| select.iter().any(|column| **column == *name))
            };
            let columns = change.table.table.columns.iter().zip(access.columns.iter());
            columns.map(|(column, reads)| *reads && selects(&column.name, column.is_primary_key)).collect()
        });
        let content = EventContent::Row { columns: Arc::clone(columns), has_row_security: access.has_row_security };
        candidate.verdict = CandidateOutcome::Sent(content);
    }
}

/// Returns true if filters may be compared with a column of a change. Policies cannot decide about
/// a deleted row any more, and the arrival of its event would tell about its values: where there
/// are policies, only the key is compared, which the event shows.
fn is_compared(settings: &ChangesSettings, change: &CommittedChange, access: &TableAccess, name: &str) -> bool {
    let hides_values =
        change.action() == ChangeAction::Delete && access.has_row_security && !settings.deletes_compared_whole;
    let mut columns = change.table.table.columns.iter();
    !hides_values || columns.any(|column| column.is_primary_key && *column.name == *name)
}

/// Returns what the reader of a candidate may read of the change, unless it must not receive it.
fn permitting_access<'a>(
    settings: &ChangesSettings,
    change: &CommittedChange,
    candidate: &Candidate,
    answers: &'a CohortAnswers<'_>,
) -> Option<&'a TableAccess> {
    let (oid, reader) = (change.table.table.oid, candidate.reader());
    let answer = |question: AccessQuestion| answers.get(&question)?.as_ref().ok()?.as_ref();
    let of_role = || answer(AccessQuestion::Role(oid, reader.role.clone()));
    if change.action() == ChangeAction::Delete {
        return of_role().filter(|access| settings.deletes_without_privilege || access.reads_any());
    }
    match answers.get(&AccessQuestion::Rows(oid, Arc::clone(reader))) {
        Some(answer) => {
            let access = answer.as_ref().ok()?.as_ref()?;
            access.visible.contains(&answers.keys.number(candidate.change)?).then_some(access)
        }
        // The table has no row-level security, as PostgreSQL has just confirmed
        None => of_role().filter(|access| !access.has_row_security && access.reads_key(&change.table)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::entries::entry::ChangeMessageForm;
    use crate::changes::subscriptions::group::GroupKey;
    use crate::decode::{CommitTime, described_table, inserted};
    use crate::socket::frame::Version;

    #[test]
    fn a_missing_right_without_an_answer_about_the_role_is_no_answer() {
        let change = CommittedChange {
            commit_time: CommitTime(0),
            table: described_table(1, &["id"]),
            change: inserted(&["1"]),
        };
        let changes = [change];
        let reader = Arc::new(ChangeReader::new("authenticated".into(), "{}".into(), None));
        let key = GroupKey {
            reader: Arc::clone(&reader),
            topic: "a".into(),
            version: Version::V2,
            form: ChangeMessageForm::Ids,
            entries: Arc::new([]),
        };
        let group = Arc::new(SubscriptionGroup::new(7, key, Arc::new([])));
        let target = Arc::new(EntryTarget { group, entry: 0, filter: Arc::default() });
        let candidates = [Candidate { change: 0, target, verdict: CandidateOutcome::Undecided }];
        let (of_slice, keys) = (AccessAnswers::new(), SliceKeys::of(&changes));
        let rejected = |code: &str| Err(ReadFailure::Rejected { code: code.into(), message: "".into() });
        let (rows, role) = (AccessQuestion::Rows(1, reader), AccessQuestion::Role(1, "authenticated".into()));
        for (of_rows, of_role, groups) in [
            ("42501", Some(rejected("53300")), 1),
            ("42501", Some(rejected("42501")), 0),
            ("42501", None, 0),
            ("53300", None, 1),
            ("22012", None, 0),
        ] {
            let answers = [(rows.clone(), rejected(of_rows))].into_iter();
            let of_cohort = answers.chain(of_role.map(|answer| (role.clone(), answer))).collect();
            let of_slice_again = AccessAnswers::new();
            let answers = CohortAnswers { of_slice: &of_slice, of_slice_again, of_cohort, keys: &keys };
            assert_eq!(unanswered(&changes, &candidates, &answers).len(), groups, "{of_rows}");
        }
    }
}
