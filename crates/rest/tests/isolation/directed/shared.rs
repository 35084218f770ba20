//! One connection, many callers.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use crate::caller::CALLERS;
use crate::oracle::{self, Oracle};
use crate::scenario::{Probe, Scenario};
use crate::schedule::{self, MismatchReport};
use crate::server::IsolationServer;

/// The timeout for events that must happen. Without it, a failing test would hang.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Returns reads and writes that depend on different settings.
pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new(
        "shared",
        "create table rows_of_callers (owner text);
         insert into rows_of_callers values ('-'), ('00000000-0000-4000-8000-00000000000a'),
           ('00000000-0000-4000-8000-00000000000b'), ('00000000-0000-4000-8000-00000000000c');
         alter table rows_of_callers enable row level security;
         create policy own on rows_of_callers using (owner = coalesce((select auth.uid())::text, '-'));
         create table plain (id integer primary key, note text);
         insert into plain values (1, 'a');
         create view seen as select {inline} as who;
         create table filled (mark text, who text default {inline});
         create table judged (mark text);
         create constraint trigger at_commit after insert on judged deferrable initially deferred
           for each row execute function private.record_new();
         create view roles as select current_user::text as role;",
        [
            Probe::get("rows_of_callers?select=owner").without_service().expect(200, r#"[{"owner":"{sub}"}]"#),
            Probe::get("plain?select=note&id=eq.1").expect(200, r#"[{"note":"a"}]"#),
            Probe::get("seen").expect(200, r#"[{"who":"{context}"}]"#),
            Probe::post("filled", r#"{"mark":"{mark}"}"#).minimal().expect(201, "").writes("filled"),
            Probe::post("filled?select=mark,who", r#"{"mark":"{mark}"}"#).expect_row(201),
            Probe::post("judged", r#"{"mark":"{mark}"}"#).minimal().expect(201, "").writes("written"),
            Probe::get("roles").expect(200, r#"[{"role":"{role}"}]"#),
        ],
    )]
}

/// Sends every pair of requests of every two callers, directly after one another.
#[tokio::test]
async fn two_callers_on_one_connection_see_themselves() {
    let stage = IsolationServer::open(1, scenarios()).await;
    let (mut report, oracle) = (MismatchReport::default(), Oracle::default());
    let probes = &stage.scenarios[0].probes;
    for (first_index, first) in probes.iter().enumerate() {
        for (second_index, second) in probes.iter().enumerate() {
            for (at, caller) in CALLERS.iter().enumerate() {
                let other = &CALLERS[(at + 1 + (first_index + second_index) % 4) % CALLERS.len()];
                for (index, probe, caller) in [(first_index, first, caller), (second_index, second, other)] {
                    if probe.is_for(caller) {
                        let sent = stage.send(probe, caller).await;
                        let judgement = oracle.judge(("shared", index, caller.name), probe, caller, &sent);
                        let place = format!("{} {} behind {}", probe.method, probe.resource, first.resource);
                        report.judged(&place, caller, &sent, judgement);
                    }
                }
            }
        }
    }
    schedule::finish(&stage, report).await;
}

/// Sends quick reads of one statement by many callers at once. With fewer connections than
/// requests, they may be coalesced.
#[tokio::test]
async fn a_burst_of_one_read_responds_to_each_caller() {
    for connections in [1, 2] {
        let stage = IsolationServer::open(connections, scenarios()).await;
        let (mut report, oracle) = (MismatchReport::default(), Oracle::default());
        let probes = &stage.scenarios[0].probes;
        for (index, probe) in probes.iter().enumerate().filter(|(_, probe)| probe.method == "GET") {
            // The first ones make the read known as quick
            for burst in [1, 8, 8] {
                let callers = (0..burst).flat_map(|_| &CALLERS).filter(|caller| probe.is_for(caller));
                let stage = &stage;
                let responses =
                    join_all(callers.map(|caller| async move { (caller, stage.send(probe, caller).await) }));
                for (caller, sent) in responses.await {
                    let judgement = oracle.judge(("shared", index, caller.name), probe, caller, &sent);
                    report.judged(&format!("{} with {connections}", probe.resource), caller, &sent, judgement);
                }
            }
        }
        // Reads and writes of all kinds together
        let both =
            (0..4).flat_map(|_| probes.iter().enumerate()).flat_map(|probe| CALLERS.iter().map(move |c| (probe, c)));
        let both = both.filter(|((_, probe), caller)| probe.is_for(caller));
        let responses = join_all(both.map(|((index, probe), caller)| {
            let stage = &stage;
            async move { (index, probe, caller, stage.send(probe, caller).await) }
        }));
        for (index, probe, caller, sent) in responses.await {
            let judgement = oracle.judge(("shared", index, caller.name), probe, caller, &sent);
            report.judged(&format!("{} among others, with {connections}", probe.resource), caller, &sent, judgement);
        }
        schedule::finish(&stage, report).await;
    }
}

/// Another session gets a lock that a request took for its session, however the request ended.
#[tokio::test]
async fn locks_of_a_session_end_with_the_request() {
    let stage = IsolationServer::open(
        1,
        vec![Scenario::new(
            "locks",
            "create function public.take_lock(key integer) returns void language sql as $$ select pg_advisory_lock($1) $$;
             create function public.take_lock_and_raise(key integer) returns void language plpgsql as $$
             begin perform pg_advisory_lock(key); raise exception 'raised'; end $$;
             create table locking (key integer);
             create function private.lock_row() returns trigger language plpgsql as $$
             begin perform pg_advisory_lock(new.key); return new; end $$;
             create constraint trigger locks after insert on locking deferrable initially deferred
               for each row execute function private.lock_row();
             create function private.lock_for(key integer) returns boolean language sql as $$
               select pg_advisory_lock(key) is not null $$;
             create table locked_rows (key integer);
             alter table locked_rows enable row level security;
             create policy locks on locked_rows using (private.lock_for(key));
             insert into locked_rows values (4);",
            [],
        )],
    )
    .await;
    stage.execute("set lock_timeout = '10s'").await;
    let call = |function: &str, key: i32| stage.post(&format!("/rest/v1/rpc/{function}")).json(&json!({ "key": key }));
    call("take_lock", 1).send().await.expect(204);
    call("take_lock_and_raise", 2).send().await.expect(400);
    stage.post("/rest/v1/locking").json(&json!({ "key": 3 })).send().await.expect(201);
    stage.get("/rest/v1/locked_rows").send().await.expect(200);
    let mut report = MismatchReport::default();
    for key in 1..=4 {
        if let Err(error) = stage.admin().execute("select pg_advisory_lock($1::integer)", &[&key]).await {
            report.add(&format!("the lock {key}"), error.to_string());
        }
    }
    report.finish();
}

/// A function that runs before every request changes settings, raises errors, and sets headers of
/// the response.
#[tokio::test]
async fn a_pre_request_function_affects_its_own_request_only() {
    let scenarios = vec![Scenario::new(
        "pre_request",
        "create function public.before_each() returns void language plpgsql as $$
         declare headers json := current_setting('request.headers')::json;
         begin
           perform set_config('app.tenant', 'tenant of ' || split_part(public.request_context(), '|', 7), false);
           if headers ->> 'x-say' is not null then
             perform set_config('response.headers', json_build_array(json_build_object('x-said', headers ->> 'x-mark'))::text, false);
           end if;
           if headers ->> 'x-refuse' is not null then
             raise exception '%', public.request_context() using errcode = 'PT403';
           end if;
           if headers ->> 'x-role' is not null then
             perform set_config('role', headers ->> 'x-role', false);
           end if;
           if headers ->> 'x-forget' is not null then
             perform set_config('app.tenant', '', false);
           end if;
         end $$;
         create view tenant as select current_setting('app.tenant', true) as tenant, current_user::text as role;
         create table tenants (mark text, tenant text default current_setting('app.tenant', true), who text default {inline});
         create table untouched (id integer);
         insert into untouched values (1);",
        [
            Probe::get("tenant").expect(200, r#"[{"tenant":"tenant of {mark}","role":"{role}"}]"#),
            Probe::get("tenant?select=tenant").header("x-forget", "yes").expect(200, r#"[{"tenant":""}]"#),
            Probe::get("tenant?select=role").header("x-role", "service_role").expect(200, r#"[{"role":"service_role"}]"#),
            Probe::get("untouched").header("x-say", "yes").expect(200, r#"[{"id":1}]"#),
            Probe::get("untouched").expect(200, r#"[{"id":1}]"#),
            Probe::get("untouched")
                .header("x-refuse", "yes")
                .expect(403, r#"{"code":"PT403","details":null,"hint":null,"message":"{context}"}"#),
            Probe::post("tenants?select=tenant,who", r#"{"mark":"{mark}"}"#)
                .expect(201, r#"[{"tenant":"tenant of {mark}","who":"{context}"}]"#),
        ],
    )];
    let stage = IsolationServer::with(2, scenarios, |config| {
        config.apply([("db_pre_request", "public.before_each")], &mut Vec::new());
    })
    .await;
    let (oracle, mut report) = schedule::run_unpolluted(&stage, 2).await;
    schedule::after_pollution(&stage, &oracle, &mut report).await;
    schedule::finish(&stage, report).await;
}

/// Requests that the API itself rolls back.
#[tokio::test]
async fn a_rolled_back_request_leaves_nothing_behind() {
    let mut scenarios = scenarios();
    scenarios.push(Scenario::new(
        "rolled_back",
        "create table counted (mark text, who text default public.request_context());
         create function public.some_rows() returns setof text language plpgsql as $$
         begin perform private.pollute(); return query values (public.request_context()), ('b'); end $$;",
        [
            Probe::post("counted", r#"{"mark":"{mark}"}"#).header("prefer", "tx=rollback, return=representation"),
            Probe::write("PATCH", "counted?mark=eq.none", r#"{"mark":"x"}"#)
                .header("accept", "application/vnd.pgrst.object+json"),
            Probe::post("counted", r#"[{"mark":"{mark}"},{"mark":"{mark}"}]"#)
                .header("accept", "application/vnd.pgrst.object+json"),
            Probe::call("rpc/some_rows").header("accept", "application/vnd.pgrst.object+json"),
            Probe::call("rpc/some_rows").header("prefer", "handling=strict, max-affected=1"),
            Probe::post("counted", r#"{"mark":1,"who":{"a":1},"none":1}"#),
        ],
    ));
    let stage = IsolationServer::with(1, scenarios, |config| config.tx_end.may_override = true).await;
    let (mut report, oracle) = (MismatchReport::default(), Oracle::default());
    let state = Probe::get("session_states");
    let clean = schedule::clean_states(&stage, &[&state]).await;
    let shared = &stage.scenarios[0].probes;
    for (index, probe) in stage.scenarios[1].probes.iter().enumerate() {
        for (at, leaves) in schedule::LEFT.iter().enumerate() {
            let (polluter, caller) =
                (&CALLERS[(at + index) % CALLERS.len()], &CALLERS[(at + index + 1) % CALLERS.len()]);
            let place = format!("after {} {}, {leaves}", probe.method, probe.resource);
            let sent = stage.send_leaving(probe, polluter, leaves).await;
            report.judged(&place, polluter, &sent, oracle::leaks_nothing(&sent));
            let sent = stage.send(&state, caller).await;
            report.judged(&place, caller, &sent, clean.judge(("state", 0, caller.name), &state, caller, &sent));
            for (index, probe) in shared.iter().enumerate().filter(|(_, probe)| probe.is_for(caller)) {
                let sent = stage.send(probe, caller).await;
                report.judged(
                    &place,
                    caller,
                    &sent,
                    oracle.judge(("shared", index, caller.name), probe, caller, &sent),
                );
            }
        }
    }
    assert_eq!(stage.count("select count(*) from counted").await, 0, "what was rolled back is not there");
    schedule::finish(&stage, report).await;
}
