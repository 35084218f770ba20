//! Finding the project.

use portico_project::Project;

use crate::folder::Folder;

#[test]
fn the_nearest_folder_above_with_a_configuration_is_the_root() {
    let folder = Folder::config("[api]\nport = 4000\n").write("apps/web/package.json", "{}");
    let mut options = folder.options(&[]);
    options.current_dir = Some(folder.path().join("apps/web"));
    let project = Project::load(options).unwrap();
    assert_eq!(project.root(), folder.path().canonicalize().unwrap());
    assert_eq!(project.config().api.port, 4000);
}

#[test]
fn a_named_folder_is_not_searched_upwards() {
    let folder = Folder::config("[api]\nport = 4000\n").write("apps/web/package.json", "{}");
    let mut options = folder.options(&[("SUPABASE_WORKDIR", "apps")]);
    assert_eq!(Project::load(options.clone()).unwrap().config().api.port, 54321);
    options.workdir = Some("apps/web".into());
    let project = Project::load(options.clone()).unwrap();
    assert_eq!(project.root(), folder.path().join("apps/web").canonicalize().unwrap());
    options.workdir = Some("nowhere".into());
    let nowhere = folder.path().join("nowhere");
    assert_eq!(
        Project::load(options).unwrap_err().to_string(),
        format!("the project folder {} does not exist: correct --workdir or SUPABASE_WORKDIR", nowhere.display())
    );
}

#[test]
fn the_folder_names_the_project() {
    let folder = Folder::with("my shop!/readme", "");
    let mut options = folder.options(&[]);
    options.workdir = Some("my shop!".into());
    assert_eq!(Project::load(options).unwrap().config().project_id, "my_shop_");
    let project = Folder::config("project_id = \"-a b\"\n").load();
    assert_eq!(project.config().project_id, "a_b");
    let warning = project.warnings()[0].to_string();
    assert!(warning.ends_with("project_id field in config is invalid. Auto-fixing to a_b"), "{warning}");
}

#[test]
fn a_file_that_is_too_large_or_not_text_is_rejected() {
    let large = Folder::config(&"#".repeat(5 * 1024 * 1024)).error();
    assert!(large.contains("is too large"), "{large}");
    let folder = Folder::config("");
    std::fs::write(folder.path().join("supabase/config.toml"), [0xff, 0xfe, 0x00]).unwrap();
    assert!(folder.error().contains("is not valid UTF-8 text"));
}

#[test]
fn a_byte_order_mark_is_ignored() {
    assert_eq!(Folder::config("\u{feff}[api]\nport = 4001\n").load().config().api.port, 4001);
}

#[test]
fn the_setting_or_the_age_of_the_project_decides_whether_new_tables_are_exposed() {
    let setting = |value: &str| Folder::config(&format!("[api]\nauto_expose_new_tables = {value}\n"));
    let first = |version: &str| {
        Folder::with(&format!("supabase/migrations/{version}_first.sql"), "")
            .write("supabase/migrations/99990101000000_last.sql", "")
    };
    for (folder, of_new_tables, text) in [
        (setting("true"), true, "in the API at once ([api] auto_expose_new_tables is true)"),
        (
            setting("false").write("supabase/migrations/20240101000000_first.sql", ""),
            false,
            "in the API after a GRANT ([api] auto_expose_new_tables is false)",
        ),
        (Folder::new(), false, "in the API after a GRANT (no migration yet; else set [api] auto_expose_new_tables)"),
        (
            first("20260529235959"),
            true,
            "in the API at once (20260529235959_first.sql is from before 2026-05-30; else set [api] auto_expose_new_tables)",
        ),
        (
            first("20260530000000"),
            false,
            "in the API after a GRANT (20260530000000_first.sql is not from before 2026-05-30; else set [api] auto_expose_new_tables)",
        ),
        (
            first("0001"),
            true,
            "in the API at once (0001_first.sql is from before 2026-05-30; else set [api] auto_expose_new_tables)",
        ),
    ] {
        let exposure = portico_project::Exposure::of(&folder.load()).unwrap();
        assert_eq!((exposure.of_new_tables, exposure.to_string().as_str()), (of_new_tables, text));
    }
}

#[test]
fn a_project_that_is_loaded_again_has_the_present_files_and_the_same_variables() {
    let folder = Folder::config("[storage.buckets.one]\n");
    let project = folder.try_load(&[("SUPABASE_API_PORT", "4000")]).unwrap();
    folder.put("supabase/config.toml", "[storage.buckets.one]\n[storage.buckets.two]\npublic = true\n");
    let again = project.reload().unwrap();
    assert_eq!((again.config().storage.buckets.len(), again.config().api.port), (2, 4000));
    assert_eq!((project.config().storage.buckets.len(), project.root()), (1, again.root()));
    folder.put("supabase/config.toml", "[storage");
    assert!(project.reload().is_err());
}
