//! Forwards PostgreSQL's log to ours, line by line.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

/// Lines kept for the message when PostgreSQL does not start.
const KEPT: usize = 20;
/// The longest line taken whole; the rest of a longer one is another line.
const LONGEST: u64 = 8 << 10;

/// The last lines of the log.
#[derive(Debug, Clone, Default)]
pub(super) struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    fn push(&self, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    }

    /// Returns the lines as one text.
    pub fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// Reads until every process of PostgreSQL has closed its end. Runs in a thread of its own, so that
/// PostgreSQL never waits for a reader.
pub(super) fn forward(stream: impl Read, last: &LastLines) {
    let mut reader = BufReader::new(stream);
    let mut level = ServerLogLevel::Info;
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if text.is_empty() {
            continue;
        }
        last.push(text);
        level = ServerLogLevel::of(text).unwrap_or(level);
        match level {
            ServerLogLevel::Info => tracing::info!(target: "postgres", "{text}"),
            ServerLogLevel::Warning => tracing::warn!(target: "postgres", "{text}"),
            ServerLogLevel::Error => tracing::error!(target: "postgres", "{text}"),
            ServerLogLevel::Detail => tracing::debug!(target: "postgres", "{text}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerLogLevel {
    Detail,
    Info,
    Warning,
    Error,
}

impl ServerLogLevel {
    /// Returns the level that a line names. Lines without one (`DETAIL`, `HINT`, further lines of a
    /// message) belong to the line before.
    ///
    /// An `ERROR` is the failure of a statement and a `FATAL` the end of a session: the client of
    /// either gets it as its answer. A `LOG` is routine, unless it reports a crash.
    fn of(line: &str) -> Option<Self> {
        let (word, text) = line.split_once(":  ")?;
        Some(match word {
            "PANIC" => Self::Error,
            "WARNING" => Self::Warning,
            "LOG" if CRASH.iter().any(|sign| text.contains(sign)) => Self::Warning,
            "INFO" | "NOTICE" => Self::Info,
            "FATAL" | "LOG" | "ERROR" | "DEBUG1" | "DEBUG2" | "DEBUG3" | "DEBUG4" | "DEBUG5" => Self::Detail,
            _ => return None,
        })
    }
}

/// The texts in a `LOG` line that indicate a crash.
const CRASH: &[&str] = &[
    "was terminated by",
    "all server processes terminated",
    "not properly shut down",
    "No space left on device",
    "corrupt",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_belong_to_the_level_that_was_named_last() {
        assert_eq!(
            ServerLogLevel::of("LOG:  server process (PID 1) was terminated by signal 9: Killed"),
            Some(ServerLogLevel::Warning)
        );
        assert_eq!(ServerLogLevel::of("LOG:  starting PostgreSQL"), Some(ServerLogLevel::Detail));
        assert_eq!(ServerLogLevel::of("DETAIL:  more of it"), None);
        assert_eq!(ServerLogLevel::of("a second line"), None);
    }

    #[test]
    fn the_last_lines_are_kept_and_long_ones_are_cut() {
        let last = LastLines::default();
        let mut log: Vec<u8> = (0..30).flat_map(|number| format!("LOG:  {number}\n").into_bytes()).collect();
        log.extend(vec![b'x'; 20 << 10]);
        forward(&log[..], &last);
        let text = last.text();
        assert_eq!(text.lines().count(), KEPT);
        assert!(text.lines().all(|line| line.len() <= 8 << 10));
        assert!(text.starts_with("LOG:  13\n"), "{text}");
    }
}
