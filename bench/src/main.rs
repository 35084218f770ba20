//! `make bench`: measures Portico as a ratio to the limit of this machine, in the same run.
//!
//! A limit is the same work without Portico: the same statements by `pgbench` on the same
//! PostgreSQL, the same password hash on the same cores. Each measurement runs limit and subject in
//! turns, several rounds, and reports the median of the ratios, so a machine that slows down for a
//! while spoils one round and not the result.
//!
//! With `--practice` nothing is compared: the subject runs once, for a profiler that observes it
//! (`scripts/release`).
//!
//! `realtime-soak` measures nothing: it runs the realtime service for ten minutes (`--minutes=N`)
//! and prints its memory. It is no part of a run without arguments.
//!
//! Arguments choose parts: `starts`, `accounts`, `enumeration`, `schema-cache`, `tokens`, `images`,
//! `data`, `storage`, `realtime`, or a part of the last three: see [`DATA`], [`STORAGE`] and
//! [`REALTIME`].

#![allow(clippy::print_stdout, reason = "a command line tool speaks by printing")]
#![allow(clippy::disallowed_methods, reason = "it serves no requests, whose ids its threads would have to keep")]

mod accounts;
mod client;
mod data;
mod enumeration;
mod images;
mod limits;
mod people;
mod processor;
mod realtime;
mod report;
mod rounds;
mod schema_cache;
mod server;
mod starts;
mod storage;
mod tokens;

use anyhow::Result;

/// The parts of `storage`.
const STORAGE: [&str; 4] = ["storage-download", "storage-upload", "storage-list", "storage-memory"];
/// The parts of `realtime`.
const REALTIME: [&str; 6] = [
    "realtime-idle",
    "realtime-reconnects",
    "realtime-fanout",
    "realtime-changes",
    "realtime-database",
    "realtime-joins",
];
/// The parts of `data`.
const DATA: [&str; 5] = ["data-row", "data-lists", "data-insert", "data-large", "data-idle"];

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<()> {
    let (options, only): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|text| text.starts_with("--"));
    match options.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["--practice"] => rounds::only_practise(),
        [option] if only == ["realtime-soak"] && option.starts_with("--minutes=") => {
            return realtime::soak(option["--minutes=".len()..].parse()?).await;
        }
        _ => anyhow::bail!("{options:?}: there is --practice and, for realtime-soak, --minutes=N"),
    }
    if only.iter().any(|name| name == "realtime-soak") {
        return realtime::soak(10).await;
    }
    let wanted = |part: &str| only.is_empty() || only.iter().any(|name| name == part);
    let mut report = report::Report::default();
    if wanted("starts") {
        starts::measure(&mut report).await?;
    }
    if wanted("accounts") {
        accounts::measure(&mut report).await?;
    }
    if wanted("enumeration") {
        enumeration::measure(&mut report).await?;
    }
    if wanted("schema-cache") {
        schema_cache::measure(&mut report).await?;
    }
    if wanted("tokens") {
        tokens::measure(&mut report)?;
    }
    if wanted("images") {
        images::measure(&mut report).await?;
    }
    let of_data = |part: &str| wanted("data") || wanted(part);
    if DATA.iter().any(|part| of_data(part)) {
        data::measure(&mut report, of_data).await?;
    }
    let of_storage = |part: &str| wanted("storage") || wanted(part);
    if STORAGE.iter().any(|part| of_storage(part)) {
        storage::measure(&mut report, of_storage).await?;
    }
    let of_realtime = |part: &str| wanted("realtime") || wanted(part);
    if REALTIME.iter().any(|part| of_realtime(part)) {
        realtime::measure(&mut report, of_realtime).await?;
    }
    if !rounds::practises() {
        println!("{}", report.render());
    }
    Ok(())
}
