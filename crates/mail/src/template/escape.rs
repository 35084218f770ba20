//! Escapes values for the places where they are written. Each function's result cannot leave its
//! place.

use std::fmt::Write as _;

/// The text that replaces a value without a safe form in its context. It is Go's, so that a search
/// finds it.
pub(super) const REFUSED: &str = "ZgotmplZ";

/// Escapes text between tags and for quoted attributes.
pub(super) fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\0' => out.push('\u{FFFD}'),
            '"' => out.push_str("&#34;"),
            '&' => out.push_str("&amp;"),
            '\'' => out.push_str("&#39;"),
            '+' => out.push_str("&#43;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            other => out.push(other),
        }
    }
    out
}

/// Escapes text for an attribute without quotation marks.
pub(super) fn html_unquoted(text: &str) -> String {
    if text.is_empty() {
        return REFUSED.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | ' ' | '=' | '`' => {
                let _ = write!(out, "&#{};", u32::from(character));
            }
            other => out.push_str(&html(other.encode_utf8(&mut [0; 4]))),
        }
    }
    out
}

/// Returns true if a link with this text cannot run a program: it has no scheme, or a well-known
/// one.
pub(super) fn is_safe_url(text: &str) -> bool {
    match text.split_once(':') {
        Some((scheme, _)) if !scheme.contains('/') => {
            ["http", "https", "mailto"].iter().any(|safe| scheme.eq_ignore_ascii_case(safe))
        }
        _ => true,
    }
}

/// Escapes a whole link or its path: characters that mean something in a link are kept.
pub(super) fn url_whole(text: &str) -> String {
    let bytes = text.as_bytes();
    percent(text, |position, byte| match byte {
        b'!' | b'#' | b'$' | b'&' | b'*' | b'+' | b',' | b'/' | b':' | b';' | b'=' | b'?' | b'@' | b'[' | b']' => true,
        b'%' => bytes.get(position + 1..position + 3).is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit)),
        _ => false,
    })
}

/// Escapes one value in the query or fragment of a link.
pub(super) fn url_part(text: &str) -> String {
    percent(text, |_, _| false)
}

/// Encodes a value as forms do a value: spaces become `+`.
pub(super) fn url_query(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

fn percent(text: &str, keep: impl Fn(usize, u8) -> bool) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for (position, byte) in text.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') || keep(position, byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02x}");
        }
    }
    out
}

/// Escapes the inside of a script's quoted text.
pub(super) fn js_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\u{c}' => out.push_str("\\f"),
            '\\' => out.push_str("\\\\"),
            '/' => out.push_str("\\/"),
            '"' | '\'' | '`' | '&' | '+' | '<' | '>' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            other => out.push(other),
        }
    }
    out
}

/// Escapes a value in a script's code: JSON that no script element can be closed with.
pub(super) fn js_value(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => format!("\"{}\"", js_string(text)),
        other => {
            let json = other.to_string();
            let mut out = String::with_capacity(json.len() + 2);
            // Spaces keep a number from growing together with its neighbours
            out.push(' ');
            for character in json.chars() {
                match character {
                    '<' | '>' | '&' | '\'' | '`' | '+' | '\u{2028}' | '\u{2029}' if !other.is_number() => {
                        let _ = write!(out, "\\u{:04x}", u32::from(character));
                    }
                    same => out.push(same),
                }
            }
            out.push(' ');
            out
        }
    }
}

/// Escapes the inside of a style sheet's quoted text.
pub(super) fn css_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if character.is_ascii_alphanumeric()
            || !character.is_ascii()
            || matches!(character, ' ' | '-' | '_' | '.' | ',' | '#')
        {
            out.push(character);
        } else {
            let _ = write!(out, "\\{:x} ", u32::from(character));
        }
    }
    out
}

/// Escapes a value in a style sheet: a keyword, a number with its unit, a colour. Anything that
/// could call a function, name another resource or end the declaration is refused.
pub(super) fn css_value(text: &str) -> String {
    let harmless = |character: char| {
        character.is_ascii_alphanumeric()
            || !character.is_ascii()
            || matches!(character, ' ' | '-' | '_' | '.' | ',' | '#' | '%' | '!' | '+')
    };
    let lower = text.to_ascii_lowercase();
    let letters: String = lower.chars().filter(char::is_ascii_alphanumeric).collect();
    if !text.chars().all(harmless)
        || lower.contains("--")
        || letters.contains("expression")
        || letters.contains("mozbinding")
    {
        return REFUSED.to_owned();
    }
    text.to_owned()
}
