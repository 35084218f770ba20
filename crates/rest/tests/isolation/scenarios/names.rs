//! Names that are resolved when code runs: `search_path`, temporary tables, schemas in front.

use crate::scenario::{Probe, Scenario};
use crate::schedule;

const OF_ALL: &str = r#""of all""#;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "unqualified",
            "create function public.unqualified() returns text language plpgsql stable as $$
             begin return (select who from whose limit 1); end $$;
             create function public.unqualified_sql() returns text language sql stable as $$ select who from whose limit 1 $$;
             create function public.unqualified_dynamic() returns text language plpgsql as $$
             declare seen text; begin execute 'select who from whose limit 1' into seen; return seen; end $$;
             create function public.unqualified_in_policy() returns text language plpgsql stable as $$
             begin return (select who from whose limit 1); end $$;
             create table unqualified_rows (owner text);
             insert into unqualified_rows values ('of all'), ('of the decoy');
             alter table unqualified_rows enable row level security;
             create policy by_name on unqualified_rows using (owner = public.unqualified_in_policy());",
            [
                Probe::get("rpc/unqualified").expect(200, OF_ALL),
                Probe::call("rpc/unqualified").expect(200, OF_ALL),
                Probe::get("rpc/unqualified_sql").expect(200, OF_ALL),
                Probe::call("rpc/unqualified_dynamic").expect(200, OF_ALL),
                Probe::get("whose").expect(200, r#"[{"who":"of all"}]"#),
                Probe::get("unqualified_rows?select=owner").without_service().expect(200, r#"[{"owner":"of all"}]"#),
            ],
        ),
        Scenario::new(
            "search_path_of_the_session",
            "create function public.divert() returns text language sql volatile as $$
               select set_config('search_path', 'decoy', false) $$;
             create function public.divert_by_set() returns void language plpgsql as $$
             begin execute 'set search_path to decoy, public'; end $$;
             create function public.own_path() returns text language sql stable as $$ select current_setting('search_path') $$;",
            [
                Probe::call("rpc/divert").expect(200, r#""decoy""#),
                Probe::call("rpc/own_path"),
                Probe::call("rpc/divert_by_set").expect(204, ""),
                Probe::get("rpc/own_path"),
            ],
        ),
        Scenario::new(
            "temporary_table",
            "create function public.shadow() returns text language plpgsql as $$
             begin
               create temporary table whose as select public.request_context() as who;
               return (select who from whose);
             end $$;
             create function public.shadow_on_commit() returns text language plpgsql as $$
             begin
               create temporary table shadowed on commit drop as select public.request_context() as who;
               return (select who from shadowed);
             end $$;
             create function public.shadow_function() returns text language plpgsql as $$
             begin
               execute 'create function pg_temp.lower_case(text) returns text language sql as ''select $1''';
               return 'made';
             end $$;",
            [
                Probe::call("rpc/shadow").expect(200, r#""{context}""#),
                Probe::call("rpc/shadow_on_commit").expect(200, r#""{context}""#),
                Probe::call("rpc/shadow_function").expect(200, r#""made""#),
                Probe::get("whose").expect(200, r#"[{"who":"of all"}]"#),
            ],
        ),
    ]
}

#[tokio::test]
async fn names_mean_the_same_for_each_caller() {
    schedule::run(scenarios()).await;
}
