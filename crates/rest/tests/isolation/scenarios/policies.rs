//! Row-level policies of every command.

use crate::scenario::{Probe, Scenario};
use crate::schedule;

const MARK: &str = r#"{"mark":"{mark}"}"#;
const OWN: &str = r#"[{"owner":"{sub}"}]"#;
const REFUSED: &str = r#"{"mark":"of another"}"#;

pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = reads();
    scenarios.extend(writes());
    scenarios
}

/// Makes rows of each subject. The scenarios' SQL refers to it by name.
const OWNERS: &str = "create function private.owners() returns setof text language sql immutable as $$
   select unnest(array['-', '00000000-0000-4000-8000-00000000000a', '00000000-0000-4000-8000-00000000000b',
     '00000000-0000-4000-8000-00000000000c', '00000000-0000-4000-8000-0000000000ee']) $$;";

fn reads() -> Vec<Scenario> {
    let read = |resource| Probe::get(resource).without_service().expect(200, OWN);
    vec![
        Scenario::new("owners", OWNERS, []),
        Scenario::new(
            "policy_uid",
            "create table policy_uid (owner text);
             insert into policy_uid select * from private.owners();
             alter table policy_uid enable row level security;
             create policy own on policy_uid for select using (owner = coalesce((select auth.uid())::text, '-'));",
            [
                read("policy_uid?select=owner"),
                read("policy_uid?select=owner&owner=neq.x&order=owner"),
                read("policy_uid?select=owner&limit=5").header("prefer", "count=exact"),
                Probe::get("policy_uid?select=owner&owner=eq.{sub}").without_service().expect(200, OWN),
            ],
        ),
        Scenario::new(
            "policy_claims",
            "create table policy_claims (owner text);
             insert into policy_claims select * from private.owners();
             alter table policy_claims enable row level security;
             create policy own on policy_claims using (
               owner = coalesce(nullif(current_setting('request.jwt.claims', true), '')::json ->> 'sub', '-'));",
            [read("policy_claims?select=owner")],
        ),
        Scenario::new(
            "policy_header",
            "create table policy_header (mark text);
             alter table policy_header enable row level security;
             create policy own on policy_header using (
               mark = current_setting('request.headers', true)::json ->> 'x-mark');",
            [Probe::get("policy_header?select=mark")
                .without_service()
                .before("insert into policy_header values ('{mark}')")
                .expect(200, r#"[{"mark":"{mark}"}]"#)],
        ),
        Scenario::new(
            "policy_function",
            "create table policy_function (owner text);
             insert into policy_function select * from private.owners();
             alter table policy_function enable row level security;
             create policy own on policy_function using (owner = split_part(public.request_context(), '|', 2));",
            [read("policy_function?select=owner"), read("policy_function?select=owner&order=owner&limit=3")],
        ),
        Scenario::new(
            "policy_sql_function",
            "create table policy_sql_function (owner text);
             insert into policy_sql_function select * from private.owners();
             alter table policy_sql_function enable row level security;
             create function private.subject() returns text language sql stable security definer as $$
               select split_part({inline}, '|', 2) $$;
             create policy own on policy_sql_function using (owner = (select private.subject()));",
            [read("policy_sql_function?select=owner")],
        ),
        Scenario::new(
            "policy_restrictive",
            "create table policy_restrictive (owner text);
             insert into policy_restrictive select * from private.owners();
             alter table policy_restrictive enable row level security;
             create policy all_rows on policy_restrictive using (true);
             create policy own on policy_restrictive as restrictive using (owner = split_part({inline}, '|', 2));",
            [read("policy_restrictive?select=owner")],
        ),
        Scenario::new(
            "policy_by_another_table",
            "create table memberships (owner text, team text);
             insert into memberships select owner, 'team of ' || owner from private.owners() as owner;
             alter table memberships enable row level security;
             create policy own on memberships using (owner = coalesce(auth.uid()::text, '-'));
             create table policy_by_another_table (team text, owner text);
             insert into policy_by_another_table select team, owner from memberships;
             alter table policy_by_another_table enable row level security;
             create policy of_the_team on policy_by_another_table using (team in (select team from memberships));",
            [read("policy_by_another_table?select=owner")],
        ),
        Scenario::new(
            "policy_of_an_embed",
            "create table hosts (id integer primary key);
             insert into hosts values (1);
             create table guests (host integer references hosts, owner text);
             insert into guests select 1, * from private.owners();
             alter table guests enable row level security;
             create policy own on guests using (owner = split_part({inline}, '|', 2));",
            [Probe::get("hosts?select=id,guests(owner)")
                .without_service()
                .expect(200, r#"[{"id":1,"guests":[{"owner":"{sub}"}]}]"#)],
        ),
        Scenario::new(
            "policy_by_role",
            "create table policy_by_role (role text);
             insert into policy_by_role values ('anon'), ('authenticated'), ('service_role');
             alter table policy_by_role enable row level security;
             create policy of_anon on policy_by_role to anon using (role = 'anon');
             create policy of_accounts on policy_by_role to authenticated using (role = current_user);",
            [Probe::get("policy_by_role?select=role").without_service().expect(200, r#"[{"role":"{role}"}]"#)],
        ),
        Scenario::new(
            "policy_forced",
            "create table policy_forced (owner text);
             insert into policy_forced select * from private.owners();
             alter table policy_forced enable row level security;
             alter table policy_forced force row level security;
             create policy own on policy_forced using (owner = split_part({inline}, '|', 2));",
            [read("policy_forced?select=owner")],
        ),
        Scenario::new(
            "policy_raises",
            "create table policy_raises (id integer);
             insert into policy_raises values (1);
             alter table policy_raises enable row level security;
             create function private.refuse() returns boolean language plpgsql stable as $$
             begin raise exception '%', public.request_context(); end $$;
             create policy refuses on policy_raises using (private.refuse());",
            [Probe::get("policy_raises")
                .without_service()
                .expect(400, r#"{"code":"P0001","details":null,"hint":null,"message":"{context}"}"#)],
        ),
        Scenario::new(
            "policy_against_leaks",
            // The operator of the filter is not leakproof: it must only see the caller's rows
            "create table policy_against_leaks (owner text, body text);
             insert into policy_against_leaks select owner, 'of ' || owner from private.owners() as owner;
             alter table policy_against_leaks enable row level security;
             create policy own on policy_against_leaks using (owner = coalesce(auth.uid()::text, '-'));",
            [
                read("policy_against_leaks?select=owner&body=match.^of"),
                read("policy_against_leaks?select=owner&body=ilike.of*"),
            ],
        ),
    ]
}

fn writes() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "policy_insert",
            "create table policy_insert (mark text);
             alter table policy_insert enable row level security;
             create policy own_insert on policy_insert for insert with check (private.is_own(mark));
             create policy own_select on policy_insert for select using (mark = split_part({inline}, '|', 7));",
            [
                Probe::post("policy_insert?select=mark", MARK)
                    .without_service()
                    .expect(201, r#"[{"mark":"{mark}"}]"#)
                    .writes("policy_insert"),
                Probe::post("policy_insert", MARK).minimal().without_service().expect(201, ""),
                Probe::post("policy_insert", REFUSED).without_service(),
            ],
        ),
        Scenario::new(
            "policy_insert_inline",
            "create table policy_insert_inline (mark text);
             alter table policy_insert_inline enable row level security;
             create policy own on policy_insert_inline for insert with check (
               mark = current_setting('request.headers', true)::json ->> 'x-mark'
               and current_setting('request.path', true) = '/policy_insert_inline'
               and current_setting('request.method', true) = 'POST');",
            [
                Probe::post("policy_insert_inline", MARK).minimal().without_service().expect(201, ""),
                Probe::post("policy_insert_inline", REFUSED).minimal().without_service(),
            ],
        ),
        Scenario::new(
            "policy_update",
            "create table policy_update (mark text, note text);
             alter table policy_update enable row level security;
             create policy readable on policy_update for select using (true);
             create policy own on policy_update for update using (mark = split_part({inline}, '|', 7))
               with check (note = split_part(public.request_context(), '|', 2));",
            [
                Probe::write("PATCH", "policy_update?note=eq.old&select=mark,note", r#"{"note":"{sub}"}"#)
                    .without_service()
                    .before("insert into policy_update values ('{mark}', 'old')")
                    .expect(200, r#"[{"mark":"{mark}","note":"{sub}"}]"#),
                Probe::write("PATCH", "policy_update?note=eq.old", r#"{"note":"of another"}"#)
                    .without_service()
                    .before("insert into policy_update values ('{mark}', 'old')"),
            ],
        ),
        Scenario::new(
            "policy_delete",
            "create table policy_delete (mark text);
             alter table policy_delete enable row level security;
             create policy readable on policy_delete for select using (true);
             create policy own on policy_delete for delete using (private.is_own(mark));",
            [Probe::write("DELETE", "policy_delete?mark=neq.x&select=mark", "")
                .without_service()
                .before("insert into policy_delete values ('{mark}')")
                .expect(200, r#"[{"mark":"{mark}"}]"#)],
        ),
        Scenario::new(
            "policy_upsert",
            "create table policy_upsert (mark text primary key, who text default public.request_context());
             alter table policy_upsert enable row level security;
             create policy own on policy_upsert using (private.is_own(mark)) with check (private.is_own(mark));",
            [Probe::post("policy_upsert?select=mark,who", MARK)
                .header("prefer", "return=representation, resolution=merge-duplicates")
                .without_service()
                .expect_row(201)],
        ),
    ]
}

#[tokio::test]
async fn policies_bind_the_caller() {
    schedule::run(scenarios()).await;
}
