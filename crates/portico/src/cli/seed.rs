//! `portico seed buckets`: makes the running server store the buckets of the project again.

use std::path::PathBuf;

use clap::Args;

use super::folder;
use super::global::Global;
use crate::control::{self, ControlRequest};

#[derive(Debug, Args)]
pub(super) struct SeedBucketsOptions {
    /// The local server: the only one there is, so this changes nothing
    #[arg(long)]
    local: bool,
    /// The data folder of the server [default: that of the running one]
    #[arg(long, value_name = "DIR", env = "PORTICO_DATA")]
    data: Option<PathBuf>,
}

pub(super) async fn run(global: &Global, options: SeedBucketsOptions) -> anyhow::Result<()> {
    let SeedBucketsOptions { local: _, data } = options;
    let data = match data {
        Some(data) => data,
        None => folder::of_running_server(global).await?,
    };
    control::call(&data, &ControlRequest::SeedBuckets, folder::say).await?;
    Ok(())
}
