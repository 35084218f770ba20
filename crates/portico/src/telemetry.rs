//! Where log lines go and how they look.
//!
//! In a terminal: short lines on standard error. Elsewhere (a service manager, a file): one JSON object per line.
//! `PORTICO_LOG` chooses what is written, in the `tracing` filter syntax (`info`, `portico_auth=debug`), but never a
//! library's details that hold secrets.

use std::io::IsTerminal;

use tracing_subscriber::filter::Directive;
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

/// Libraries whose details hold what statements and requests hold: passwords' hashes, tokens, keys. They are never written,
/// whatever is asked for.
const SECRETIVE: [&str; 4] = ["tokio_postgres=info", "tokio_postgres::query=info", "h2=info", "hyper=info"];

fn discreet(filter: EnvFilter) -> EnvFilter {
    let directives = SECRETIVE.iter().filter_map(|text| text.parse::<Directive>().ok());
    directives.fold(filter, EnvFilter::add_directive)
}

/// Installs the process-wide log writer. `default` applies where `PORTICO_LOG` says nothing.
///
/// A second call changes nothing: tests may start several servers in one process.
pub fn install(format: LogFormat, default: &str) {
    let filter = EnvFilter::try_from_env("PORTICO_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let filter = discreet(filter);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_values_of_statements_are_not_written_whatever_is_asked_for() {
        for asked in ["trace", "info,tokio_postgres=trace", "debug,tokio_postgres::query=debug", "h2=trace,info"] {
            let lines = Lines::default();
            let writer = lines.clone();
            let subscriber =
                fmt().with_env_filter(discreet(EnvFilter::new(asked))).with_writer(move || writer.clone()).finish();
            tracing::subscriber::with_default(subscriber, || {
                tracing::debug!(target: "tokio_postgres::query", "executing statement s1 with parameters: [secret]");
                tracing::trace!(target: "h2::codec", "authorization: secret");
                tracing::info!(target: "portico", "ours");
            });
            let written = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
            assert!(!written.contains("secret") && written.contains("ours"), "{asked}: {written}");
        }
    }
}
