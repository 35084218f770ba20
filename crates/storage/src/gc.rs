//! The comparison of all rows with all content.
//!
//! The clean-up (`clean_up`) finds what a crash has left by the journal. This finds
//! everything: after a restored backup, a lost journal or a disk that was damaged.
//!
//! The rows are read, then the content, then the rows again: content without a row in both
//! readings, and older than the grace period, belongs to no object and to no upload in progress. A
//! version that has lost its row never gets one again.

use std::collections::HashSet;
use std::time::Duration;

use http::Method;
use portico_base::hash;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::backend::{BackendError, StoredFile, VersionKey};
use crate::error::{Result, StorageError};
use crate::model::NamedVersion;
use crate::operation::{Actor, JSON_ARRAY, Operation, SqlStep, TransactionEnd, parse};
use crate::sql;
use crate::storage::Storage;

/// The rows that are read at once.
const ROWS_AT_ONCE: usize = 1000;
/// The files that are deleted at once.
const FILES_AT_ONCE: usize = 1000;
/// The names of each kind that a summary has.
const SHOWN: usize = 100;
/// The rows or files between two lines of progress.
const PROGRESS_STEP: u64 = 10_000;

/// The extent of a garbage collection.
#[derive(Debug, Clone, Copy)]
pub struct GcOptions {
    /// Younger content is left alone. It must be longer than any upload takes from its last byte to
    /// its commit.
    pub grace: Duration,
    /// True to delete content without a row, and what interrupted uploads have left.
    pub delete_content: bool,
    /// True to delete rows whose content is lost.
    pub delete_rows: bool,
}

/// The findings of a garbage collection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcSummary {
    /// The number of rows.
    pub rows: u64,
    /// The number of files or objects with content.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// The number of rows whose content is lost.
    pub lost: u64,
    /// Some of them: `<bucket>/<name>`.
    pub lost_objects: Vec<String>,
    /// The number of files that no row refers to.
    pub orphans: u64,
    /// Their size in bytes.
    pub orphan_bytes: u64,
    /// The paths of some of them in the place of the content.
    pub orphan_paths: Vec<String>,
    /// The number of files that no row refers to and that are younger than the grace period.
    pub young: u64,
    /// The number of uploads that were interrupted and left something.
    pub interrupted: u64,
    /// True if the content without a row was deleted.
    pub deleted_content: bool,
    /// The number of rows that were deleted.
    pub deleted_rows: u64,
}

/// The reason why a garbage collection failed. What was deleted before stays deleted.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct GcError(String);

impl From<StorageError> for GcError {
    fn from(error: StorageError) -> Self {
        Self(error.message().into_owned())
    }
}

impl From<BackendError> for GcError {
    fn from(error: BackendError) -> Self {
        Self(error.to_string())
    }
}

/// A row, as far as its content needs it.
#[derive(Debug, Deserialize)]
struct ContentRow {
    id: String,
    bucket: String,
    name: String,
    version: Option<String>,
}

impl ContentRow {
    fn key(&self) -> VersionKey {
        VersionKey::new(&self.bucket, &self.name, self.version.as_deref())
    }
}

/// Stands for a path. Paths of millions of objects would take too much memory.
type PathDigest = [u8; 16];

fn digest(path: &str) -> PathDigest {
    let mut digest = PathDigest::default();
    digest.copy_from_slice(&hash::sha256(path.as_bytes())[..16]);
    digest
}

