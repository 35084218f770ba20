//! The orders in which the requests of a set of scenarios are sent: alone, in turn, all at once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;

use crate::caller::{CALLERS, Caller};
use crate::oracle::{self, Oracle, ProbeKey};
use crate::scenario::{ExpectedResponse, Probe, Scenario};
use crate::server::{IsolationServer, SentRequest};

/// The values of the header `x-leave`, for `pollute()` of `base.sql`.
pub const LEFT: &[&str] = &["settings", "request", "role", "objects", "raise", "deallocate"];
/// The limit of concurrent requests.
const IN_FLIGHT: usize = 24;

/// The mismatches of one test, by place.
#[derive(Default)]
pub struct MismatchReport {
    mismatches: BTreeMap<String, Vec<String>>,
}

impl MismatchReport {
    /// Adds a mismatch at a place.
    pub fn add(&mut self, place: &str, mismatch: String) {
        self.mismatches.entry(place.to_owned()).or_default().push(mismatch);
    }

    /// Adds the result of a request's verification.
    pub fn judged(&mut self, place: &str, caller: &Caller, sent: &SentRequest, judgement: Result<(), String>) {
        if let Err(why) = judgement {
            self.add(place, format!("{} {}: {}\n      {why}", caller.name, sent.mark, oracle::shown(sent)));
        }
    }

    /// Fails if there are mismatches.
    ///
    /// # Panics
    /// With the places, and one mismatch of each.
    pub fn finish(self) {
        let mut text = String::new();
        for (place, mismatches) in &self.mismatches {
            let first = mismatches.first().map_or("", String::as_str);
            let _ = writeln!(text, "  - {place}, {} times, first:\n      {first}", mismatches.len());
        }
        assert!(self.mismatches.is_empty(), "mismatches at {} places:\n{text}", self.mismatches.len());
    }
}

/// One request of a schedule.
#[derive(Clone, Copy)]
pub struct ScheduledProbe<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The position of the probe in it.
    pub index: usize,
    /// The caller.
    pub caller: &'static Caller,
}

impl ScheduledProbe<'_> {
    /// Returns the probe.
    pub fn probe(&self) -> &Probe {
        &self.scenario.probes[self.index]
    }

    /// Returns the oracle's key.
    pub fn key(&self) -> ProbeKey {
        (self.scenario.name, self.index, self.caller.name)
    }

    /// Describes the step for a report.
    pub fn place(&self, schedule: &str) -> String {
        let probe = self.probe();
        format!("{}, {} {} #{}, {schedule}", self.scenario.name, probe.method, probe.resource, self.index)
    }
}

/// Returns every probe of every scenario by every caller that sends it, with alternating callers.
pub fn steps(stage: &IsolationServer) -> Vec<ScheduledProbe<'_>> {
    let mut steps = Vec::new();
    for scenario in &stage.scenarios {
        for (index, probe) in scenario.probes.iter().enumerate() {
            for caller in CALLERS.iter().filter(|caller| probe.is_for(caller)) {
                steps.push(ScheduledProbe { scenario, index, caller });
            }
        }
    }
    steps
}

/// Runs a test's whole set: alone, then in turn, then all at once, then between requests that leave
/// state in the session.
///
/// # Panics
/// If any response or any written row is not the request's own.
pub async fn run(scenarios: Vec<Scenario>) {
    let stage = IsolationServer::open(2, scenarios).await;
    let (oracle, mut report) = run_unpolluted(&stage, 1).await;
    after_pollution(&stage, &oracle, &mut report).await;
    finish(&stage, report).await;
}

/// Sends the probes alone, then in turn in some rounds, then all at once. Returns the responses
/// alone and the mismatches.
pub async fn run_unpolluted(stage: &IsolationServer, rounds: usize) -> (Oracle, MismatchReport) {
    let mut report = MismatchReport::default();
    let oracle = alone(stage, &mut report).await;
    in_turn(stage, &oracle, &mut report, rounds).await;
    at_once(stage, &oracle, &mut report).await;
    (oracle, report)
}

/// Checks the written rows, and fails if there was any mismatch.
///
/// # Panics
/// With all mismatches.
pub async fn finish(stage: &IsolationServer, mut report: MismatchReport) {
    for wrong in stage.wrong_rows().await {
        report.add("written", wrong);
    }
    report.finish();
}

/// Records the responses alone for probes without a computed expectation.
pub async fn alone_where_needed(stage: &IsolationServer) -> Oracle {
    let mut oracle = Oracle::default();
    for step in steps(stage).into_iter().filter(|step| matches!(step.probe().expected, ExpectedResponse::AsAlone)) {
        stage.renew_connections().await;
        oracle.record(step.key(), &stage.send(step.probe(), step.caller).await);
    }
    oracle
}

