//! Migrations on a real PostgreSQL.

use portico_project::migrations::{self, history};
use portico_project::{MigrationError, PlanError, PlanOptions, PrepareOptions, StatementError, split_statements};

use crate::folder::Folder;
use crate::scratch::Scratch;

fn one(text: &str) -> Folder {
    Folder::with("supabase/migrations/20260102030405_first.sql", text)
}

fn statement(error: MigrationError) -> StatementError {
    match error {
        MigrationError::Statement(error) => *error,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn each_file_runs_once_and_is_recorded() {
    let t = Scratch::new().await;
    let folder = one("create table orders (id int primary key);\n-- the first\ninsert into orders values (1);\n")
        .write("supabase/migrations/20260102030406_second.sql", "insert into orders values (2);")
        .write("supabase/migrations/readme.md", "no migration");
    let (outcome, lines) = t.prepare(&folder).await;
    let prepared = outcome.unwrap();
    assert!(prepared.is_fresh);
    assert_eq!(prepared.applied, ["20260102030405", "20260102030406"]);
    assert_eq!(
        lines,
        [
            "Skipping migration readme.md... (file name must match pattern \"<timestamp>_name.sql\")",
            "Applying migration 20260102030405_first.sql...",
            "Applying migration 20260102030406_second.sql...",
            "WARN: row-level security is off for public.orders: every holder of the publishable key has the rows that are granted to \
             anon or authenticated. Switch it on with `alter table public.orders enable row level security`, and write policies",
        ]
    );
    let again = t.start(&folder).await;
    assert!(!again.is_fresh && again.applied.is_empty());
    folder.put("supabase/migrations/20260102030407_third.sql", "insert into orders values (3)");
    assert_eq!(t.start(&folder).await.applied, ["20260102030407"]);
    assert_eq!(t.texts("select id::text from orders order by id").await, ["1", "2", "3"]);
    assert_eq!(
        t.texts("select version || ' ' || name || ' ' || array_to_string(statements, ' | ') from supabase_migrations.schema_migrations order by version").await,
        [
            "20260102030405 first create table orders (id int primary key) | -- the first\ninsert into orders values (1)",
            "20260102030406 second insert into orders values (2)",
            "20260102030407 third insert into orders values (3)",
        ]
    );
    t.drop().await;
}

#[tokio::test]
async fn a_failing_statement_is_reported_exactly_and_leaves_nothing_behind() {
    let t = Scratch::new().await;
    let folder = one(
        "create table orders (id int);\ninsert into orders values (1);\n\n-- who may read\ncreate policy \"own rows\"\n  on public.orderz\n  for select using (true);\n",
    )
    .write("supabase/seed.sql", "insert into orders values (7);");
    let (outcome, _) = t.prepare(&folder).await;
    let error = statement(outcome.unwrap_err());
    assert_eq!(error.file.to_string_lossy(), "supabase/migrations/20260102030405_first.sql");
    assert_eq!((error.index, error.code.as_str()), (2, "42P01"));
    assert_eq!(error.message, "relation \"public.orderz\" does not exist");
    let shown = error.to_string();
    assert!(shown.starts_with("ERROR: relation \"public.orderz\" does not exist (SQLSTATE 42P01)\n"), "{shown}");
    assert!(shown.contains("In supabase/migrations/20260102030405_first.sql, line "), "{shown}");
    assert!(shown.contains("\nAt statement: 2\n-- who may read\ncreate policy \"own rows\"\n"), "{shown}");
    assert!(!t.has("public.orders").await);
    assert_eq!(t.texts("select version from supabase_migrations.schema_migrations").await, [""; 0]);

    // The next start retries, and seeds, since the first one did not get that far
    folder.put("supabase/migrations/20260102030405_first.sql", "create table orders (id int);");
    let prepared = t.start(&folder).await;
    assert_eq!((prepared.applied.len(), prepared.seeded.len()), (1, 1));
    assert_eq!(t.texts("select id::text from orders").await, ["7"]);
    t.drop().await;
}

#[tokio::test]
async fn the_line_and_the_caret_point_at_the_position() {
    let t = Scratch::new().await;
    let (outcome, _) = t.prepare(&one("select 1;\n\nselect\n  nothing_here,\n  2;\n")).await;
    let error = statement(outcome.unwrap_err());
    assert_eq!((error.line, error.index), (4, 1));
    assert_eq!(error.excerpt, "select\n  nothing_here,\n  ^");
    // Detail, and the cause among data statements of one batch
    let rows = "create table t (id int primary key);\ninsert into t values (1);\ninsert into t values (2);\ninsert into t values (1);\ninsert into t values (3);\n";
    let error = statement(t.prepare(&one(rows)).await.0.unwrap_err());
    assert_eq!((error.line, error.index, error.code.as_str()), (4, 3, "23505"));
    assert_eq!(error.detail.as_deref(), Some("Key (id)=(1) already exists."));
    let error = statement(t.prepare(&one("create table v (e nowhere_type);")).await.0.unwrap_err());
    assert!(error.hint.unwrap().contains("extensions.nowhere_type"));
    t.drop().await;
}

#[tokio::test]
async fn a_statement_that_rejects_transactions_works_as_the_first_one() {
    let t = Scratch::new().await;
    let folder = one("create table t (id int);")
        .write("supabase/migrations/20260102030406_index.sql", "-- alone\ncreate index concurrently by_id on t (id);\n")
        .write("supabase/migrations/20260102030407_vacuum.sql", "vacuum t; insert into t values (1);")
        .write(
            "supabase/migrations/20260102030408_block.sql",
            "do $$ begin insert into t values (2); commit; insert into t values (3); end $$;",
        );
    assert_eq!(t.start(&folder).await.applied.len(), 4);
    assert!(t.has("public.by_id").await);
    assert_eq!(t.texts("select id::text from t order by id").await, ["1", "2", "3"]);

    folder.put(
        "supabase/migrations/20260102030409_late.sql",
        "create table late (id int);\ncreate index concurrently late_id on late (id);",
    );
    let error = statement(t.prepare(&folder).await.0.unwrap_err());
    assert_eq!((error.code.as_str(), error.line), ("25001", 2));
    assert!(error.hint.unwrap().contains("a migration file of its own"));
    assert!(!t.has("public.late").await);
    t.drop().await;
}

#[tokio::test]
async fn a_file_may_contain_its_own_transactions() {
    let t = Scratch::new().await;
    let folder = one("begin;\ncreate table a (id int);\ncommit;\ncreate table b (id int);\n")
        .write(
            "supabase/migrations/20260102030406_back.sql",
            "create table c (id int); rollback; create table d (id int);",
        )
        .write("supabase/migrations/20260102030407_open.sql", "begin; create table e (id int);")
        .write(
            "supabase/migrations/20260102030408_half.sql",
            "create table f (id int); commit; create table g (id int); select 1/0;",
        );
    let (outcome, _) = t.prepare(&folder).await;
    assert_eq!(statement(outcome.unwrap_err()).code, "22012");
    let found = t
        .texts("select table_name::text from information_schema.tables where table_schema = 'public' order by 1")
        .await;
    // Statements that a file commits itself stay; those after its commit are rolled back
    assert_eq!(found, ["a", "b", "d", "e", "f"]);
    let versions = t.texts("select version from supabase_migrations.schema_migrations order by 1").await;
    assert_eq!(versions, ["20260102030405", "20260102030406", "20260102030407"]);
    t.drop().await;
}

#[tokio::test]
async fn hard_syntax_runs_and_is_stored_as_an_equivalent_file() {
    let t = Scratch::new().await;
    let text = r#"
/* one /* two; */ ; */
create table t (note text default E'it\'s; fine', "semi;colon" int);
create function f() returns text language plpgsql as $a$ begin return $b$ ; $b$ || ' $1'; end; $a$;
create function g(vendor int) returns int language sql
begin atomic
  insert into t (note) values ('append; end');
  select case vendor when 1 then 10 else 20 end;
end;
create rule r as on delete to t do also (notify a; notify b);
insert into t values (E'a'
  'b\'c;', 1);
"#;
    t.start(&one(text)).await;
    assert_eq!(t.texts("select f() || g(1)::text").await, [" ; $110".replace("$1", " $1")]);
    let stored = t.texts("select unnest(statements) from supabase_migrations.schema_migrations").await;
    assert_eq!(stored.len(), 5);
    let rejoined = stored.join(";\n") + ";\n";
    assert_eq!(split_statements(&rejoined).iter().map(|one| one.text).collect::<Vec<_>>(), stored);
    t.drop().await;
}

#[tokio::test]
async fn a_large_file_runs() {
    let t = Scratch::new().await;
    let mut text = "create table big (id int, filler text);\n".to_owned();
    for id in 0..20_000 {
        text.push_str(&format!("insert into big values ({id}, '{}');\n", "x".repeat(240)));
    }
    assert!(text.len() > 5_000_000);
    t.start(&one(&text)).await;
    assert_eq!(t.texts("select count(*)::text from big").await, ["20000"]);
    t.drop().await;
}

#[tokio::test]
async fn settings_and_roles_of_a_file_do_not_leak() {
    let t = Scratch::new().await;
    let folder = one("create table mine (id int); set search_path = ''; set role anon;").write(
        "supabase/migrations/20260102030406_next.sql",
        "create table seen as select current_user::text as who, count(*) from mine group by 1;",
    );
    t.start(&folder).await;
    assert_eq!(t.texts("select tableowner::text from pg_tables where tablename = 'seen'").await, ["postgres"]);
    t.drop().await;
}

#[tokio::test]
async fn a_statement_that_would_hang_is_rejected() {
    let t = Scratch::new().await;
    let copy = "create table t (id int);\ncopy t (id) from stdin;\n1\n\\.\n";
    let error = statement(t.prepare(&one(copy)).await.0.unwrap_err());
    assert_eq!((error.line, error.message.as_str()), (2, "COPY ... FROM STDIN does not work here"));
    let error = statement(t.prepare(&one("select 1;\n\\restrict x\nselect 2;")).await.0.unwrap_err());
    assert_eq!((error.line, error.message.as_str()), (2, "commands of psql do not work here"));
    assert!(!t.has("public.t").await);
    t.drop().await;
}

#[tokio::test]
async fn a_deferred_constraint_fails_at_the_end() {
    let t = Scratch::new().await;
    let text = "create table a (id int primary key);\n\
                create table b (a int references a deferrable initially deferred);\ninsert into b values (1);\n";
    let error = statement(t.prepare(&one(text)).await.0.unwrap_err());
    assert_eq!(error.code, "23503");
    assert!(!t.has("public.a").await);
    t.drop().await;
}

#[tokio::test]
async fn files_and_history_have_to_match() {
    let t = Scratch::new().await;
    let folder = one("create table t (id int);")
        .write("supabase/migrations/20260102030407_third.sql", "insert into t values (3);");
    t.start(&folder).await;

    folder.put("supabase/migrations/20260102030406_second.sql", "insert into t values (2);");
    let error = t.prepare(&folder).await.0.unwrap_err();
    assert!(
        matches!(&error, MigrationError::Plan(PlanError::OutOfOrder(files)) if files == &["supabase/migrations/20260102030406_second.sql"]),
        "{error}"
    );
    let all = PrepareOptions { plan: PlanOptions { include_all: true, ..PlanOptions::default() }, seed: true };
    assert_eq!(t.prepare_with(&folder, &all).await.0.unwrap().applied, ["20260102030406"]);

    folder.remove("supabase/migrations/20260102030406_second.sql");
    let error = t.prepare(&folder).await.0.unwrap_err();
    assert!(
        error.to_string().starts_with("Remote migration versions not found in local migrations directory."),
        "{error}"
    );
    let mut session = t.session().await;
    history::mark_reverted(&mut session, &["20260102030406".to_owned()]).await.unwrap();
    assert!(t.start(&folder).await.applied.is_empty());

    let files = migrations::list(&folder.load()).unwrap().migrations;
    history::mark_reverted(&mut session, &["20260102030407".to_owned()]).await.unwrap();
    let rows = history::compare(&files, &history::applied(&mut session).await.unwrap());
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[1].remote.as_deref(), rows[1].time.as_str()), (None, "2026-01-02 03:04:07"));
    history::mark_applied(&mut session, &files.iter().collect::<Vec<_>>()).await.unwrap();
    assert!(t.start(&folder).await.applied.is_empty());
    drop(session);
    t.drop().await;
}

