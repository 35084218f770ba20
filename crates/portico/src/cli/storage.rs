//! `portico storage gc`: compares the rows of stored objects with their content.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use portico_project::parse_duration;
use portico_storage::GcSummary;

use super::folder;
use super::global::Global;
use crate::control::{self, ControlRequest};

#[derive(Debug, Subcommand)]
pub(super) enum StorageCommand {
    /// Find content without a row and rows without content, on the running server
    Gc(GcArguments),
}

#[derive(Debug, Args)]
pub(super) struct GcArguments {
    /// The data folder of the server [default: that of the running one]
    #[arg(long, value_name = "DIR", env = "PORTICO_DATA")]
    data: Option<PathBuf>,
    /// The age from which content without a row counts, such as 24h or 1h30m
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    grace: std::time::Duration,
    /// Delete the content without a row, and what interrupted uploads have left
    #[arg(long)]
    delete: bool,
    /// Delete the rows without content
    #[arg(long)]
    delete_rows: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn duration(text: &str) -> Result<std::time::Duration, String> {
    parse_duration(text).ok_or_else(|| "expected a duration such as 24h or 1h30m".to_owned())
}

pub(super) async fn run(global: &Global, command: StorageCommand) -> anyhow::Result<()> {
    let StorageCommand::Gc(GcArguments { data, grace, delete, delete_rows, json }) = command;
    let data = match data {
        Some(data) => data,
        None => folder::of_running_server(global).await?,
    };
    let request = ControlRequest::CollectGarbage { grace: grace.as_secs(), delete_content: delete, delete_rows };
    let value = control::call(&data, &request, folder::say).await?;
    if json {
        anstream::println!("{value:#}");
        return Ok(());
    }
    let found: GcSummary = serde_json::from_value(value).context("the server is of another version")?;
    print(&found);
    let advice = advice(&found, delete, delete_rows);
    if !advice.is_empty() {
        anstream::println!("\n{}", advice.join("\n"));
    }
    Ok(())
}

/// Returns what has become of what was found, and what else can be done.
fn advice(found: &GcSummary, delete: bool, delete_rows: bool) -> Vec<&'static str> {
    let mut advice = Vec::new();
    if found.orphans + found.interrupted > 0 {
        advice.push(if delete {
            "The files without an object and the interrupted uploads are deleted."
        } else {
            "The files without an object and the interrupted uploads are left: --delete deletes them."
        });
    }
    if found.young > 0 {
        advice.push(
            "The newer files are left: an upload may be in progress. Restored files are new for the grace period.",
        );
    }
    if found.lost > 0 && !delete_rows {
        advice.push("The objects without content are left: --delete-rows deletes their rows.");
    }
    advice
}

fn print(found: &GcSummary) {
    let rows = [
        ("Objects", found.rows, String::new()),
        ("Files", found.files, size(found.bytes)),
        ("Objects without content", found.lost, String::new()),
        ("Files without an object", found.orphans, size(found.orphan_bytes)),
        ("Newer, without an object", found.young, String::new()),
        ("Interrupted uploads", found.interrupted, String::new()),
        ("Deleted objects", found.deleted_rows, String::new()),
    ];
    for (name, count, size) in rows {
        anstream::println!("{name:<24} {count:>10}  {size}");
    }
    for (title, names) in [("Without content:", &found.lost_objects), ("Without an object:", &found.orphan_paths)] {
        if !names.is_empty() {
            anstream::println!("\n{title}");
            names.iter().for_each(|name| anstream::println!("  {name}"));
        }
    }
}

/// Returns a size for people.
fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB"];
    let step = (1..units.len()).rev().find(|step| bytes >= 1 << (10 * step)).unwrap_or_default();
    let (unit, divisor) = (units[step], 1_u64 << (10 * step));
    if step == 0 {
        format!("{bytes} {unit}")
    } else {
        format!("{}.{} {unit}", bytes / divisor, bytes % divisor * 10 / divisor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (3 << 40, "3072.0 GiB")]
        {
            assert_eq!(size(bytes), text);
        }
    }
}