/// Sends every probe on a fresh connection while nothing else runs: by each caller if no response
/// is computed, otherwise by one of them. Long runs send all by each.
async fn alone(stage: &IsolationServer, report: &mut MismatchReport) -> Oracle {
    let mut oracle = Oracle::default();
    for (at, step) in steps(stage).into_iter().enumerate() {
        let is_computed = matches!(step.probe().expected, ExpectedResponse::Exactly(..));
        if is_computed && at % (CALLERS.len() - 1) != 0 && seconds().is_none() {
            continue;
        }
        stage.renew_connections().await;
        let sent = stage.send(step.probe(), step.caller).await;
        let judgement = oracle.judge(step.key(), step.probe(), step.caller, &sent);
        report.judged(&step.place("alone"), step.caller, &sent, judgement);
        oracle.record(step.key(), &sent);
    }
    oracle
}

/// Sends the probes one after the other, with alternating callers. The pool prefers the connection
/// that was used last, so it is always the same.
async fn in_turn(stage: &IsolationServer, oracle: &Oracle, report: &mut MismatchReport, rounds: usize) {
    for _ in 0..rounds {
        for step in steps(stage) {
            let sent = stage.send(step.probe(), step.caller).await;
            let judgement = oracle.judge(step.key(), step.probe(), step.caller, &sent);
            report.judged(&step.place("in turn"), step.caller, &sent, judgement);
        }
    }
}

/// Sends all probes at once, up to the limit.
async fn at_once(stage: &IsolationServer, oracle: &Oracle, report: &mut MismatchReport) {
    let mut steps = steps(stage);
    // Combines callers and scenarios that the other schedules keep apart
    let half = steps.len() / 2;
    steps.rotate_left(half);
    let stride = [7, 11, 13, 17, 19].into_iter().find(|stride| !steps.len().is_multiple_of(*stride)).unwrap_or(1);
    let order: Vec<_> = (0..steps.len()).map(|at| steps[at * stride % steps.len()]).collect();
    let responses = stream::iter(order)
        .map(|step| async move { (step, stage.send(step.probe(), step.caller).await) })
        .buffer_unordered(IN_FLIGHT)
        .collect::<Vec<_>>();
    for (step, sent) in responses.await {
        let judgement = oracle.judge(step.key(), step.probe(), step.caller, &sent);
        report.judged(&step.place("at once"), step.caller, &sent, judgement);
    }
}

/// Records the state of the session that each caller reads on a fresh connection, under the
/// position of the probe that reads it.
pub async fn clean_states(stage: &IsolationServer, probes: &[&Probe]) -> Oracle {
    let mut clean = Oracle::default();
    for caller in &CALLERS {
        for (index, probe) in probes.iter().enumerate() {
            stage.renew_connections().await;
            clean.record(("state", index, caller.name), &stage.send(probe, caller).await);
        }
    }
    clean
}

/// Sends each probe with the header that makes `request_context()` leave state in the session. Then
/// another caller reads the state of the session, and sends the probe itself.
pub async fn after_pollution(stage: &IsolationServer, oracle: &Oracle, report: &mut MismatchReport) {
    let state = Probe::get("session_states");
    let other_state = Probe::call("rpc/session_state");
    let clean = clean_states(stage, &[&state, &other_state]).await;
    let mut position = 0;
    for scenario in &stage.scenarios {
        for (index, probe) in scenario.probes.iter().enumerate() {
            position += 1;
            for (at, leaves) in LEFT.iter().enumerate() {
                // A short run takes two of them for each probe, alternating
                if (position + at) % 3 != 0 && seconds().is_none() {
                    continue;
                }
                let polluter = &CALLERS[(position + at) % CALLERS.len()];
                let caller = &CALLERS[(position + at * 2 + 1) % CALLERS.len()];
                if !probe.is_for(polluter) || !probe.is_for(caller) {
                    continue;
                }
                let step = ScheduledProbe { scenario, index, caller };
                let place = step.place(&format!("after polluting {leaves}"));
                let sent = stage.send_leaving(probe, polluter, leaves).await;
                report.judged(&place, polluter, &sent, oracle::leaks_nothing(&sent));
                let (at, probe_of_state) = if position % 2 == 0 { (0, &state) } else { (1, &other_state) };
                let sent = stage.send(probe_of_state, caller).await;
                let judgement = clean.judge(("state", at, caller.name), probe_of_state, caller, &sent);
                report.judged(&format!("{place}, the session"), caller, &sent, judgement);
                let sent = stage.send(probe, caller).await;
                let judgement = oracle.judge(step.key(), probe, caller, &sent);
                report.judged(&place, caller, &sent, judgement);
            }
        }
    }
}

/// Returns the duration of the stress test (`PORTICO_ISOLATION_SECONDS`). If it is set, the other
/// tests send all of their combinations.
pub fn seconds() -> Option<Duration> {
    let seconds = std::env::var("PORTICO_ISOLATION_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("PORTICO_ISOLATION_SECONDS is a number")))
}