#[tokio::test]
async fn two_servers_that_start_at_once_apply_once() {
    let t = Scratch::new().await;
    let folder = one("create table t (id int); insert into t values (1);")
        .write("supabase/seed.sql", "insert into t values (2);");
    let (first, second) = tokio::join!(t.start(&folder), t.start(&folder));
    assert_eq!(first.applied.len() + second.applied.len(), 1);
    assert_eq!(t.texts("select id::text from t order by id").await, ["1", "2"]);
    t.drop().await;
}

#[tokio::test]
async fn switched_off_migrations_do_not_run() {
    let t = Scratch::new().await;
    let folder = one("create table t (id int);").write("supabase/config.toml", "[db.migrations]\nenabled = false\n");
    assert!(t.start(&folder).await.applied.is_empty());
    assert!(!t.has("public.t").await);
    t.drop().await;
}

#[tokio::test]
async fn a_migration_can_do_what_hosted_ones_do() {
    let t = Scratch::new().await;
    let folder = one(
        "create table public.profiles (id uuid primary key references auth.users (id) on delete cascade);\n\
         create function public.handle_new_user() returns trigger language plpgsql security definer set search_path = '' as $$\n\
         begin insert into public.profiles values (new.id); return new; end; $$;\n\
         create trigger on_auth_user_created after insert on auth.users for each row execute procedure public.handle_new_user();\n\
         alter table public.profiles enable row level security;\n\
         create policy own on public.profiles for select to authenticated using ((select auth.uid()) = id);\n\
         create extension if not exists citext with schema extensions;\n\
         create table public.tags (name citext);\n",
    );
    t.start(&folder).await;
    assert!(t.has("public.profiles").await);
    t.drop().await;
}

