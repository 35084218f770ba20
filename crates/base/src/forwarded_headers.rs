//! The headers that a gateway can add to those of a request: its id, the client's address and the
//! URL that the client requested.

use http::HeaderMap;

/// Adds the headers of the gateway to those of a request. This costs more than most requests gain,
/// so a service does it where it needs them.
#[derive(Clone, Copy)]
pub struct ForwardedHeaders<'a>(&'a (dyn Fn(&mut HeaderMap) + Send + Sync));

impl<'a> ForwardedHeaders<'a> {
    /// Returns the headers that `write` adds. It may replace headers of the client.
    pub fn new(write: &'a (impl Fn(&mut HeaderMap) + Send + Sync)) -> Self {
        Self(write)
    }

    /// Returns a copy of `headers` with those of the gateway.
    pub fn added_to(self, headers: &HeaderMap) -> HeaderMap {
        let mut all = headers.clone();
        (self.0)(&mut all);
        all
    }
}
