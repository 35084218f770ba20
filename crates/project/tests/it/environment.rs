//! Environment files and their precedence.

use portico_project::{LoadOptions, Project};

use crate::folder::Folder;

fn port(folder: &Folder, variables: &[(&str, &str)]) -> u16 {
    folder.try_load(variables).unwrap().config().api.port
}

#[test]
fn the_process_precedes_the_nearer_folder_and_the_more_local_file() {
    let folder = Folder::config("[api]\nport = \"env(P)\"\n").write(".env", "P=1\n");
    assert_eq!(port(&folder, &[]), 1);
    let order = [
        (".env.development", 2),
        (".env.local", 3),
        (".env.development.local", 4),
        ("supabase/.env", 5),
        ("supabase/.env.development", 6),
        ("supabase/.env.local", 7),
        ("supabase/.env.development.local", 8),
    ];
    for (file, value) in order {
        folder.put(file, &format!("export P={value} # from {file}\n"));
        assert_eq!(port(&folder, &[]), value, "{file}");
    }
    assert_eq!(port(&folder, &[("P", "9")]), 9);
    // Another stage, and the one that ignores local files
    assert_eq!(port(&folder, &[("SUPABASE_ENV", "production")]), 7);
    assert_eq!(port(&folder, &[("SUPABASE_ENV", "test")]), 5);
}

#[test]
fn a_production_server_reads_no_development_file() {
    let folder = Folder::config("[api]\nport = \"env(P)\"\n").write(".env.development", "P=2\n").write(".env", "P=1\n");
    let load = |variables: &[(&str, &str)]| {
        let options = LoadOptions { stage: "production", ..folder.options(variables) };
        Project::load(options).unwrap().config().api.port
    };
    assert_eq!(load(&[]), 1);
    folder.put("supabase/.env.production", "P=3\n");
    assert_eq!(load(&[]), 3);
    // A setting selects the others
    assert_eq!(load(&[("SUPABASE_ENV", "development")]), 2);
}

#[test]
fn files_can_override_keys_too() {
    let folder = Folder::with(".env", "SUPABASE_API_PORT=7001\n");
    assert_eq!(port(&folder, &[]), 7001);
}

#[test]
fn a_malformed_file_is_named_without_its_content() {
    let folder = Folder::with("supabase/.env", "GOOD=1\nmy-secret=topsecret\n");
    let error = folder.error();
    assert!(error.starts_with("failed to parse environment file: "), "{error}");
    assert!(error.ends_with("supabase/.env (unexpected character '-' in variable name)"), "{error}");
    assert!(!error.contains("topsecret"));
}

#[test]
fn a_stage_cannot_lead_out_of_the_folder() {
    let folder = Folder::with("supabase/.env", "SUPABASE_API_PORT=7002\n");
    assert_eq!(port(&folder, &[("SUPABASE_ENV", "../../../etc/passwd")]), 7002);
}

#[test]
fn debug_output_shows_names_only() {
    let folder = Folder::with(".env", "TOKEN=abc123\n");
    let shown = format!("{:?}", folder.load().environment());
    assert!(shown.contains("TOKEN") && !shown.contains("abc123"), "{shown}");
}