#[tokio::test]
async fn an_old_history_table_is_completed() {
    let t = Scratch::new().await;
    t.session()
        .await
        .batch(
            "drop schema supabase_migrations cascade; create schema supabase_migrations;\n\
             create table supabase_migrations.schema_migrations (version text not null primary key);\n\
             insert into supabase_migrations.schema_migrations values ('20260102030405')",
        )
        .await
        .unwrap();
    let folder = one("select 1/0;").write("supabase/migrations/20260102030406_second.sql", "create table t (id int);");
    assert_eq!(t.start(&folder).await.applied, ["20260102030406"]);
    let rows =
        t.texts("select version || coalesce(name, '') from supabase_migrations.schema_migrations order by 1").await;
    assert_eq!(rows, ["20260102030405", "20260102030406second"]);

    t.session().await.batch("drop schema supabase_migrations cascade").await.unwrap();
    let folder = one("create table u (id int);");
    assert_eq!(t.start(&folder).await.applied, ["20260102030405"]);
    t.drop().await;
}

#[tokio::test]
async fn a_lost_connection_leaves_nothing_behind_and_is_reported() {
    let t = Scratch::new().await;
    let admin = t.database.administrator().await.unwrap();
    admin.batch_execute("select pg_advisory_lock(42)").await.unwrap();
    let folder = one("create table t (id int); select pg_advisory_lock(42);")
        .write("supabase/seed.sql", "insert into t values (1);");
    let cut = async {
        let end =
            "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and objid = 42 and not granted";
        while admin.query(end, &[]).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let ((outcome, _), ()) = tokio::join!(t.prepare(&folder), cut);
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("terminating connection") || error.contains("closed"), "{error}");
    assert!(!t.has("public.t").await);

    admin.batch_execute("select pg_advisory_unlock(42)").await.unwrap();
    let prepared = t.start(&folder).await;
    assert_eq!((prepared.applied.len(), prepared.seeded.len()), (1, 1));
    drop(admin);
    t.drop().await;
}

