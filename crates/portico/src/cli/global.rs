//! The options of every command.

use std::path::PathBuf;

use clap::Args;

use crate::telemetry::LogFormat;

/// The options of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// The project folder: the one that contains `supabase/` [default: the nearest one upwards]
    #[arg(long, global = true, value_name = "DIR", env = "SUPABASE_WORKDIR")]
    pub(crate) workdir: Option<PathBuf>,
    /// The format of log lines
    #[arg(long, global = true, value_enum, default_value = "auto", env = "PORTICO_LOG_FORMAT")]
    pub(crate) log_format: LogFormat,
}
