//! Where files come from.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use portico_tokens::hash;

use super::encoding::Encoding;

/// All files of the web app.
#[derive(Debug)]
pub(super) enum Source {
    /// Part of the program, by path.
    Embedded(HashMap<&'static str, Asset>),
    /// On disk.
    Folder(PathBuf),
}

/// One form of one file.
#[derive(Debug, Clone)]
pub(super) struct Asset {
    pub(super) content: Content,
    /// What tells one content from another; computed when it is first asked for.
    fingerprint: Arc<OnceLock<String>>,
}

#[derive(Debug)]
pub(super) enum Content {
    Memory(Bytes),
    /// With its length.
    File(tokio::fs::File, u64),
}

impl Clone for Content {
    /// An open file is read once, so it can not be shared: its clone is empty. Only contents in memory are cloned.
    fn clone(&self) -> Self {
        match self {
            Self::Memory(bytes) => Self::Memory(bytes.clone()),
            Self::File(..) => Self::Memory(Bytes::new()),
        }
    }
}

impl Source {
    pub(super) fn embedded(files: &'static [(&'static str, &'static [u8])]) -> Self {
        Self::Embedded(files.iter().map(|(path, bytes)| (*path, Asset::memory(Bytes::from_static(bytes)))).collect())
    }

    pub(super) fn has_index(&self) -> bool {
        match self {
            Self::Embedded(files) => files.contains_key("index.html"),
            Self::Folder(folder) => folder.join("index.html").is_file(),
        }
    }

    /// A file in one form. `path` has been cleaned.
    pub(super) async fn load(&self, path: &str, encoding: Encoding) -> Option<Asset> {
        let suffix = encoding.suffix();
        match self {
            Self::Embedded(files) if suffix.is_empty() => files.get(path).cloned(),
            Self::Embedded(files) => files.get(format!("{path}{suffix}").as_str()).cloned(),
            Self::Folder(folder) => Asset::open(folder.join(format!("{path}{suffix}"))).await,
        }
    }
}

impl Asset {
    fn memory(bytes: Bytes) -> Self {
        Self { content: Content::Memory(bytes), fingerprint: Arc::default() }
    }

    /// A document that is made at start.
    pub(super) fn document(text: String) -> Self {
        Self::memory(Bytes::from(text))
    }

    async fn open(path: PathBuf) -> Option<Self> {
        let file = tokio::fs::File::open(path).await.ok()?;
        let metadata = file.metadata().await.ok().filter(std::fs::Metadata::is_file)?;
        let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        let fingerprint = format!("{:x}-{:x}", changed.as_nanos(), metadata.len());
        Some(Self { content: Content::File(file, metadata.len()), fingerprint: Arc::new(OnceLock::from(fingerprint)) })
    }

    pub(super) fn length(&self) -> u64 {
        match &self.content {
            Content::Memory(bytes) => bytes.len() as u64,
            Content::File(_, length) => *length,
        }
    }

    /// The entity tag. Each form has its own.
    pub(super) fn tag(&self, encoding: Encoding) -> String {
        let fingerprint = self.fingerprint.get_or_init(|| match &self.content {
            Content::Memory(bytes) => hash::sha256_hex(bytes)[..20].to_owned(),
            Content::File(..) => String::new(),
        });
        format!("\"{fingerprint}{}\"", encoding.suffix().replace('.', "-"))
    }
}
