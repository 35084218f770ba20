//! The messages of a change: the data of the event once for all readers of the same columns, and
//! its frame once for all channels of the same topic and version.

use std::collections::HashMap;
use std::sync::Arc;

use super::committed_change::CommittedChange;
use crate::changes::entries::entry::{ChangeAction, ChangeMessageForm};
use crate::decode::{RenderedRow, write_string};
use crate::socket::FrameMemory;
use crate::socket::frame::{EventHead, Frame, Reference, TOPIC_PREFIX, Version, encode_event};

/// The largest value that a change that is too large keeps, in bytes of JSON.
const MAX_KEPT_VALUE: usize = 64;

/// A reason for which an event has no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ChangeEventError {
    NoPrimaryKey,
    Unauthorized,
}

impl ChangeEventError {
    fn text(self) -> &'static str {
        match self {
            Self::NoPrimaryKey => "Error 400: Bad Request, no primary key",
            Self::Unauthorized => "Error 401: Unauthorized",
        }
    }
}

/// The content of an event: what it shows of a change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum EventContent {
    Error(ChangeEventError),
    Row {
        /// The shown columns, marked in the order of the table's columns.
        columns: Arc<[bool]>,
        /// The policies did not decide on the old row, so that only its key is shown.
        has_row_security: bool,
    },
}

/// The place where a message goes, apart from the channel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct MessageTarget {
    /// The topic without its prefix.
    pub topic: Arc<str>,
    pub version: Version,
    pub form: ChangeMessageForm,
    /// The ids of the entries.
    pub ids: Vec<u32>,
}

/// Everything that the bytes of a change's frame depend on. The content is the one that was decided
/// for the reader who gets the frame: a frame with another one is never found.
type FrameKey = (EventContent, MessageTarget);

/// The messages of one change.
#[derive(Debug)]
pub(crate) struct ChangeMessages<'a> {
    change: &'a CommittedChange,
    new: Option<RenderedRow>,
    old: Option<RenderedRow>,
    max_bytes: usize,
    data: HashMap<EventContent, Arc<[u8]>>,
    /// The frames for the cohort that is being sent to, which count as waiting.
    frames: HashMap<FrameKey, Frame>,
    /// Those that a later cohort needs too. They do not count before they are sent to it.
    kept: HashMap<FrameKey, Frame>,
    memory: &'a Arc<FrameMemory>,
}

impl<'a> ChangeMessages<'a> {
    /// Renders the rows of a change. Values that only PostgreSQL can render are absent before
    /// [`waiting_rows`](Self::waiting_rows) were rendered. `max_bytes` is the size of the largest
    /// change, as JSON text, that is sent whole. The frames count in `memory`.
    pub fn new(change: &'a CommittedChange, max_bytes: usize, memory: &'a Arc<FrameMemory>) -> Self {
        let new = change.new_row().map(|(new, old)| change.table.render(new, old));
        let old = change.old_row().map(|old| change.table.render(old, None));
        Self { change, new, old, max_bytes, data: HashMap::new(), frames: HashMap::new(), kept: HashMap::new(), memory }
    }

