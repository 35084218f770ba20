//! Verifies responses.
//!
//! A response is correct if it is the expected one, computed without the server, and equals the one
//! that the same caller got alone on a fresh connection. Every response, whatever is expected, must
//! show nothing of another request.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use portico_testkit::TestResponse;
use regex::Regex;
use serde_json::Value;

use crate::caller::Caller;
use crate::scenario::{ExpectedResponse, Probe};
use crate::server::{SentRequest, fill};

/// Headers whose values must equal those of the response alone.
const HEADERS: &[&str] =
    &["content-type", "content-range", "location", "preference-applied", "set-cookie", "x-said", "x-left"];

/// The limit of a body's characters in a report.
const SHOWN: usize = 1200;

/// The mark of any request in a text.
static MARK: LazyLock<Regex> = LazyLock::new(|| Regex::new("m-[a-z]+-[0-9]{7}").unwrap());

/// A response without its mark, so that the responses of two requests can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormalizedResponse {
    status: u16,
    headers: BTreeMap<&'static str, String>,
    body: String,
}

impl NormalizedResponse {
    fn of(sent: &SentRequest, response: &TestResponse) -> Self {
        let without_mark = |text: &str| text.replace(&sent.mark, "{mark}");
        let header = |name: &&'static str| {
            let values: Vec<_> = response.headers.get_all(*name).iter().collect();
            (!values.is_empty()).then(|| (*name, without_mark(&format!("{values:?}"))))
        };
        Self {
            status: response.status,
            headers: HEADERS.iter().filter_map(header).collect(),
            body: without_mark(&String::from_utf8_lossy(&response.body)),
        }
    }
}

/// Identifies a probe of a caller: the scenario's name, the probe's position, the caller's name.
pub type ProbeKey = (&'static str, usize, &'static str);

/// The responses that callers got alone on fresh connections.
#[derive(Default)]
pub struct Oracle {
    alone: HashMap<ProbeKey, NormalizedResponse>,
}

impl Oracle {
    /// Records a response that a caller got alone.
    pub fn record(&mut self, key: ProbeKey, sent: &SentRequest) {
        if let Some(response) = &sent.response {
            self.alone.insert(key, NormalizedResponse::of(sent, response));
        }
    }

    /// Compares a response with the expected one.
    pub fn judge(&self, key: ProbeKey, probe: &Probe, caller: &Caller, sent: &SentRequest) -> Result<(), String> {
        let Some(response) = &sent.response else {
            return Err("no response".into());
        };
        leaks_nothing(sent)?;
        if let ExpectedResponse::Exactly(status, body) = probe.expected {
            let body = fill(body, caller, &sent.mark, &sent.context);
            if response.status != status || !same_body(&body, &response.body) {
                return Err(format!("is not {status} {body}"));
            }
        }
        if matches!(probe.expected, ExpectedResponse::Anything) {
            return Ok(());
        }
        match self.alone.get(&key) {
            Some(alone) if *alone != NormalizedResponse::of(sent, response) => Err(format!("was alone {alone:?}")),
            _ => Ok(()),
        }
    }
}

/// Checks that a response has no other request's mark and nothing that another left behind.
pub fn leaks_nothing(sent: &SentRequest) -> Result<(), String> {
    let Some(response) = &sent.response else { return Ok(()) };
    let shown = format!("{:?} {}", response.headers, String::from_utf8_lossy(&response.body));
    match MARK.find_iter(&shown).find(|found| found.as_str() != sent.mark) {
        Some(other) => Err(format!("shows the mark {} of another request", other.as_str())),
        None => Ok(()),
    }
}

/// Returns a response for a report.
pub fn shown(sent: &SentRequest) -> String {
    match &sent.response {
        None => "no response".into(),
        Some(response) => {
            let NormalizedResponse { status, headers, body } = NormalizedResponse::of(sent, response);
            let body: String = body.chars().take(SHOWN).collect();
            format!("{status} {headers:?} {body}")
        }
    }
}

fn same_body(expected: &str, body: &[u8]) -> bool {
    let read = serde_json::from_slice::<Value>;
    match (serde_json::from_str::<Value>(expected), read(body)) {
        (Ok(expected), Ok(body)) => expected == body,
        _ => expected.as_bytes() == body,
    }
}
