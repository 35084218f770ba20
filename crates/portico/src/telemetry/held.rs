//! Buffers log lines for each thread.
//!
//! A busy server logs a line for every request, and a write for each would cost more than the line.
//! A thread that announces its idle times ([`write_held`]) holds its lines until then and writes
//! them together. Warnings and errors are written immediately, with the lines before them. A thread
//! that never calls [`write_held`] writes each line immediately.

use std::cell::RefCell;
use std::io::Write as _;
use std::time::{Duration, Instant};

use tracing::Level;

/// The limits of held lines, in bytes and in time, for a thread that is never idle.
const MOST: usize = 8 * 1024;
const LONGEST: Duration = Duration::from_millis(50);

thread_local! {
    /// `None`: the thread does not announce its idle times.
    static HELD: RefCell<Option<HeldLines>> = const { RefCell::new(None) };
}

struct HeldLines {
    lines: Vec<u8>,
    /// The time since which the first of them has been held.
    since: Instant,
}

impl HeldLines {
    fn new() -> Self {
        Self { lines: Vec::with_capacity(MOST), since: Instant::now() }
    }

    /// Adds a line, and writes the lines if they are not to be held any longer.
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
    let is_held = HELD.try_with(|held| match held.try_borrow_mut().as_deref_mut() {
        Ok(Some(held)) => {
            held.add(*level, line, out);
            true
        }
        Ok(None) | Err(_) => false,
    });
    // The thread-local is gone when the thread ends
    if is_held != Ok(true) {
        out(line);
    }
}

/// Writes the lines that the thread holds. Call it whenever the thread is idle. From the first call
/// on the thread holds its lines.
pub fn write_held() {
    let _ = HELD.try_with(|held| {
        if let Ok(mut held) = held.try_borrow_mut() {
            held.get_or_insert_with(HeldLines::new).write_out(out);
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
        let mut held = HeldLines::new();
        let mut writes: Vec<String> = Vec::new();
        let mut add = |held: &mut HeldLines, level, line: &str| {
            // Independent of the speed of the machine
            held.since = Instant::now();
            held.add(level, line.as_bytes(), |lines| writes.push(String::from_utf8_lossy(lines).into_owned()));
            writes.len()
        };
        assert_eq!(add(&mut held, Level::INFO, "one\n"), 0);
        assert_eq!(add(&mut held, Level::DEBUG, "two\n"), 0);
        assert_eq!(add(&mut held, Level::WARN, "three\n"), 1);
        let long = "x".repeat(MOST - 3);
        assert_eq!(add(&mut held, Level::INFO, "four\n"), 1);
        assert_eq!(add(&mut held, Level::INFO, &long), 2);
        assert_eq!(add(&mut held, Level::ERROR, "five\n"), 4);
        assert_eq!(writes, ["one\ntwo\nthree\n", "four\n", &long, "five\n"]);
    }

    #[test]
    fn a_thread_that_is_never_idle_holds_no_line_for_long() {
        let mut held = HeldLines::new();
        let mut written = 0;
        held.add(Level::INFO, b"one\n", |lines| written += lines.len());
        held.since -= 2 * LONGEST;
        held.add(Level::INFO, b"two\n", |lines| written += lines.len());
        assert_eq!(written, 8);
        held.write_out(|_| unreachable!("nothing is left"));
    }
}
