//! `[storage]`

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::folders::{Folders, absolute};
use crate::section::Section;

/// `[storage]`
#[derive(Debug, Clone)]
pub struct StorageConfig {
    /// True if storage runs.
    pub enabled: bool,
    /// Upload limit in bytes.
    pub file_size_limit: u64,
    /// `[storage.buckets.<name>]`, by lower-case name.
    pub buckets: BTreeMap<String, BucketConfig>,
    /// `[storage.s3_protocol] enabled`
    pub s3_protocol: bool,
    /// `[storage.image_transformation] enabled`
    pub image_transformation: bool,
}

/// `[storage.buckets.<name>]`
#[derive(Debug, Clone)]
pub struct BucketConfig {
    /// True if everyone can read it; `None`: unchanged.
    pub public: Option<bool>,
    /// Upload limit in bytes; 0: the global one.
    pub file_size_limit: u64,
    /// Allowed content types; empty: all.
    pub allowed_mime_types: Vec<String>,
    /// Folder whose files are uploaded by seeding.
    pub objects_path: Option<PathBuf>,
}

const DEFAULT_LIMIT: u64 = 50 * 1024 * 1024;

impl StorageConfig {
    pub(crate) fn read(mut storage: Section<'_, '_, '_>, folders: &Folders<'_>) -> Self {
        for (name, limits) in [
            ("analytics", &["max_namespaces", "max_tables", "max_catalogs"][..]),
            ("vector", &["max_buckets", "max_indexes"]),
        ] {
            // Hosted service only: the types are checked, the values have no effect
            let mut section = storage.section(name);
            section.flag("enabled");
            for limit in limits {
                section.number::<u32>(limit);
            }
            section.section("buckets").sections().into_iter().for_each(|(_, mut bucket)| {
                bucket.names();
            });
        }
        let file_size_limit = storage.size("file_size_limit").unwrap_or(DEFAULT_LIMIT);
        let buckets = storage.section("buckets").sections();
        Self {
            enabled: storage.flag_or("enabled", true),
            file_size_limit,
            buckets: buckets
                .into_iter()
                .map(|(name, bucket)| (name.to_owned(), BucketConfig::read(name, bucket, folders)))
                .collect(),
            s3_protocol: storage.section("s3_protocol").flag_or("enabled", true),
            image_transformation: storage.section("image_transformation").flag_or("enabled", false),
        }
    }
}

impl BucketConfig {
    fn read(name: &str, mut bucket: Section<'_, '_, '_>, folders: &Folders<'_>) -> Self {
        if !is_bucket_name(name) {
            bucket.fail(
                "",
                format!(
                    "Invalid Bucket name: {name}. Only lowercase letters, numbers, dots, hyphens, and spaces are \
                     allowed. ({BUCKET_PATTERN})"
                ),
            );
        }
        Self {
            public: bucket.flag("public"),
            file_size_limit: bucket.size("file_size_limit").unwrap_or(0),
            allowed_mime_types: bucket.list_or("allowed_mime_types", &[]),
            objects_path: bucket.path("objects_path").map(|path| absolute(&folders.supabase, path)),
        }
    }
}

const BUCKET_PATTERN: &str = r"^(\w|!|-|\.|\*|'|\(|\)| |&|\$|@|=|;|:|\+|,|\?)*$";

/// Matches [`BUCKET_PATTERN`] without a regular expression; its `\w` is ASCII.
fn is_bucket_name(name: &str) -> bool {
    name.chars().all(|character| character.is_ascii_alphanumeric() || "_!-.*'() &$@=;:+,?".contains(character))
}