impl Storage {
    /// Compares all rows with all content, and deletes what the options say. Calls `progress` with
    /// lines for people.
    ///
    /// # Errors
    /// When the database or the place of the content cannot be read or changed.
    pub async fn collect_garbage(
        &self,
        options: GcOptions,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> std::result::Result<GcSummary, GcError> {
        let backend = &self.service().backend;
        let mut summary = GcSummary::default();
        let mut unseen = HashSet::new();
        self.for_each_row(|row| {
            unseen.insert(digest(&backend.path(&row.key())));
            summary.rows += 1;
            if summary.rows.is_multiple_of(PROGRESS_STEP) {
                progress(format!("{} rows", summary.rows));
            }
        })
        .await?;

        let (mut orphans, mut young) = (Vec::new(), HashSet::new());
        let (sender, mut files) = mpsc::channel::<StoredFile>(ROWS_AT_ONCE);
        let compare = async {
            while let Some(file) = files.recv().await {
                summary.files += 1;
                summary.bytes += file.size;
                if summary.files.is_multiple_of(PROGRESS_STEP) {
                    progress(format!("{} files", summary.files));
                }
                let digest = digest(&file.path);
                if unseen.remove(&digest) || !file.is_version {
                    continue;
                }
                if file.since.elapsed().is_ok_and(|age| age >= options.grace) {
                    orphans.push(file);
                } else {
                    young.insert(digest);
                }
            }
        };
        let (walked, ()) = futures_util::future::join(backend.walk(sender), compare).await;
        walked?;

        // Rows of uploads that were committed meanwhile, and those without content
        let in_progress: HashSet<String> =
            self.service().in_progress().iter().map(|version| backend.path(version)).collect();
        let mut candidates: HashSet<PathDigest> = orphans.iter().map(|file| digest(&file.path)).collect();
        let mut doubtful = Vec::new();
        self.for_each_row(|row| {
            let digest = digest(&backend.path(&row.key()));
            candidates.remove(&digest);
            young.remove(&digest);
            if unseen.contains(&digest) {
                doubtful.push(row);
            }
        })
        .await?;
        orphans.retain(|file| candidates.contains(&digest(&file.path)) && !in_progress.contains(&file.path));
        let mut lost = Vec::new();
        for row in doubtful {
            if self.is_lost(&row).await? {
                lost.push(row);
            }
        }
        summary.lost = lost.len() as u64;
        summary.lost_objects = lost.iter().take(SHOWN).map(|row| format!("{}/{}", row.bucket, row.name)).collect();
        summary.orphans = orphans.len() as u64;
        summary.orphan_bytes = orphans.iter().map(|file| file.size).sum();
        summary.orphan_paths = orphans.iter().take(SHOWN).map(|file| file.path.clone()).collect();
        summary.young = young.len() as u64;
        summary.interrupted = backend.interrupted(options.grace).await?;

        if options.delete_rows && summary.rows > 1 && summary.lost == summary.rows {
            let message = "no row has content: is the place of the content mounted, and is it the right one?";
            return Err(GcError(message.to_owned()));
        }
        if options.delete_content {
            let paths: Vec<String> = orphans.into_iter().map(|file| file.path).collect();
            for (at, paths) in paths.chunks(FILES_AT_ONCE).enumerate() {
                progress(format!("deleting files, from {} of {}", at * FILES_AT_ONCE, summary.orphans));
                backend.remove(paths).await?;
                self.service().evict_images_of(paths.to_vec()).await;
            }
            backend.sweep(options.grace).await?;
            summary.deleted_content = true;
        }
        if options.delete_rows {
            for rows in lost.chunks(ROWS_AT_ONCE) {
                summary.deleted_rows += self.delete_lost_rows(rows).await?;
                let versions: Vec<VersionKey> = rows.iter().map(ContentRow::key).collect();
                self.service().evict_images(&versions).await;
            }
        }
        Ok(summary)
    }

    fn gc_operation(&self) -> Operation {
        Operation::of_program(self.service(), "storage.object.delete_many", &Method::DELETE, "")
    }

    /// Calls `visit` with all rows. No transaction is open in between.
    async fn for_each_row(&self, mut visit: impl FnMut(ContentRow)) -> Result<()> {
        let operation = self.gc_operation();
        let limit = ROWS_AT_ONCE.to_string();
        let mut last: Option<String> = None;
        loop {
            let values = [last.as_deref().map(str::as_bytes), Some(limit.as_bytes())];
            let step = SqlStep { text: sql::CONTENT_ROWS, values: &values };
            let found = operation.read(Actor::Service, step, JSON_ARRAY).await?;
            let rows: Vec<ContentRow> = if found.joined.rows == 0 { Vec::new() } else { parse(&found.bytes())? };
            let count = rows.len();
            last = rows.last().map(|row| row.id.clone());
            rows.into_iter().for_each(&mut visit);
            if count < ROWS_AT_ONCE {
                return Ok(());
            }
        }
    }

    /// Returns true if the content of a row does not exist, and the row still refers to it.
    async fn is_lost(&self, row: &ContentRow) -> std::result::Result<bool, GcError> {
        if self.service().backend.exists(&row.key()).await? {
            return Ok(false);
        }
        let list = sql::text_array([&row.name]);
        let values = [Some(row.bucket.as_bytes()), Some(list.as_bytes())];
        let step = SqlStep { text: sql::CURRENT_VERSIONS, values: &values };
        let found = self.gc_operation().read(Actor::Service, step, JSON_ARRAY).await?;
        if found.joined.rows == 0 {
            return Ok(false);
        }
        let current: Vec<NamedVersion> = parse(&found.bytes())?;
        Ok(current.iter().any(|current| current.version == row.version))
    }

    /// Deletes rows, as far as they still refer to the same versions.
    async fn delete_lost_rows(&self, rows: &[ContentRow]) -> Result<u64> {
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let versions: Vec<&str> = rows.iter().map(|row| row.version.as_deref().unwrap_or_default()).collect();
        let (ids, versions) = (sql::text_array(&ids), sql::text_array(&versions));
        let values = [Some(ids.as_bytes()), Some(versions.as_bytes())];
        let steps = [SqlStep { text: sql::DELETE_LOST_ROWS, values: &values }];
        let results = self.gc_operation().write(Actor::Service, &steps, TransactionEnd::Commit).await?;
        Ok(results.rows(0).len() as u64)
    }
}
