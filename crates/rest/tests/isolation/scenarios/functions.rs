//! Functions in direct calls: every language, volatility and security mode.

use crate::scenario::{Probe, Scenario};
use crate::schedule;

const WHO: &str = r#""{context}""#;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "called",
            "create function public.called_inlined() returns text language sql stable as $$ select {inline} $$;
             create function public.called_atomic() returns text language sql stable return {inline};
             create function public.called_volatile() returns text language sql volatile as $$ select public.request_context() $$;
             create function public.called_plpgsql() returns text language plpgsql stable as $$ begin return {inline}; end $$;
             create function public.called_definer() returns text language sql stable security definer
               set search_path = '' as $$ select public.request_context() $$;
             create function public.called_dynamic() returns text language plpgsql volatile as $$
             declare seen text; begin execute 'select public.request_context()' into seen; return seen; end $$;
             create function public.called_strict(a integer default 1) returns text language sql stable strict as $$
               select public.request_context() $$;",
            [
                Probe::get("rpc/called_inlined").expect(200, WHO),
                Probe::call("rpc/called_inlined").expect(200, WHO),
                Probe::get("rpc/called_atomic").expect(200, WHO),
                Probe::call("rpc/called_volatile").expect(200, WHO),
                Probe::get("rpc/called_plpgsql").expect(200, WHO),
                Probe::call("rpc/called_definer").expect(200, WHO),
                Probe::call("rpc/called_dynamic").expect(200, WHO),
                Probe::get("rpc/called_strict?a=2").expect(200, WHO),
            ],
        ),
        Scenario::new(
            "called_argument_default",
            "create function public.called_default(a text default {inline}, b text default public.request_context()) returns text[]
               language sql stable as $$ select array[a, b] $$;",
            [
                Probe::get("rpc/called_default").expect(200, r#"["{context}","{context}"]"#),
                Probe::write("POST", "rpc/called_default", r#"{"a":"x"}"#).expect(200, r#"["x","{context}"]"#),
            ],
        ),
        Scenario::new(
            "called_for_rows",
            "create function public.called_table() returns table (who text) language sql stable as $$ select {inline} $$;
             create function public.called_setof() returns setof text language plpgsql as $$
             begin return next public.request_context(); end $$;
             create function public.called_record(out who text, out sub text) language sql stable as $$
               select public.request_context(), split_part({inline}, '|', 2) $$;",
            [
                Probe::get("rpc/called_table?who=neq.x&limit=1").expect(200, r#"[{"who":"{context}"}]"#),
                Probe::call("rpc/called_setof").expect(200, r#"["{context}"]"#),
                Probe::get("rpc/called_record").expect(200, r#"{"who":"{context}","sub":"{sub}"}"#),
            ],
        ),
        Scenario::new(
            "called_acting",
            "create function public.acting() returns text language sql stable as $$ select current_user::text $$;
             create function public.acting_by_block() returns text language plpgsql as $$
             begin
               execute 'do $do$ begin perform set_config(''app.acting'', current_user, true); end $do$';
               return current_setting('app.acting');
             end $$;",
            [
                Probe::get("rpc/acting").expect(200, r#""{role}""#),
                Probe::call("rpc/acting_by_block").expect(200, r#""{role}""#),
            ],
        ),
        Scenario::new(
            "called_leaky",
            // The function would reveal rows that a policy hides, if it ran before the policy
            "create table secrets (owner text);
             insert into secrets values ('-'), ('00000000-0000-4000-8000-00000000000a'),
               ('00000000-0000-4000-8000-00000000000b'), ('00000000-0000-4000-8000-00000000000c');
             alter table secrets enable row level security;
             create policy own on secrets using (owner = coalesce(auth.uid()::text, '-'));
             create function private.leak(owner text) returns boolean language plpgsql immutable cost 0.0001 as $$
             begin
               perform set_config('app.leaked', coalesce(current_setting('app.leaked', true), '') || owner, true);
               return true;
             end $$;
             create function public.leaked() returns text language plpgsql as $$
             begin
               perform from public.secrets where private.leak(owner);
               return coalesce(current_setting('app.leaked', true), '');
             end $$;",
            [Probe::call("rpc/leaked").without_service().expect(200, r#""{sub}""#)],
        ),
        Scenario::new(
            "called_raising",
            "create function public.raises() returns text language plpgsql as $$
             begin raise exception '%', public.request_context() using errcode = 'PT418', detail = {inline}; end $$;
             create function public.catches() returns text language plpgsql as $$
             begin
               begin
                 perform set_config('request.path', '/caught', true), set_config('role', 'service_role', true);
                 raise exception 'caught';
               exception when raise_exception then null;
               end;
               return public.request_context();
             end $$;",
            [
                Probe::call("rpc/raises").expect(418, r#"{"code":"PT418","details":"{context}","hint":null,"message":"{context}"}"#),
                Probe::call("rpc/catches").expect(200, WHO),
            ],
        ),
        Scenario::new(
            "called_writing",
            "create table called_writes (mark text, who text default {inline});
             create function public.writes(mark text) returns text language sql volatile as $$
               insert into public.called_writes (mark) values (mark) returning who $$;
             create function public.writes_and_raises(mark text) returns text language plpgsql as $$
             begin
               insert into public.called_writes (mark, who) values (mark, 'must not stay');
               raise exception '%', public.request_context();
             end $$;",
            [
                Probe::write("POST", "rpc/writes", r#"{"mark":"{mark}"}"#).expect(200, WHO).writes("called_writes"),
                Probe::write("POST", "rpc/writes_and_raises", r#"{"mark":"{mark}"}"#)
                    .expect(400, r#"{"code":"P0001","details":null,"hint":null,"message":"{context}"}"#),
            ],
        ),
        Scenario::new(
            "called_whole_body",
            "create function public.whole(json) returns json language sql stable as $$
               select json_build_object('body', $1, 'who', {inline}) $$;",
            [Probe::write("POST", "rpc/whole", r#"{"a":"{mark}"}"#)
                .expect(200, r#"{"body":{"a":"{mark}"},"who":"{context}"}"#)],
        ),
        Scenario::new(
            "called_setting_the_role",
            "create function public.takes_role() returns text language plpgsql as $$
             begin set local role service_role; return current_user; end $$;
             create function public.takes_role_for_the_session() returns text language plpgsql as $$
             begin
               execute 'set role service_role';
               return current_user;
             end $$;
             create function public.resets_role() returns text language plpgsql as $$
             begin execute 'reset role'; return 'done'; end $$;
             create function public.resets_everything() returns text language plpgsql as $$
             begin execute 'reset all'; return 'done'; end $$;",
            [
                Probe::call("rpc/takes_role"),
                Probe::call("rpc/takes_role_for_the_session"),
                Probe::call("rpc/resets_role"),
                Probe::call("rpc/resets_everything"),
                Probe::call("rpc/acting").expect(200, r#""{role}""#),
            ],
        ),
    ]
}

#[tokio::test]
async fn functions_run_for_the_caller() {
    schedule::run(scenarios()).await;
}
