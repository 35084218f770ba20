//! `portico serve` from an empty folder.

use std::path::Path;

use crate::program::{Program, command, finished, portico};

const README: &str = include_str!("../../../../README.md");

/// Returns the commands of the README's section on production.
fn commands() -> Vec<&'static str> {
    let section = README.split("## Run it in production").nth(1).unwrap();
    let block = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    block.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).collect()
}

/// Runs lines of a shell in a folder, with the program on the path.
fn shell(folder: &Path, script: &str) -> std::process::Command {
    let programs = Path::new(env!("CARGO_BIN_EXE_portico")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut shell = command("/bin/sh", folder);
    shell.args(["-c", script]).env("PATH", path);
    shell
}

#[tokio::test]
async fn the_commands_of_the_readme_work_as_they_are_written() {
    let [export, serve, external] = commands()[..] else { panic!("{:?}", commands()) };
    let folder = tempfile::tempdir().unwrap();
    let program = Program::ready(shell(folder.path(), &format!("{export}\nexec {serve}")));
    assert_eq!(program.row("Web app"), "https://accounts.example.com");
    let exposure = "in the API after a GRANT (no migration yet; else set [api] auto_expose_new_tables)";
    assert_eq!(program.row("New tables"), exposure);
    program.token("/auth/v1/signup", "first@example.com").await;
    // Links lead to the public address, since the project names no other
    let to = "/auth/v1/verify?type=signup&token=none";
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let response = client.get(format!("{}{to}", program.row("Listens on"))).send().await.unwrap();
    let location = response.headers()["location"].to_str().unwrap();
    assert!(location.starts_with("https://accounts.example.com"), "{location}");
    assert!(program.stop().success());

    // The line with the URL of a database, whose address and password are the operator's
    let server = crate::external::system_server(18).await;
    server.administrator().await.batch_execute("create database readme").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    assert!(external.contains("postgresql://…"), "{external}");
    let line = external.replace("postgresql://…", &format!("'{}'", server.superuser_url("readme")));
    let program = Program::ready(shell(folder.path(), &format!("{export}\nexec env {line}")));
    program.token("/auth/v1/signup", "first@example.com").await;
}

const URL: (&str, &str) = ("PORTICO_SERVER_PUBLIC_URL", "https://accounts.example.com");

/// Settings of the environment, arguments, and a part of the message that rejects them.
type Refused = (&'static [(&'static str, &'static str)], &'static [&'static str], &'static str);

#[test]
fn nothing_is_written_before_the_configuration_has_passed() {
    let cases: [Refused; 8] = [
        (&[], &[], "public address is missing"),
        (&[URL], &["--database-url", "nonsense"], "not a PostgreSQL URL"),
        (&[URL, ("SUPABASE_AUTH_SITE_URL", "http://127.0.0.1:3000")], &[], "site_url"),
        (&[URL, ("SUPABASE_AUTH_JWT_SECRET", "much-too-short-secret")], &[], "32 characters"),
        (&[URL, ("PORTICO_SERVER_TRUSTED_PROXIES", "nowhere")], &[], "trusted_proxies"),
        (&[URL, ("SUPABASE_AUTH_EMAIL_ENABLE_CONFIRMATIONS", "true")], &[], "enable_confirmations"),
        (&[URL, ("SUPABASE_AUTH_PASSKEY_ENABLED", "true")], &[], "auth.webauthn"),
        (&[URL, ("PORTICO_SERVER_BIND", "192.0.2.1")], &[], "could not listen"),
    ];
    for (environment, arguments, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let mut serve = portico(folder.path(), &["serve"]);
        serve.args(arguments).envs(environment.iter().copied());
        let (succeeded, printed) = finished(serve);
        assert!(!succeeded && printed.contains(expected), "{expected}: {printed}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{expected}: {printed}");
    }
}
