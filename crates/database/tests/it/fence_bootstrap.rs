//! Traps that a project leaves for the sessions of the superuser: the bootstrap, and the pool of
//! our own upkeep.

use portico_database::{BootstrapSettings, connect};

use super::bootstrap::{column, majors, value};
use super::fence::{PAYLOAD, STRIKES, attacked, holds, postgres};

/// All kinds of code that a table's owner can attach to it, on tables that the bootstrap fills or
/// alters; enabled always, so that it also runs in a session that fires no ordinary trigger.
pub(crate) const TABLES: &str = "
    create function public.trap() returns trigger language plpgsql as $$ begin perform public.payload(); return new; end $$;
    grant execute on function public.trap() to public;
    set role supabase_auth_admin;
    create trigger trap before insert on auth.schema_migrations for each row execute function public.trap();
    alter table auth.schema_migrations enable always trigger trap;
    create constraint trigger late after insert on auth.schema_migrations deferrable initially deferred for each row execute function public.trap();
    alter table auth.schema_migrations enable always trigger late;
    alter table auth.schema_migrations add constraint trap check (public.payload());
    delete from auth.schema_migrations where version > '2025';
    set role supabase_storage_admin;
    create rule trap as on insert to storage.migrations do also select public.payload();
    alter table storage.migrations enable always rule trap;
    delete from storage.migrations where id > 30;
    set role supabase_functions_admin;
    alter table supabase_functions.migrations add column trap boolean default public.payload();
    delete from supabase_functions.migrations;
    reset role;";

/// A partition is made of bounds that are converted to the type of the key: one of the project's
/// own.
pub(crate) const PARTITIONS: &str = "
    create domain public.moment as timestamp check (public.payload());
    set role supabase_realtime_admin;
    drop table realtime.messages cascade;
    create table realtime.messages (topic text not null, extension text not null, payload jsonb, event text, private boolean, updated_at timestamp not null default now(),
      inserted_at public.moment not null default now(), id uuid not null default gen_random_uuid(), binary_payload bytea) partition by range (inserted_at);
    reset role;";

/// Functions and operators that suit an argument better than the catalog's, and settings that bring
/// them into play.
const NAMES: &str = "
    create function public.right(name, integer) returns text language sql as 'select public.payload()::text';
    create function public.format(text, name) returns text language sql as 'select public.payload()::text';
    create function public.format(text, text) returns text language sql as 'select public.payload()::text';
    create function public.format(text, text, text) returns text language sql as 'select public.payload()::text';
    create function public.to_regclass(varchar) returns regclass language sql as 'select public.payload()::int::regclass';
    create function public.same(name, name) returns boolean language sql as 'select public.payload()';
    create operator public.= (function = public.same, leftarg = name, rightarg = name);
    create function public.same(oid, oid) returns boolean language sql as 'select public.payload()';
    create operator public.= (function = public.same, leftarg = oid, rightarg = oid);
    create function public.same(text, text) returns boolean language sql as 'select public.payload()';
    create operator public.= (function = public.same, leftarg = text, rightarg = text);";

#[tokio::test]
async fn the_bootstrap_runs_nothing_of_a_project_as_superuser() {
    for major in majors() {
        let (database, attacker, admin) = attacked(major).await;
        attacker.batch_execute(NAMES).await.unwrap();
        let name = database.endpoint().database();
        attacker
            .batch_execute(&format!(
                "alter database {name} set search_path = public, pg_catalog;
                 alter database {name} set default_transaction_read_only = on;
                 alter database {name} set standard_conforming_strings = off"
            ))
            .await
            .unwrap();
        database.drop_idle_connections();
        let again = "begin read write; delete from portico.bootstrap; commit";
        admin.batch_execute(again).await.unwrap();
        database.bootstrap(&BootstrapSettings::default()).await.unwrap_or_else(|error| panic!("on {major}: {error:?}"));
        holds(&admin, &format!("names on {major}")).await;
        // A project that breaks the services' tables may break its own start, and nothing else
        for traps in [TABLES, PARTITIONS] {
            attacker.batch_execute(traps).await.unwrap();
            admin.batch_execute(again).await.unwrap();
            let outcome = database.bootstrap(&BootstrapSettings::default()).await;
            holds(&admin, &format!("the bootstrap on {major}: {outcome:?}")).await;
        }
        let outcome = database.maintain_message_partitions().await;
        holds(&admin, &format!("the partitions on {major}: {outcome:?}")).await;
        let service = database.login_client().await.unwrap();
        service.batch_execute("select name from portico.schema_migrations where name = 'x'::text").await.unwrap();
        assert_eq!(
            service.query_one("show search_path", &[]).await.unwrap().get::<_, String>(0),
            "pg_catalog, portico, pg_temp"
        );
        holds(&admin, &format!("the service pool on {major}")).await;
    }
}

