//! Views of every kind.

use crate::scenario::{Probe, Scenario};
use crate::schedule;

const WHO: &str = r#"[{"who":"{context}"}]"#;

pub fn scenarios() -> Vec<Scenario> {
    let who = |resource| Probe::get(resource).expect(200, WHO);
    vec![
        Scenario::new(
            "view_inline",
            "create view view_inline as select {inline} as who;",
            [
                who("view_inline"),
                who("view_inline?select=who&limit=1"),
                who("view_inline?who=neq.x&order=who"),
                Probe::get("view_inline?select=who&who=eq.{context}").expect(200, WHO),
            ],
        ),
        Scenario::new(
            "view_function",
            "create view view_function as select public.request_context() as who;",
            [who("view_function"), who("view_function?who=neq.x&limit=2")],
        ),
        Scenario::new(
            "view_of_one_setting",
            "create view view_of_role as select current_user::text as role, current_role::text as again;
             create view view_of_claims as select coalesce(auth.uid()::text, '-') as sub;
             create view view_of_method as select current_setting('request.method', true) as method;
             create view view_of_path as select current_setting('request.path', true) as path;
             create view view_of_header as select current_setting('request.headers', true)::json ->> 'x-mark' as mark;",
            [
                Probe::get("view_of_role").expect(200, r#"[{"role":"{role}","again":"{role}"}]"#),
                Probe::get("view_of_claims").expect(200, r#"[{"sub":"{sub}"}]"#),
                Probe::get("view_of_method").expect(200, r#"[{"method":"GET"}]"#),
                Probe::get("view_of_path").expect(200, r#"[{"path":"/view_of_path"}]"#),
                Probe::get("view_of_header").expect(200, r#"[{"mark":"{mark}"}]"#),
            ],
        ),
        Scenario::new(
            "view_by_catalog",
            // Reads a setting without current_setting()
            "create view view_by_catalog as select setting as patience from pg_settings
               where name = 'statement_timeout';
             create view view_by_set_config as select set_config('request.path',
               current_setting('request.path', true), true) as path;",
            [
                Probe::get("view_by_catalog"),
                Probe::get("view_by_set_config").expect(200, r#"[{"path":"/view_by_set_config"}]"#),
            ],
        ),
        Scenario::new(
            "view_by_xml",
            // query_to_xml() runs a text, so that no dependency is recorded
            "create view view_by_xml as select coalesce((xpath('//sub/text()',
               query_to_xml('select coalesce(auth.uid()::text, ''-'') as sub, current_setting(''request.path'') as path',
                 true, false, '')))[1]::text, 'none') as sub, (xpath('//path/text()',
               query_to_xml('select current_setting(''request.path'') as path', true, false, '')))[1]::text as path;",
            [Probe::get("view_by_xml").expect(200, r#"[{"sub":"{sub}","path":"/view_by_xml"}]"#)],
        ),
        Scenario::new(
            "view_security_barrier",
            "create table barrier_rows (owner text);
             insert into barrier_rows values ('-'), ('00000000-0000-4000-8000-00000000000a'),
               ('00000000-0000-4000-8000-00000000000b'), ('00000000-0000-4000-8000-00000000000c');
             create view view_security_barrier with (security_barrier) as
               select owner, {inline} as who from barrier_rows where owner = coalesce(auth.uid()::text, '-');",
            [
                Probe::get("view_security_barrier?select=owner").expect(200, r#"[{"owner":"{sub}"}]"#),
                Probe::get("view_security_barrier?select=who&owner=match.0|-").expect(200, WHO),
            ],
        ),
        Scenario::new(
            "view_security_invoker",
            "create table invoked_rows (owner text);
             insert into invoked_rows select owner from barrier_rows;
             alter table invoked_rows enable row level security;
             create policy own on invoked_rows using (owner = split_part({inline}, '|', 2));
             create view view_security_invoker with (security_invoker) as select owner from invoked_rows;",
            [Probe::get("view_security_invoker").without_service().expect(200, r#"[{"owner":"{sub}"}]"#)],
        ),
        Scenario::new(
            "view_of_views",
            "create view view_first as select public.request_context() as who;
             create view view_second as select who from view_first where who <> '';
             create view view_of_views as with recursive rows as (select who, 1 as depth from view_second
               union all select who, depth + 1 from rows where depth < 2) select who from rows where depth = 2;",
            [who("view_of_views")],
        ),
        Scenario::new(
            "view_lateral",
            "create function private.rows_of(text) returns table (who text) language sql stable as $$ select public.request_context() $$;
             create view view_lateral as select f.who from (values ('a')) as v (a), lateral private.rows_of(v.a) as f;",
            [who("view_lateral")],
        ),
        Scenario::new(
            "view_check_option",
            "create table checked_rows (mark text, who text default {inline});
             create view view_check_option as select mark, who from checked_rows
               where mark = split_part({inline}, '|', 7) with check option;",
            [
                Probe::post("view_check_option?select=mark,who", r#"{"mark":"{mark}"}"#).expect_row(201),
                Probe::post("view_check_option", r#"{"mark":"of another"}"#),
            ],
        ),
        Scenario::new(
            "view_default",
            // An updatable view has defaults of its own
            "create table defaulted_rows (mark text, who text);
             create view view_default as select mark, who from defaulted_rows;
             alter view view_default alter column who set default {inline};",
            [Probe::post("view_default?select=mark,who", r#"{"mark":"{mark}"}"#)
                .expect_row(201)
                .writes("defaulted_rows")],
        ),
        Scenario::new(
            "materialized_view",
            // All callers see the rows of the refresh; a view over it reads settings
            "create materialized view materialized as select 1 as id, public.request_context() as filled_by;
             create view view_of_materialized as select id, {inline} as who from materialized;",
            [
                Probe::get("materialized?select=id,filled_by"),
                Probe::get("view_of_materialized?select=who").expect(200, WHO),
            ],
        ),
        Scenario::new(
            "view_with_aggregate_and_window",
            "create view view_with_aggregate as select max(who) as who from (values ({inline}), (public.request_context())) as v (who)
               group by v.who;
             create view view_with_window as select first_value(public.request_context()) over (order by i) as who
               from generate_series(1, 1) as i;",
            [who("view_with_aggregate"), who("view_with_window")],
        ),
        Scenario::new(
            "view_embedded",
            "create table shelves (id integer primary key);
             insert into shelves values (1);
             create table books (id integer primary key, shelf integer references shelves);
             insert into books values (1, 1);
             create view view_embedded as select id, shelf, {inline} as who from books;",
            [Probe::get("shelves?select=id,view_embedded(who)").expect(200, r#"[{"id":1,"view_embedded":[{"who":"{context}"}]}]"#)],
        ),
    ]
}

#[tokio::test]
async fn views_show_the_caller() {
    schedule::run(scenarios()).await;
}
