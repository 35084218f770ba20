//! The record of an unfinished upload, as it is on disk.

use portico_md5::Md5State;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::name::ObjectPath;

/// The facts about an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UploadRecord {
    pub bucket: String,
    pub name: String,
    /// The size of the whole content, if it is known.
    pub length: Option<u64>,
    /// The header `Upload-Metadata`.
    pub metadata: String,
    /// The claim `sub` of the caller who created the upload.
    pub subject: Option<String>,
    /// The name under which the upload counts for the bound on unfinished ones; `None` if it does
    /// not count.
    #[serde(default)]
    pub requester: Option<String>,
    /// The time at which the upload expires, in seconds since 1970.
    pub expires: i64,
    pub progress: UploadProgress,
    /// The id of the version under which a commit was begun.
    pub commit: Option<String>,
    /// The commit has succeeded.
    pub is_finished: bool,
}

/// The durable bytes of an upload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UploadProgress {
    pub offset: u64,
    /// The state of the digest of these bytes, in hexadecimal.
    digest: String,
}

impl UploadRecord {
    /// Returns true if the upload names this object.
    pub fn is_of(&self, target: &ObjectPath) -> bool {
        self.bucket == target.bucket && self.name == target.name
    }

    /// Returns true if the upload has expired.
    pub fn has_expired(&self, now: OffsetDateTime) -> bool {
        self.expires <= now.unix_timestamp()
    }

    /// Returns the length as clients see it. A client takes an upload whose offset is its length
    /// for complete, so that length is not shown before the commit.
    pub fn visible_length(&self) -> Option<u64> {
        self.length.filter(|length| self.is_finished || *length != self.progress.offset)
    }
}

impl UploadProgress {
    /// Describes durable bytes of this number and digest.
    pub fn new(offset: u64, digest: &Md5State) -> Self {
        Self { offset, digest: hex::encode(digest.to_bytes()) }
    }

    /// Returns the digest of the bytes so far; `None` if its state has another form.
    pub fn digest(&self) -> Option<Md5State> {
        if self.offset == 0 {
            return Some(Md5State::default());
        }
        Md5State::from_bytes(&hex::decode(&self.digest).ok()?)
    }
}
