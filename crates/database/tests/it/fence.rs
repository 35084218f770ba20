//! The fence around the roles of a project: attacks on what runs with a superuser's rights.
//!
//! Each test does what a project's SQL can do as `postgres`, and then asks whether `postgres` has
//! become a superuser. The payload swallows its own failure, so that an attack that is stopped
//! looks the same as one that never ran.

use portico_database::{Database, connect};
use tokio_postgres::Client;

use super::bootstrap::{ROLES_APART, column, majors, ready_apart, refusal, value};

use crate::AUTH;

/// Runs with the rights of the session that was tricked into calling it. Every attack calls it by
/// another way. The sequence remembers a superuser also when the transaction fails behind it.
pub(crate) const PAYLOAD: &str = "
    create sequence public.ran_as_superuser;
    create function public.strike() returns void language plpgsql as $$
    begin
      if (select rolsuper from pg_catalog.pg_roles where rolname operator(pg_catalog.=) current_user) then
        perform pg_catalog.nextval('public.ran_as_superuser');
        execute 'alter role postgres superuser';
      end if;
    end $$;
    create function public.payload() returns boolean language plpgsql volatile as $$
    begin
      begin perform public.strike(); exception when others then null; end;
      begin execute 'reset role'; perform public.strike(); exception when others then null; end;
      begin execute 'reset session authorization'; perform public.strike(); exception when others then null; end;
      return true;
    end $$;
    grant execute on function public.payload(), public.strike() to public;";

/// The number of times that a superuser ran the payload in this database.
pub(crate) const STRIKES: &str =
    "select coalesce(max(last_value), 0) from pg_catalog.pg_sequences where sequencename = 'ran_as_superuser'";

/// Returns a plain session of `postgres`, like the one of psql.
pub(crate) async fn postgres(database: &Database) -> Client {
    connect(&database.endpoint().with_user("postgres", None)).await.unwrap()
}

/// Returns a prepared database, and sessions of `postgres` and of the superuser in it.
pub(crate) async fn attacked(major: u32) -> (Database, Client, Client) {
    let database = ready_apart(major).await;
    let admin = connect(database.endpoint()).await.unwrap();
    let own = format!("alter database {} owner to postgres", database.endpoint().database());
    admin.batch_execute(&own).await.unwrap();
    let attacker = postgres(&database).await;
    attacker.batch_execute(PAYLOAD).await.unwrap();
    (database, attacker, admin)
}

/// Fails when an attack went through.
pub(crate) async fn holds(admin: &Client, attack: &str) {
    let superusers = "select rolname from pg_catalog.pg_roles where rolsuper and rolcanlogin order by 1";
    assert_eq!(column(admin, superusers).await, ["supabase_admin"], "{attack}");
    assert_eq!(value(admin, STRIKES).await, "0", "{attack}");
}

/// Statements that `postgres` runs; a refusal is as good as a failure without effect.
async fn tries(attacker: &Client, statements: &[&str]) {
    for statement in statements {
        let _ = attacker.batch_execute(statement).await;
    }
}

