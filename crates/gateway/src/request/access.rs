//! What a mounted service asks of its requests.

use std::time::Duration;

use crate::request::cors::Cors;

/// Which of the two sets of rules about API keys holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyPolicy {
    /// Like the reference's local gateway: no key is needed, but a wrong opaque (`sb_`) key is refused.
    Development,
    /// Like the hosted one: every path that is not open needs a key of ours.
    #[default]
    Hosted,
}

/// Rules for the requests under one prefix.
#[derive(Debug, Clone)]
pub struct Access {
    pub(crate) keyed: bool,
    pub(crate) open_paths: Vec<String>,
    pub(crate) body_limit: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cors: Cors,
    pub(crate) compressed: bool,
}

/// Bodies of a mount without a limit of its own.
pub const DEFAULT_BODY_LIMIT: usize = 1024 * 1024;

/// Time for an answer to begin, for a mount without a limit of its own.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

impl Access {
    /// Everybody may call, with or without a key.
    pub fn open() -> Self {
        Self {
            keyed: false,
            open_paths: Vec::new(),
            body_limit: DEFAULT_BODY_LIMIT,
            timeout: Some(DEFAULT_TIMEOUT),
            cors: Cors::default(),
            compressed: false,
        }
    }

    /// An API key is needed as the [`KeyPolicy`] says.
    pub fn keyed() -> Self {
        Self { keyed: true, ..Self::open() }
    }

    /// Paths (below the prefix, with all that lies below them) that need no key: `"/callback"`.
    #[must_use]
    pub fn except<'a>(mut self, paths: impl IntoIterator<Item = &'a str>) -> Self {
        self.open_paths.extend(paths.into_iter().map(str::to_owned));
        self
    }

    /// The largest request body, in bytes. Longer ones are answered with 413 here, or end with an error where
    /// the service reads them. A service with an answer of its own for them gets a limit above its own.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// How long the service may take until its answer begins; then the client gets a 504. `None`: for ever.
    #[must_use]
    pub fn timeout(mut self, limit: Option<Duration>) -> Self {
        self.timeout = limit;
        self
    }

    /// What pages of other origins may do. Default: everything.
    #[must_use]
    pub fn cors(mut self, cors: Cors) -> Self {
        self.cors = cors;
        self
    }

    /// Compresses answers for clients that take them so. Default: they go out as they are.
    ///
    /// Who sees the length of a compressed answer, and chooses a part of it, can guess what else is in it (BREACH): not for a service
    /// whose answers hold a secret beside what somebody else wrote.
    #[must_use]
    pub fn compressed(mut self) -> Self {
        self.compressed = true;
        self
    }

    pub(crate) fn is_open(&self, path: &str) -> bool {
        !self.keyed
            || self.open_paths.iter().any(|open| {
                path.strip_prefix(open.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_holds_for_whole_path_segments_only() {
        let access = Access::keyed().except(["/verify", "/.well-known/jwks.json"]);
        assert!(access.is_open("/verify"));
        assert!(access.is_open("/verify/"));
        assert!(access.is_open("/.well-known/jwks.json"));
        assert!(!access.is_open("/verifyx"));
        assert!(!access.is_open("/user"));
        assert!(Access::open().is_open("/user"));
    }
}
