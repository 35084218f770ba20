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
    assert!(Project::load(options).unwrap_err().to_string().starts_with("failed to open the project folder"));
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
fn files_that_are_too_large_or_no_text_are_refused() {
    let large = Folder::config(&"#".repeat(5 * 1024 * 1024)).error();
    assert!(large.contains("is too large"), "{large}");
    let folder = Folder::config("");
    std::fs::write(folder.path().join("supabase/config.toml"), [0xff, 0xfe, 0x00]).unwrap();
    assert!(folder.error().contains("is not valid UTF-8 text"));
}

#[test]
fn a_byte_order_mark_is_no_content() {
    assert_eq!(Folder::config("\u{feff}[api]\nport = 4001\n").load().config().api.port, 4001);
}
