//! Buffers log lines for each thread.
//!
//! A busy server logs a line for every request, and a write for each would cost more than the line.
//! A thread that announces its idle times ([`flush`]) buffers its lines until then and writes
//! them together. Warnings and errors are written immediately, with the lines before them. A thread
//! that never calls [`flush`] writes each line immediately.

use std::cell::RefCell;
use std::io::Write as _;
use std::time::{Duration, Instant};

use tracing::Level;

/// The limits of buffered lines, in bytes and in time, for a thread that is never idle.
const MOST: usize = 8 * 1024;
const LONGEST: Duration = Duration::from_millis(50);

thread_local! {
    /// `None`: the thread does not announce its idle times.
    static BUFFER: RefCell<Option<BufferedLines>> = const { RefCell::new(None) };
}

struct BufferedLines {
    lines: Vec<u8>,
    /// The time since which the first of them has been buffered.
    since: Instant,
}

impl BufferedLines {
    fn new() -> Self {
        Self { lines: Vec::with_capacity(MOST), since: Instant::now() }
    }

    /// Adds a line, and writes the lines if they are not to be buffered any longer.
    fn add(&mut self, level: Level, line: &[u8], mut out: impl FnMut(&[u8])) {
        if self.lines.len() + line.len() > MOST {
            self.write_out(&mut out);
        }
        if self.lines.is_empty() {
            self.since = Instant::now();
        }
        self.lines.extend_from_slice(line);
        if level <= Level::WARN || self.since.elapsed() > LONGEST {
            self.write_out(out);
        }
    }

    fn write_out(&mut self, mut out: impl FnMut(&[u8])) {
        if !self.lines.is_empty() {
            out(&self.lines);
            self.lines.clear();
            self.lines.shrink_to(MOST);
        }
    }
}

/// Writes a line, now or when the thread is idle.
pub(super) fn write(level: &Level, line: &[u8]) {
    let is_buffered = BUFFER.try_with(|buffered| match buffered.try_borrow_mut().as_deref_mut() {
        Ok(Some(buffered)) => {
            buffered.add(*level, line, out);
            true
        }
        Ok(None) | Err(_) => false,
    });
    // The thread-local is gone when the thread ends
    if is_buffered != Ok(true) {
        out(line);
    }
}

/// Writes the lines that the thread has buffered. Call it whenever the thread is idle. From the
/// first call on the thread buffers its lines.
pub fn flush() {
    let _ = BUFFER.try_with(|buffered| {
        if let Ok(mut buffered) = buffered.try_borrow_mut() {
            buffered.get_or_insert_with(BufferedLines::new).write_out(out);
        }
    });
}

fn out(lines: &[u8]) {
    // An error of standard error cannot be reported anywhere
    let _ = std::io::stderr().lock().write_all(lines);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_held_in_order_and_urgent_lines_are_not() {
        let mut buffered = BufferedLines::new();
        let mut writes: Vec<String> = Vec::new();
        let mut add = |buffered: &mut BufferedLines, level, line: &str| {
            // Independent of the speed of the machine
            buffered.since = Instant::now();
            buffered.add(level, line.as_bytes(), |lines| writes.push(String::from_utf8_lossy(lines).into_owned()));
            writes.len()
        };
        assert_eq!(add(&mut buffered, Level::INFO, "one\n"), 0);
        assert_eq!(add(&mut buffered, Level::DEBUG, "two\n"), 0);
        assert_eq!(add(&mut buffered, Level::WARN, "three\n"), 1);
        let long = "x".repeat(MOST - 3);
        assert_eq!(add(&mut buffered, Level::INFO, "four\n"), 1);
        assert_eq!(add(&mut buffered, Level::INFO, &long), 2);
        assert_eq!(add(&mut buffered, Level::ERROR, "five\n"), 4);
        assert_eq!(writes, ["one\ntwo\nthree\n", "four\n", &long, "five\n"]);
    }

    #[test]
    fn a_thread_that_is_never_idle_holds_no_line_for_long() {
        let mut buffered = BufferedLines::new();
        let mut written = 0;
        buffered.add(Level::INFO, b"one\n", |lines| written += lines.len());
        buffered.since -= 2 * LONGEST;
        buffered.add(Level::INFO, b"two\n", |lines| written += lines.len());
        assert_eq!(written, 8);
        buffered.write_out(|_| unreachable!("nothing is left"));
    }
}
