//! Messages of the command line.

use portico_database::cluster::{Cluster, ClusterSettings};

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
            "error: `portico gen types` does not exist: not here yet; `portico status -o env`",
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
fn a_signing_key_is_printed_or_written_to_the_configured_file() {
    let folder = Folder::new();
    let printed = folder.run(&["gen", "signing-key", "--algorithm", "es256"]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let key: serde_json::Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!((&key["kty"], &key["alg"], &key["use"]), (&"EC".into(), &"ES256".into(), &"sig".into()));
    assert_eq!((&key["key_ops"], &key["ext"]), (&serde_json::json!(["sign", "verify"]), &true.into()));
    assert_eq!(key["kid"].as_str().unwrap().len(), 36);
    assert!(printed.stderr.contains("signing_keys_path"), "{}", printed.stderr);

    folder.configure("[auth]\nsigning_keys_path = \"./signing_keys.json\"\n");
    let path = folder.path().join("supabase/signing_keys.json");
    let keys = || -> Vec<serde_json::Value> { serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap() };
    let written = folder.run(&["gen", "signing-key"]);
    assert_eq!((written.code, written.stdout.as_str()), (Some(0), ""), "{written:?}");
    let first = keys();
    assert_eq!(first.len(), 1);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
    assert_eq!(mode & 0o777, 0o600);

    let refused = folder.run(&["gen", "signing-key"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("--append") && refused.stderr.contains("--yes"), "{}", refused.stderr);
    assert_eq!(keys(), first);
    assert_eq!(folder.run(&["gen", "signing-key", "--append", "--algorithm", "RS256"]).code, Some(0));
    let both = keys();
    assert_eq!((both.len(), &both[0]), (2, &first[0]));
    assert_eq!((&both[1]["kty"], &both[1]["key_ops"]), (&"RSA".into(), &serde_json::json!(["verify"])));
    assert_eq!(folder.run(&["gen", "bearer-jwt", "--role", "anon"]).code, Some(0), "the file can be used");
    assert_eq!(folder.run(&["gen", "signing-key", "--yes"]).code, Some(0));
    assert_eq!(keys().len(), 1);
}

#[test]
fn a_token_of_a_role_is_printed_alone() {
    let folder = Folder::new();
    let sub = "6a6f6f88-1d3b-4b1c-9f3a-6b1f4c2f0001";
    let arguments = ["--sub", sub, "--valid-for", "24h", "--payload", r#"{"tenant":"acme"}"#];
    let printed = folder.run(&[&["gen", "bearer-jwt", "--role", "authenticated"][..], &arguments].concat());
    assert_eq!((printed.code, printed.stderr.as_str()), (Some(0), ""), "{printed:?}");
    let token = printed.stdout.strip_suffix('\n').unwrap();
    let now = portico_base::Clock::system().now();
    let ring = portico::compose::keys::development().unwrap().ring;
    let claims = ring.verify(token, now).unwrap();
    assert_eq!((claims.role(), claims.values()["sub"].as_str()), (Some("authenticated"), Some(sub)));
    assert_eq!(claims.values()["tenant"], "acme");
    assert!(ring.verify(token, now + time::Duration::hours(23)).is_ok());
    assert!(ring.verify(token, now + time::Duration::hours(25)).is_err());
    for wrong in [
        &["--role", "anon", "--sub", "ada"][..],
        &["--role", "anon", "--valid-for", "0"],
        &["--role", "anon", "--exp", "tomorrow"],
        &["--role", "anon", "--exp", "2030-01-01T00:00:00Z", "--valid-for", "1h"],
        &["--role", "anon", "--payload", "[]"],
        &[],
    ] {
        let refused = folder.run(&[&["gen", "bearer-jwt"][..], wrong].concat());
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{wrong:?}");
    }
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

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_an_earlier_version_is_brought_up_to_date_before_its_accounts_are_managed() {
    let folder = Folder::new();
    folder.start().stop();
    let start = async || Cluster::start(ClusterSettings::new(folder.path().join(".portico/postgres"))).await.unwrap();
    let cluster = start().await;
    let client = portico_database::connect(&cluster.endpoint()).await.unwrap();
    let earlier = "drop table portico.recovery_codes, portico.totp_steps;
        delete from portico.schema_migrations where name = '0008_factors';
        update portico.bootstrap set fingerprint = 'earlier'";
    client.batch_execute(earlier).await.unwrap();
    drop(client);
    cluster.stop().await;

    let added = folder.run(&["user", "add", "ada@example.com", "--no-password"]);
    assert_eq!(added.code, Some(0), "{added:?}");

    let cluster = start().await;
    let client = portico_database::connect(&cluster.endpoint()).await.unwrap();
    let found = "select to_regclass('portico.recovery_codes') is not null, (select count(*) from auth.users)";
    let row = client.query_one(found, &[]).await.unwrap();
    assert_eq!((row.get::<_, bool>(0), row.get::<_, i64>(1)), (true, 1));
    drop(client);
    cluster.stop().await;
}
