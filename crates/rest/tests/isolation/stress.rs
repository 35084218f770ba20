//! The stress test: requests of all scenarios by all callers in random order, many at once over
//! three connections. Some leave state in their session; some clients disconnect. In the first
//! phase every response must be exact. In the second there are disturbances, and a request may fail
//! with the error of a disturbance.
//!
//! `PORTICO_ISOLATION_SECONDS` is its duration. `PORTICO_ISOLATION_SEED` repeats the choices of a
//! run; the order in which requests meet depends on the machine.

mod disturbances;
mod random;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use portico_testkit::TestResponse;
use serde_json::json;

use self::random::SeededRandom;
use crate::caller::CALLERS;
use crate::directed::changing::{self, SchemaChange};
use crate::oracle::{self, Oracle};
use crate::scenario::{ExpectedResponse, Probe, Scenario};
use crate::scenarios;
use crate::schedule::{self, LEFT, MismatchReport, ScheduledProbe};
use crate::server::IsolationServer;

const CONNECTIONS: usize = 3;
/// The number of concurrent requests.
const CLIENTS: u64 = 16;
/// The number of requests of a client in one phase.
const REQUESTS: u64 = 40;

/// The state that the clients of a phase share.
struct StressRun {
    stage: IsolationServer,
    oracle: Oracle,
    changes: Vec<SchemaChange>,
    report: Mutex<MismatchReport>,
    exact: AtomicU64,
    disturbed: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "the seed and the counts are shown when the test fails")]
async fn no_request_acts_as_another_under_stress() {
    let seed = match std::env::var("PORTICO_ISOLATION_SEED") {
        Ok(seed) => seed.parse().expect("PORTICO_ISOLATION_SEED is a number"),
        Err(_) => u64::from_le_bytes(portico_base::random::bytes()),
    };
    println!("PORTICO_ISOLATION_SEED={seed}");
    let mut scenarios = scenarios::all();
    scenarios.push(changing::scenario());
    scenarios.push(errors());
    let stage = IsolationServer::open(CONNECTIONS, scenarios).await;
    let oracle = schedule::alone_where_needed(&stage).await;
    let stress = StressRun {
        stage,
        oracle,
        changes: changing::changes().into_iter().filter(|change| change.name != changing::REDEFINITION).collect(),
        report: Mutex::default(),
        exact: AtomicU64::new(0),
        disturbed: AtomicU64::new(0),
    };
    let end = schedule::seconds().map(|seconds| Instant::now() + seconds);
    let mut random = SeededRandom::new(seed);
    loop {
        stress.phase(&mut random, false).await;
        stress.phase(&mut random, true).await;
        if end.is_none_or(|end| Instant::now() >= end) {
            break;
        }
        stress.stage.forget_rows().await;
    }
    let (exact, disturbed) = (stress.exact.into_inner(), stress.disturbed.into_inner());
    println!("{exact} responses as expected, {disturbed} disturbed");
    schedule::finish(&stress.stage, stress.report.into_inner().unwrap()).await;
    assert!(exact > disturbed, "most requests get through: {exact}, {disturbed}");
}

impl StressRun {
    /// Runs the clients, with or without disturbances.
    async fn phase(&self, random: &mut SeededRandom, is_disturbed: bool) {
        let clients = (0..CLIENTS).map(|_| self.client(random.fork(), is_disturbed)).collect::<Vec<_>>();
        if is_disturbed {
            let disturbances = disturbances::all(&self.stage, &self.changes, random);
            tokio::select! {
                _ = join_all(clients) => {}
                () = disturbances => {}
            }
            for change in &self.changes {
                disturbances::alter(self.stage.admin(), change.before).await;
            }
        } else {
            join_all(clients).await;
        }
        for wrong in self.stage.wrong_rows().await {
            self.report.lock().unwrap().add(if is_disturbed { "written, disturbed" } else { "written" }, wrong);
        }
    }

    /// Runs one client, which sends its requests one after the other.
    async fn client(&self, mut random: SeededRandom, is_disturbed: bool) {
        let steps = schedule::steps(&self.stage);
        let mut sent = 0;
        while sent < REQUESTS {
            sent += 1;
            let step = *random.choose(&steps);
            match random.below(20) {
                0..3 => self.leaving(&step, &mut random, is_disturbed).await,
                3 => self.aborted(&step, &mut random).await,
                4 if is_disturbed => self.changed(&mut random).await,
                5 => self.outsider(is_disturbed).await,
                _ => self.plain(&step, is_disturbed).await,
            }
        }
    }

    async fn plain(&self, step: &ScheduledProbe<'_>, is_disturbed: bool) {
        let sent = self.stage.send(step.probe(), step.caller).await;
        let judgement = self.oracle.judge(step.key(), step.probe(), step.caller, &sent);
        self.judged(step, &sent, judgement, is_disturbed);
    }

