//! What the machine can do at best.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

/// Transactions per second that `pgbench` reaches with `script`, prepared, on the database at `url`.
pub async fn pgbench(url: &str, script: &str, connections: usize, time: Duration) -> Result<f64> {
    let file = tempfile::Builder::new().suffix(".sql").tempfile()?;
    std::fs::write(file.path(), script)?;
    let output = Command::new(pgbench_program()?)
        .args(["--no-vacuum", "--protocol=prepared", "--jobs=2"])
        .arg(format!("--client={connections}"))
        .arg(format!("--time={}", time.as_secs().max(1)))
        .arg("--file")
        .arg(file.path())
        .arg(url)
        .output()
        .await?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("pgbench failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let line = text.lines().find(|line| line.starts_with("tps = ")).context("pgbench's result")?;
    Ok(line.trim_start_matches("tps = ").split(' ').next().context("a number")?.parse()?)
}

fn pgbench_program() -> Result<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        found.extend(versions.flatten().map(|version| version.path().join("bin/pgbench")));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    found.extend(std::env::split_paths(&path).map(|folder| folder.join("pgbench")));
    found.into_iter().rev().find(|program| program.exists()).context("pgbench is missing: apt-get install postgresql")
}

/// Password checks per second with bcrypt on `threads` threads and nothing else.
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
