//! Lines of the log on their way out.
//!
//! A busy server has a line for every request, and a write for each would cost more than the line. So threads that say when they have
//! nothing to do ([`write_held`]) hold their lines until then, and write them together. Warnings and errors are written at once, with
//! everything before them; threads that never say anything write each line at once.

use std::cell::RefCell;
use std::io::Write as _;
use std::time::{Duration, Instant};

use tracing::Level;

/// So many bytes are not held any longer; nor is anything for so long, should a thread never rest.
const MOST: usize = 8 * 1024;
const LONGEST: Duration = Duration::from_millis(50);

thread_local! {
    /// `None`: the thread does not say when it rests.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

struct Held {
    lines: Vec<u8>,
    /// When the first of them was held.
    since: Instant,
}

impl Held {
    fn new() -> Self {
        Self { lines: Vec::with_capacity(MOST), since: Instant::now() }
    }

    /// Takes a line, and hands out what is not to be held any longer.
    fn add(&mut self, level: Level, line: &[u8], mut out: impl FnMut(&[u8])) {
        if self.lines.len() + line.len() > MOST {
            self.hand_out(&mut out);
        }
        if self.lines.is_empty() {
            self.since = Instant::now();
        }
        self.lines.extend_from_slice(line);
        if level <= Level::WARN || self.since.elapsed() > LONGEST {
            self.hand_out(out);
        }
    }

    fn hand_out(&mut self, mut out: impl FnMut(&[u8])) {
        if !self.lines.is_empty() {
            out(&self.lines);
            self.lines.clear();
            self.lines.shrink_to(MOST);
        }
    }
}

/// Writes a line, now or soon.
pub(super) fn write(level: &Level, line: &[u8]) {
    let is_held = HELD.try_with(|held| match held.try_borrow_mut().as_deref_mut() {
        Ok(Some(held)) => {
            held.add(*level, line, out);
            true
        }
        Ok(None) | Err(_) => false,
    });
    // Neither when the thread ends
    if is_held != Ok(true) {
        out(line);
    }
}

/// Writes what the thread holds: to be called whenever it has nothing else to do. From the first call on it holds its lines.
pub fn write_held() {
    let _ = HELD.try_with(|held| {
        if let Ok(mut held) = held.try_borrow_mut() {
            held.get_or_insert_with(Held::new).hand_out(out);
        }
    });
}

fn out(lines: &[u8]) {
    // Nobody is left to be told
    let _ = std::io::stderr().lock().write_all(lines);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_held_in_their_order_and_not_when_they_are_urgent() {
        let mut held = Held::new();
        let mut writes: Vec<String> = Vec::new();
        let mut add = |held: &mut Held, level, line: &str| {
            // However slow the machine is just now
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
    fn a_thread_that_never_rests_holds_nothing_for_long() {
        let mut held = Held::new();
        let mut written = 0;
        held.add(Level::INFO, b"one\n", |lines| written += lines.len());
        held.since -= 2 * LONGEST;
        held.add(Level::INFO, b"two\n", |lines| written += lines.len());
        assert_eq!(written, 8);
        held.hand_out(|_| unreachable!("nothing is left"));
    }
}
