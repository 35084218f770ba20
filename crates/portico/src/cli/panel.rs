//! The start panel: the addresses and keys that a user needs next.

use std::time::Duration;

use anstyle::{AnsiColor, Style};

/// One line of the panel: a label and its value; an empty label is a gap.
pub(super) type PanelRow = (&'static str, String);

/// Prints the panel to standard output, with colours if the terminal supports them.
pub(super) fn print(title: &str, took: Duration, rows: &[PanelRow], ending: &str) {
    let strong = Style::new().bold();
    let quiet = Style::new().dimmed();
    let mark = Style::new().bold().fg_color(Some(AnsiColor::Green.into()));
    let width = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    anstream::println!();
    anstream::println!("  {mark}●{mark:#} {strong}{title}{strong:#} {quiet}in {}{quiet:#}", seconds(took));
    anstream::println!();
    for (label, value) in rows {
        if label.is_empty() {
            anstream::println!();
        } else {
            anstream::println!("  {quiet}{label:width$}{quiet:#}  {value}");
        }
    }
    anstream::println!();
    anstream::println!("  {quiet}{ending}{quiet:#}");
    anstream::println!();
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}