/// Everything that a superuser owns outside of the catalog and others could turn against it.
const TRAPS: &str = "
    with superuser as (select oid from pg_roles where rolsuper),
         open as (select n.oid from pg_namespace as n
                   where n.nspowner not in (select oid from superuser)
                      or exists (select from aclexplode(n.nspacl) as a where a.privilege_type = 'CREATE' and a.grantee not in (select oid from superuser)))
    select 'security definer: ' || p.oid::regprocedure
      from pg_proc as p
     where p.prosecdef and p.proowner in (select oid from superuser) and p.pronamespace <> 'pg_catalog'::regnamespace
       -- One in C resolves no names; whether others may call it is the test of functions for
       -- superusers
       and p.prolang <> (select oid from pg_language where lanname = 'c')
       and (p.pronamespace in (select oid from open) or not coalesce(p.proconfig, '{}') @> '{\"search_path=pg_catalog, pg_temp\"}')
    union all
    select 'event trigger: ' || e.evtname
      from pg_event_trigger as e join pg_proc as p on p.oid = e.evtfoid
     where p.proowner not in (select oid from superuser) or p.pronamespace in (select oid from open)
        or not coalesce(p.proconfig, '{}') @> '{\"search_path=pg_catalog, pg_temp\"}'
    union all
    select 'grant of ' || a.privilege_type || ' on ' || c.oid::regclass
      from pg_class as c cross join lateral aclexplode(c.relacl) as a
     where c.relowner in (select oid from superuser) and c.relnamespace <> 'pg_catalog'::regnamespace
       and a.privilege_type in ('TRIGGER', 'REFERENCES') and a.grantee not in (select oid from superuser)
    union all
    select 'default privilege ' || a.privilege_type || ' in ' || d.defaclnamespace::regnamespace
      from pg_default_acl as d cross join lateral aclexplode(d.defaclacl) as a
     where d.defaclrole in (select oid from superuser) and a.privilege_type in ('TRIGGER', 'REFERENCES', 'EXECUTE')
       and a.grantee not in (select oid from superuser)
    union all
    select 'function in the same schema as others'' objects: ' || p.oid::regprocedure
      from pg_proc as p where p.pronamespace in ('portico'::regnamespace, 'vault'::regnamespace)
       and pg_get_userbyid(p.proowner) not in ('supabase_admin', 'portico_vault')
    union all
    select 'member of ' || r.roleid::regrole from pg_auth_members as r
     where r.roleid in (select oid from pg_roles where rolname in ('portico_vault', 'portico_events', 'pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files'))
     order by 1";

#[tokio::test]
async fn nothing_of_a_superuser_resolves_through_what_others_own() {
    for major in majors() {
        let (_database, attacker, admin) = attacked(major).await;
        if major >= 18 {
            attacker.batch_execute("create extension pg_graphql; set search_path = public").await.unwrap();
            for name in ["pg_cron", "pgjwt", "postgres_fdw", "pg_walinspect", "pg_buffercache"] {
                attacker.batch_execute(&format!("create extension {name} cascade")).await.unwrap();
            }
        }
        assert_eq!(column(&admin, TRAPS).await, Vec::<String>::new(), "on {major}");
    }
}

#[tokio::test]
async fn an_event_trigger_of_a_project_never_runs_as_a_superuser() {
    let (_database, attacker, admin) = attacked(18).await;
    attacker
        .batch_execute(
            "create table public.ran_as (name text); grant insert on public.ran_as to public;
             create function public.watch() returns event_trigger language plpgsql as $$
               begin insert into public.ran_as values (current_user); perform public.payload(); end $$",
        )
        .await
        .unwrap();
    assert_eq!(
        refusal(&attacker, "create event trigger w on ddl_command_end execute function public.watch()").await.0,
        "42501"
    );
    attacker
        .batch_execute(
            "select portico.run('create event trigger w on ddl_command_end execute function public.watch()')",
        )
        .await
        .unwrap();
    // The script of a trusted extension runs as a superuser, and sets event triggers off
    attacker.batch_execute("create extension hstore with schema public; create table public.t ()").await.unwrap();
    holds(&admin, "an event trigger").await;
    assert_eq!(value(&admin, "select string_agg(distinct name, ' ') from public.ran_as").await, "portico_events");
    for statement in [
        "alter function public.watch() security invoker",
        "alter function public.watch() owner to postgres",
        "create or replace function public.watch() returns event_trigger language plpgsql as 'begin perform public.payload(); end'",
        "drop event trigger w",
        "drop event trigger pgrst_ddl_watch",
        "select portico.run('drop event trigger pgrst_ddl_watch')",
        "select portico.run('alter event trigger issue_pg_net_access disable')",
        "drop function portico.pgrst_ddl_watch() cascade",
        "alter function portico.pgrst_ddl_watch() rename to other",
        "create or replace function portico.pgrst_ddl_watch() returns event_trigger language plpgsql as 'begin end'",
        "grant portico_events to postgres",
        "grant portico_vault to postgres",
        "set role portico_events",
        "alter role portico_events login",
    ] {
        assert_eq!(refusal(&attacker, statement).await.0, "42501", "{statement}");
    }
    // Without the event trigger the function is the project's again, and can no longer do harm
    attacker.batch_execute("select portico.run('drop event trigger w')").await.unwrap();
    attacker
        .batch_execute(
            "create or replace function public.watch() returns event_trigger language plpgsql as 'begin end'",
        )
        .await
        .unwrap();
    // The one that every database has is replaced by its owner
    attacker.batch_execute("select portico.run('create event trigger ensure_rls on ddl_command_end execute function public.rls_auto_enable()')").await.unwrap();
    attacker
        .batch_execute(
            "create or replace function public.rls_auto_enable() returns event_trigger language plpgsql security invoker as
               'begin perform public.payload(); end';
             create extension ltree with schema public; create table public.guarded ()",
        )
        .await
        .unwrap();
    holds(&admin, "rls_auto_enable").await;
    assert_eq!(value(&admin, "select relrowsecurity from pg_class where oid = 'public.guarded'::regclass").await, "t");
}

