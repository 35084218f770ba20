//! Decisions that are kept for a time, where the operator allows it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::probe::{Probe, ProbeResult};

/// The number of decisions at most: about a megabyte.
const CAPACITY: usize = 10_000;

/// Keeps decisions by the digest of everything that a policy can read.
#[derive(Debug)]
pub(super) struct Decisions {
    kept_for: Duration,
    decisions: Mutex<HashMap<[u8; 32], KeptDecision>>,
}

#[derive(Debug, Clone, Copy)]
struct KeptDecision {
    verdict: ProbeResult,
    /// The time before PostgreSQL decided.
    begun_at: Instant,
}

impl Decisions {
    /// Keeps decisions for this time; zero: not at all.
    pub fn new(kept_for: Duration) -> Self {
        Self { kept_for, decisions: Mutex::default() }
    }

    /// Returns the decision, if there is one that is young enough.
    pub fn get(&self, probe: &Probe, now: Instant) -> Option<ProbeResult> {
        if self.kept_for.is_zero() {
            return None;
        }
        let digest = probe.digest();
        let decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        decisions.get(&digest).filter(|decision| self.is_valid(decision, now)).map(|decision| decision.verdict)
    }

    /// Keeps a decision that was begun at this time.
    pub fn keep(&self, probe: &Probe, verdict: ProbeResult, begun_at: Instant) {
        if self.kept_for.is_zero() {
            return;
        }
        let digest = probe.digest();
        let mut decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        if decisions.len() >= CAPACITY {
            decisions.retain(|_, decision| self.is_valid(decision, begun_at));
            if decisions.len() >= CAPACITY {
                decisions.clear();
            }
        }
        decisions.insert(digest, KeptDecision { verdict, begun_at });
    }

    fn is_valid(&self, decision: &KeptDecision, now: Instant) -> bool {
        now.saturating_duration_since(decision.begun_at) < self.kept_for
    }
}
