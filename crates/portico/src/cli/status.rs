//! `portico status`: the addresses and keys of the running development server, for users and
//! scripts.

use clap::Args;
use portico_project::status::{NameOverride, StatusFormat, StatusValues};

use super::folder::{data_folder, say};
use super::global::Global;
use crate::control::{self, ControlRequest};

#[derive(Debug, Args)]
pub(super) struct StatusOptions {
    /// The format of the values: pretty, env, json, toml or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "pretty", env = "SUPABASE_OUTPUT", value_parser = checked::<StatusFormat>)]
    output: String,
    /// Print a value under another name, as in `api.url=NEXT_PUBLIC_API_URL`
    #[arg(long, value_name = "ID=NAME", value_parser = checked::<NameOverride>)]
    override_name: Vec<String>,
    /// The same as `--output json`
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// Returns the text itself if it can be parsed as a `T`. The server parses it again.
fn checked<T: std::str::FromStr<Err = String>>(text: &str) -> Result<String, String> {
    text.parse::<T>().map(|_| text.to_owned())
}

pub(super) async fn run(global: &Global, options: StatusOptions) -> anyhow::Result<()> {
    let data = data_folder(global)?;
    let format = if options.json { "json".to_owned() } else { options.output };
    let is_pretty = format == "pretty";
    let value = control::call(&data, &ControlRequest::Status { format, names: options.override_name }, say).await?;
    if is_pretty {
        anstream::eprintln!("portico local development setup is running.");
    }
    anstream::print!("{}", value.as_str().unwrap_or_default());
    Ok(())
}

/// Renders the values on the server's side.
pub(super) fn render(values: &StatusValues, format: &str, names: &[String]) -> Result<String, String> {
    let overrides = names.iter().map(|name| name.parse::<NameOverride>()).collect::<Result<Vec<_>, _>>()?;
    Ok(values.render(format.parse()?, &overrides))
}
