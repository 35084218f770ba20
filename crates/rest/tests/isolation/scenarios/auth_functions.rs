//! `auth.uid()` and similar functions, redefined by the database's owner. They keep their names and
//! read something else.

use crate::scenario::{Probe, Scenario};
use crate::schedule;

const OTHER: &str = "00000000-0000-4000-8000-0000000000ff";

pub fn scenarios() -> Vec<Scenario> {
    let other = |probe: Probe| probe.user_header(OTHER);
    vec![
        Scenario::new(
            "redefined_uid",
            "create table redefined_uid (mark text, owner uuid default auth.uid());
             create table uid_rows (owner text);
             insert into uid_rows values ('00000000-0000-4000-8000-00000000000a'), ('00000000-0000-4000-8000-00000000000b'),
               ('00000000-0000-4000-8000-00000000000c'), ('00000000-0000-4000-8000-0000000000ff'), ('-');
             alter table uid_rows enable row level security;
             create policy own on uid_rows using (owner = coalesce(auth.uid()::text, '-'));
             create view uid_view as select auth.uid() as uid;",
            [
                other(Probe::get("uid_rows?select=owner"))
                    .without_service()
                    .expect(200, r#"[{"owner":"00000000-0000-4000-8000-0000000000ff"}]"#),
                Probe::get("uid_rows?select=owner").without_service().expect(200, r#"[{"owner":"{sub}"}]"#),
                other(Probe::get("uid_view")).expect(200, r#"[{"uid":"00000000-0000-4000-8000-0000000000ff"}]"#),
                Probe::get("uid_view"),
                other(Probe::post("redefined_uid?select=owner", r#"{"mark":"{mark}"}"#))
                    .expect(201, r#"[{"owner":"00000000-0000-4000-8000-0000000000ff"}]"#),
                Probe::post("redefined_uid?select=owner", r#"{"mark":"{mark}"}"#),
            ],
        )
        .superuser(
            "create or replace function auth.uid() returns uuid language sql stable as $$
               select coalesce(nullif(current_setting('request.headers', true), '')::json ->> 'x-user',
                 nullif(current_setting('request.jwt.claim.sub', true), ''),
                 nullif(current_setting('request.jwt.claims', true), '')::json ->> 'sub')::uuid $$;",
        ),
        Scenario::new(
            "redefined_role",
            "create table redefined_role (path text);
             insert into redefined_role values ('/redefined_role'), ('/another');
             alter table redefined_role enable row level security;
             create policy by_role on redefined_role using (path = auth.role());
             create view role_view as select auth.role() as role;",
            [
                Probe::get("redefined_role?select=path").without_service().expect(200, r#"[{"path":"/redefined_role"}]"#),
                Probe::get("role_view").expect(200, r#"[{"role":"/role_view"}]"#),
            ],
        )
        .superuser(
            "create or replace function auth.role() returns text language plpgsql stable as $$
             begin return current_setting('request.path', true); end $$;",
        ),
        Scenario::new(
            "redefined_jwt",
            "create view jwt_view as select auth.jwt() ->> 'x-mark' as mark, auth.email() as email;
             create table jwt_rows (mark text, seen text default auth.jwt() ->> 'x-mark');",
            [
                Probe::get("jwt_view").expect(200, r#"[{"mark":"{mark}","email":"GET"}]"#),
                Probe::post("jwt_rows?select=seen", r#"{"mark":"{mark}"}"#).expect(201, r#"[{"seen":"{mark}"}]"#),
            ],
        )
        .superuser(
            "create or replace function auth.jwt() returns jsonb language sql stable as $$
               select nullif(current_setting('request.headers', true), '')::jsonb $$;
             create or replace function auth.email() returns text language sql stable as $$
               select current_setting('request.method', true) $$;",
        ),
    ]
}

#[tokio::test]
async fn redefined_functions_of_the_accounts_see_the_caller() {
    schedule::run(scenarios()).await;
}
