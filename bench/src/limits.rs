//! The limits of the machine.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::client::{Done, End, PATIENCE};
use crate::server::Postgres;

/// The shared part of the scripts of the account service. They include it as psql's scripts do;
/// `pgbench` itself has no `\ir`.
const PARTS: [(&str, &str); 3] = [
    ("\\ir start.sql\n", include_str!("scripts/start.sql")),
    ("\\ir person.sql\n", include_str!("scripts/person.sql")),
    ("\\ir issue.sql\n", include_str!("scripts/issue.sql")),
];

/// Returns the transactions of `pgbench` with `script` as the role of the account service. `run` is
/// a number that no other run has: scripts number their rows with it.
pub async fn pgbench(postgres: &Postgres, script: &str, clients: usize, end: End, run: u64) -> Result<Done> {
    let defines = [("started".to_owned(), "0".to_owned()), ("run".to_owned(), run.to_string())];
    let script = PARTS.iter().fold(script.to_owned(), |script, (line, part)| script.replace(line, part));
    pgbench_as(postgres, "supabase_auth_admin", &script, &defines, clients, end).await
}

/// Returns the transactions of `pgbench` with `script`, prepared, over the server's own socket to
/// PostgreSQL, with variables.
pub async fn pgbench_as(
    postgres: &Postgres,
    role: &str,
    script: &str,
    defines: &[(String, String)],
    clients: usize,
    end: End,
) -> Result<Done> {
    let file = tempfile::Builder::new().suffix(".sql").tempfile()?;
    std::fs::write(file.path(), script)?;
    let mut command = Command::new(pgbench_program()?);
    command.args(["--no-vacuum", "--protocol=prepared"]);
    for (name, value) in defines {
        command.arg(format!("--define={name}={value}"));
    }
    command.arg(format!("--client={clients}")).arg("--jobs=2");
    match end {
        End::After(time) => command.arg(format!("--time={}", time.as_secs().max(1))),
        End::Calls(calls) => command.arg(format!("--transactions={calls}")),
    };
    command.arg("--file").arg(file.path());
    command.arg("--host").arg(&postgres.socket_folder).arg(format!("--port={}", postgres.port));
    command.arg(format!("--username={role}")).arg("postgres").kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.context("pgbench did not end in time")??;
    let text = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || complaints.contains("aborted") {
        bail!("pgbench failed: {complaints}");
    }
    let value = |name: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("{name} in {text}"))?;
        line.split([' ', '/']).next().context("a number")
    };
    let calls = value("number of transactions actually processed: ")?.parse()?;
    Ok(Done { calls, per_second: value("tps = ")?.parse()? })
}

fn pgbench_program() -> Result<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        found.extend(versions.flatten().map(|version| version.path().join("bin/pgbench")));
    }
    found.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    found.extend(std::env::split_paths(&path).map(|folder| folder.join("pgbench")));
    found
        .into_iter()
        .rev()
        .find(|program| program.exists())
        .context("pgbench is missing: scripts/setup bench installs it")
}

/// Returns the password checks per second with bcrypt on `threads` threads and nothing else.
pub fn bcrypt(cost: u32, threads: usize, time: Duration) -> Result<f64> {
    let hash = bcrypt::hash_with_result("correct horse battery", cost)?.format_for_version(bcrypt::Version::TwoA);
    let started = Instant::now();
    let total: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut checks = 0_u64;
                    while started.elapsed() < time {
                        if bcrypt::verify("correct horse battery", &hash).unwrap_or(false) {
                            checks += 1;
                        }
                    }
                    checks
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum()
    });
    Ok(total as f64 / started.elapsed().as_secs_f64())
}
