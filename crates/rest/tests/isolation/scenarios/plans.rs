//! Functions that are declared immutable and read settings nevertheless. PostgreSQL evaluates them
//! when it plans, so a plan that outlives its request returns the values of that request. There are
//! more rounds than PostgreSQL makes custom plans.

use crate::scenario::{Probe, Scenario};
use crate::schedule;
use crate::server::IsolationServer;

/// PostgreSQL makes five custom plans before it considers a generic one.
const ROUNDS: usize = 4;

const WHO: &str = r#"[{"who":"{context}"}]"#;

pub fn scenarios() -> Vec<Scenario> {
    let who = |resource| Probe::get(resource).expect(200, WHO);
    vec![
        Scenario::new(
            "immutable_in_view",
            "create view immutable_in_view as select public.context_immutable() as who;
             create function private.sub_immutable() returns text language sql immutable as $$
               select coalesce(auth.uid()::text, '-') $$;
             create view immutable_sql_in_view as select private.sub_immutable() as sub;",
            [
                who("immutable_in_view"),
                who("immutable_in_view?select=who"),
                who("immutable_in_view?select=who&limit=1"),
                Probe::get("immutable_in_view?select=who&who=eq.{context}").expect(200, WHO),
                Probe::get("immutable_sql_in_view?select=sub").expect(200, r#"[{"sub":"{sub}"}]"#),
            ],
        ),
        Scenario::new(
            "immutable_in_policy",
            "create table immutable_in_policy (owner text);
             insert into immutable_in_policy values ('-'), ('00000000-0000-4000-8000-00000000000a'),
               ('00000000-0000-4000-8000-00000000000b'), ('00000000-0000-4000-8000-00000000000c');
             alter table immutable_in_policy enable row level security;
             create function private.subject_immutable() returns text language plpgsql immutable as $$
             begin return split_part({inline}, '|', 2); end $$;
             create policy own on immutable_in_policy using (owner = private.subject_immutable());",
            [
                Probe::get("immutable_in_policy?select=owner").without_service().expect(200, r#"[{"owner":"{sub}"}]"#),
                Probe::get("immutable_in_policy?select=owner&owner=neq.x&limit=9")
                    .without_service()
                    .expect(200, r#"[{"owner":"{sub}"}]"#),
            ],
        ),
        Scenario::new(
            "immutable_in_default",
            "create table immutable_in_default (mark text, who text default public.context_immutable());",
            [Probe::post("immutable_in_default?select=mark,who", r#"{"mark":"{mark}"}"#).expect_row(201)],
        ),
        Scenario::new(
            "immutable_called",
            "create function public.immutable_called() returns text language plpgsql immutable as $$ begin return {inline}; end $$;
             create function public.immutable_inlined() returns text language sql immutable as $$ select {inline} $$;",
            [
                Probe::get("rpc/immutable_called").expect(200, r#""{context}""#),
                Probe::call("rpc/immutable_called").expect(200, r#""{context}""#),
                Probe::get("rpc/immutable_inlined").expect(200, r#""{context}""#),
                Probe::call("rpc/immutable_inlined").expect(200, r#""{context}""#),
            ],
        ),
        Scenario::new(
            "immutable_in_a_body",
            // Bodies have plans of their own, which live as long as the session
            "create function public.in_plpgsql() returns text language plpgsql stable as $$
             begin return public.context_immutable(); end $$;
             create function public.in_plpgsql_query() returns text language plpgsql stable as $$
             declare seen text; begin select public.context_immutable() into seen; return seen; end $$;
             create function public.in_sql() returns setof text language sql volatile as $$ select public.context_immutable() $$;",
            [
                Probe::get("rpc/in_plpgsql").expect(200, r#""{context}""#),
                Probe::get("rpc/in_plpgsql_query").expect(200, r#""{context}""#),
                Probe::call("rpc/in_sql").expect(200, r#"["{context}"]"#),
            ],
        ),
        Scenario::new(
            "immutable_in_a_trigger",
            "create table immutable_in_a_trigger (mark text, who text);
             create function private.fill_immutable() returns trigger language plpgsql as $$
             begin new.who := public.context_immutable(); return new; end $$;
             create trigger fill before insert on immutable_in_a_trigger
               for each row execute function private.fill_immutable();",
            [Probe::post("immutable_in_a_trigger?select=mark,who", r#"{"mark":"{mark}"}"#).expect_row(201)],
        ),
        Scenario::new(
            "immutable_in_check",
            "create table immutable_in_check (mark text,
               check (mark = split_part(public.context_immutable(), '|', 7)));",
            [
                Probe::post("immutable_in_check?select=mark", r#"{"mark":"{mark}"}"#)
                    .expect(201, r#"[{"mark":"{mark}"}]"#),
                Probe::post("immutable_in_check?select=mark", r#"{"mark":"of another"}"#),
            ],
        ),
        Scenario::new(
            "immutable_computed",
            "create table immutable_computed (id integer);
             insert into immutable_computed values (1);
             create function public.who(public.immutable_computed) returns text language plpgsql immutable as $$
             begin return public.context_immutable(); end $$;",
            [who("immutable_computed?select=who"), who("immutable_computed?select=who&id=eq.1")],
        ),
        Scenario::new(
            "stable_in_a_generic_plan",
            "create table stable_rows (id integer primary key, owner text);
             insert into stable_rows select row_number() over (), owner from (values ('-'),
               ('00000000-0000-4000-8000-00000000000a'), ('00000000-0000-4000-8000-00000000000b'),
               ('00000000-0000-4000-8000-00000000000c')) as owners (owner);
             create view stable_in_a_generic_plan as select id, owner, {inline} as who from stable_rows
               where owner = split_part({inline}, '|', 2);",
            [who("stable_in_a_generic_plan?select=who&id=gt.0"), who("stable_in_a_generic_plan?select=who&owner=neq.x&id=lt.9")],
        ),
    ]
}

#[tokio::test]
async fn plans_return_values_of_the_caller() {
    let stage = IsolationServer::open(1, scenarios()).await;
    let (_, report) = schedule::run_unpolluted(&stage, ROUNDS).await;
    schedule::finish(&stage, report).await;
}
