//! The identity of a source, and of a result.

use crate::{RequestedFormat, Transformation};

/// Identifies the bytes of a source: whenever they change, the name or the revision changes. Two
/// files never share a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderSource {
    name: String,
    revision: String,
}

impl RenderSource {
    /// Returns the source of this name. Its results are forgotten under the name
    /// ([`Renderer::evict`](crate::Renderer::evict)).
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), revision: String::new() }
    }

    /// Distinguishes contents of a file that is replaced under the same name.
    #[must_use]
    pub fn revision(self, revision: impl Into<String>) -> Self {
        Self { revision: revision.into(), ..self }
    }
}

/// The identity of a result: the source, the parameters and the requested format.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RenderKey {
    text: String,
    source: String,
}

impl RenderKey {
    /// Returns the key of a result.
    pub fn new(source: &RenderSource, transformation: &Transformation, requested: RequestedFormat) -> Self {
        let RenderSource { name, revision } = source;
        // The lengths keep the parts apart, whatever characters they have
        let source = format!("{}:{name};{}:{revision}", name.len(), revision.len());
        let text = format!("{source};{};{}", transformation.to_claim(), requested.key());
        Self { text, source: name.clone() }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the name of the source.
    pub fn source(&self) -> &str {
        &self.source
    }
}
