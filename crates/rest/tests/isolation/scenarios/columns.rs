//! Defaults and generated columns.
//!
//! Virtual generated columns (PostgreSQL 18) are left out: PostgreSQL allows neither user-defined
//! functions nor user-defined types in them, and its own immutable functions read no settings.

use crate::scenario::{Probe, Scenario};
use crate::schedule;

const MARK: &str = r#"{"mark":"{mark}"}"#;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "default_inline",
            "create table default_inline (id bigint generated always as identity primary key,
               mark text unique, note text, who text default {inline});",
            [
                Probe::post("default_inline?select=mark,who", MARK).expect_row(201).writes("default_inline"),
                Probe::post("default_inline", MARK).minimal().expect(201, "").writes("default_inline"),
                Probe::post("default_inline?columns=mark,who&select=mark,who", MARK)
                    .header("prefer", "return=representation, missing=default")
                    .expect_row(201),
                Probe::post("default_inline?on_conflict=mark&select=mark,who", MARK)
                    .header("prefer", "return=representation, resolution=merge-duplicates")
                    .expect_row(201),
                Probe::post("default_inline?select=mark,who", "mark\n{mark}")
                    .header("content-type", "text/csv")
                    .expect_row(201),
                Probe::post("default_inline?select=mark,who", MARK)
                    .header("accept", "application/vnd.pgrst.object+json")
                    .expect(201, r#"{"mark":"{mark}","who":"{context}"}"#),
            ],
        ),
        Scenario::new(
            "default_function",
            "create table default_function (id bigint generated always as identity primary key,
               mark text, who text default public.request_context());",
            [
                Probe::post("default_function?select=mark,who", MARK).expect_row(201),
                Probe::post("default_function", MARK).minimal().expect(201, "").writes("default_function"),
            ],
        ),
        Scenario::new(
            "default_of_one_setting",
            "create table default_of_one_setting (id bigint generated always as identity primary key,
               mark text, path text default current_setting('request.path', true),
               method text default current_setting('request.method', true),
               acting text default current_user,
               sub text default coalesce(auth.uid()::text, '-'),
               email text default coalesce(auth.jwt() ->> 'sub', '-'));",
            [Probe::post("default_of_one_setting?select=mark,path,method,acting,sub,email", MARK).expect(
                201,
                r#"[{"mark":"{mark}","path":"/default_of_one_setting","method":"POST","acting":"{role}",
                     "sub":"{sub}","email":"{sub}"}]"#,
            )],
        ),
        Scenario::new(
            "default_by_sql_function",
            // The body is a string, so that no dependency is recorded
            "create function private.who() returns text language sql stable as $$ select {inline} $$;
             create function private.who_indirectly() returns text language sql stable as $$ select private.who() $$;
             create table default_by_sql_function (id bigint generated always as identity primary key,
               mark text, who text default private.who_indirectly());",
            [Probe::post("default_by_sql_function?select=mark,who", MARK).expect_row(201)],
        ),
        Scenario::new(
            "default_operator",
            "create function private.add_context(text, text) returns text language sql as $$ select public.request_context() $$;
             create operator public.<+> (leftarg = text, rightarg = text, function = private.add_context);
             create table default_operator (id bigint generated always as identity primary key,
               mark text, who text default ('a'::text operator(public.<+>) 'b'::text));",
            [Probe::post("default_operator?select=mark,who", MARK).expect_row(201)],
        ),
        Scenario::new(
            "default_taken_on_update",
            "create table default_taken_on_update (key text, mark text, who text default {inline});
             create function public.take_default(wanted text) returns text language plpgsql as $$
             declare seen text;
             begin
               update public.default_taken_on_update set who = default, mark = wanted where key = wanted returning who into seen;
               return seen;
             end $$;",
            [Probe::write("POST", "rpc/take_default", r#"{"wanted":"{mark}"}"#)
                .before("insert into default_taken_on_update (key, who) values ('{mark}', 'nothing')")
                .expect(200, r#""{context}""#)],
        ),
        Scenario::new(
            "generated_stored",
            "create function private.stored(mark text) returns text language plpgsql immutable as $$
             begin return public.request_context(); end $$;
             create table generated_stored (id bigint generated always as identity primary key,
               mark text, who text generated always as (private.stored(mark)) stored);",
            [
                Probe::post("generated_stored?select=mark,who", MARK).expect_row(201),
                Probe::post("generated_stored", MARK).minimal().expect(201, "").writes("generated_stored"),
            ],
        ),
        Scenario::new(
            "identity_and_sequence",
            "create sequence private.numbers;
             create table identity_and_sequence (mark text, number bigint default nextval('private.numbers'),
               before text default coalesce(current_setting('app.number', true), ''));
             grant usage on sequence private.numbers to anon, authenticated, service_role;",
            [Probe::post("identity_and_sequence?select=mark,before", MARK)
                .expect(201, r#"[{"mark":"{mark}","before":""}]"#)],
        ),
    ]
}

#[tokio::test]
async fn columns_are_filled_for_the_caller() {
    schedule::run(scenarios()).await;
}
