//! The status and the headers that SQL sets for the response.

use crate::scenario::{Probe, Scenario};
use crate::schedule;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "said_by_function",
            "create function public.says(status text, kept boolean) returns text language plpgsql as $$
             begin
               perform set_config('response.status', status, not kept),
                 set_config('response.headers', json_build_array(json_build_object('x-said',
                   split_part(public.request_context(), '|', 7)))::text, not kept);
               return 'said';
             end $$;",
            [
                Probe::write("POST", "rpc/says", r#"{"status":"218","kept":false}"#).expect(218, r#""said""#),
                Probe::write("POST", "rpc/says", r#"{"status":"219","kept":true}"#).expect(219, r#""said""#),
                Probe::get("rpc/says?status=220&kept=true").expect(220, r#""said""#),
            ],
        ),
        Scenario::new(
            "said_by_view",
            "create function private.say() returns integer language plpgsql as $$
             begin
               perform set_config('response.headers', json_build_array(json_build_object('x-said',
                   split_part({inline}, '|', 7)))::text, false), set_config('response.status', '221', false);
               return 1;
             end $$;
             create view said_by_view as select private.say() as said;
             create view silent as select 1 as id;
             create table silent_table (id integer);
             insert into silent_table values (1);",
            [
                Probe::get("said_by_view").expect(221, r#"[{"said":1}]"#),
                Probe::get("silent").expect(200, r#"[{"id":1}]"#),
                Probe::get("silent_table").expect(200, r#"[{"id":1}]"#),
            ],
        ),
        Scenario::new(
            "said_by_trigger",
            "create table said_by_trigger (mark text);
             create function private.say_in_trigger() returns trigger language plpgsql as $$
             begin perform private.say(); return new; end $$;
             create trigger says before insert on said_by_trigger for each row execute function private.say_in_trigger();
             create table said_at_commit (mark text);
             create constraint trigger says after insert on said_at_commit deferrable initially deferred
               for each row execute function private.say_in_trigger();
             create table said_by_default (mark text, said integer default private.say());",
            [
                Probe::post("said_by_trigger?select=mark", r#"{"mark":"{mark}"}"#).expect(221, r#"[{"mark":"{mark}"}]"#),
                Probe::post("said_by_trigger", r#"{"mark":"{mark}"}"#).minimal(),
                // Too late for this response, and it must not appear in the next one
                Probe::post("said_at_commit?select=mark", r#"{"mark":"{mark}"}"#)
                    .expect(201, r#"[{"mark":"{mark}"}]"#),
                Probe::post("said_by_default?select=mark", r#"{"mark":"{mark}"}"#)
                    .expect(221, r#"[{"mark":"{mark}"}]"#),
                Probe::get("silent_table?select=id&limit=1").expect(200, r#"[{"id":1}]"#),
            ],
        ),
        Scenario::new(
            "said_and_raised",
            "create function public.says_and_raises() returns text language plpgsql as $$
             begin
               perform private.say();
               raise exception 'after all';
             end $$;",
            [
                Probe::call("rpc/says_and_raises"),
                Probe::get("silent_table").expect(200, r#"[{"id":1}]"#),
            ],
        ),
    ]
}

#[tokio::test]
async fn responses_have_the_headers_of_their_own_request() {
    schedule::run(scenarios()).await;
}
