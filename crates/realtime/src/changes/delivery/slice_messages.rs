//! The messages of the changes that are worked on at once, each rendered once for all receivers,
//! and encoded once for those of a topic.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::rendering::render_waiting;
use super::shared_topics::SharedTopics;
use crate::changes::decision::verdict::Candidate;
use crate::changes::reads::pauses::Pauses;
use crate::changes::reads::role_reads::RoleReads;
use crate::changes::slice::committed_change::CommittedChange;
use crate::changes::slice::event::{ChangeMessages, EventContent, MessageTarget};
use crate::socket::FrameMemory;
use crate::socket::frame::Frame;

/// The bytes of the frames that are kept for later cohorts, of all changes together. Frames beyond
/// are encoded again.
const MAX_KEPT_BYTES: usize = 4 * 1024 * 1024;

/// The messages of changes, by the positions of these.
#[derive(Debug)]
pub(in crate::changes) struct SliceMessages<'a> {
    changes: &'a [CommittedChange],
    max_bytes: usize,
    memory: &'a Arc<FrameMemory>,
    messages: HashMap<usize, ChangeMessages<'a>>,
    /// Those whose frames are kept.
    topics: SharedTopics,
    kept_bytes: usize,
}

impl<'a> SliceMessages<'a> {
    /// Renders the rows of the changes that have candidates.
    pub fn new(
        changes: &'a [CommittedChange],
        candidates: &[Candidate],
        max_bytes: usize,
        memory: &'a Arc<FrameMemory>,
    ) -> Self {
        let topics = SharedTopics::default();
        let mut all = Self { changes, max_bytes, memory, messages: HashMap::new(), topics, kept_bytes: 0 };
        for candidate in candidates.iter().filter(|candidate| !candidate.is_dropped()) {
            all.add(candidate.change);
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

    /// Keeps the frames for channels of these topics from one cohort to the next.
    pub fn share(&mut self, topics: SharedTopics) {
        self.topics = topics;
    }

    /// Returns the frame of a change for channels of a topic. `None`: there is no such change.
    pub fn frame(&mut self, number: usize, content: &EventContent, target: MessageTarget) -> Option<Frame> {
        self.add(number)?;
        let (topics, kept_bytes) = (&self.topics, &mut self.kept_bytes);
        let keeps = |topic: &str, bytes: usize| {
            let fits = topics.contain(topic) && *kept_bytes + bytes <= MAX_KEPT_BYTES;
            *kept_bytes += if fits { bytes } else { 0 };
            fits
        };
        Some(self.messages.get_mut(&number)?.frame(content, target, keeps))
    }

    /// Drops the frames of a change that are not kept.
    pub fn evict_frames(&mut self, number: usize) {
        if let Some(messages) = self.messages.get_mut(&number) {
            messages.evict_frames();
        }
    }

    /// Renders the rows of a change, unless that was done. `None`: there is no such change.
    fn add(&mut self, number: usize) -> Option<()> {
        let change = self.changes.get(number)?;
        let (max_bytes, memory) = (self.max_bytes, self.memory);
        self.messages.entry(number).or_insert_with(|| ChangeMessages::new(change, max_bytes, memory));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::entries::entry::ChangeMessageForm;
    use crate::changes::reads::role_reads::ChangeReader;
    use crate::changes::subscriptions::group::{GroupKey, SubscriptionGroup};
    use crate::decode::{CommitTime, described_table, inserted};
    use crate::socket::frame::Version;

    const COHORTS: [usize; 2] = [0, 1];

    /// Returns topics with channels in the first cohort, and those among them in the second one.
    fn topics(all: &[&str], shared: &[&str]) -> SharedTopics {
        let mut topics = SharedTopics::default();
        for (cohort, names) in COHORTS.into_iter().zip([all, shared]) {
            for (number, name) in names.iter().enumerate() {
                let key = GroupKey {
                    reader: Arc::new(ChangeReader::new("authenticated".into(), format!("{cohort}").into(), None)),
                    topic: (*name).into(),
                    version: Version::V2,
                    form: ChangeMessageForm::Ids,
                    entries: Arc::new([]),
                };
                let group = SubscriptionGroup::new((number * COHORTS.len() + cohort) as u64, key, Arc::new([]));
                topics.add(&group, cohort);
                // An entry after another one, or another change
                topics.add(&group, cohort);
            }
        }
        topics
    }

    fn change(id: &str) -> [CommittedChange; 1] {
        let table = described_table(1, &["id", "secret"]);
        [CommittedChange { commit_time: CommitTime(0), table, change: inserted(&[id, "x"]) }]
    }

    fn target(topic: &str) -> MessageTarget {
        MessageTarget { topic: topic.into(), version: Version::V2, form: ChangeMessageForm::Ids, ids: vec![1] }
    }

    fn content(columns: [bool; 2]) -> EventContent {
        EventContent::Row { columns: columns.into(), has_row_security: true }
    }

    fn bytes(frame: &Option<Frame>) -> &[u8] {
        match frame {
            Some(Frame::Text(bytes)) => bytes,
            _ => panic!("{frame:?}"),
        }
    }

    #[test]
    fn cohorts_share_the_bytes_of_their_topics_and_contents_alone() {
        let (changes, memory) = (change("1"), FrameMemory::new(0));
        let mut messages = SliceMessages::new(&changes, &[], usize::MAX, &memory);
        messages.share(topics(&["shared", "own"], &["shared"]));
        let contents = [content([true, true]), content([true, false])];
        let mut all = || {
            let frames = ["shared", "own"].map(|topic| {
                let [whole, narrow] = contents.each_ref().map(|content| messages.frame(0, content, target(topic)));
                assert!(bytes(&whole).windows(8).any(|bytes| bytes == b"\"secret\""));
                assert!(!bytes(&narrow).windows(8).any(|bytes| bytes == b"\"secret\""));
                let again = messages.frame(0, &contents[0], target(topic));
                assert_eq!(bytes(&whole).as_ptr(), bytes(&again).as_ptr(), "within a cohort");
                [whole, narrow]
            });
            messages.evict_frames(0);
            frames
        };
        let [first, second] = [all(), all()];
        let are_same = |topic: usize, content: usize| {
            bytes(&first[topic][content]).as_ptr() == bytes(&second[topic][content]).as_ptr()
        };
        assert!(are_same(0, 0) && are_same(0, 1) && !are_same(1, 0) && !are_same(1, 1));
        assert_eq!(first, second);
        drop((first, second));
        assert!(!memory.is_exceeded(), "what is kept does not wait for a client");
    }

    #[test]
    fn the_bytes_that_are_kept_are_bounded() {
        let (changes, memory) = (change(&"1".repeat(MAX_KEPT_BYTES / 3)), FrameMemory::new(usize::MAX));
        let mut messages = SliceMessages::new(&changes, &[], usize::MAX, &memory);
        let names = ["a", "b", "c"];
        messages.share(topics(&names, &names));
        let mut all = || {
            let frames = names.map(|name| messages.frame(0, &content([true, true]), target(name)));
            messages.evict_frames(0);
            frames
        };
        let (first, second) = (all(), all());
        let is_kept = |topic: usize| bytes(&first[topic]).as_ptr() == bytes(&second[topic]).as_ptr();
        assert_eq!([0, 1, 2].map(is_kept), [true, true, false]);
        assert_eq!(first, second);
    }
}
