//! `portico status`: addresses and keys of the running development server, for people and for scripts.

use clap::Args;
use portico_project::status::{Format, Overrides, StatusValues};

use super::Global;
use super::folder::data_folder;
use crate::control::{self, Request};

#[derive(Debug, Args)]
pub(super) struct Options {
    /// How to print the values
    #[arg(short, long, value_name = "FORMAT", default_value = "pretty", env = "SUPABASE_OUTPUT")]
    output: Format,
    /// Print a value under another name, as in `api.url=NEXT_PUBLIC_API_URL`
    #[arg(long, value_name = "ID=NAME")]
    override_name: Vec<String>,
    /// The same as `--output json`
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

pub(super) async fn run(global: &Global, options: Options) -> anyhow::Result<()> {
    let overrides = Overrides::parse(&options.override_name)?;
    let data = data_folder(global)?;
    let value = control::call(&data, &Request::Status, |_| {}).await?;
    let values: StatusValues = serde_json::from_value(value)?;
    let format = if options.json { Format::Json } else { options.output };
    if format == Format::Pretty {
        anstream::eprintln!("portico local development setup is running.");
    }
    anstream::print!("{}", values.render(format, &overrides));
    Ok(())
}
