//! Character references of HTML, such as `&amp;` and `&#8203;`.

use std::borrow::Cow;

/// Longest reference in bytes, with its `&` and `;`.
const MAX_LENGTH: usize = 12;

/// Replaces the references in a text by their characters. `character` returns that of a name,
/// which stands between `&` and `;`; a reference without one stays as it is.
pub(crate) fn decode(text: &str, character: impl Fn(&str) -> Option<char>) -> Cow<'_, str> {
    if !text.contains('&') {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.bytes().take(MAX_LENGTH).position(|byte| byte == b';');
        match end.and_then(|end| Some((character(&rest[1..end])?, end + 1))) {
            Some((character, length)) => {
                out.push(character);
                rest = &rest[length..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out.into()
}

/// Returns the character that a name stands for in XML too: one of its five words, or a number such
/// as `#8203` or `#x200b`.
pub(crate) fn xml_character(name: &str) -> Option<char> {
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        name => return numbered(name),
    })
}

fn numbered(name: &str) -> Option<char> {
    let number = name.strip_prefix('#')?;
    let code = match number.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => number.parse().ok()?,
    };
    char::from_u32(code)
}
