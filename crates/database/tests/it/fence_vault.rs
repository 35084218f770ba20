//! The fence around the vault: its key, its functions and its tables.

use super::bootstrap::{majors, refusal, value};
use super::fence::{attacked, holds};

#[tokio::test]
async fn the_vault_runs_nothing_of_the_callers() {
    for major in majors() {
        let (_database, attacker, admin) = attacked(major).await;
        // A schema that postgres owns goes away, and another one with functions of the same names
        // takes its place
        attacker
            .batch_execute(
                "alter schema extensions rename to gone; create schema extensions;
                 create function extensions.pgp_sym_encrypt_bytea(bytea, text, text) returns bytea language sql as 'select public.payload()::text::bytea';
                 create function extensions.pgp_sym_decrypt_bytea(bytea, text) returns bytea language sql as 'select public.payload()::text::bytea';
                 create function extensions.gen_random_bytes(integer) returns bytea language sql as 'select public.payload()::text::bytea'",
            )
            .await
            .unwrap();
        // Types of the session's own come before the catalog's, where the path does not say
        // otherwise
        for name in ["uuid", "bytea", "text"] {
            attacker
                .batch_execute(&format!("create domain pg_temp.{name} as pg_catalog.{name} check (public.payload())"))
                .await
                .unwrap();
        }
        attacker
            .batch_execute(
                "create function public.equal(pg_catalog.text, pg_catalog.uuid) returns boolean language sql as 'select public.payload()';
                 create operator public.= (function = public.equal, leftarg = pg_catalog.text, rightarg = pg_catalog.uuid);
                 set search_path = public, extensions, pg_catalog",
            )
            .await
            .unwrap();
        let id = value(&attacker, "select vault.create_secret('s3cret', 'name')").await;
        attacker.batch_execute(&format!("select vault.update_secret('{id}', 'n3w')")).await.unwrap();
        assert_eq!(value(&attacker, "select decrypted_secret from vault.decrypted_secrets").await, "n3w");
        holds(&admin, &format!("on {major}")).await;
    }
}

#[tokio::test]
async fn a_cast_in_a_foreign_key_runs_as_a_role_that_may_do_nothing() {
    for major in majors() {
        let (_database, attacker, admin) = attacked(major).await;
        let id = value(&attacker, "select vault.create_secret('s3cret')").await;
        attacker
            .batch_execute(
                "create table public.ran_as (name text); grant insert on public.ran_as to public;
                 create type public.wrapped as (id uuid);
                 create function public.unwrap(public.wrapped) returns uuid language plpgsql as $$
                   begin insert into public.ran_as values (current_user); perform public.payload(); return ($1).id; end $$;
                 create cast (public.wrapped as uuid) with function public.unwrap(public.wrapped) as implicit;
                 create table public.referring (secret public.wrapped references vault.secrets (id))",
            )
            .await
            .unwrap_or_else(|error| panic!("references on vault.secrets, on {major}: {error:?}"));
        attacker.batch_execute(&format!("insert into public.referring values (row('{id}'))")).await.unwrap();
        holds(&admin, &format!("on {major}")).await;
        assert_eq!(value(&admin, "select distinct name from public.ran_as").await, "portico_vault", "on {major}");
        // Tables of a superuser's cannot be referred to at all
        if major >= 18 {
            attacker.batch_execute("create extension pg_cron").await.unwrap();
        }
        let (code, _) =
            refusal(&attacker, "create table public.t (run bigint references cron.job_run_details (runid))").await;
        assert_eq!(code, "42501");
        let watch = "create trigger t before insert on {} for each row execute function storage.protect_delete()";
        for table in
            ["vault.secrets", "net.http_request_queue", "net._http_response", "cron.job_run_details", "cron.job"]
        {
            assert_eq!(refusal(&attacker, &watch.replace("{}", table)).await.0, "42501", "{table} on {major}");
        }
    }
}

#[tokio::test]
async fn the_key_of_the_vault_is_read_by_its_functions_alone() {
    for major in majors() {
        let (database, attacker, admin) = attacked(major).await;
        let key = value(&admin, "select pg_read_file('../vault.key')").await;
        assert_eq!(key.len(), 64);
        assert_eq!(value(&admin, "select portico.read_vault_key()").await, key);
        for statement in [
            "select portico.read_vault_key()",
            "select portico.pgp_sym_decrypt_bytea('', '')",
            "select pg_read_file('../vault.key')",
            "select pg_read_binary_file('../vault.key')",
            "select pg_stat_file('../vault.key')",
            "select lo_import('../vault.key')",
            "create table public.key (line text); copy public.key from '/etc/passwd'",
            "update portico.vault_key set key = 'x'",
            "insert into portico.vault_key (key) values ('x')",
            "create or replace function portico.read_vault_key() returns text language sql as 'select 1'",
        ] {
            for role in
                ["", "set role service_role; ", "set role supabase_auth_admin; ", "set role supabase_storage_admin; "]
            {
                let (code, message) = refusal(&attacker, &format!("{role}{statement}")).await;
                attacker.batch_execute("reset role").await.unwrap();
                assert_eq!(code, "42501", "{role}{statement} on {major}: {message}");
            }
        }
        // postgres may read every table: the key is in none
        assert_eq!(value(&attacker, "select count(*) from portico.vault_key").await, "0");
        // and outside of the folder that a base backup copies
        let data = value(&admin, "show data_directory").await;
        let file = std::path::Path::new(&data).parent().unwrap().join("vault.key");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), key);
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        drop(database);
    }
}
