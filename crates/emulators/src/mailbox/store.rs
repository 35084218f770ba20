//! The storage of the mailbox.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::limits::MailboxLimits;
use super::message::{CapturedMail, CapturedText};

/// An email and what its reader has done with it.
#[derive(Debug)]
pub(super) struct StoredMail {
    pub mail: Arc<CapturedMail>,
    pub is_read: bool,
    pub tags: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Store {
    /// Oldest first.
    entries: VecDeque<StoredMail>,
    texts: VecDeque<Arc<CapturedText>>,
    bytes: usize,
    pub accepted: u64,
    pub accepted_bytes: u64,
    pub deleted: u64,
}

impl Store {
    pub(super) fn add(&mut self, mail: Arc<CapturedMail>, limits: &MailboxLimits) {
        self.bytes += mail.weight();
        self.accepted += 1;
        self.accepted_bytes += mail.raw.len() as u64;
        let tags = mail.header_tags();
        self.entries.push_back(StoredMail { mail, is_read: false, tags });
        while self.entries.len() > limits.messages.max(1) || (self.bytes > limits.bytes && self.entries.len() > 1) {
            if let Some(oldest) = self.entries.pop_front() {
                self.bytes -= oldest.mail.weight();
                self.deleted += 1;
            }
        }
    }

    pub(super) fn add_text(&mut self, text: Arc<CapturedText>, most: usize) {
        self.texts.push_back(text);
        while self.texts.len() > most.max(1) {
            self.texts.pop_front();
        }
    }

    /// Returns the emails, newest first.
    pub(super) fn mails(&self) -> impl Iterator<Item = &StoredMail> {
        self.entries.iter().rev()
    }

    /// Returns the text messages, newest first.
    pub(super) fn texts(&self) -> impl Iterator<Item = &Arc<CapturedText>> {
        self.texts.iter().rev()
    }

    /// Returns the email with this id; `latest` is the newest.
    pub(super) fn find(&mut self, id: &str) -> Option<&mut StoredMail> {
        match id {
            "latest" => self.entries.back_mut(),
            id => self.entries.iter_mut().find(|entry| entry.mail.id == id),
        }
    }

    pub(super) fn delete(&mut self, unwanted: impl Fn(&StoredMail) -> bool) {
        let before = self.entries.len();
        self.entries.retain(|entry| !unwanted(entry));
        self.bytes = self.entries.iter().map(|entry| entry.mail.weight()).sum();
        self.deleted += (before - self.entries.len()) as u64;
    }

    pub(super) fn update(&mut self, change: impl Fn(&mut StoredMail)) {
        self.entries.iter_mut().for_each(change);
    }

    pub(super) fn clear_texts(&mut self) {
        self.texts.clear();
    }

    pub(super) fn clear(&mut self) {
        self.delete(|_| true);
        self.clear_texts();
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn unread(&self) -> usize {
        self.entries.iter().filter(|entry| !entry.is_read).count()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns all tags, with the number of emails that have each.
    pub(super) fn tags(&self) -> BTreeMap<&str, usize> {
        let mut tags = BTreeMap::new();
        for tag in self.entries.iter().flat_map(|entry| &entry.tags) {
            *tags.entry(tag.as_str()).or_insert(0) += 1;
        }
        tags
    }
}
