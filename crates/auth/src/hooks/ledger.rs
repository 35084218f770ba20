//! The hooks of one request: the responses that were received, and the random values that each run
//! of a transaction draws again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::hmac;
use portico_base::random;
use serde_json::Value;
use uuid::Uuid;

use super::call::HookCall;
use crate::model::JsonObject;
use crate::model::ids::UserId;
use crate::settings::HookPoint;

/// The hooks of one request. Clones share their state.
#[derive(Clone)]
pub(crate) struct HookLedger {
    shared: Arc<SharedLedger>,
}

struct SharedLedger {
    seed: hmac::Key,
    state: Mutex<LedgerState>,
}

#[derive(Default)]
struct LedgerState {
    responses: Vec<HookResponse>,
    pending: Option<HookCall>,
    done: HashSet<String>,
    created: Option<UserId>,
    has_decoy: bool,
    failed: Option<HookPoint>,
}

struct HookResponse {
    point: HookPoint,
    question: Value,
    output: JsonObject,
}

/// The seed is a secret, and so are the codes in the responses.
impl std::fmt::Debug for HookLedger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HookLedger(***)")
    }
}

impl HookLedger {
    pub(crate) fn new() -> Self {
        let seed = hmac::Key::new(hmac::HMAC_SHA256, &random::bytes::<32>());
        Self { shared: Arc::new(SharedLedger { seed, state: Mutex::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, LedgerState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns random bytes that are the same whenever this request draws them for this purpose,
    /// and unpredictable otherwise.
    pub(crate) fn bytes(&self, purpose: &str) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hmac::sign(&self.shared.seed, purpose.as_bytes()).as_ref());
        bytes
    }

    /// Returns a random UUID that is the same whenever this request draws it for this purpose.
    pub(crate) fn uuid(&self, purpose: &str) -> Uuid {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.bytes(purpose)[..16]);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// Returns true the first time that this request does something that must not happen again in
    /// another run, such as counting an email.
    pub(crate) fn is_first(&self, what: String) -> bool {
        self.state().done.insert(what)
    }

    /// Begins another run of a transaction: what the one before noted was rolled back.
    pub(super) fn begin_run(&self) {
        let mut state = self.state();
        state.created = None;
        state.has_decoy = false;
    }

    /// Returns the output that the hook gave to the same question.
    pub(super) fn response(&self, call: &HookCall) -> Option<JsonObject> {
        let state = self.state();
        let responses = state.responses.iter();
        let mut same = responses.filter(|response| response.point == call.point && response.question == call.question);
        same.next().map(|response| response.output.clone())
    }

    /// Keeps the call whose response the transaction needs.
    pub(super) fn await_response(&self, call: HookCall) {
        self.state().pending = Some(call);
    }

    pub(super) fn take_pending(&self) -> Option<HookCall> {
        self.state().pending.take()
    }

    /// Keeps the output of a hook for the next run.
    pub(super) fn keep(&self, call: HookCall, output: JsonObject) {
        self.state().responses.push(HookResponse { point: call.point, question: call.question, output });
    }

    pub(super) fn note_failure(&self, point: HookPoint) {
        self.state().failed = Some(point);
    }

    /// Returns the point whose hook failed the operation, if one did.
    pub(crate) fn failed_point(&self) -> Option<HookPoint> {
        self.state().failed
    }

    /// Notes that the transaction creates an account.
    pub(super) fn note_created(&self, user: UserId) {
        self.state().created = Some(user);
    }

    pub(super) fn take_created(&self) -> Option<UserId> {
        self.state().created.take()
    }

    /// Notes that the transaction does the work of an email and sends none.
    pub(crate) fn note_decoy(&self) {
        self.state().has_decoy = true;
    }

    pub(super) fn has_decoy(&self) -> bool {
        self.state().has_decoy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_draws_the_same_value_again_and_another_request_does_not() {
        let (one, two) = (HookLedger::new(), HookLedger::new());
        assert_eq!(one.uuid("user"), one.clone().uuid("user"));
        assert_ne!(one.uuid("user"), one.uuid("session"));
        assert_ne!(one.uuid("user"), two.uuid("user"));
        assert_eq!(one.uuid("user").get_version_num(), 4);
        assert!(one.is_first("mail".into()) && !one.is_first("mail".into()));
    }
}
