//! Conditions that PostgreSQL evaluates, for all changes of a batch at once.
//!
//! Only values of rows that the policies show to a reader are compared for that reader, and what
//! happens then is known to no other reader: a condition that fails or takes long tells nothing
//! about a row that is hidden.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use indexmap::IndexMap;
use tokio::time::Instant;

use super::column_test::DatabaseTest;
use super::pauses::Pauses;
use super::role_reads::{CANCELED, ChangeReader, ReadFailure, RoleReads, retrying};
use super::validate::{malformed, text_array};

/// The largest number of values of one read, and their largest size in bytes.
const MAX_ITEMS: usize = 500;
const MAX_BYTES: usize = 256 * 1024;
/// The largest number of searches for the values for which an operand fails. Conditions that were
/// not found to hold then do not hold.
const MAX_SEARCH: usize = 16;
/// The time for all conditions of a call. Those that have no answer then are unanswered.
const TIME: Duration = Duration::from_secs(5);
/// The largest number of reads that wait at once.
const MAX_READS: usize = 32;

/// The readers that share the evaluation of a condition: the same rows are visible to all of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ConditionScope {
    /// Everyone with this role, where no policy decides about the row.
    Role(Box<str>),
    /// One reader, where policies decide.
    Reader(Arc<ChangeReader>),
}

impl ConditionScope {
    /// Returns the role that evaluates the condition, so that nothing runs with more rights than
    /// its reader has.
    fn role(&self) -> &str {
        match self {
            Self::Role(role) => role,
            Self::Reader(reader) => &reader.role,
        }
    }
}

/// A condition and a value for which it may hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TestQuestion {
    pub scope: ConditionScope,
    pub test: DatabaseTest,
    /// PostgreSQL's text form.
    pub value: Option<Arc<str>>,
}

/// The conditions that took too long or failed, which are not evaluated for a while.
pub(crate) type PausedConditions = Pauses<(ConditionScope, DatabaseTest)>;

/// The conditions that do not hold, or about which nothing is known.
#[derive(Debug, Default)]
pub(crate) struct TestAnswers {
    pub failing: Vec<TestQuestion>,
    /// The database gave no answer: their readers miss changes.
    pub unanswered: Vec<TestQuestion>,
}

/// The outcome of a group of questions.
#[derive(Debug, Default)]
struct TestOutcome {
    answers: TestAnswers,
    /// Questions that took too long alone, or fail for each of several values.
    paused: Vec<TestQuestion>,
}

/// Returns the questions whose condition does not hold. Questions with the same scope and
/// expression share a read. A condition that fails does not hold; one that takes too long does not
/// hold for a minute, so that it delays the changes of other subscribers once. All together take
/// [`TIME`] at most, whatever their number: the first read of each scope comes before the second
/// ones.
pub(crate) async fn failing_tests(
    reads: &RoleReads,
    paused: &mut PausedConditions,
    questions: Vec<TestQuestion>,
) -> TestAnswers {
    let mut all = TestAnswers::default();
    let mut groups: IndexMap<(ConditionScope, Arc<str>), Vec<TestQuestion>> = IndexMap::new();
    for question in questions {
        if paused.contain(&(question.scope.clone(), question.test.clone())) {
            all.failing.push(question);
            continue;
        }
        let key = (question.scope.clone(), Arc::clone(&question.test.expression));
        groups.entry(key).or_default().push(question);
    }
    let mut ranks: HashMap<ConditionScope, usize> = HashMap::new();
    let mut ranked = Vec::with_capacity(groups.len());
    for ((scope, expression), questions) in groups {
        let rank = ranks.entry(scope.clone()).or_default();
        *rank += 1;
        ranked.push((*rank, scope, expression, questions));
    }
    ranked.sort_by_key(|(rank, ..)| *rank);
    let deadline = Instant::now() + TIME;
    let mut work: Vec<BoxFuture<'_, TestOutcome>> = Vec::with_capacity(ranked.len());
    for (_, scope, expression, questions) in ranked {
        let group = TestGroup { scope, expression, deadline };
        work.push(test_group(reads, group, questions).boxed());
    }
    let outcomes: Vec<TestOutcome> = stream::iter(work).buffer_unordered(MAX_READS).collect().await;
    for outcome in outcomes {
        all.failing.extend(outcome.answers.failing);
        all.unanswered.extend(outcome.answers.unanswered);
        for TestQuestion { scope, test, .. } in outcome.paused {
            let role = scope.role();
            tracing::warn!(role, operand = &*test.literal, "a condition of a filter fails or takes too long");
            paused.begin((scope, test));
        }
    }
    all
}

/// The scope, the expression and the deadline of a group of questions.
struct TestGroup {
    scope: ConditionScope,
    expression: Arc<str>,
    deadline: Instant,
}

