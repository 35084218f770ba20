//! The web app.
use std::path::PathBuf;

use serde_json::Value;

/// The static files of the web application.
#[derive(Debug, Clone)]
pub struct WebApp {}

/// Why a web app can not be served.
#[derive(Debug, thiserror::Error)]
pub enum WebAppError {
    /// There is no `index.html`.
    #[error("{0} has no index.html: build the web app first (make build)")]
    NoIndex(String),
    /// An origin for the content security policy is malformed.
    #[error("{0:?} is not an origin like https://example.com")]
    Origin(String),
}

impl WebApp {
    /// Files that are part of the program: paths without a leading slash (`"index.html"`), and their content.
    /// Siblings ending in `.br` and `.gz` are precompressed forms.
    pub fn from_files(files: &'static [(&'static str, &'static [u8])]) -> Result<Self, WebAppError> {
        let _ = files;
        Ok(Self {})
    }

    /// Files of a folder, read when they are asked for.
    pub fn from_dir(folder: impl Into<PathBuf>) -> Result<Self, WebAppError> {
        let _ = folder.into();
        Ok(Self {})
    }

    /// The document at `/portico/config.json`, which the page reads when it starts.
    #[must_use]
    pub fn with_config(self, config: Value) -> Self {
        let _ = config;
        self
    }

    /// Lets the page talk to every port of this machine (mailbox, emulators). Never outside development.
    #[must_use]
    pub fn development(self, development: bool) -> Self {
        let _ = development;
        self
    }

    /// Lets the page load scripts from and talk to `origin` (`https://eu.posthog.com`), for an analytics adapter.
    pub fn allow_origin(self, origin: &str) -> Result<Self, WebAppError> {
        let _ = origin;
        Ok(self)
    }
}
