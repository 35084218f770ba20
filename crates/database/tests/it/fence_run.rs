//! `portico.run`: the statements that the hosted service allows to `postgres`, from any session,
//! and no others.

use super::bootstrap::{column, majors, refusal, value};
use super::fence::{attacked, holds};

#[tokio::test]
async fn statements_of_the_hosted_postgres_run_from_any_session_and_in_a_block() {
    for major in majors() {
        let (database, client, admin) = attacked(major).await;
        let name = database.endpoint().database();
        for statement in [
            "create publication everything for all tables with (publish = 'insert, update', publish_via_partition_root = true)",
            "drop publication everything;",
            "-- why\n/* and */ create publication \"of Schemas\" for tables in schema public, auth",
            "alter publication \"of Schemas\" drop tables in schema auth",
            "drop publication if exists \"of Schemas\"; -- so",
            "drop publication if exists missing",
            "create extension if not exists moddatetime with schema extensions",
            "create extension if not exists \"moddatetime\"",
            "create event trigger \"Guard\" on ddl_command_end when tag in ('CREATE TABLE', 'SELECT INTO') execute function rls_auto_enable()",
            "alter event trigger \"Guard\" disable",
            "drop event trigger \"Guard\"",
            "drop event trigger if exists missing",
            "alter role authenticated set app.flavour to 'it''s'",
            &format!("alter database {name} set \"app.settings.own\" = 'x; y'"),
            &format!("alter database {name} set app.settings.count = 7"),
        ] {
            client
                .batch_execute(&format!("do $do$ begin perform portico.run($run${statement}$run$); end $do$"))
                .await
                .unwrap_or_else(|error| panic!("{statement} on {major}: {error:?}"));
        }
        // The setting is postgres' own from here on
        client.batch_execute(&format!("alter database {name} set app.settings.own = 'z'")).await.unwrap();
        assert_eq!(
            column(&admin, &format!("select unnest(setconfig) from pg_db_role_setting join pg_database on pg_database.oid = setdatabase where datname = '{name}' order by 1")).await.into_iter().filter(|entry| entry.contains("own") || entry.contains("count")).collect::<Vec<_>>(),
            ["app.settings.count=7", "app.settings.own=z"]
        );
        client.batch_execute("alter role authenticated reset app.flavour").await.unwrap();
        client.batch_execute("create table public.watched (id int, at timestamp); create trigger t before update on public.watched for each row execute function extensions.moddatetime('at')").await.unwrap();
        assert_eq!(value(&admin, "select count(*) from pg_publication where puballtables").await, "0");
        holds(&admin, &format!("on {major}")).await;
    }
}

#[tokio::test]
async fn nothing_else_runs_as_superuser() {
    for major in majors() {
        let (_database, client, admin) = attacked(major).await;
        for (statement, code) in [
            ("alter role postgres superuser", "0A000"),
            ("create extension moddatetime; alter role postgres superuser", "0A000"),
            ("create extension moddatetime schema public; --\nalter role postgres superuser", "0A000"),
            ("create extension moddatetime schema public -- \n; alter role postgres superuser", "0A000"),
            ("create extension file_fdw", "42501"),
            ("create extension plpython3u", "42501"),
            ("create extension moddatetime schema portico", "42501"),
            ("create extension moddatetime schema pg_catalog", "42501"),
            ("create extension moddatetime schema \"public\"\" cascade; alter role postgres superuser; --\"", "0A000"),
            ("create extension moddatetime schema \"public\"\" cascade; alter role postgres superuser\"", "3F000"),
            ("drop extension plpgsql", "42501"),
            ("drop extension supabase_vault cascade", "0A000"),
            ("create publication p for all tables with (publish = 'insert'); alter role postgres superuser", "0A000"),
            (
                "create publication p for all tables with (publish = 'insert'') ; alter role postgres superuser; --')",
                "0A000",
            ),
            ("create publication p for table auth.users", "0A000"),
            ("drop publication supabase_realtime_messages_publication", "42501"),
            ("alter publication supabase_realtime_messages_publication add tables in schema public", "42501"),
            ("create event trigger t on ddl_command_end execute function pg_catalog.now()", "42P17"),
            ("create event trigger t on ddl_command_end execute function portico.pgrst_ddl_watch()", "42501"),
            ("create event trigger t on login execute function public.rls_auto_enable()", "0A000"),
            (
                "create event trigger t on ddl_command_end when tag in ('A') and tag in ('B'); execute function f()",
                "0A000",
            ),
            ("create event trigger t on ddl_command_end execute function public.missing()", "42883"),
            ("alter event trigger pgrst_ddl_watch disable", "42501"),
            ("alter database postgres set log_statement = 'none'", "42501"),
            ("alter database postgres set session_preload_libraries = 'x'", "42501"),
            ("alter database postgres set plperl.on_init = 'x'", "42501"),
            ("alter database postgres set \"app.x; alter role postgres superuser\" = 'x'", "42501"),
            ("alter database template1 set app.x = 'x'", "42501"),
            ("alter role supabase_admin set app.x = 'x'", "42501"),
            ("alter role all set app.x = 'x'", "42704"),
            ("alter role postgres set app.x = 'x' superuser", "0A000"),
        ] {
            let found = refusal(&client, &format!("select portico.run($run${statement}$run$)")).await;
            assert_eq!(found.0, code, "{statement} on {major}: {}", found.1);
        }
        for role in ["anon", "authenticated", "service_role", "supabase_auth_admin"] {
            let (code, _) =
                refusal(&client, &format!("set role {role}; select portico.run('drop publication p')")).await;
            client.batch_execute("reset role").await.unwrap();
            assert_eq!(code, "42501", "{role}");
        }
        holds(&admin, &format!("on {major}")).await;
    }
}
