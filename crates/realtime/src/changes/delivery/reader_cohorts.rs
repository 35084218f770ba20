//! The cohorts of readers for which the changes of a slice are decided and sent together.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;

use super::shared_topics::SharedTopics;
use crate::changes::decision::verdict::Candidate;
use crate::changes::reads::role_reads::ChangeReader;
use crate::changes::slice::committed_change::CommittedChange;
use crate::changes::subscriptions::group::SubscriptionGroup;

/// The largest number of cohorts before the last one. The first of them needs no reads.
const COHORTS: usize = 33;
/// The number of the last cohort.
const LAST_COHORT: usize = COHORTS;
/// The number of cohorts that are decided and sent at once at least, if they are slow.
const MIN_AT_ONCE: usize = 3;
/// The number of reads of the cohorts that are decided at once, if that is not less than
/// [`MIN_AT_ONCE`] cohorts.
const READS_AT_ONCE: usize = 128;
/// The largest number of tables of a slice that is split.
const MAX_TABLES: usize = 64;

/// The candidates of a slice by the cohort of their reader, in their order. A channel has one
/// reader, so that it still receives its changes in their order.
///
/// That a role may not read a table at all shows when a reader is asked about its rows, and all
/// readers of the role receive an error then. So those that are not asked about every such table
/// that their channels name are in the last cohort, which is decided when all others are sent. So
/// are those with conditions that PostgreSQL evaluates: it does so once, for all of them together.
#[derive(Debug)]
pub(in crate::changes) struct ReaderCohorts {
    /// Those of the cohorts before the last one.
    pub first: Vec<Vec<Candidate>>,
    pub last: Vec<Candidate>,
    pub topics: SharedTopics,
    /// The number of reads of the cohort that needs the most.
    most_reads: usize,
}

/// The cohort of a reader, and the reasons for it.
#[derive(Debug, Default)]
struct ReaderPlacement {
    /// The tables that the reader is asked about, a bit for each.
    asked: u64,
    is_last: bool,
    number: Option<usize>,
}

impl ReaderCohorts {
    /// Returns the cohorts of the candidates for changes.
    pub fn of(changes: &[CommittedChange], candidates: Vec<Candidate>) -> Self {
        let secured = changes.iter().filter(|change| change.needs_rows());
        let tables: IndexMap<u32, (&str, &str)> =
            secured.map(|change| (change.table.table.oid, change.table_name())).collect();
        if tables.len() > MAX_TABLES {
            return Self::all_at_last(candidates);
        }
        // By the positions of the changes
        let bits: Vec<u64> = changes
            .iter()
            .map(|change| {
                let table = tables.get_index_of(&change.table.table.oid).filter(|_| change.needs_rows());
                table.map_or(0, |table| 1 << table)
            })
            .collect();
        let mut readers: IndexMap<Arc<ChangeReader>, ReaderPlacement> = IndexMap::new();
        // By the positions of the candidates
        let mut of_candidates = Vec::with_capacity(candidates.len());
        for candidate in &candidates {
            let reader = readers.entry(Arc::clone(candidate.reader()));
            of_candidates.push(reader.index());
            let placement = reader.or_default();
            if candidate.is_undecided() {
                placement.asked |= bits.get(candidate.change).copied().unwrap_or_default();
                placement.is_last |= candidate.target.filter.needs_database();
            }
        }
        let mut of_roles: HashMap<&str, u64> = HashMap::new();
        for (reader, placement) in &readers {
            *of_roles.entry(&*reader.role).or_default() |= placement.asked;
        }
        // By reader: the tables that others of its role are asked about
        let other: Vec<u64> = readers
            .iter()
            .map(|(reader, placement)| of_roles.get(&*reader.role).copied().unwrap_or_default() & !placement.asked)
            .collect();
        let names = |group: &SubscriptionGroup, bits: u64| {
            let mut named = tables.values().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
            named.any(|(_, (schema, table))| group.key.entries.iter().any(|entry| entry.names(schema, table)))
        };
        for (candidate, reader) in candidates.iter().zip(&of_candidates) {
            if other[*reader] != 0 {
                readers[*reader].is_last |= names(&candidate.target.group, other[*reader]);
            }
        }
        let (mut first, mut last, mut count) = (Vec::new(), Vec::new(), 0);
        let (mut reads, mut topics) = ([0; LAST_COHORT + 1], SharedTopics::default());
        for (candidate, reader) in candidates.into_iter().zip(of_candidates) {
            let placement = &mut readers[reader];
            let number = *placement.number.get_or_insert_with(|| {
                let number = match placement.asked {
                    _ if placement.is_last => LAST_COHORT,
                    // Together, so that they share the bytes of their messages
                    0 => 0,
                    _ => {
                        count += 1;
                        1 + (count - 1) % (COHORTS - 1)
                    }
                };
                reads[number] += placement.asked.count_ones() as usize;
                number
            });
            topics.add(&candidate.target.group, number);
            if number == LAST_COHORT {
                last.push(candidate);
                continue;
            }
            if number >= first.len() {
                first.resize_with(number + 1, Vec::new);
            }
            if let Some(cohort) = first.get_mut(number) {
                cohort.push(candidate);
            }
        }
        Self { first, last, topics, most_reads: reads.into_iter().max().unwrap_or_default() }
    }

    /// Returns a last cohort alone.
    pub fn all_at_last(candidates: Vec<Candidate>) -> Self {
        Self { first: Vec::new(), last: candidates, topics: SharedTopics::default(), most_reads: 0 }
    }

    /// Returns the number of cohorts that may be decided and sent at once: all of them if their
    /// readers are few, so that some slow ones do not delay the others.
    pub fn at_once(&self) -> usize {
        (READS_AT_ONCE / self.most_reads.max(1)).clamp(MIN_AT_ONCE, COHORTS)
    }
}
