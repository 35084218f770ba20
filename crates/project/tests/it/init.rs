//! `init` and `migration new`

use portico_project::portico_toml::Settings;

use crate::folder::Folder;

fn notifications(folder: &Folder) -> Option<bool> {
    Settings::load(&folder.load()).unwrap().auth.email.notifications
}

#[test]
fn a_new_project_parses_without_a_warning() {
    let folder = Folder::new();
    let written = portico_project::init(folder.path(), false).unwrap();
    assert!(written.iter().any(|path| path.ends_with("supabase/config.toml")));
    let project = folder.load();
    assert!(project.warnings().is_empty(), "{:?}", project.warnings());
    let plain = Folder::new().load();
    assert_eq!(project.config().auth.site_url, plain.config().auth.site_url);
    assert_eq!(project.config().api.port, plain.config().api.port);
    assert_eq!(project.config().api.auto_expose_new_tables, Some(false));
    assert!(written.iter().any(|path| path.ends_with("supabase/portico.toml")));
    assert_eq!(notifications(&folder), Some(true));
}

#[test]
fn settings_that_only_portico_has_are_kept_even_if_forced() {
    let folder = Folder::with("supabase/portico.toml", "[auth.email]\nnotifications = false\n");
    let written = portico_project::init(folder.path(), true).unwrap();
    assert!(!written.iter().any(|path| path.ends_with("supabase/portico.toml")));
    assert_eq!(notifications(&folder), Some(false));
}

#[test]
fn an_existing_configuration_is_kept_unless_forced() {
    let folder = Folder::config("[api]\nport = 1\n");
    let error = portico_project::init(folder.path(), false).unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
    assert_eq!(folder.load().config().api.port, 1);
    portico_project::init(folder.path(), true).unwrap();
    assert_eq!(folder.load().config().api.port, 54321);
}

#[test]
fn in_a_git_work_tree_the_ignore_file_is_completed() {
    let folder = Folder::with(".git/HEAD", "ref: refs/heads/topic\n").write("supabase/.gitignore", ".temp\nmine");
    portico_project::init(folder.path(), false).unwrap();
    let text = std::fs::read_to_string(folder.path().join("supabase/.gitignore")).unwrap();
    assert!(text.starts_with(".temp\nmine\n"), "{text}");
    assert_eq!(text.matches(".temp\n").count(), 1);
    assert!(text.contains(".env.local\n") && text.contains(".branches\n"));
    assert_eq!(portico_project::current_branch(folder.path()), "topic");
}

#[test]
fn a_new_migration_is_named_by_the_time() {
    let folder = Folder::new();
    let project = folder.load();
    let now = time::macros::datetime!(2026-01-02 03:04:05 UTC);
    let path = portico_project::migrations::create(&project, "add_orders", now, "select 1;\n").unwrap();
    assert_eq!(path.to_string_lossy(), "supabase/migrations/20260102030405_add_orders.sql");
    let listed = portico_project::migrations::list(&project).unwrap().migrations;
    assert_eq!((listed[0].version.as_str(), listed[0].name.as_str()), ("20260102030405", "add_orders"));
    assert!(portico_project::migrations::create(&project, "add_orders", now, "").is_err());
    assert!(portico_project::migrations::create(&project, "../../evil", now, "").is_err());
    assert!(portico_project::migrations::create(&project, " ", now, "").is_err());
}
