//! Seeds, roles, vault secrets and resets on a real PostgreSQL.

use portico_database::BootstrapSettings;
use portico_project::{MigrationError, PlanOptions, PrepareOptions, Progress, reset};

use crate::folder::Folder;
use crate::scratch::Scratch;

fn project() -> Folder {
    Folder::with("supabase/migrations/1_t.sql", "create table t (note text);")
        .write("supabase/seed.sql", "insert into t values ('seed');")
}

async fn notes(t: &Scratch) -> Vec<String> {
    t.texts("select note from t order by note").await
}

#[tokio::test]
async fn a_seed_runs_on_the_first_start_only() {
    let t = Scratch::new().await;
    let folder = project();
    assert_eq!(t.start(&folder).await.seeded, ["supabase/seed.sql"]);
    assert!(t.start(&folder).await.seeded.is_empty());
    folder.put("supabase/seed.sql", "insert into t values ('edited');");
    folder.put("supabase/migrations/2_more.sql", "insert into t values ('migration');");
    assert!(t.start(&folder).await.seeded.is_empty());
    assert_eq!(notes(&t).await, ["migration", "seed"]);
    t.drop().await;
}

#[tokio::test]
async fn a_reset_starts_over() {
    let t = Scratch::new().await;
    let folder = project().write(
        "supabase/migrations/2_more.sql",
        "insert into t values ('second'); alter table t enable row level security;",
    );
    t.start(&folder).await;
    folder.put("supabase/seed.sql", "insert into t values ('edited');");
    let mut lines = Vec::new();
    let mut note = |progress: Progress| lines.push(progress.to_string());
    let bootstrap = BootstrapSettings::default();
    let options = PrepareOptions::default();
    reset(&t.database, &bootstrap, &folder.load(), &options, &mut note).await.unwrap();
    assert_eq!(
        lines,
        [
            "Resetting local database...",
            "Recreating database...",
            "Initialising schema...",
            "Applying migration 1_t.sql...",
            "Applying migration 2_more.sql...",
            "Seeding data from supabase/seed.sql...",
        ]
    );
    assert_eq!(notes(&t).await, ["edited", "second"]);

    let to_first =
        PrepareOptions { plan: PlanOptions { up_to: Some("1".into()), ..PlanOptions::default() }, seed: false };
    reset(&t.database, &bootstrap, &folder.load(), &to_first, &mut |_| {}).await.unwrap();
    assert_eq!(notes(&t).await, [""; 0]);

    // A version that does not exist changes nothing
    let nowhere =
        PrepareOptions { plan: PlanOptions { up_to: Some("9".into()), ..PlanOptions::default() }, seed: true };
    let error = reset(&t.database, &bootstrap, &folder.load(), &nowhere, &mut |_| {}).await.unwrap_err();
    assert_eq!(error.to_string(), "glob supabase/migrations/9_*.sql: file does not exist");
    assert!(t.has("public.t").await);
    t.drop().await;
}

#[tokio::test]
async fn a_failing_seed_is_reported_and_retried() {
    let t = Scratch::new().await;
    let folder = project().write("supabase/seed.sql", "insert into t values ('a');\ninsert into nowhere values (1);\n");
    let error = t.prepare(&folder).await.0.unwrap_err();
    let MigrationError::Statement(error) = error else { panic!("{error}") };
    assert_eq!((error.file.to_string_lossy().as_ref(), error.line), ("supabase/seed.sql", 2));
    assert_eq!(notes(&t).await, [""; 0]);
    folder.put("supabase/seed.sql", "insert into t values ('b');");
    assert_eq!(t.start(&folder).await.seeded.len(), 1);
    assert_eq!(notes(&t).await, ["b"]);
    t.drop().await;
}

