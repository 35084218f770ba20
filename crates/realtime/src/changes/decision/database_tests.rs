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

use crate::changes::entries::column_test::DatabaseTest;
use crate::changes::entries::validate::{malformed, text_array};
use crate::changes::reads::pauses::Pauses;
use crate::changes::reads::role_reads::{CANCELED, ChangeReader, ReadFailure, RoleReads, retrying};
use crate::changes::subscriptions::condition_budgets::{ConditionBudgets, FilterOwner};

/// The largest number of values of one read, and their largest size in bytes.
const MAX_ITEMS: usize = 500;
const MAX_BYTES: usize = 256 * 1024;
/// The largest number of searches for the values for which an operand fails. Conditions that were
/// not found to hold then do not hold.
const MAX_SEARCH: usize = 16;
/// The time for all conditions of a call. Those that have no answer then are unanswered.
const TIME: Duration = Duration::from_secs(3);
/// The time of all conditions of a read that is not counted.
const FREE_TIME: Duration = Duration::from_millis(10);
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

/// A question, and everyone who asks it, in order.
pub(crate) type AskedTest = (TestQuestion, Arc<[FilterOwner]>);

/// The failures and the times of conditions, kept from one set of changes to the next.
#[derive(Debug)]
pub(crate) struct ConditionMemory {
    /// The conditions that failed for each of several values, which are not evaluated for a while.
    failing: Pauses<(ConditionScope, DatabaseTest)>,
    budgets: ConditionBudgets,
}

impl ConditionMemory {
    /// Knows nothing. `pause` is the length of the first pause of a condition that fails.
    pub fn new(pause: Duration) -> Self {
        Self { failing: Pauses::new(pause), budgets: ConditionBudgets::default() }
    }
}

/// The conditions that do not hold, or about which nothing is known.
#[derive(Debug, Default)]
pub(crate) struct TestAnswers {
    pub failing: Vec<TestQuestion>,
    /// The database gave no answer: their readers miss changes.
    pub unanswered: Vec<TestQuestion>,
    /// Those whose filters have taken too long.
    pub slow: Vec<FilterOwner>,
}

/// The outcome of a group of questions.
#[derive(Debug, Default)]
struct TestOutcome {
    answers: TestAnswers,
    /// Questions whose condition fails for each of several values.
    paused: Vec<TestQuestion>,
    /// The time that the conditions took, for everyone who asks.
    spent: Vec<(Arc<[FilterOwner]>, Duration)>,
    /// Questions of several that took too long together, by those who ask.
    again: Vec<TestGroup>,
}