#[tokio::test]
async fn a_database_that_was_exchanged_for_another_is_not_trusted() {
    for major in majors() {
        let (database, attacker, admin) = attacked(major).await;
        let name = database.endpoint().database().to_owned();
        drop((attacker, admin));
        database.drop_idle_connections();
        let elsewhere =
            connect(&database.endpoint().with_database("template1").with_user("postgres", None)).await.unwrap();
        elsewhere.batch_execute(&format!("drop database {name} with (force)")).await.unwrap();
        elsewhere.batch_execute(&format!("create database {name}")).await.unwrap();
        let attacker = postgres(&database).await;
        attacker.batch_execute(PAYLOAD).await.unwrap();
        attacker
            .batch_execute(
                "create schema portico;
                 create view portico.bootstrap as select public.payload()::text as fingerprint;
                 create table portico.analytics_events (name text default public.payload()::text)",
            )
            .await
            .unwrap();
        let admin = connect(&database.endpoint().with_database("postgres")).await.unwrap();
        let error = database.bootstrap(&BootstrapSettings::default()).await.unwrap_err();
        assert!(format!("{error:?}").contains("belongs to the role postgres"), "on {major}: {error:?}");
        assert!(database.login_client().await.is_err(), "on {major}");
        holds(&admin, &format!("an exchanged database on {major}")).await;
        assert_eq!(value(&attacker, STRIKES).await, "0", "on {major}");
        // A vault that others prepared
        attacker
            .batch_execute("drop schema portico cascade; create schema vault; create table vault.secrets (id uuid)")
            .await
            .unwrap();
        let error = database.bootstrap(&BootstrapSettings::default()).await.unwrap_err();
        assert!(format!("{error:?}").contains("belongs to the role postgres"), "on {major}: {error:?}");
        // Without the traps it becomes an ordinary database again
        attacker.batch_execute("drop schema vault cascade").await.unwrap();
        database.bootstrap(&BootstrapSettings::default()).await.unwrap();
        holds(&admin, &format!("a database made anew on {major}")).await;
    }
}

#[tokio::test]
async fn an_older_database_is_brought_behind_the_fence() {
    for major in majors() {
        let (database, attacker, admin) = attacked(major).await;
        admin
            .batch_execute(&format!(
                "set role postgres; {}; reset role",
                include_str!("../../src/bootstrap/sql/rls_auto_enable.sql")
            ))
            .await
            .unwrap();
        // As earlier versions left it: the key in a table, event triggers on functions of postgres'
        // schema, wide defaults
        admin
            .batch_execute(
                "insert into portico.vault_key (key) values ('old') on conflict (only_row) do update set key = 'old';
                 alter table vault.secrets owner to supabase_admin;
                 insert into vault.secrets (id, nonce, secret)
                 select id, '\\x01', encode(portico.pgp_sym_encrypt_bytea('kept', 'old.' || encode(convert_to(id::text, 'UTF8'), 'hex') || '.01', 'cipher-algo=aes256'), 'base64')
                   from (select gen_random_uuid() as id) as new;
                 create function extensions.pgrst_drop_watch() returns event_trigger language plpgsql as 'begin perform public.payload(); end';
                 alter function extensions.pgrst_drop_watch() owner to postgres;
                 drop event trigger pgrst_drop_watch;
                 create event trigger pgrst_drop_watch on sql_drop execute function extensions.pgrst_drop_watch();
                 drop event trigger if exists ensure_rls;
                 create event trigger ensure_rls on ddl_command_end when tag in ('CREATE TABLE') execute function public.rls_auto_enable();
                 alter default privileges in schema public grant all on functions to postgres, anon with grant option;
                 grant all on net.http_request_queue to postgres, public;
                 delete from portico.bootstrap",
            )
            .await
            .unwrap();
        if major < 16 {
            admin
                .batch_execute("update pg_authid set rolsuper = false where rolname = 'pg_execute_server_program'; grant pg_execute_server_program to postgres;
                                create role fence_member; grant pg_execute_server_program to fence_member")
                .await
                .unwrap();
        }
        database.bootstrap(&BootstrapSettings::default()).await.unwrap();
        assert_eq!(value(&attacker, "select decrypted_secret from vault.decrypted_secrets").await, "kept");
        assert_eq!(value(&admin, "select count(*) from portico.vault_key").await, "0");
        assert_eq!(
            column(&admin, "select evtname || ' ' || evtfoid::regprocedure from pg_event_trigger where evtname in ('ensure_rls', 'pgrst_drop_watch') order by 1").await,
            ["ensure_rls portico.rls_auto_enable()", "pgrst_drop_watch portico.pgrst_drop_watch()"]
        );
        assert_eq!(
            value(&admin, "select has_table_privilege('postgres', 'net.http_request_queue', 'trigger') or pg_has_role('postgres', 'pg_execute_server_program', 'member')").await,
            "f"
        );
        assert_eq!(
            value(&admin, "select count(*) from pg_default_acl, aclexplode(defaclacl) where defaclrole = 'supabase_admin'::regrole and defaclobjtype = 'f' and grantee <> defaclrole").await,
            "0"
        );
        let members = "select count(*) from pg_auth_members where roleid = 'pg_execute_server_program'::regrole";
        assert_eq!(value(&admin, members).await, "0", "on {major}");
        admin.batch_execute("drop role if exists fence_member").await.unwrap();
        holds(&admin, &format!("on {major}")).await;
    }
}