#[tokio::test]
async fn patterns_name_the_files_in_order_and_once() {
    let t = Scratch::new().await;
    let folder = project()
        .write(
            "supabase/config.toml",
            "[db.seed]\nsql_paths = [\"./seeds/b*.sql\", \"./seeds/*.sql\", \"none/*.sql\", \"../data/x.sql\"]\n",
        )
        .write("supabase/seeds/a.sql", "insert into t select 'a after ' || count(*) from t;")
        .write("supabase/seeds/b1.sql", "insert into t select 'b1 after ' || count(*) from t;")
        .write("supabase/seeds/b2.sql", "insert into t select 'b2 after ' || count(*) from t;")
        .write("data/x.sql", "insert into t select 'x after ' || count(*) from t;");
    let (outcome, lines) = t.prepare(&folder).await;
    assert_eq!(
        outcome.unwrap().seeded,
        ["supabase/seeds/b1.sql", "supabase/seeds/b2.sql", "supabase/seeds/a.sql", "data/x.sql"]
    );
    assert!(lines.contains(&"WARN: no files matched pattern: supabase/none/*.sql".to_owned()), "{lines:?}");
    assert_eq!(notes(&t).await, ["a after 2", "b1 after 0", "b2 after 1", "x after 3"]);
    t.drop().await;
}

#[tokio::test]
async fn seeds_that_are_switched_off_do_not_run() {
    let t = Scratch::new().await;
    let folder = project().write("supabase/config.toml", "[db.seed]\nenabled = false\n");
    assert!(t.start(&folder).await.seeded.is_empty());
    t.drop().await;
}

#[tokio::test]
async fn a_database_that_came_with_its_history_is_not_seeded() {
    let t = Scratch::new().await;
    let folder = project();
    t.session()
        .await
        .batch("create table t (note text); insert into supabase_migrations.schema_migrations (version, name) values ('1', 't')")
        .await
        .unwrap();
    let prepared = t.start(&folder).await;
    assert!(!prepared.is_fresh && prepared.applied.is_empty() && prepared.seeded.is_empty());
    t.drop().await;
}

#[tokio::test]
async fn vault_secrets_precede_roles_and_roles_precede_migrations() {
    let t = Scratch::new().await;
    let role = portico_database::scratch::fresh_name();
    let folder = Folder::with("supabase/roles.sql", &format!("create role {role};"))
        .write("supabase/config.toml", "[db.vault]\napi_key = \"hidden\"\nlate = \"env(NOT_SET)\"\n")
        .write("supabase/migrations/1_t.sql", &format!("create table t (note text); grant select on t to {role};"))
        .write(
            "supabase/seed.sql",
            "insert into t select decrypted_secret from vault.decrypted_secrets where name = 'api_key';",
        );
    let (outcome, lines) = t.prepare(&folder).await;
    outcome.unwrap();
    assert_eq!(lines[..2], ["Updating vault secrets...", "Seeding globals from roles.sql..."]);
    assert_eq!(notes(&t).await, ["hidden"]);
    t.session().await.batch(&format!("drop table t; drop role {role}")).await.unwrap();
    t.drop().await;
}

#[tokio::test]
async fn a_statement_with_more_rights_works_after_a_recorded_file_too() {
    let t = Scratch::new().await;
    let watch = "create function on_ddl() returns event_trigger language plpgsql as $$ begin end $$;\n\
                 create event trigger watch_one on ddl_command_end execute function on_ddl();\n";
    let folder = Folder::with("supabase/migrations/1_t.sql", "create table t (note text);")
        .write("supabase/migrations/2_watch.sql", watch)
        .write("supabase/seed.sql", "create event trigger watch_two on ddl_command_end execute function on_ddl();\ninsert into t values (current_user);");
    t.start(&folder).await;
    assert_eq!(notes(&t).await, ["postgres"]);
    assert_eq!(
        t.texts("select evtname::text from pg_event_trigger where evtname like 'watch_%' order by 1").await,
        ["watch_one", "watch_two"]
    );
    t.drop().await;
}
