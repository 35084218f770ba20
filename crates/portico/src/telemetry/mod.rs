//! The log: its destination and its format.
//!
//! In a terminal, and for all commands but `serve`: short lines on standard error, coloured under
//! the same conditions as other output (`NO_COLOR`, `CLICOLOR_FORCE`). Elsewhere (a service
//! manager, a file): one JSON object per line. `PORTICO_LOG` chooses what is written, in the
//! `tracing` filter syntax (`info`, `portico_auth=debug`), but never the details of a library that
//! contain secrets.
//!
//! Every line that is logged on behalf of a request carries the id of the request.

mod buffered_lines;
mod line;

use std::io::IsTerminal;

use anstream::{AutoStream, ColorChoice};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Directive;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry};

use line::LineFormat;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text in a terminal, and for all commands but `serve`; JSON elsewhere.
    Auto,
    /// Short lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Libraries whose details contain those of statements and requests: password hashes, tokens, keys.
/// They are never written, whatever the filter says. Notices of the database are logged where the
/// statements run.
const SECRET_DETAILS: [&str; 5] =
    ["tokio_postgres=info", "tokio_postgres::query=info", "tokio_postgres::connection=warn", "h2=info", "hyper=info"];

/// Libraries that warn of normal events: a pool that finds a connection closed opens another one.
const NEEDLESS_WARNINGS: [&str; 1] = ["deadpool=error"];

fn without_secrets(filter: EnvFilter) -> EnvFilter {
    let directives = SECRET_DETAILS.iter().chain(&NEEDLESS_WARNINGS).filter_map(|text| text.parse::<Directive>().ok());
    directives.fold(filter, EnvFilter::add_directive)
}

/// Installs the log writer of the process. `default` is the filter if `PORTICO_LOG` is not set.
///
/// A second call changes nothing: tests may start several servers in one process.
pub fn install(format: LogFormat, default: &str) {
    let filter = EnvFilter::try_from_env("PORTICO_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let filter = without_secrets(filter);
    let stderr = std::io::stderr();
    let style = match format {
        LogFormat::Auto if !stderr.is_terminal() => LineFormat::Json,
        LogFormat::Json => LineFormat::Json,
        // The same decision as for all other output
        LogFormat::Auto | LogFormat::Text => {
            LineFormat::Text { colours: AutoStream::choice(&stderr) != ColorChoice::Never }
        }
    };
    let log = Log { style, write: buffered_lines::write };
    // An error means that a subscriber is installed already; it is kept
    let _ = Registry::default().with(filter).with(log).try_init();
}

pub use buffered_lines::flush;

/// A layer that writes each event as one line.
struct Log<W> {
    style: LineFormat,
    write: W,
}

impl<S: Subscriber, W: Fn(&Level, &[u8]) + 'static> Layer<S> for Log<W> {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        line::with(self.style, event, |line| (self.write)(event.metadata().level(), line));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::{Arc, Mutex};

    use super::*;

    type Lines = Arc<Mutex<Vec<u8>>>;

    fn written(style: LineFormat, filter: EnvFilter, events: impl FnOnce()) -> String {
        let lines = Lines::default();
        let log = {
            let lines = lines.clone();
            Log { style, write: move |_: &Level, line: &[u8]| lines.lock().unwrap().extend_from_slice(line) }
        };
        tracing::subscriber::with_default(Registry::default().with(filter).with(log), events);
        String::from_utf8(lines.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn the_values_of_statements_are_not_written_whatever_is_asked_for() {
        for asked in ["trace", "info,tokio_postgres=trace", "debug,tokio_postgres::query=debug", "h2=trace,info"] {
            let written = written(LineFormat::Json, without_secrets(EnvFilter::new(asked)), || {
                tracing::debug!(target: "tokio_postgres::query", "executing statement s1 with parameters: [secret]");
                tracing::trace!(target: "h2::codec", "authorization: secret");
                tracing::warn!(target: "deadpool.postgres", "secretly, a connection was closed");
                tracing::info!(target: "portico", "ours");
            });
            assert!(!written.contains("secret") && written.contains("ours"), "{asked}: {written}");
        }
    }

    #[test]
    fn a_line_is_one_object_or_one_line_of_text_whatever_its_values() {
        let events = || {
            let error = std::io::Error::other("two\nlines \"quoted\" \u{1b}[31m\u{202e}\u{2028}é");
            tracing::warn!(target: "a::b", %error, count = 3_u64, good = true, ratio = 0.5, nan = f64::NAN, "It\nhappened");
        };
        let json = written(LineFormat::Json, EnvFilter::new("info"), events);
        assert_eq!(json.matches('\n').count(), 1, "{json}");
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&value["level"], &value["target"], &value["message"], &value["error"]),
            (
                &"WARN".into(),
                &"a::b".into(),
                &"It\nhappened".into(),
                &"two\nlines \"quoted\" \u{1b}[31m\u{202e}\u{2028}é".into()
            )
        );
        assert_eq!((&value["count"], &value["good"], &value["ratio"]), (&3.into(), &true.into(), &0.5.into()));
        assert!(value["nan"].is_null(), "{json}");
        time::OffsetDateTime::parse(
            value["timestamp"].as_str().unwrap(),
            &time::format_description::well_known::Rfc3339,
        )
        .unwrap();

        let text = written(LineFormat::Text { colours: false }, EnvFilter::new("info"), events);
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(text.contains(" WARN It\\nhappened error=two\\nlines \"quoted\""), "{text}");
        assert!(text.contains(" count=3 good=true ratio=0.5"), "{text}");
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{2028}']), "{text}");
        assert!(text.contains("[31m\\u202e\\u2028é"), "{text}");
    }
}
