//! `portico migration` on the database of this folder, whatever runs in others.

use std::fs;

use super::project_folder::Folder;

/// Returns the port of a database's URL.
fn port(url: &str) -> &str {
    url.rsplit(':').next().and_then(|rest| rest.split('/').next()).unwrap()
}

#[test]
fn the_database_of_another_folder_is_not_touched() {
    let theirs = Folder::new().migration("20240101000000_theirs", "create table t (id int);");
    let server = theirs.start();
    // The configured port is that of the other folder's server
    let ours = Folder::new().migration("20240102000000_ours", "create table o (id int);");
    ours.put("supabase/config.toml", &format!("[db]\nport = {}\n", port(&server.value("DB_URL"))));
    for arguments in
        [&["migration", "list"][..], &["migration", "up"], &["migration", "repair", "--status", "reverted", "1"]]
    {
        let finished = ours.run(arguments);
        assert_eq!(finished.code, Some(1), "{arguments:?} {finished:?}");
        assert!(finished.stderr.contains(" has no database yet: start it with `portico dev`"), "{}", finished.stderr);
    }
    let reset = ours.run(&["db", "reset"]);
    assert!(reset.stderr.starts_with("error: no Portico server is running for "), "{}", reset.stderr);
    assert_eq!(server.query("select version from supabase_migrations.schema_migrations"), ["20240101000000"]);
}

#[test]
fn the_advice_after_a_change_of_branch_keeps_the_data() {
    let folder = Folder::new()
        .migration("20240101000000_notes", "create table notes (id int);")
        .migration("20240103000000_branch", "create table only_here (id int); insert into only_here values (7);");
    folder.start().stop();
    fs::remove_file(folder.path().join("supabase/migrations/20240103000000_branch.sql")).unwrap();
    folder.put("supabase/migrations/20240102000000_other.sql", "create table other (id int);");

    let refused = folder.run(&["dev"]);
    assert_eq!(refused.code, Some(1));
    let remedy = refused.stderr.lines().find_map(|line| line.trim().strip_prefix("portico migration repair ")).unwrap();
    assert_eq!(remedy, "--status reverted 20240103000000");
    // No server runs, and the command works all the same
    let repaired = folder.run(&["migration", "repair", "--status", "reverted", "20240103000000"]);
    assert_eq!(
        (repaired.code, repaired.stdout.lines().next()),
        (Some(0), Some("Repaired migration history: [20240103000000] => reverted"))
    );
    let server = folder.start();
    assert_eq!(server.query("select id from only_here"), ["7"]);
    assert_eq!(server.query("select count(*) from other"), ["0"]);
}

#[test]
fn the_command_in_the_message_applies_files_in_between() {
    let folder = Folder::new().migration("20240102000000_second", "create table second (id int);");
    folder.start().stop();
    folder.put("supabase/migrations/20240101000000_first.sql", "create table first (id int);");
    let refused = folder.run(&["dev"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("`portico migration up --include-all`"), "{}", refused.stderr);
    assert_eq!(folder.run(&["migration", "up", "--include-all"]).code, Some(0));
    assert_eq!(folder.start().query("select count(*) from first"), ["0"]);
}

#[test]
fn a_file_that_was_edited_after_it_was_applied_is_named() {
    let folder = Folder::new().migration("20240101000000_notes", "create table notes (id int);");
    folder.start().stop();
    folder.put("supabase/migrations/20240101000000_notes.sql", "create table notes (id bigint);");
    let warning = "WARN: supabase/migrations/20240101000000_notes.sql was edited after it was applied";
    for arguments in [["migration", "list"], ["migration", "up"]] {
        let finished = folder.run(&arguments);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert!(finished.stderr.contains(warning), "{}", finished.stderr);
    }
    assert!(folder.start().stop().contains(warning));
}