/// A function finds the types of its variables when a session runs it for the first time: in the
/// session's temporary schema before the catalog, unless its path says otherwise.
#[tokio::test]
async fn event_triggers_of_ours_find_no_types_of_the_session() {
    for major in majors() {
        let (database, _attacker, admin) = attacked(major).await;
        let fresh = postgres(&database).await;
        for name in ["oid", "text", "name", "jsonb", "int4", "bool", "regclass", "regprocedure", "regnamespace"] {
            let domain =
                format!("create domain pg_temp.{name} as pg_catalog.{name} check (public.payload() is not null)");
            fresh.batch_execute(&domain).await.unwrap();
        }
        for statement in [
            "create function public.f() returns pg_catalog.int4 language sql as 'select 1'",
            "create table public.t (id pg_catalog.int4)",
            "create view public.v as select * from public.t",
            "drop function public.f()",
            "drop table public.t cascade",
            "create extension citext with schema public",
            "drop extension citext",
        ] {
            fresh.batch_execute(statement).await.unwrap();
        }
        holds(&admin, &format!("on {major}")).await;
    }
}

#[tokio::test]
async fn schemas_and_extensions_of_ours_stay_ours() {
    for major in majors() {
        let (_database, attacker, admin) = attacked(major).await;
        for statement in [
            "alter schema portico rename to other",
            "alter schema vault rename to other",
            "alter schema auth rename to other",
            "drop schema vault cascade",
            "alter schema portico owner to postgres",
            "create function portico.f() returns int language sql as 'select 1'",
            "create table vault.t ()",
            "create function vault.f() returns int language sql as 'select 1'",
            "create or replace function vault.create_secret(new_secret text, new_name text default null, new_description text default '', new_key_id uuid default null)
             returns uuid language sql as 'select null::uuid'",
            "alter function vault.create_secret(text, text, text, uuid) set search_path = public",
            "alter function vault._crypto_aead_det_encrypt(bytea, bytea, bigint, bytea, bytea) owner to postgres",
            "alter table vault.secrets owner to postgres",
            "create rule r as on insert to vault.secrets do also select public.payload()",
            "create policy p on vault.secrets using (public.payload())",
            "create language plpython3u",
            "create function public.f() returns int language c as '$libdir/pgcrypto', 'pg_md5'",
            "create cast (text as uuid) with inout as implicit",
            "alter system set archive_command = 'true'",
            "alter role supabase_admin set search_path = public",
            "alter role supabase_admin password 'x'",
            "alter role all set search_path = public",
            "set session authorization supabase_admin",
            "set role supabase_admin",
            "load '/tmp/library.so'",
            "create tablespace t location '/tmp'",
            "alter database postgres owner to postgres",
        ] {
            let error = attacker.batch_execute(statement).await.expect_err(statement);
            let code = error.code().unwrap().code();
            assert!(["42501", "0A000", "58P01"].contains(&code), "{statement} on {major}: {error:?}");
        }
        if major >= 18 {
            for statement in [
                "alter extension supabase_vault drop function vault.create_secret(text, text, text, uuid)",
                "alter extension supabase_vault drop table vault.secrets",
                "alter extension supabase_vault set schema public",
            ] {
                let error = attacker.batch_execute(statement).await.expect_err(statement);
                assert!(["42501", "0A000"].contains(&error.code().unwrap().code()), "{statement}: {error:?}");
            }
            // Its owner may drop it and create it again, with whatever lies in the schemas of its
            // path
            attacker
                .batch_execute(
                    "create function public.convert_from(bytea, text) returns text language sql as 'select public.payload()::text';
                     create function extensions.convert_from(bytea, text) returns text language sql as 'select public.payload()::text';
                     drop extension supabase_vault; set search_path = public, extensions, pg_catalog; create extension supabase_vault",
                )
                .await
                .unwrap();
            attacker.batch_execute("select vault.create_secret('again')").await.unwrap();
            assert_eq!(value(&admin, "select decrypted_secret from vault.decrypted_secrets").await, "again");
            assert_eq!(column(&admin, TRAPS).await, Vec::<String>::new());
        }
        holds(&admin, &format!("on {major}")).await;
    }
}