async fn test_group(reads: &RoleReads, group: TestGroup, mut questions: Vec<TestQuestion>) -> TestOutcome {
    let TestGroup { scope, expression, deadline } = group;
    let role = scope.role();
    let sql = format!(
        "select item.position::pg_catalog.text \
           from rows from (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])) \
                with ordinality as item (value, literal, position) \
          where {expression}"
    );
    // Equal operands are neighbours, so that one that fails is separated from the others
    questions.sort_by(|left, right| left.test.literal.cmp(&right.test.literal));
    let mut verdicts = vec![TestVerdict::Unanswered; questions.len()];
    let mut waiting = ranges(&questions);
    let mut searches: HashMap<&str, usize> = HashMap::new();
    let mut paused = Vec::new();
    while let Some(range) = waiting.pop() {
        if Instant::now() >= deadline {
            tracing::warn!(role, "the conditions of filters take too long together");
            break;
        }
        let items = questions.get(range.clone()).unwrap_or_default();
        match retrying(|| holding_items(reads, role, &sql, items).boxed()).await {
            Ok(positions) => {
                for verdict in verdicts.get_mut(range.clone()).unwrap_or_default() {
                    *verdict = TestVerdict::HoldsNot;
                }
                for position in positions {
                    // Positions of SQL begin at 1
                    if let Some(verdict) = verdicts.get_mut(range.start + position.saturating_sub(1)) {
                        *verdict = TestVerdict::Holds;
                    }
                }
            }
            Err(failure) if failure.has_code(CANCELED) => {
                // Halves of halves would take a second each
                match by_operand(items).as_slice() {
                    [_] => {
                        paused.extend(items.first().cloned());
                        verdicts.get_mut(range).unwrap_or_default().fill(TestVerdict::HoldsNot);
                    }
                    parts => waiting.extend(parts.iter().map(|part| range.start + part.start..range.start + part.end)),
                }
            }
            Err(failure) if failure.is_unanswered() => {
                tracing::warn!(error = %failure, role, "a condition of a filter could not be evaluated");
            }
            Err(failure) => match middle(items, &mut searches).filter(|_| failure.is_of_an_item()) {
                Some(middle) => {
                    let middle = range.start + middle;
                    waiting.extend([range.start..middle, middle..range.end]);
                }
                None => {
                    tracing::warn!(error = %failure, role, "a condition of a filter failed");
                    verdicts.get_mut(range).unwrap_or_default().fill(TestVerdict::Failed);
                }
            },
        }
    }
    // An operand that fails for several values, and for each one, is not evaluated for a while
    // either
    for same in by_operand(&questions) {
        let of_operand = verdicts.get(same.clone()).unwrap_or_default();
        if same.len() > 1 && of_operand.iter().all(|verdict| *verdict == TestVerdict::Failed) {
            paused.extend(questions.get(same.start).cloned());
        }
    }
    let mut answers = TestAnswers::default();
    for (question, verdict) in questions.into_iter().zip(verdicts) {
        match verdict {
            TestVerdict::Holds => {}
            TestVerdict::HoldsNot | TestVerdict::Failed => answers.failing.push(question),
            TestVerdict::Unanswered => answers.unanswered.push(question),
        }
    }
    TestOutcome { answers, paused }
}

/// The answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestVerdict {
    Unanswered,
    Holds,
    /// Does not hold, or takes too long.
    HoldsNot,
    Failed,
}

/// Returns the ranges of questions with the same operand, of questions sorted by their operands.
fn by_operand(items: &[TestQuestion]) -> Vec<Range<usize>> {
    let mut start = 0;
    let runs = items.chunk_by(|left, right| left.test.literal == right.test.literal);
    runs.map(|run| {
        start += run.len();
        start - run.len()..start
    })
    .collect()
}

/// Returns the position between two operands at which to split questions that failed together,
/// sorted by their operands. `None`: they have the same operand.
fn boundary(items: &[TestQuestion]) -> Option<usize> {
    let literal = &*items.get(items.len() / 2)?.test.literal;
    let start = items.partition_point(|item| *item.test.literal < *literal);
    let end = items.partition_point(|item| *item.test.literal <= *literal);
    if start > 0 { Some(start) } else { Some(end).filter(|end| *end < items.len()) }
}

/// Returns the position at which to split questions that failed together: between two operands, or
/// in the middle, for which an operand has a limited number of `searches`.
fn middle<'a>(items: &'a [TestQuestion], searches: &mut HashMap<&'a str, usize>) -> Option<usize> {
    if let Some(boundary) = boundary(items) {
        return Some(boundary);
    }
    let searches = searches.entry(&items.first()?.test.literal).or_default();
    *searches += 1;
    (items.len() > 1 && *searches <= MAX_SEARCH).then_some(items.len() / 2)
}

/// Splits questions into lists of a limited size.
fn ranges(questions: &[TestQuestion]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, question) in questions.iter().enumerate() {
        let size = question.test.literal.len() + question.value.as_ref().map_or(0, |value| value.len());
        if at > start && (at - start == MAX_ITEMS || bytes + size > MAX_BYTES) {
            ranges.push(start..at);
            (start, bytes) = (at, 0);
        }
        bytes += size;
    }
    if start < questions.len() {
        ranges.push(start..questions.len());
    }
    ranges
}

async fn holding_items(
    reads: &RoleReads,
    role: &str,
    sql: &str,
    items: &[TestQuestion],
) -> Result<Vec<usize>, ReadFailure> {
    let values = text_array(items.iter().map(|item| item.value.as_deref()));
    let literals = text_array(items.iter().map(|item| Some(&*item.test.literal)));
    let rows = reads.test_as_role(role, sql, &[Some(values.as_bytes()), Some(literals.as_bytes())]).await?;
    serde_json::from_slice(&rows).map_err(|error| malformed(&error))
}