async fn execute(t: &Scratch, sql: &str) {
    t.session().await.client().batch_execute(sql).await.unwrap();
}

#[tokio::test]
async fn a_file_that_was_edited_after_it_was_applied_is_reported() {
    let t = Scratch::new().await;
    let folder = one("create table t (id int);\nalter table t enable row level security;\n")
        .write("supabase/migrations/20260102030406_second.sql", "insert into t values (2);");
    t.start(&folder).await;
    // White space makes no difference
    folder.put(
        "supabase/migrations/20260102030405_first.sql",
        "create table t\n  (id int);\n\nalter table t enable row level security",
    );
    assert_eq!(t.prepare(&folder).await.1, [""; 0]);
    folder.put("supabase/migrations/20260102030406_second.sql", "insert into t values (3);");
    assert_eq!(
        t.prepare(&folder).await.1,
        [
            "WARN: supabase/migrations/20260102030406_second.sql was edited after it was applied, and the database does not have the \
          change: put it into a new migration, or run `portico db reset`, which deletes the data"
        ]
    );
    // Without recorded statements there is nothing to compare
    execute(&t, "update supabase_migrations.schema_migrations set statements = null").await;
    assert_eq!(t.prepare(&folder).await.1, [""; 0]);
    execute(&t, "alter table supabase_migrations.schema_migrations drop column statements").await;
    let files = migrations::list(&folder.load()).unwrap().migrations;
    assert_eq!(history::edited(&mut t.session().await, &files).await.unwrap(), [] as [&migrations::Migration; 0]);
    t.drop().await;
}

