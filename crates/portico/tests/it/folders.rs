//! Project folders of new users: `portico dev` alone starts them.

use std::fs;
use std::path::Path;

use super::project_folder::Folder;

#[test]
fn a_folder_with_vectors_and_old_migrations_starts() {
    let folder = Folder::new()
        .migration(
            "20240101000000_items",
            "create extension if not exists \"vector\" with schema \"extensions\" version '0.7.0';
             create table public.items (id bigint generated always as identity primary key, embedding extensions.vector(3));
             create index on public.items using hnsw (embedding extensions.vector_l2_ops);",
        )
        .with("supabase/seed.sql", "insert into public.items (embedding) values ('[1,2,3]'), ('[4,5,6]');");
    let server = folder.start_first();
    for expected in [
        "\n  PostgreSQL   18 from ",
        "\n  New tables   in the API at once (20240101000000_items.sql is from before 2026-05-30; else set [api] auto_expose_new_tables)\n",
    ] {
        assert!(server.panel().contains(expected), "{}", server.panel());
    }
    assert_eq!(
        server.query("select id from public.items order by embedding operator(extensions.<->) '[4,5,5]' limit 1"),
        ["2"]
    );
    assert_eq!(server.query("select has_table_privilege('anon', 'public.items', 'select')"), ["t"]);
    // The table is named at the start, in the status and after `migration up`
    let warning = "WARN: row-level security is off for public.items: ";
    assert!(folder.run(&["status"]).stderr.contains(warning));
    let status = folder.run(&["status", "--json"]).stdout;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["TABLES_WITHOUT_RLS"], serde_json::json!(["public.items"]), "{status}");
    folder.put("supabase/migrations/20240102000000_more.sql", "create table public.more (id int);");
    let up = folder.run(&["migration", "up"]);
    assert_eq!((up.code, up.stdout.as_str()), (Some(0), "Local database is up to date.\n"));
    assert!(up.stderr.contains("WARN: row-level security is off for public.items, public.more: "), "{}", up.stderr);
    let printed = server.stop();
    assert!(printed.contains(warning), "{printed}");
}

#[test]
fn tables_of_a_new_project_need_a_grant() {
    let folder = Folder::new();
    let server = folder.start();
    let expected = "New tables   in the API after a GRANT (no migration yet; else set [api] auto_expose_new_tables)\n";
    assert!(server.panel().contains(expected), "{}", server.panel());
    // The description of the API contains nothing of Portico
    let description = server.get("/rest/v1/", &server.value("SECRET_KEY"));
    let document: serde_json::Value = serde_json::from_str(&description).unwrap();
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    assert_eq!(paths, ["/"], "{description}");
    server.query("create table public.notes (id int)");
    assert_eq!(server.query("select has_table_privilege('anon', 'public.notes', 'select')"), ["f"]);
}

#[test]
fn a_second_server_in_a_folder_is_rejected_with_the_reason() {
    let folder = Folder::new();
    let server = folder.start();
    let second = folder.run(&["dev"]);
    assert_eq!(second.code, Some(1));
    assert!(
        second.stderr.starts_with("error: a Portico server runs in this folder already (process "),
        "{}",
        second.stderr
    );
    assert!(second.stderr.contains("`portico status`"), "{}", second.stderr);
    // A copy of the folder has no server, although the record of one was copied
    let copy = Folder::new();
    fs::create_dir(copy.path().join(".portico")).unwrap();
    fs::copy(folder.path().join(".portico/server.json"), copy.path().join(".portico/server.json")).unwrap();
    for arguments in [&["status"][..], &["stop"], &["db", "reset"]] {
        let finished = copy.run(arguments);
        assert_eq!(finished.code, Some(1), "{arguments:?}");
        assert!(finished.stderr.starts_with("error: no Portico server is running for "), "{}", finished.stderr);
    }
    assert_eq!(server.query("select 1"), ["1"]);
}

/// Folders in the styles of public projects, by name, with a query that only a complete start
/// answers.
const STYLES: &[(&str, &str, &str)] = &[
    (
        "chat",
        "select username || ' ' || message from public.messages join public.users on users.id = user_id",
        "first@example.com Hello",
    ),
    (
        "search",
        "select decrypted_secret from vault.decrypted_secrets where name = 'supabase_url'",
        "http://api.supabase.internal:8000",
    ),
    ("shop", "select string_agg(jobname, ' ' order by jobname) from cron.job", "expire-carts often report"),
    ("teams", "select current_setting('app.settings.edition')", "teams"),
    (
        "dump",
        "select count(*) from pg_policies where policyname like '%vatar%' and policyname not like 'portico %'",
        "2",
    ),
];

#[test]
fn folders_in_the_styles_of_public_projects_start() {
    for (name, question, response) in STYLES {
        let folder = Folder::new();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/folders").join(name);
        for part in ["supabase", "supabase/migrations"] {
            for entry in fs::read_dir(source.join(part)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    let text = fs::read_to_string(&path).unwrap();
                    folder.put(path.strip_prefix(&source).unwrap().to_str().unwrap(), &text);
                }
            }
        }
        let server = folder.start();
        assert_eq!(server.query(question), [*response], "{name}");
        let printed = server.stop();
        assert!(!printed.contains("WARN: "), "{name}: {printed}");
        // A second start finds the same state
        folder.start();
    }
}
