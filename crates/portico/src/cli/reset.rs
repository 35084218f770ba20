//! `portico db reset`: makes the running server drop its database and set it up again.

use clap::Args;

use super::folder::{data_folder, say};
use super::global::Global;
use crate::control::{self, ControlRequest};

#[derive(Debug, Args)]
pub(super) struct ResetOptions {
    /// Stop after this migration
    #[arg(long, value_name = "VERSION", conflicts_with = "last")]
    version: Option<String>,
    /// Leave out the last N migrations
    #[arg(long, value_name = "N", default_value_t = 0)]
    last: usize,
    /// Do not run the seed files
    #[arg(long)]
    no_seed: bool,
    /// The local database: the only one there is, so this changes nothing
    #[arg(long)]
    local: bool,
}

pub(super) async fn run(global: &Global, options: ResetOptions) -> anyhow::Result<()> {
    let ResetOptions { version, last, no_seed, local: _ } = options;
    let data = data_folder(global)?;
    let request = ControlRequest::Reset { version, last, seed: !no_seed };
    control::call(&data, &request, say).await?;
    Ok(())
}
