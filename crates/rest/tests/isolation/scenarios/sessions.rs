//! State that functions leave in the session, and requests that show it.

use crate::scenario::{Probe, Scenario};
use crate::schedule;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "session_state",
            "create view session_of_a_view as select public.session_state() - 'locks' as state;",
            [Probe::get("session_states"), Probe::call("rpc/session_state"), Probe::get("session_of_a_view")],
        ),
        Scenario::new(
            "settings_of_formats",
            // They decide how values are written
            "create table formats (time timestamptz, date date, span interval, bytes bytea, number double precision);
             insert into formats values ('2010-06-15 16:30:00+00', '2010-06-15', '1 day 02:03:04', '\\x00ff', 0.1 + 0.2);
             create table texts (body text);
             insert into texts values ('the cats are here');",
            [
                Probe::get("formats"),
                Probe::get("formats").header("accept", "text/csv"),
                Probe::get("texts?select=body&body=fts.cat").expect(200, r#"[{"body":"the cats are here"}]"#),
            ],
        ),
        Scenario::new(
            "settings_by_command",
            "create function public.run_command(command text) returns text language plpgsql as $$
             begin
               execute command;
               return 'done';
             exception when others then
               return sqlstate;
             end $$;",
            [
                Probe::write("POST", "rpc/run_command", r#"{"command":"set timezone to 'Asia/Tokyo'"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"set row_security to off"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"set session characteristics as transaction read only"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"set statement_timeout to 77"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"set app.of_the_command to '{mark}'"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"reset all"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"set session authorization postgres"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"prepare left_one as select 1"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"deallocate all"}"#).expect_anything(),
                Probe::write("POST", "rpc/run_command", r#"{"command":"discard plans"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"discard all"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"declare left_one cursor with hold for select 1"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"listen left_one"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"create temporary table formats as select '{mark}' as time"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"create temporary sequence numbers"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"select pg_advisory_lock_shared(7)"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"select nextval('private.counter')"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"do $$ begin perform set_config('app.of_the_block', '{mark}', false); end $$"}"#),
                Probe::write("POST", "rpc/run_command", r#"{"command":"load 'auto_explain'"}"#),
                Probe::call("rpc/session_state"),
                Probe::get("session_states"),
                Probe::get("formats"),
            ],
        ),
        Scenario::new(
            "custom_settings",
            "create function public.counts() returns integer language plpgsql as $$
             begin
               perform set_config('app.count',
                 (coalesce(nullif(current_setting('app.count', true), ''), '0')::integer + 1)::text, false);
               return current_setting('app.count')::integer;
             end $$;
             create view counted as select public.counts() as count;",
            [
                Probe::call("rpc/counts").expect(200, "1"),
                Probe::get("rpc/counts").expect(200, "1"),
                Probe::get("counted").expect(200, r#"[{"count":1}]"#),
            ],
        ),
        Scenario::new(
            "sequences_of_the_session",
            "create function public.last_number() returns text language plpgsql as $$
             begin return 'had ' || (lastval() is not null);
             exception when object_not_in_prerequisite_state then return 'none'; end $$;
             create function public.take_number() returns text language sql as $$
               select 'took ' || (nextval('private.counter') > 0) $$;
             create table numbered (id bigint generated always as identity primary key, mark text);",
            [
                Probe::call("rpc/take_number").expect(200, r#""took true""#),
                Probe::call("rpc/last_number").expect(200, r#""none""#),
                Probe::post("numbered", r#"{"mark":"{mark}"}"#).minimal().expect(201, ""),
                Probe::get("rpc/last_number").expect(200, r#""none""#),
            ],
        ),
    ]
}

#[tokio::test]
async fn sessions_keep_nothing_of_a_caller() {
    schedule::run(scenarios()).await;
}