    fn judged(
        &self,
        step: &ScheduledProbe<'_>,
        sent: &crate::server::SentRequest,
        judgement: Result<(), String>,
        is_disturbed: bool,
    ) {
        let failed = sent.response.as_ref().is_none_or(is_failure_of_a_disturbance);
        let judgement = match judgement {
            Ok(()) => {
                self.exact.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(_) if is_disturbed && failed => {
                self.disturbed.fetch_add(1, Ordering::Relaxed);
                oracle::leaks_nothing(sent)
            }
            wrong => wrong,
        };
        let place = step.place(if is_disturbed { "disturbed" } else { "calm" });
        self.report.lock().unwrap().judged(&place, step.caller, sent, judgement);
    }

    /// Sends a request that leaves state in its session.
    async fn leaving(&self, step: &ScheduledProbe<'_>, random: &mut SeededRandom, is_disturbed: bool) {
        let leaves = random.choose(LEFT);
        let sent = self.stage.send_leaving(step.probe(), step.caller, leaves).await;
        let place = step.place(if is_disturbed { "leaving, disturbed" } else { "leaving" });
        self.report.lock().unwrap().judged(&place, step.caller, &sent, oracle::leaks_nothing(&sent));
    }

    /// Sends a request whose client disconnects.
    async fn aborted(&self, step: &ScheduledProbe<'_>, random: &mut SeededRandom) {
        let leaves = random.choose(LEFT);
        let patience = Duration::from_micros(random.below(5000));
        let request = self.stage.send_leaving(step.probe(), step.caller, leaves);
        let _ = tokio::time::timeout(patience, request).await;
    }

    /// Sends a request for an object that changes: its response is the one before or after the
    /// change.
    async fn changed(&self, random: &mut SeededRandom) {
        let change = random.choose(&self.changes);
        let caller = random.choose(&CALLERS);
        let probe = Probe { writes: None, ..change.probe_after.clone() };
        if !probe.is_for(caller) {
            return;
        }
        let sent = self.stage.send(&probe, caller).await;
        let judge = |expected: ExpectedResponse| {
            let probe = Probe { expected, ..probe.clone() };
            self.oracle.judge((change.name, 0, caller.name), &probe, caller, &sent)
        };
        let judgement = judge(change.probe_after.expected).or_else(|_| judge(change.probe_before.expected));
        let failed = sent.response.as_ref().is_none_or(is_failure_of_a_disturbance);
        let judgement = if failed { oracle::leaks_nothing(&sent) } else { judgement };
        self.report.lock().unwrap().judged(&format!("{}, while it changes", change.name), caller, &sent, judgement);
    }

    /// Sends a request in a role that does not exist, which must be rejected.
    async fn outsider(&self, is_disturbed: bool) {
        let expires = self.stage.clock().now().unix_timestamp() + 3600;
        let token = self.stage.keys().ring.sign(&json!({ "role": "not_a_role", "exp": expires })).unwrap();
        let response = self.stage.get("/rest/v1/whose").bearer(&token).try_send().await;
        let Ok(response) = response else { return };
        let is_right = response.status == 401 || is_disturbed && is_failure_of_a_disturbance(&response);
        if !is_right {
            self.report.lock().unwrap().add("a role that does not exist", format!("{response:?}"));
        }
    }
}

/// Returns true if a disturbance caused the response.
fn is_failure_of_a_disturbance(response: &TestResponse) -> bool {
    /// Cancelled, terminated by an administrator, lock timeout, deadlock, serialization failure, no
    /// connection.
    const CODES: &[&str] = &["57014", "57P01", "55P03", "40P01", "40001", "08006", "PGRST000", "PGRST001", "PGRST003"];
    let body: serde_json::Value = serde_json::from_slice(&response.body).unwrap_or_default();
    response.status >= 400 && body["code"].as_str().is_some_and(|code| CODES.contains(&code))
}

/// Returns requests that fail by themselves, each in its own way.
fn errors() -> Scenario {
    Scenario::new(
        "errors",
        "create table unique_keys (key integer primary key, note text not null);
         insert into unique_keys values (1, 'a');
         create function public.divides() returns integer language plpgsql as $$
         begin perform public.request_context(); return 1 / 0; end $$;
         create function public.late() returns text language plpgsql set statement_timeout = '15ms' as $$
         begin perform public.request_context(); perform pg_sleep(60); return 'never'; end $$;
         create function public.too_deep(n integer) returns integer language plpgsql as $$
         begin return public.too_deep(n + 1); end $$;",
        [
            Probe::post("unique_keys", r#"{"key":1,"note":"{mark}"}"#),
            Probe::post("unique_keys", r#"{"key":2}"#),
            Probe::get("unique_keys?key=eq.x"),
            Probe::get("unique_keys?none=eq.x"),
            Probe::get("unique_keys?key=eq.7").header("accept", "application/vnd.pgrst.object+json"),
            Probe::call("rpc/divides"),
            Probe::call("rpc/late"),
            Probe::post("unique_keys", "{"),
        ],
    )
}
