//! The sources of files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use portico_base::hash;

use crate::request::encoding::Encoding;

/// All files of the web app.
#[derive(Debug)]
pub(super) enum AssetSource {
    /// Embedded in the program, by path.
    Embedded(HashMap<&'static str, Document>),
    /// In a folder on disk.
    Folder(PathBuf),
}

/// A file in memory.
#[derive(Debug)]
pub(super) struct Document {
    bytes: Bytes,
    /// A hash of the content, computed when it is first needed.
    fingerprint: OnceLock<String>,
}

/// One encoding of one file, ready to be sent.
#[derive(Debug)]
pub(super) struct Asset {
    pub(super) content: AssetContent,
    /// The entity tag. Each encoding has its own.
    pub(super) tag: String,
}

#[derive(Debug)]
pub(super) enum AssetContent {
    Memory(Bytes),
    /// An open file with its length.
    File(tokio::fs::File, u64),
}

impl AssetSource {
    pub(super) fn embedded(files: &'static [(&'static str, &'static [u8])]) -> Self {
        Self::Embedded(files.iter().map(|(path, bytes)| (*path, Document::new(Bytes::from_static(bytes)))).collect())
    }

    pub(super) fn has_index(&self) -> bool {
        match self {
            Self::Embedded(files) => files.contains_key("index.html"),
            Self::Folder(folder) => folder.join("index.html").is_file(),
        }
    }

    /// Returns the embedded pages, by path.
    pub(super) fn pages(&self) -> Vec<(&'static str, String)> {
        let Self::Embedded(files) = self else { return Vec::new() };
        files
            .iter()
            .filter(|(path, _)| path.ends_with(".html"))
            .map(|(path, document)| (*path, String::from_utf8_lossy(&document.bytes).into_owned()))
            .collect()
    }

    /// Returns the names of the scripts beside the pages, as far as a content security policy can
    /// name them. Of a folder they are those of now.
    pub(super) fn scripts(&self) -> Vec<String> {
        let mut names: Vec<String> = match self {
            Self::Embedded(files) => files.keys().map(|path| (*path).to_owned()).collect(),
            Self::Folder(folder) => {
                let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
                entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
            }
        };
        let is_plain = |name: &str| name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_'));
        names.retain(|name| name.ends_with(".js") && is_plain(name));
        names.sort();
        names
    }

    /// Loads a file in one encoding. `path` is sanitised already.
    pub(super) async fn load(&self, path: &str, encoding: Encoding) -> Option<Asset> {
        let name = format!("{path}{}", encoding.suffix());
        match self {
            Self::Embedded(files) => Some(files.get(name.as_str())?.asset(encoding)),
            Self::Folder(folder) => Asset::open(folder.join(name), encoding).await,
        }
    }
}

impl Document {
    pub(super) fn new(bytes: Bytes) -> Self {
        Self { bytes, fingerprint: OnceLock::new() }
    }

    pub(super) fn asset(&self, encoding: Encoding) -> Asset {
        let fingerprint = self.fingerprint.get_or_init(|| hash::sha256_hex(&self.bytes)[..20].to_owned());
        Asset { content: AssetContent::Memory(self.bytes.clone()), tag: tag(fingerprint, encoding) }
    }
}

impl Asset {
    async fn open(path: PathBuf, encoding: Encoding) -> Option<Self> {
        let file = tokio::fs::File::open(path).await.ok()?;
        let metadata = file.metadata().await.ok().filter(std::fs::Metadata::is_file)?;
        let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        let fingerprint = format!("{:x}-{:x}", changed.as_nanos(), metadata.len());
        Some(Self { content: AssetContent::File(file, metadata.len()), tag: tag(&fingerprint, encoding) })
    }

    pub(super) fn length(&self) -> u64 {
        match &self.content {
            AssetContent::Memory(bytes) => bytes.len() as u64,
            AssetContent::File(_, length) => *length,
        }
    }
}

fn tag(fingerprint: &str, encoding: Encoding) -> String {
    format!("\"{fingerprint}{}\"", encoding.suffix().replace('.', "-"))
}
