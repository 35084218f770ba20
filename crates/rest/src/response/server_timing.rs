//! `Server-Timing`: the duration of each stage.

use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The durations of the stages of one request.
#[derive(Debug, Default)]
pub(crate) struct ServerTiming {
    is_enabled: bool,
    pub jwt: Duration,
    pub parse: Duration,
    pub plan: Duration,
    pub transaction: Duration,
    pub response: Duration,
}

impl ServerTiming {
    /// Measures only if the operator has enabled the header.
    pub fn new(is_enabled: bool) -> Self {
        Self { is_enabled, ..Self::default() }
    }

    /// Returns the start of a stage, for [`since`]. The clock is read only if the header is
    /// enabled.
    pub fn begin(&self) -> Option<Instant> {
        self.is_enabled.then(Instant::now)
    }

    /// Writes the header, if it is enabled.
    pub fn write(&self, headers: &mut HeaderMap) {
        if !self.is_enabled {
            return;
        }
        let stages = [
            ("jwt", self.jwt),
            ("parse", self.parse),
            ("plan", self.plan),
            ("transaction", self.transaction),
            ("response", self.response),
        ];
        let text: Vec<_> =
            stages.iter().map(|(name, time)| format!("{name};dur={:.1}", time.as_secs_f64() * 1000.0)).collect();
        if let Ok(value) = HeaderValue::from_str(&text.join(", ")) {
            headers.insert(SERVER_TIMING, value);
        }
    }
}

/// Returns the duration of a stage.
pub(crate) fn since(started: Option<Instant>) -> Duration {
    started.map(|started| started.elapsed()).unwrap_or_default()
}
