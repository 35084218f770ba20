//! `Server-ServerTiming`: how long each stage took (contract 21.2).

use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The stages of one request.
#[derive(Debug, Default)]
pub(crate) struct ServerTiming {
    told: bool,
    pub jwt: Duration,
    pub parse: Duration,
    pub plan: Duration,
    pub transaction: Duration,
    pub response: Duration,
}

impl ServerTiming {
    /// `told`: the operator wants the header.
    pub fn new(told: bool) -> Self {
        Self { told, ..Self::default() }
    }

    /// When a stage begins, for [`since`]: the clock is read for those only who want to know.
    pub fn begin(&self) -> Option<Instant> {
        self.told.then(Instant::now)
    }

    /// Writes the header, if it is wanted.
    pub fn tell(&self, headers: &mut HeaderMap) {
        if !self.told {
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

/// How long a stage took.
pub(crate) fn since(begun: Option<Instant>) -> Duration {
    begun.map(|begun| begun.elapsed()).unwrap_or_default()
}