#[tokio::test]
async fn no_role_of_a_project_runs_programs_or_reaches_files() {
    for major in majors() {
        let (database, attacker, admin) = attacked(major).await;
        tries(
            &attacker,
            &[
                "grant pg_execute_server_program to postgres",
                "grant pg_read_server_files to postgres",
                "grant pg_write_server_files to postgres",
                "grant supabase_admin to postgres",
                "create role helper createrole; grant pg_execute_server_program to helper; grant helper to postgres",
                "set role dashboard_user; grant pg_execute_server_program to postgres; reset role",
                "set role supabase_auth_admin; grant pg_execute_server_program to postgres; reset role",
                "reset role",
            ],
        )
        .await;
        for login in ["postgres", "supabase_auth_admin", "supabase_storage_admin", "authenticator"] {
            let session = connect(&database.endpoint().with_user(login, None)).await.unwrap();
            for statement in [
                "copy (select 1) to program 'cat'",
                "create temporary table lines (line text); copy lines from program 'id'",
                "copy (select 1) to '/tmp/portico-fence'",
                "create temporary table lines (line text); copy lines from '/etc/passwd'",
                "select pg_read_file('/etc/passwd')",
                "select pg_ls_dir('/')",
                "select lo_export(1, '/tmp/portico-fence')",
                "select pg_file_write('/tmp/portico-fence', 'x', false)",
                "create extension file_fdw",
                "create extension plpython3u",
                "create extension adminpack",
                // Both hand libpq a file to write: sslkeylogfile
                "create extension dblink",
                "create subscription s connection 'host=127.0.0.1 password=x' publication p with (connect = false)",
                "alter role postgres superuser",
                "set role pg_execute_server_program",
                "grant pg_execute_server_program to postgres",
                "grant pg_read_server_files to postgres",
                "grant pg_write_server_files to authenticator",
            ] {
                let (code, message) = refusal(&session, statement).await;
                assert!(
                    ["42501", "42883", "0A000"].contains(&code.as_str()),
                    "{login}: {statement} on {major}: {message}"
                );
            }
        }
        // Roles of its own and their settings stay a project's business
        let _roles = ROLES_APART.lock().await;
        attacker
            .batch_execute("create role fence_app_role nologin; grant fence_app_role to authenticator; alter role authenticated set statement_timeout = '15s'; drop role fence_app_role")
            .await
            .unwrap();
        attacker
            .batch_execute("alter role authenticated set statement_timeout = '8s'; drop role if exists helper")
            .await
            .unwrap();
        holds(&admin, &format!("on {major}")).await;
    }
}

