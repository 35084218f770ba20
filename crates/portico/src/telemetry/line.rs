//! Formats an event as one line.
//!
//! The access log has a line for every request, so a line is formatted in a buffer that the thread
//! reuses, without intermediate strings.

use std::cell::RefCell;
use std::fmt::{self, Write};

use portico_base::{Clock, with_current_request};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// The format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFormat {
    /// Text: time, level, message, `name=value`.
    Text { colours: bool },
    /// A JSON object.
    Json,
}

thread_local! {
    static BUFFER: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The largest buffer, in bytes, that is kept for the next line.
const KEPT: usize = 16 * 1024;

/// Formats the line of an event, including the line end, and calls `write` with it.
pub(super) fn with(style: LineFormat, event: &Event<'_>, write: impl FnOnce(&[u8])) {
    BUFFER.with(|buffer| match buffer.try_borrow_mut() {
        Ok(mut line) => {
            line.clear();
            // Writing to a String does not fail
            let _ = make(style, event, &mut line);
            write(line.as_bytes());
            if line.capacity() > KEPT {
                *line = String::new();
            }
        }
        // The formatting of a value logged an event itself
        Err(_) => {
            let mut line = String::new();
            let _ = make(style, event, &mut line);
            write(line.as_bytes());
        }
    });
}

fn make(style: LineFormat, event: &Event<'_>, line: &mut String) -> fmt::Result {
    let metadata = event.metadata();
    let mut origin = LogTarget::default();
    if metadata.target() == "log" {
        event.record(&mut origin);
    }
    let target = origin.target.as_deref().unwrap_or(metadata.target());
    match style {
        LineFormat::Json => {
            line.push_str("{\"timestamp\":\"");
            put_time(line)?;
            write!(line, "\",\"level\":\"{}\",\"target\":", metadata.level())?;
            put_json(line, target);
            let mut fields = JsonLineFields { line };
            event.record(&mut fields);
            if !event.fields().any(|field| field.name() == "id") {
                with_current_request(|request| {
                    line.push_str(",\"id\":");
                    put_json(line, request.id.as_str());
                    line.push_str(",\"method\":");
                    put_json(line, &request.method);
                });
            }
            line.push('}');
        }
        LineFormat::Text { colours } => {
            let (dim, level, plain) =
                if colours { ("\x1b[2m", colour(*metadata.level()), "\x1b[0m") } else { ("", "", "") };
            line.push_str(dim);
            put_time(line)?;
            write!(line, "{plain} {level}{:>5}{plain} ", metadata.level().as_str())?;
            let start = line.len();
            event.record(&mut TextFields { line, start });
            if !event.fields().any(|field| field.name() == "id") {
                with_current_request(|request| write!(line, " id={} method={}", request.id, request.method));
            }
        }
    }
    line.push('\n');
    Ok(())
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG => "\x1b[34m",
        Level::TRACE => "\x1b[35m",
    }
}

/// Appends the time now in the format of RFC 3339, in UTC, to the microsecond.
fn put_time(line: &mut String) -> fmt::Result {
    let now = Clock::system().now();
    let ((year, month, day), (hour, minute, second, micro)) = (now.to_calendar_date(), now.to_hms_micro());
    let month = u8::from(month);
    write!(line, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micro:06}Z")
}

/// Appends a JSON string.
fn put_json(line: &mut String, text: &str) {
    line.push('"');
    put_escaped(line, text, true);
    line.push('"');
}

/// Returns true for control characters, line ends and characters that change the direction of text:
/// with these a value could imitate another line or field.
fn is_control_like(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Appends text. Characters that would end the line, move the cursor or, if `quoted`, end the
/// string are escaped.
fn put_escaped(line: &mut String, text: &str, quoted: bool) {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| is_control_like(c) || (quoted && matches!(c, '"' | '\\'))) {
        let (plain, from) = rest.split_at(at);
        line.push_str(plain);
        let mut characters = from.chars();
        match characters.next() {
            Some('\n') => line.push_str("\\n"),
            Some('\t') => line.push_str("\\t"),
            Some('\r') => line.push_str("\\r"),
            Some(c @ ('"' | '\\')) => line.extend(['\\', c]),
            Some(c) => {
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            None => {}
        }
        rest = characters.as_str();
    }
    line.push_str(rest);
}

/// A writer that escapes its input.
struct Escaping<'a> {
    line: &'a mut String,
    quoted: bool,
}

impl Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        put_escaped(self.line, text, self.quoted);
        Ok(())
    }
}

/// A visitor that reads the target of an event of the `log` facade, which libraries without
/// `tracing` use.
#[derive(Default)]
struct LogTarget {
    target: Option<String>,
}

impl Visit for LogTarget {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "log.target" {
            self.target = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// Returns false for the fields that name the source line of an event of the `log` facade, which
/// are not written.
fn is_written(field: &Field) -> bool {
    !field.name().starts_with("log.")
}

struct JsonLineFields<'a> {
    line: &'a mut String,
}

impl JsonLineFields<'_> {
    fn name(&mut self, field: &Field) {
        self.line.push_str(",\"");
        self.line.push_str(field.name());
        self.line.push_str("\":");
    }

    fn put(&mut self, field: &Field, value: impl fmt::Display) {
        self.name(field);
        let _ = write!(self.line, "{value}");
    }
}

impl Visit for JsonLineFields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if is_written(field) {
            self.name(field);
            put_json(self.line, value);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if is_written(field) {
            self.put(field, value);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        if is_written(field) {
            self.put(field, value);
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        match value.is_finite() {
            true => self.put(field, value),
            false => self.put(field, "null"),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if is_written(field) {
            self.name(field);
            self.line.push('"');
            let _ = write!(Escaping { line: self.line, quoted: true }, "{value:?}");
            self.line.push('"');
        }
    }
}

/// A visitor that writes the message, which comes first whatever the order of the fields.
struct TextFields<'a> {
    line: &'a mut String,
    start: usize,
}

impl TextFields<'_> {
    fn put(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let _ = write!(self.line, " {}=", field.name());
        let _ = Escaping { line: self.line, quoted: false }.write_fmt(value);
    }
}

impl Visit for TextFields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if !is_written(field) {
            return;
        }
        let is_word = !value.is_empty() && value.bytes().all(|c| c.is_ascii_graphic() && c != b'"');
        if is_word { self.put(field, format_args!("{value}")) } else { self.put(field, format_args!("{value:?}")) }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let fields = self.line.split_off(self.start);
            let _ = write!(Escaping { line: self.line, quoted: false }, "{value:?}");
            self.line.push_str(&fields);
        } else if is_written(field) {
            self.put(field, format_args!("{value:?}"));
        }
    }
}
