//! Messages of the command line.

use super::project_folder::Folder;

#[test]
fn an_unavailable_supabase_command_names_its_replacement() {
    let folder = Folder::new();
    for (arguments, expected) in [
        (&["start"][..], "error: `portico start` does not exist: `portico dev` starts the server\n"),
        (&["db", "push", "--linked"], "error: `portico db push` does not exist: `portico migration up --db-url URL`"),
        (&["migration", "squash"], "error: `portico migration squash` does not exist: not here yet; pg_dump"),
        (&["functions", "serve"], "error: `portico functions` does not exist: edge functions are not served yet"),
        (
            &["gen", "types", "typescript", "--local"],
            "error: `portico gen` does not exist: not here yet; `portico status -o env`",
        ),
        (&["sso", "list"], "error: `portico sso` does not exist: SAML is not supported"),
        (&["network-bans", "get"], "error: `portico network-bans` does not exist: the firewall of the machine"),
        (&["test", "db"], "error: `portico test` does not exist: run the files with psql"),
    ] {
        let finished = folder.run(arguments);
        assert_eq!(finished.code, Some(2), "{arguments:?}");
        assert!(finished.stderr.starts_with(expected), "{}", finished.stderr);
    }
    // A misspelled one
    let finished = folder.run(&["statsu"]);
    assert!(
        finished.stderr.contains("unrecognized subcommand 'statsu'") && finished.stderr.contains("status"),
        "{finished:?}"
    );
}

#[test]
fn an_error_names_a_missing_project_folder() {
    let folder = Folder::new();
    let missing = folder.path().join("missing");
    for command in ["dev", "status", "init", "stop"] {
        let finished = folder.run(&[command, "--workdir", missing.to_str().unwrap()]);
        let expected = format!(
            "error: the project folder {} does not exist: correct --workdir or SUPABASE_WORKDIR\n",
            missing.display()
        );
        assert_eq!((finished.code, finished.stderr), (Some(1), expected), "{command}");
        assert!(!missing.exists());
    }
}

#[test]
fn init_writes_whether_new_tables_are_exposed() {
    let folder = Folder::new();
    assert_eq!(folder.run(&["init", "--force"]).code, Some(0));
    let config = std::fs::read_to_string(folder.path().join("supabase/config.toml")).unwrap();
    assert!(config.contains("\nauto_expose_new_tables = false\n"), "{config}");
}

#[test]
fn a_failing_statement_is_one_error_with_its_position() {
    let folder =
        Folder::new().migration("20240101000000_wrong", "create table t (id int);\n\nselect * from nothing;\n");
    let finished = folder.run(&["dev"]);
    assert_eq!(finished.code, Some(1));
    let errors: Vec<&str> = finished.stderr.lines().filter(|line| line.to_lowercase().contains("error:")).collect();
    assert_eq!(errors, ["ERROR: relation \"nothing\" does not exist (SQLSTATE 42P01)"], "{}", finished.stderr);
    assert!(
        finished.stderr.contains("\nIn supabase/migrations/20240101000000_wrong.sql, line 3\n"),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_missing_extension_is_one_error_with_advice() {
    let folder = Folder::new().migration("20240101000000_maps", "select 1;\ncreate extension postgis;\n");
    let finished = folder.run(&["dev"]);
    assert_eq!(finished.code, Some(1));
    for expected in [
        "ERROR: extension \"postgis\" is not available (SQLSTATE 0A000)\n",
        "does not have the extension postgis: the package postgresql-",
        "To go on without it, remove the statement",
        "\nIn supabase/migrations/20240101000000_maps.sql, line 2\n",
    ] {
        assert!(finished.stderr.contains(expected), "{}", finished.stderr);
    }
    for unwanted in ["DETAIL", "control file", "CONTEXT", "portico.run"] {
        assert!(!finished.stderr.contains(unwanted), "{}", finished.stderr);
    }
}

#[test]
fn warnings_are_the_same_through_a_pipe_and_name_unknown_keys() {
    let folder = Folder::new();
    folder.configure(
        "[auth.external.myspace]\nenabled = true\nclient_id = \"x\"\nsecret = \"y\"\n[auth.oauth_server]\nenabled = true\n",
    );
    let server = folder.start();
    let printed = server.stop();
    let warnings: Vec<&str> = printed.lines().filter(|line| line.contains("has no effect")).collect();
    assert_eq!(warnings.len(), 2, "{printed}");
    assert_eq!(warnings[0], "WARN: [auth.oauth_server] has no effect yet");
    assert!(
        warnings[1]
            .starts_with("WARN: [auth.external.myspace] has no effect: there is no provider myspace. Known are ")
            && warnings[1].contains("github"),
        "{printed}"
    );
    assert!(!printed.contains("{\""), "{printed}");
}
