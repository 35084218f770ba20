//! `portico seed buckets`: makes the running server store the buckets of the project again.

use clap::Args;

use super::folder::{data_folder, say};
use super::global::Global;
use crate::control::{self, ControlRequest};

#[derive(Debug, Args)]
pub(super) struct SeedBucketsOptions {
    /// The local server: the only one there is, so this changes nothing
    #[arg(long)]
    local: bool,
}

pub(super) async fn run(global: &Global, options: SeedBucketsOptions) -> anyhow::Result<()> {
    let SeedBucketsOptions { local: _ } = options;
    control::call(&data_folder(global)?, &ControlRequest::SeedBuckets, say).await?;
    Ok(())
}
