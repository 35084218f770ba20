//! The topics of channels in several cohorts, whose messages are kept from one cohort to the next.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::changes::subscriptions::group::SubscriptionGroup;

/// The topics of the groups of a slice, and whether they are those of several cohorts.
#[derive(Debug, Default)]
pub(in crate::changes) struct SharedTopics {
    /// The groups that are counted.
    groups: HashSet<u64>,
    topics: HashMap<Arc<str>, TopicCohorts>,
}

/// The cohorts of a topic's groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TopicCohorts {
    One(usize),
    Several,
}

impl SharedTopics {
    /// Counts a group of a cohort.
    pub fn add(&mut self, group: &SubscriptionGroup, cohort: usize) {
        if self.groups.insert(group.id()) {
            let of_topic = self.topics.entry(Arc::clone(&group.key.topic)).or_insert(TopicCohorts::One(cohort));
            if *of_topic != TopicCohorts::One(cohort) {
                *of_topic = TopicCohorts::Several;
            }
        }
    }

    /// Returns true if channels of several cohorts have a topic.
    pub fn contain(&self, topic: &str) -> bool {
        self.topics.get(topic) == Some(&TopicCohorts::Several)
    }
}