#[tokio::test]
async fn tables_without_row_level_security_are_named() {
    let t = Scratch::new().await;
    let folder = one("create table plain (id int); create table \"Odd one\" (id int); create schema apart; create table apart.t (id int);
        create table safe (id int); alter table safe enable row level security; create view v as select 1 as a");
    let line = t.prepare(&folder).await.1.pop().unwrap();
    assert!(line.starts_with("WARN: row-level security is off for public.\"Odd one\", public.plain: "), "{line}");
    folder.put("supabase/config.toml", "[api]\nschemas = [\"apart\"]\n");
    let line = t.prepare(&folder).await.1.pop().unwrap();
    assert!(line.starts_with("WARN: row-level security is off for apart.t: "), "{line}");
    t.drop().await;
}

#[tokio::test]
async fn a_missing_extension_is_one_message_with_advice() {
    let t = Scratch::new().await;
    let folder = one("create table t (id int);\n\ncreate extension if not exists postgis with schema extensions;\n");
    let error = statement(t.prepare(&folder).await.0.unwrap_err());
    assert_eq!(
        error.to_string(),
        "ERROR: extension \"postgis\" is not available (SQLSTATE 0A000)\n\
         HINT: PostgreSQL 18 does not have the extension postgis: the package postgresql-18-postgis-3 of Debian or of PostgreSQL's own \
         package repository brings it. To go on without it, remove the statement, or run it only where it works: do $$ begin if exists \
         (select from pg_available_extensions where name = 'postgis') then create extension postgis; end if; end $$;\n\
         In supabase/migrations/20260102030405_first.sql, line 3\n\
         At statement: 1\n\
         create extension if not exists postgis with schema extensions"
    );
    for (statement_text, expected) in [
        ("create extension pgsodium", "PostgreSQL 18 does not have the extension pgsodium: no package brings it"),
        ("create extension file_fdw", "Only a superuser can create it"),
    ] {
        let error = statement(t.prepare(&one(statement_text)).await.0.unwrap_err());
        assert!(error.hint.as_deref().unwrap_or_default().starts_with(expected), "{error}");
        assert!(error.detail.is_none() && error.context.is_none(), "{error}");
    }
    // The advice works
    folder.put(
        "supabase/migrations/20260102030405_first.sql",
        "do $$ begin if exists (select from pg_available_extensions where name = 'postgis') then create extension postgis; end if; end $$;",
    );
    assert_eq!(t.start(&folder).await.applied, ["20260102030405"]);
    t.drop().await;
}