/// Returns the questions whose condition does not hold. Questions with the same scope and
/// expression share a read. If it takes too long, those of each subscriber are read alone: they do
/// not hold if that takes too long too, so that a subscriber delays the changes of others by two
/// reads, whatever the number of its conditions. All together take [`TIME`] at most: the first read
/// of each scope comes before the second ones. A condition that fails does not hold.
pub(crate) async fn failing_tests(
    reads: &RoleReads,
    memory: &mut ConditionMemory,
    questions: Vec<AskedTest>,
) -> TestAnswers {
    let mut all = TestAnswers::default();
    let mut groups: IndexMap<(ConditionScope, Arc<str>), Vec<AskedTest>> = IndexMap::new();
    for (question, owners) in questions {
        if memory.failing.contain(&(question.scope.clone(), question.test.clone())) {
            all.failing.push(question);
            continue;
        }
        let key = (question.scope.clone(), Arc::clone(&question.test.expression));
        groups.entry(key).or_default().push((question, owners));
    }
    let mut ranks: HashMap<ConditionScope, usize> = HashMap::new();
    let mut ranked = Vec::with_capacity(groups.len());
    let deadline = Instant::now() + TIME;
    for ((scope, expression), questions) in groups {
        let rank = ranks.entry(scope.clone()).or_default();
        *rank += 1;
        ranked.push((*rank, TestGroup { scope, expression, deadline, questions }));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    let mut groups: Vec<TestGroup> = ranked.into_iter().map(|(_, group)| group).collect();
    let mut spent: HashMap<FilterOwner, Duration> = HashMap::new();
    while !groups.is_empty() {
        let work = std::mem::take(&mut groups).into_iter().map(|group| test_group(reads, group).boxed());
        let work: Vec<BoxFuture<'_, TestOutcome>> = work.collect();
        let outcomes: Vec<TestOutcome> = stream::iter(work).buffer_unordered(MAX_READS).collect().await;
        for outcome in outcomes {
            all.failing.extend(outcome.answers.failing);
            all.unanswered.extend(outcome.answers.unanswered);
            all.slow.extend(outcome.answers.slow);
            groups.extend(outcome.again);
            for TestQuestion { scope, test, .. } in outcome.paused {
                let role = scope.role();
                tracing::warn!(role, operand = &*test.literal, "a condition of a filter fails for every value");
                memory.failing.begin((scope, test));
            }
            for (owners, time) in outcome.spent {
                owners.iter().for_each(|owner| *spent.entry(owner.clone()).or_default() += time);
            }
        }
    }
    let exceeded = spent.into_iter().filter(|(owner, time)| memory.budgets.spend(owner, *time));
    all.slow.extend(exceeded.map(|(owner, _)| owner));
    all
}

/// Questions with the same scope and expression.
#[derive(Debug)]
struct TestGroup {
    scope: ConditionScope,
    expression: Arc<str>,
    deadline: Instant,
    questions: Vec<AskedTest>,
}

impl TestGroup {
    /// Splits questions by those who ask. Returns nothing if everyone asks them all.
    fn by_owners(&self, items: &[AskedTest]) -> Vec<Self> {
        let mut by_owners: IndexMap<Arc<[FilterOwner]>, Vec<AskedTest>> = IndexMap::new();
        for item in items {
            by_owners.entry(Arc::clone(&item.1)).or_default().push(item.clone());
        }
        if by_owners.len() < 2 {
            return Vec::new();
        }
        let group = |questions| Self {
            scope: self.scope.clone(),
            expression: Arc::clone(&self.expression),
            deadline: self.deadline,
            questions,
        };
        by_owners.into_values().map(group).collect()
    }
}

async fn test_group(reads: &RoleReads, mut group: TestGroup) -> TestOutcome {
    // Equal operands are neighbours, so that one that fails is separated from the others
    group.questions.sort_by(|(left, _), (right, _)| left.test.literal.cmp(&right.test.literal));
    let (role, questions) = (group.scope.role(), &*group.questions);
    let sql = statement(&group.expression);
    let mut verdicts = vec![TestVerdict::Unanswered; questions.len()];
    let mut waiting = ranges(questions);
    let mut searches: HashMap<&str, usize> = HashMap::new();
    let mut outcome = TestOutcome::default();
    while let Some(range) = waiting.pop() {
        if Instant::now() >= group.deadline {
            tracing::warn!(role, "the conditions of filters take too long together");
            break;
        }
        let items = questions.get(range.clone()).unwrap_or_default();
        match retrying(|| evaluated(reads, role, &sql, items).boxed()).await {
            Ok(results) => {
                let time: Duration = results.iter().map(|result| result.time).sum();
                for (result, ((_, owners), verdict)) in
                    results.into_iter().zip(items.iter().zip(verdicts.get_mut(range).unwrap_or_default()))
                {
                    *verdict = if result.holds { TestVerdict::Holds } else { TestVerdict::HoldsNot };
                    if time >= FREE_TIME {
                        outcome.spent.push((Arc::clone(owners), result.time));
                    }
                }
            }
            Err(failure) if failure.has_code(CANCELED) => {
                let groups = group.by_owners(items);
                if groups.is_empty() {
                    // Its other conditions would take as long
                    outcome.answers.slow.extend(items.first().iter().flat_map(|(_, owners)| owners.iter().cloned()));
                    verdicts.get_mut(range).unwrap_or_default().fill(TestVerdict::HoldsNot);
                    for range in std::mem::take(&mut waiting) {
                        verdicts.get_mut(range).unwrap_or_default().fill(TestVerdict::HoldsNot);
                    }
                } else {
                    verdicts.get_mut(range).unwrap_or_default().fill(TestVerdict::Again);
                    outcome.again.extend(groups);
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
    for same in by_operand(questions) {
        let of_operand = verdicts.get(same.clone()).unwrap_or_default();
        if same.len() > 1 && of_operand.iter().all(|verdict| *verdict == TestVerdict::Failed) {
            outcome.paused.extend(questions.get(same.start).map(|(question, _)| question.clone()));
        }
    }
    for ((question, _), verdict) in group.questions.into_iter().zip(verdicts) {
        match verdict {
            TestVerdict::Holds | TestVerdict::Again => {}
            TestVerdict::HoldsNot | TestVerdict::Failed => outcome.answers.failing.push(question),
            TestVerdict::Unanswered => outcome.answers.unanswered.push(question),
        }
    }
    outcome
}

/// Returns the statement that evaluates an expression for values and operands, in their order: an
/// array of the result, and the time in seconds before and after it.
fn statement(expression: &str) -> String {
    const NOW: &str = "pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())";
    format!(
        "select pg_catalog.jsonb_build_array({NOW}, coalesce(({expression}), false), {NOW})::pg_catalog.text \
           from rows from (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])) \
                as item (value, literal)"
    )
}

/// The answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestVerdict {
    Unanswered,
    /// Asked again, with the questions of the same subscribers alone.
    Again,
    Holds,
    /// Does not hold, or takes too long.
    HoldsNot,
    Failed,
}

/// Returns the ranges of questions with the same operand, of questions sorted by their operands.
fn by_operand(items: &[AskedTest]) -> Vec<Range<usize>> {
    let mut start = 0;
    let runs = items.chunk_by(|(left, _), (right, _)| left.test.literal == right.test.literal);
    runs.map(|run| {
        start += run.len();
        start - run.len()..start
    })
    .collect()
}

/// Returns the position between two operands at which to split questions that failed together,
/// sorted by their operands. `None`: they have the same operand.
fn boundary(items: &[AskedTest]) -> Option<usize> {
    let literal = &*items.get(items.len() / 2)?.0.test.literal;
    let start = items.partition_point(|(item, _)| *item.test.literal < *literal);
    let end = items.partition_point(|(item, _)| *item.test.literal <= *literal);
    if start > 0 { Some(start) } else { Some(end).filter(|end| *end < items.len()) }
}

/// Returns the position at which to split questions that failed together: between two operands, or
/// in the middle, for which an operand has a limited number of `searches`.
fn middle<'a>(items: &'a [AskedTest], searches: &mut HashMap<&'a str, usize>) -> Option<usize> {
    if let Some(boundary) = boundary(items) {
        return Some(boundary);
    }
    let searches = searches.entry(&*items.first()?.0.test.literal).or_default();
    *searches += 1;
    (items.len() > 1 && *searches <= MAX_SEARCH).then_some(items.len() / 2)
}

/// Splits questions into lists of a limited size.
fn ranges(questions: &[AskedTest]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, (question, _)) in questions.iter().enumerate() {
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

/// The result of a condition for a value, and the time that it took.
struct Evaluated {
    holds: bool,
    time: Duration,
}

async fn evaluated(
    reads: &RoleReads,
    role: &str,
    sql: &str,
    items: &[AskedTest],
) -> Result<Vec<Evaluated>, ReadFailure> {
    let values = text_array(items.iter().map(|(item, _)| item.value.as_deref()));
    let literals = text_array(items.iter().map(|(item, _)| Some(&*item.test.literal)));
    let rows = reads.test_as_role(role, sql, &[Some(values.as_bytes()), Some(literals.as_bytes())]).await?;
    let rows: Vec<(f64, bool, f64)> = serde_json::from_slice(&rows).map_err(|error| malformed(&error))?;
    let time = |before: f64, after: f64| Duration::try_from_secs_f64(after - before).unwrap_or_default();
    Ok(rows.into_iter().map(|(before, holds, after)| Evaluated { holds, time: time(before, after) }).collect())
}