#[tokio::test]
async fn functions_for_superusers_are_granted_to_no_role() {
    for major in majors() {
        let (_database, attacker, admin) = attacked(major).await;
        let create = "create extension pg_walinspect with schema extensions";
        match major >= 18 {
            true => attacker.batch_execute(create).await.unwrap(),
            false => attacker.batch_execute(&format!("select portico.run('{create}')")).await.unwrap(),
        }
        admin.batch_execute("create extension dblink with schema public").await.unwrap();
        let callable = "
            select p.oid::regprocedure || ' by ' || caller
              from unnest('{postgres,anon,authenticated,service_role,dashboard_user,supabase_auth_admin}'::text[]) as caller
              join pg_proc as p on p.proname in ('dblink_connect_u', 'pg_get_wal_records_info', 'pg_get_wal_block_info', 'pg_get_wal_record_info')
             where has_function_privilege(caller, p.oid, 'execute')";
        assert_eq!(column(&admin, callable).await, Vec::<String>::new(), "on {major}");
        // A grant to oneself needs the right to grant
        let _ = attacker.batch_execute("grant execute on all functions in schema public to postgres, anon").await;
        assert_eq!(column(&admin, callable).await, Vec::<String>::new(), "on {major}");
    }
}

#[tokio::test]
async fn the_server_does_not_let_itself_in() {
    for major in majors() {
        let (database, attacker, admin) = attacked(major).await;
        // One that a superuser has created
        admin.batch_execute("create extension dblink with schema public").await.unwrap();
        let portico_database::Host::Socket(folder) = database.endpoint().host() else { panic!("a socket") };
        let port = database.endpoint().port();
        let own = format!("host={} port={port} user=supabase_admin dbname=postgres", folder.display());
        for (function, password) in
            [("dblink_connect", ""), ("dblink_connect", " password=x"), ("dblink_connect_u", "")]
        {
            let (code, message) = refusal(&attacker, &format!("select public.{function}('{own}{password}')")).await;
            assert!(["42501", "2F003", "08001"].contains(&code.as_str()), "{function} on {major}: {message}");
        }
        // No rule admits a login without proof
        let rules = "select concat_ws(' ', type, auth_method) from pg_hba_file_rules where error is null group by 1";
        let rules = column(&admin, rules).await;
        assert!(
            !rules.is_empty() && rules.iter().all(|rule| rule.ends_with("peer") || rule.ends_with("scram-sha-256")),
            "{rules:?}"
        );
        assert_eq!(
            value(&admin, "select count(*) from pg_hba_file_rules where 'replication' = any (database)").await,
            "0"
        );
        holds(&admin, &format!("on {major}")).await;
    }
}

#[tokio::test]
async fn a_migration_cannot_go_back_to_a_superuser() {
    for major in majors() {
        let (database, _attacker, admin) = attacked(major).await;
        let mut session = database.migrations().await.unwrap();
        for statement in
            ["reset session authorization", "set session authorization default", "reset role", "set role none"]
        {
            session.batch(statement).await.unwrap();
            assert_eq!(
                value(session.client(), "select session_user || ' ' || current_user").await,
                "postgres postgres"
            );
        }
        session.batch("select public.payload()").await.unwrap();
        holds(&admin, &format!("on {major}")).await;
        // Neither can a function that runs in a session for one role
        let acting = database.acting_as("authenticator").await.unwrap();
        acting.batch_execute("select public.payload()").await.unwrap();
        assert_eq!(
            value(&acting, "reset session authorization; reset role; select current_user").await,
            "authenticator"
        );
        let auth = database.pool(AUTH).client().await.unwrap();
        auth.batch_execute("select public.payload()").await.unwrap();
        holds(&admin, &format!("on {major}")).await;
    }
}
