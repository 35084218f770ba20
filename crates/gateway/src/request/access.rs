//! The rules for the requests to a mounted service.

use std::time::Duration;

use crate::request::cors::Cors;

/// The set of rules about API keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyPolicy {
    /// No key is needed, but an unknown opaque (`sb_`) key is rejected, as at Supabase's local
    /// gateway.
    Development,
    /// Every path that is not open needs a valid key, as at the hosted gateway.
    #[default]
    Hosted,
}

/// The rules for the requests below one prefix.
#[derive(Debug, Clone)]
pub struct AccessRules {
    pub(crate) keyed: bool,
    pub(crate) open_paths: Vec<String>,
    pub(crate) body_limit: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cors: Cors,
    pub(crate) own_cors: Vec<String>,
    pub(crate) compressed: bool,
    pub(crate) third_party: bool,
    pub(crate) own_keys: bool,
    pub(crate) reads_before_responding: bool,
}

/// The limit of request bodies, in bytes, unless the mount has its own.
pub const DEFAULT_BODY_LIMIT: usize = 1024 * 1024;

/// The time for a response to begin, unless the mount has its own.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

impl AccessRules {
    /// Accepts requests with or without an API key.
    pub fn open() -> Self {
        Self {
            keyed: false,
            open_paths: Vec::new(),
            body_limit: DEFAULT_BODY_LIMIT,
            timeout: Some(DEFAULT_TIMEOUT),
            cors: Cors::default(),
            own_cors: Vec::new(),
            compressed: false,
            third_party: true,
            own_keys: false,
            reads_before_responding: false,
        }
    }

    /// Requires an API key as the [`KeyPolicy`] says.
    pub fn keyed() -> Self {
        Self { keyed: true, ..Self::open() }
    }

    /// Opens paths below the prefix, with all paths below them, that need no key: `"/callback"`.
    #[must_use]
    pub fn except<'a>(mut self, paths: impl IntoIterator<Item = &'a str>) -> Self {
        self.open_paths.extend(paths.into_iter().map(str::to_owned));
        self
    }

    /// Accepts only tokens of this server. For a service whose callers have an account here.
    /// Default: tokens of the configured third party are accepted as well.
    #[must_use]
    pub fn own_tokens(mut self) -> Self {
        self.third_party = false;
        self
    }

    /// Leaves API keys to the service, which finds `apikey` in the query and learns from
    /// [`GatewayHeaders::may_be_privileged`](crate::GatewayHeaders::may_be_privileged) whether the
    /// page may use secret ones: a WebSocket brings further tokens after its request.
    #[must_use]
    pub fn own_keys(mut self) -> Self {
        self.own_keys = true;
        self
    }

    /// Sets the largest request body, in bytes. A longer one is rejected with 413 here, or ends
    /// with an error where the service reads it. A service with its own response to long bodies
    /// gets a limit above its own.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Sets the time for the service's response to begin; after it the client gets a 504. `None`:
    /// no limit.
    #[must_use]
    pub fn timeout(mut self, limit: Option<Duration>) -> Self {
        self.timeout = limit;
        self
    }

    /// Sets the CORS rules. Default: pages of every origin may read responses.
    #[must_use]
    pub fn cors(mut self, cors: Cors) -> Self {
        self.cors = cors;
        self
    }

    /// Leaves preflights and CORS headers of paths below the prefix, with all paths below them, to
    /// the service: `"/upload/resumable"`. Responses without CORS headers still get those of the
    /// mount.
    #[must_use]
    pub fn own_cors<'a>(mut self, paths: impl IntoIterator<Item = &'a str>) -> Self {
        self.own_cors.extend(paths.into_iter().map(str::to_owned));
        self
    }

    /// Compresses responses for clients that accept it. Default: responses are not compressed.
    ///
    /// Not for a service whose responses contain a secret beside text that others chose: an
    /// attacker who sees the length of a compressed response and chooses a part of it can guess the
    /// rest (BREACH).
    #[must_use]
    pub fn compressed(mut self) -> Self {
        self.compressed = true;
        self
    }

    /// Says that no response begins before the request's body was read to its end or dropped, so
    /// that long bodies can be read straight from their connections. Default: responses may begin
    /// at any time.
    #[must_use]
    pub fn reads_before_responding(mut self) -> Self {
        self.reads_before_responding = true;
        self
    }

    pub(crate) fn is_open(&self, path: &str) -> bool {
        !self.keyed || is_below(path, &self.open_paths)
    }

    /// Returns true if the service itself responds to preflights of a path.
    pub(crate) fn has_own_cors(&self, path: &str) -> bool {
        is_below(path, &self.own_cors)
    }
}

/// Returns true if a path is one of the roots, or below one.
fn is_below(path: &str, roots: &[String]) -> bool {
    roots
        .iter()
        .any(|root| path.strip_prefix(root.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_applies_to_whole_path_segments() {
        let access = AccessRules::keyed().except(["/verify", "/.well-known/jwks.json"]);
        assert!(access.is_open("/verify"));
        assert!(access.is_open("/verify/"));
        assert!(access.is_open("/.well-known/jwks.json"));
        assert!(!access.is_open("/verifyx"));
        assert!(!access.is_open("/user"));
        assert!(AccessRules::open().is_open("/user"));
    }
}
