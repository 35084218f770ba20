//! `printf` of templates.

use std::borrow::Cow;

use serde_json::Value;

use super::value;

/// The widest field, and the most digits, that a format can ask for.
const WIDEST: usize = 1_000;

/// Formats as Go's `fmt.Sprintf`, for the verbs that data in a template can need.
pub(super) fn printf(format: &str, arguments: &[Cow<'_, Value>], limit: usize) -> String {
    let mut out = String::new();
    let mut arguments = arguments.iter();
    let mut rest = format.chars().peekable();
    while let Some(character) = rest.next() {
        if out.len() > limit {
            break;
        }
        if character != '%' {
            out.push(character);
            continue;
        }
        let mut spec = Spec::default();
        while let Some(flag) = rest.next_if(|next| matches!(next, '-' | '+' | '0' | ' ' | '#')) {
            match flag {
                '-' => spec.left = true,
                '+' => spec.plus = true,
                '0' => spec.zero = true,
                '#' => spec.sharp = true,
                _ => spec.space = true,
            }
        }
        spec.width = digits(&mut rest).unwrap_or(0);
        if rest.next_if_eq(&'.').is_some() {
            spec.precision = Some(digits(&mut rest).unwrap_or(0));
        }
        match rest.next() {
            None => out.push_str("%!(NOVERB)"),
            Some('%') => out.push('%'),
            Some(verb) => match arguments.next() {
                Some(argument) => {
                    let text = spec.format(verb, argument, limit);
                    spec.pad(&text, verb, &mut out);
                }
                None => {
                    out.push_str("%!");
                    out.push(verb);
                    out.push_str("(MISSING)");
                }
            },
        }
    }
    out
}

fn digits(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<usize> {
    let mut number = None;
    while let Some(digit) = rest.next_if(char::is_ascii_digit) {
        let value = digit.to_digit(10).map_or(0, |digit| digit as usize);
        number = Some((number.unwrap_or(0) * 10 + value).min(WIDEST));
    }
    number
}

#[derive(Default)]
struct Spec {
    left: bool,
    plus: bool,
    zero: bool,
    space: bool,
    sharp: bool,
    width: usize,
    precision: Option<usize>,
}

impl Spec {
    fn format(&self, verb: char, argument: &Value, limit: usize) -> String {
        let printed = || {
            let mut text = String::new();
            value::print(argument, &mut text, limit);
            text
        };
        let cut = |text: String| match self.precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text,
        };
        let whole = argument
            .as_i64()
            .or_else(|| argument.as_f64().filter(|float| float.fract() == 0.0).map(|float| float as i64));
        match (verb, argument) {
            ('v', Value::Number(number)) => self.signed(value::number_text(number)),
            ('v', _) => printed(),
            ('s', Value::String(_) | Value::Array(_) | Value::Object(_)) => cut(printed()),
            ('q', Value::String(text)) => format!("{:?}", cut(text.clone())),
            ('x', Value::String(text)) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
            ('X', Value::String(text)) => text.bytes().map(|byte| format!("{byte:02X}")).collect(),
            ('t', Value::Bool(_)) => printed(),
            ('f' | 'F', Value::Number(number)) => match number.as_f64() {
                Some(float) => self.signed(format!("{float:.*}", self.precision.unwrap_or(6))),
                None => printed(),
            },
            ('e' | 'g' | 'E' | 'G', Value::Number(number)) => self.signed(value::number_text(number)),
            ('d' | 'x' | 'X' | 'o' | 'b' | 'c' | 'q' | 'U', Value::Number(_)) => match whole {
                Some(whole) => self.integer(verb, whole),
                None => wrong(verb, "number", &printed()),
            },
            (_, Value::Null) => format!("%!{verb}(<nil>)"),
            (_, Value::String(_)) => wrong(verb, "string", &printed()),
            (_, Value::Number(_)) => wrong(verb, "number", &printed()),
            (_, Value::Bool(_)) => wrong(verb, "bool", &printed()),
            (_, Value::Array(_) | Value::Object(_)) => wrong(verb, "value", &printed()),
        }
    }

    fn integer(&self, verb: char, whole: i64) -> String {
        let prefix = |prefix| if self.sharp { prefix } else { "" };
        let sign = if whole < 0 { "-" } else { "" };
        let size = whole.unsigned_abs();
        match verb {
            'x' => format!("{sign}{}{size:x}", prefix("0x")),
            'X' => format!("{sign}{}{size:X}", prefix("0X")),
            'o' => format!("{sign}{}{size:o}", prefix("0")),
            'b' => format!("{sign}{}{size:b}", prefix("0b")),
            'U' => format!("U+{size:04X}"),
            'c' | 'q' => {
                let character = u32::try_from(whole).ok().and_then(char::from_u32).unwrap_or('\u{FFFD}');
                if verb == 'c' { character.to_string() } else { format!("{character:?}") }
            }
            _ => self.signed(whole.to_string()),
        }
    }

    fn signed(&self, text: String) -> String {
        match text.starts_with('-') {
            false if self.plus => format!("+{text}"),
            false if self.space => format!(" {text}"),
            _ => text,
        }
    }

    fn pad(&self, text: &str, verb: char, out: &mut String) {
        let missing = self.width.saturating_sub(text.chars().count());
        let padding = |with: &str| with.repeat(missing);
        if self.left {
            out.push_str(text);
            out.push_str(&padding(" "));
        } else if self.zero && matches!(verb, 'd' | 'f' | 'x' | 'X' | 'o' | 'b' | 'e' | 'g' | 'v') {
            let (sign, number) = text.split_at(usize::from(text.starts_with(['-', '+'])));
            out.push_str(sign);
            out.push_str(&padding("0"));
            out.push_str(number);
        } else {
            out.push_str(&padding(" "));
            out.push_str(text);
        }
    }
}

fn wrong(verb: char, kind: &str, text: &str) -> String {
    format!("%!{verb}({kind}={text})")
}
