//! Where log lines go and how they look.
//!
//! In a terminal: short lines on standard error. Elsewhere (a service manager, a file): one JSON object per line.
//! `PORTICO_LOG` chooses what is written, in the `tracing` filter syntax (`info`, `portico_auth=debug`).

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt};

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text in a terminal, JSON elsewhere.
    Auto,
    /// Short lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Installs the process-wide log writer. `default` applies where `PORTICO_LOG` says nothing.
///
/// A second call changes nothing: tests may start several servers in one process.
pub fn install(format: LogFormat, default: &str) {
    let filter = EnvFilter::try_from_env("PORTICO_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let terminal = std::io::stderr().is_terminal();
    let json = match format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let layer = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal);
    // An error means that a subscriber is there already, which then stays.
    let _ =
        if json { layer.json().flatten_event(true).try_init() } else { layer.compact().with_target(false).try_init() };
}
