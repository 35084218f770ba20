//! The messages of the changes that are worked on at once, each rendered once for all receivers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::committed_change::CommittedChange;
use super::event::ChangeMessages;
use super::pauses::Pauses;
use super::rendering::render_waiting;
use super::role_reads::RoleReads;
use super::verdict::Candidate;
use crate::socket::FrameMemory;

/// The messages of changes, by the positions of these.
#[derive(Debug)]
pub(super) struct SliceMessages<'a> {
    changes: &'a [CommittedChange],
    max_bytes: usize,
    memory: &'a Arc<FrameMemory>,
    messages: HashMap<usize, ChangeMessages<'a>>,
}

impl<'a> SliceMessages<'a> {
    /// Renders the rows of the changes that have candidates.
    pub fn new(
        changes: &'a [CommittedChange],
        candidates: &[Candidate],
        max_bytes: usize,
        memory: &'a Arc<FrameMemory>,
    ) -> Self {
        let mut all = Self { changes, max_bytes, memory, messages: HashMap::new() };
        for candidate in candidates.iter().filter(|candidate| !candidate.is_dropped()) {
            all.of_change(candidate.change);
        }
        all
    }

    /// Returns true if PostgreSQL has to render a value.
    pub fn are_waiting(&mut self) -> bool {
        self.messages.values_mut().any(ChangeMessages::is_waiting)
    }

    /// Has PostgreSQL render the values of those changes that `is_sent` names. `paused` are the
    /// tables whose casts took too long, and `time` is that for the values of a column.
    pub async fn render(
        &mut self,
        reads: &RoleReads,
        paused: &mut Pauses<u32>,
        time: Duration,
        is_sent: impl Fn(usize) -> bool,
    ) {
        let sent = self.messages.iter_mut().filter(|(number, _)| is_sent(**number));
        render_waiting(reads, sent.map(|(_, messages)| messages).collect(), paused, time).await;
    }

    /// Returns the messages of a change. `None`: there is no such change.
    pub fn of_change(&mut self, number: usize) -> Option<&mut ChangeMessages<'a>> {
        let change = self.changes.get(number)?;
        let messages = self.messages.entry(number);
        Some(messages.or_insert_with(|| ChangeMessages::new(change, self.max_bytes, self.memory)))
    }
}
