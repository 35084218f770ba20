//! Requests that do not end by their own statements: disconnected clients, cancelled or killed
//! backends, timeouts, roles without privileges.

use portico_database::scratch;
use serde_json::json;

use super::shared;
use crate::caller::CALLERS;
use crate::oracle::{self, Oracle};
use crate::scenario::{Probe, Scenario};
use crate::schedule::{self, LEFT, MismatchReport};
use crate::server::IsolationServer;

/// The end of a request that waits for a lock.
#[derive(Debug, Clone, Copy)]
enum RequestEnding {
    ClientGoesAway,
    Cancelled,
    Killed,
    LockComes,
}

const ENDINGS: [RequestEnding; 4] =
    [RequestEnding::ClientGoesAway, RequestEnding::Cancelled, RequestEnding::Killed, RequestEnding::LockComes];

/// Requests of several kinds that leave state in the session and then wait for lock 99.
fn waiting() -> Scenario {
    Scenario::new(
        "waiting",
        "create function private.wait() returns boolean language plpgsql volatile as $$
         begin
           perform public.request_context();
           perform pg_advisory_xact_lock(99);
           return true;
         end $$;
         create function public.waits() returns boolean language sql volatile as $$ select private.wait() $$;
         create view waiting as select private.wait() as waited;
         create table waits_in_default (mark text, waited boolean default private.wait());
         create table waits_at_commit (mark text);
         create function private.wait_in_trigger() returns trigger language plpgsql as $$
         begin perform private.wait(); return new; end $$;
         create constraint trigger waits after insert on waits_at_commit deferrable initially deferred
           for each row execute function private.wait_in_trigger();",
        [
            Probe::call("rpc/waits"),
            Probe::get("waiting"),
            Probe::post("waits_in_default", r#"{"mark":"{mark}"}"#),
            Probe::post("waits_at_commit", r#"{"mark":"{mark}"}"#),
        ],
    )
}

#[tokio::test]
async fn an_aborted_request_leaves_nothing_behind() {
    let mut scenarios = shared::scenarios();
    scenarios.push(waiting());
    let stage = std::sync::Arc::new(IsolationServer::open(1, scenarios).await);
    let holder = scratch::connect(stage.endpoint()).await.unwrap();
    let (mut report, oracle) = (MismatchReport::default(), Oracle::default());
    let state = Probe::get("session_states");
    let clean = schedule::clean_states(&stage, &[&state]).await;
    let mut turn = 0;
    for ending in ENDINGS {
        for (index, probe) in stage.scenarios[1].probes.clone().into_iter().enumerate() {
            for (at, leaves) in LEFT.iter().filter(|leaves| **leaves != "raise").enumerate() {
                turn += 1;
                // A short run takes a part of them, alternating
                if turn % 3 != index % 3 && schedule::seconds().is_none() {
                    continue;
                }
                let (polluter, caller) = (&CALLERS[turn % CALLERS.len()], &CALLERS[(turn + 1 + at) % CALLERS.len()]);
                let place = format!("{ending:?} in {} {}, which left {leaves}", probe.method, probe.resource);
                holder.batch_execute("select pg_advisory_lock(99)").await.unwrap();
                let request = tokio::spawn({
                    let (stage, probe) = (std::sync::Arc::clone(&stage), probe.clone());
                    async move { stage.send_leaving(&probe, polluter, leaves).await }
                });
                until_waiting(&stage).await;
                match ending {
                    RequestEnding::ClientGoesAway => request.abort(),
                    RequestEnding::Cancelled => {
                        drop(stage.query(&format!("select pg_cancel_backend(pid) {WAITING}")).await)
                    }
                    RequestEnding::Killed => {
                        drop(stage.query(&format!("select pg_terminate_backend(pid) {WAITING}")).await)
                    }
                    RequestEnding::LockComes => {}
                }
                if !matches!(ending, RequestEnding::ClientGoesAway) {
                    holder.batch_execute("select pg_advisory_unlock(99)").await.unwrap();
                    let sent = request.await.unwrap();
                    report.judged(&place, polluter, &sent, oracle::leaks_nothing(&sent));
                }
                let sent = stage.send(&state, caller).await;
                report.judged(&place, caller, &sent, clean.judge(("state", 0, caller.name), &state, caller, &sent));
                for (index, probe) in stage.scenarios[0].probes.iter().enumerate() {
                    let caller = &CALLERS[(turn + index) % CALLERS.len()];
                    if probe.is_for(caller) {
                        let sent = stage.send(probe, caller).await;
                        let judgement = oracle.judge(("shared", index, caller.name), probe, caller, &sent);
                        report.judged(&format!("{place}, then {}", probe.resource), caller, &sent, judgement);
                    }
                }
                if matches!(ending, RequestEnding::ClientGoesAway) {
                    holder.batch_execute("select pg_advisory_unlock(99)").await.unwrap();
                }
            }
        }
    }
    schedule::finish(&stage, report).await;
}

/// The backends of the data API that wait for the lock.
const WAITING: &str = "from pg_stat_activity
  where datname = current_database() and usename = 'authenticator' and wait_event = 'advisory'";

/// Waits until a backend of the data API waits for the lock.
async fn until_waiting(stage: &IsolationServer) {
    let waiting = async { while stage.count(&format!("select count(*) {WAITING}")).await == 0 {} };
    assert!(tokio::time::timeout(shared::PATIENCE, waiting).await.is_ok(), "no request waits for the lock");
}

/// A timeout ends a statement that has left state in the session.
#[tokio::test]
async fn a_request_that_times_out_leaves_nothing_behind() {
    let mut scenarios = shared::scenarios();
    scenarios.push(Scenario::new(
        "late",
        "create function public.late() returns text language plpgsql set statement_timeout = '20ms' as $$
         begin
           perform public.request_context();
           perform pg_sleep(60);
           return 'never';
         end $$;",
        [Probe::call("rpc/late")],
    ));
    let stage = IsolationServer::open(1, scenarios).await;
    let (mut report, oracle) = (MismatchReport::default(), Oracle::default());
    let late = stage.scenarios[1].probes[0].clone();
    for (at, leaves) in LEFT.iter().enumerate() {
        let polluter = &CALLERS[at % CALLERS.len()];
        let sent = stage.send_leaving(&late, polluter, leaves).await;
        report.judged(leaves, polluter, &sent, oracle::leaks_nothing(&sent));
        for (index, probe) in stage.scenarios[0].probes.iter().enumerate() {
            for caller in CALLERS.iter().filter(|caller| probe.is_for(caller)) {
                let sent = stage.send(probe, caller).await;
                let judgement = oracle.judge(("shared", index, caller.name), probe, caller, &sent);
                report.judged(&format!("{leaves}, then {}", probe.resource), caller, &sent, judgement);
            }
        }
    }
    schedule::finish(&stage, report).await;
}

/// A role without privileges gains none from earlier requests.
#[tokio::test]
async fn a_role_without_privileges_gains_none() {
    let stage = IsolationServer::open(1, shared::scenarios()).await;
    stage
        .execute(
            "do $$ begin create role isolation_outsider nologin;
             exception when duplicate_object or unique_violation then null; end $$;
             grant isolation_outsider to authenticator; grant usage on schema public to isolation_outsider",
        )
        .await;
    stage.execute("notify pgrst, 'reload config'").await;
    stage.catch_up().await;
    let expires = stage.clock().now().unix_timestamp() + 3600;
    let claims = json!({ "role": "isolation_outsider", "sub": "00000000-0000-4000-8000-0000000000dd", "exp": expires });
    let token = stage.keys().ring.sign(&claims).unwrap();
    let unknown_role = json!({ "role": "not_a_role", "exp": expires });
    let unknown = stage.keys().ring.sign(&unknown_role).unwrap();
    let (mut report, oracle) = (MismatchReport::default(), Oracle::default());
    for caller in &CALLERS {
        for (index, probe) in stage.scenarios[0].probes.iter().enumerate().filter(|(_, probe)| probe.is_for(caller)) {
            let refused = stage.get("/rest/v1/plain?select=note&id=eq.1").bearer(&token).send().await;
            let refused_write = stage.post("/rest/v1/filled").bearer(&token).json(&json!({ "mark": "x" })).send().await;
            let refused_role = stage.get("/rest/v1/plain?select=note&id=eq.1").bearer(&unknown).send().await;
            assert_eq!((refused.status, refused.json()["code"].clone()), (403, json!("42501")));
            assert_eq!((refused_write.status, refused_write.json()["code"].clone()), (403, json!("42501")));
            assert_eq!((refused_role.status, refused_role.json()["code"].clone()), (401, json!("22023")));
            let sent = stage.send(probe, caller).await;
            let judgement = oracle.judge(("shared", index, caller.name), probe, caller, &sent);
            report.judged(probe.resource, caller, &sent, judgement);
        }
    }
    assert_eq!(stage.count("select count(*) from filled where mark = 'x'").await, 0);
    schedule::finish(&stage, report).await;
}