    /// Returns the change.
    pub fn change(&self) -> &'a CommittedChange {
        self.change
    }

    /// Takes the rows with values that wait for PostgreSQL.
    pub fn waiting_rows(&mut self) -> [&mut Option<RenderedRow>; 2] {
        [&mut self.new, &mut self.old]
    }

    /// Returns true if PostgreSQL has to render a value.
    pub fn is_waiting(&mut self) -> bool {
        self.waiting_rows().iter().any(|row| row.as_ref().is_some_and(RenderedRow::is_waiting))
    }

    /// Returns true if the values that are shown are too large together. Those that are not shown
    /// do not count: their size would tell about them.
    fn is_too_large(&self, shows_new: impl Fn(usize) -> bool, shows_old: impl Fn(usize) -> bool) -> bool {
        let columns = &self.change.table.table.columns;
        let size = |row: &Option<RenderedRow>, shows: &dyn Fn(usize) -> bool| {
            let row = row.as_ref();
            let shown = columns.iter().enumerate().filter(|(at, _)| shows(*at));
            let values = shown.filter_map(|(at, column)| Some(row?.column(at)?.len() + column.name.len() + 4));
            values.sum::<usize>()
        };
        // The old key of an update that has not changed it is in the new row
        let old = if self.change.has_old_values() { size(&self.old, &shows_old) } else { 0 };
        size(&self.new, &shows_new) + old > self.max_bytes
    }

    /// Returns the frame for channels of a topic. `keeps` returns true if a frame of this topic and
    /// size is to be kept for a later cohort.
    pub fn frame(
        &mut self,
        content: &EventContent,
        target: MessageTarget,
        keeps: impl FnOnce(&str, usize) -> bool,
    ) -> Frame {
        let key = (content.clone(), target);
        if let Some(frame) = self.frames.get(&key) {
            return frame.clone();
        }
        let bytes = match self.kept.get(&key) {
            Some(kept) => kept.clone(),
            None => {
                let data = self.data(content);
                let frame = encode(&key.1, self.change.action(), &data);
                if keeps(&key.1.topic, frame.len()) {
                    self.kept.insert(key.clone(), frame.clone());
                }
                frame
            }
        };
        let frame = self.memory.count(bytes);
        self.frames.insert(key, frame.clone());
        frame
    }

    fn data(&mut self, content: &EventContent) -> Arc<[u8]> {
        if let Some(data) = self.data.get(content) {
            return Arc::clone(data);
        }
        let data: Arc<[u8]> = self.write_data(content).into();
        self.data.insert(content.clone(), Arc::clone(&data));
        data
    }

    /// Drops the frames that were returned, apart from those that are kept, and what they count as
    /// waiting. Channels of other topics would otherwise multiply the memory of a slice, and what
    /// was written would count as waiting.
    pub fn evict_frames(&mut self) {
        self.frames = HashMap::new();
    }

    fn write_data(&self, content: &EventContent) -> Vec<u8> {
        let (table, action) = (&self.change.table, self.change.action());
        let mut out = Vec::with_capacity(256 + self.new.as_ref().map_or(0, RenderedRow::size));
        out.extend_from_slice(b"{\"schema\":");
        write_string(&mut out, &table.table.schema);
        out.extend_from_slice(b",\"table\":");
        write_string(&mut out, &table.table.name);
        out.extend_from_slice(b",\"type\":");
        write_string(&mut out, action.name());
        match content {
            EventContent::Error(error) => {
                out.extend_from_slice(b",\"commit_timestamp\":null,\"columns\":[],\"record\":{}");
                if action == ChangeAction::Update {
                    out.extend_from_slice(b",\"old_record\":{}");
                }
                write_errors(&mut out, error.text());
            }
            EventContent::Row { columns, has_row_security } => {
                out.extend_from_slice(b",\"commit_timestamp\":");
                write_string(&mut out, &self.change.commit_time.to_string());
                self.write_columns(&mut out, columns);
                let only_key = action == ChangeAction::Delete && *has_row_security;
                let is_key = |at: usize| table.table.columns.get(at).is_some_and(|column| column.is_primary_key);
                let shows = |at: usize| columns.get(at).copied().unwrap_or_default();
                let shows_old = |at: usize| shows(at) && table.is_identity(at) && (!only_key || is_key(at));
                let is_too_large = self.is_too_large(shows, shows_old);
                if let Some(new) = &self.new {
                    out.extend_from_slice(b",\"record\":");
                    self.write_row(&mut out, new, is_too_large, shows);
                }
                if let Some(old) = &self.old {
                    out.extend_from_slice(b",\"old_record\":");
                    self.write_row(&mut out, old, is_too_large, shows_old);
                }
                if is_too_large {
                    write_errors(&mut out, "Error 413: Payload Too Large");
                } else {
                    out.extend_from_slice(b",\"errors\":null");
                }
            }
        }
        out.push(b'}');
        out
    }

    fn write_columns(&self, out: &mut Vec<u8>, shown: &[bool]) {
        let table = &self.change.table;
        out.extend_from_slice(b",\"columns\":[");
        let columns = table.table.columns.iter().enumerate().zip(shown).filter(|(_, is_shown)| **is_shown);
        for (number, ((at, column), _)) in columns.enumerate() {
            out.extend_from_slice(if number == 0 { b"{\"name\":" } else { b",{\"name\":" });
            write_string(out, &column.name);
            out.extend_from_slice(b",\"type\":");
            write_string(out, table.type_name(at));
            out.push(b'}');
        }
        out.push(b']');
    }

    fn write_row(&self, out: &mut Vec<u8>, row: &RenderedRow, is_too_large: bool, shows: impl Fn(usize) -> bool) {
        let is_kept = |at: usize| !is_too_large || row.column(at).is_some_and(|json| json.len() <= MAX_KEPT_VALUE);
        self.change.table.write_object(out, row, |at, _| shows(at) && is_kept(at));
    }
}

fn write_errors(out: &mut Vec<u8>, error: &str) {
    out.extend_from_slice(b",\"errors\":[");
    write_string(out, error);
    out.push(b']');
}

fn encode(target: &MessageTarget, action: ChangeAction, data: &[u8]) -> Frame {
    let topic = format!("{TOPIC_PREFIX}{}", target.topic);
    let head = |event| EventHead { join_ref: &Reference::NULL, reference: &Reference::NULL, topic: &topic, event };
    match target.form {
        ChangeMessageForm::Legacy => encode_event(target.version, head(action.name()), data),
        ChangeMessageForm::Ids => {
            let mut payload = Vec::with_capacity(data.len() + 32 + 12 * target.ids.len());
            payload.extend_from_slice(b"{\"ids\":[");
            for (number, id) in target.ids.iter().enumerate() {
                if number > 0 {
                    payload.push(b',');
                }
                payload.extend_from_slice(id.to_string().as_bytes());
            }
            payload.extend_from_slice(b"],\"data\":");
            payload.extend_from_slice(data);
            payload.push(b'}');
            encode_event(target.version, head("postgres_changes"), &payload)
        }
    }
}
