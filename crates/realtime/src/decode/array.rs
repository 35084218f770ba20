//! Arrays in PostgreSQL's text form: `{1,NULL,"a b"}`, `[0:1]={1,2}`, `{{1,2},{3,4}}`.

use std::borrow::Cow;

use super::error::ValueRenderError;

/// PostgreSQL's limit for the dimensions of an array.
const MAX_DIMENSIONS: usize = 6;
const MALFORMED: ValueRenderError = ValueRenderError::Malformed("array");

/// A step of the reading of an array.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ArrayToken<'a> {
    /// The array or one of its slices begins.
    Open,
    /// It ends.
    Close,
    /// An element.
    Element(Cow<'a, str>),
    /// A null.
    Null,
}

/// Reads an array and calls `visit` for each token, in order. The tokens are balanced.
pub(super) fn read_array<'a>(
    text: &'a str,
    delimiter: u8,
    mut visit: impl FnMut(ArrayToken<'a>) -> Result<(), ValueRenderError>,
) -> Result<(), ValueRenderError> {
    let mut rest = match text.starts_with('[') {
        // The bounds of the dimensions, where one does not begin at 1
        true => text.split_once('=').ok_or(MALFORMED)?.1,
        false => text,
    };
    let mut depth = 0;
    loop {
        // The start of an element or of a slice, or the end of an empty array
        match rest.as_bytes().first().ok_or(MALFORMED)? {
            b'{' if depth < MAX_DIMENSIONS => {
                depth += 1;
                visit(ArrayToken::Open)?;
                rest = &rest[1..];
                if !rest.starts_with('}') {
                    continue;
                }
            }
            _ if depth == 0 => return Err(MALFORMED),
            b'"' => {
                let (element, after) = quoted(&rest[1..])?;
                visit(ArrayToken::Element(element))?;
                rest = after;
            }
            _ => {
                let end = rest.bytes().position(|byte| byte == delimiter || byte == b'}' || byte == b'{');
                let (element, after) = rest.split_at_checked(end.ok_or(MALFORMED)?).ok_or(MALFORMED)?;
                match element {
                    "" => return Err(MALFORMED),
                    "NULL" => visit(ArrayToken::Null)?,
                    element => visit(ArrayToken::Element(Cow::Borrowed(element)))?,
                }
                rest = after;
            }
        }
        // Behind it: ends of slices, then a delimiter or the end
        while let Some(after) = rest.strip_prefix('}') {
            depth = depth.checked_sub(1).ok_or(MALFORMED)?;
            visit(ArrayToken::Close)?;
            rest = after;
        }
        match (rest.as_bytes().first(), depth) {
            (None, 0) => return Ok(()),
            (Some(byte), 1..) if *byte == delimiter => rest = rest.get(1..).ok_or(MALFORMED)?,
            _ => return Err(MALFORMED),
        }
    }
}

/// Reads up to the closing quote. A backslash escapes the next character.
fn quoted(text: &str) -> Result<(Cow<'_, str>, &str), ValueRenderError> {
    let mut unescaped = String::new();
    let mut rest = text;
    loop {
        let at = rest.find(['"', '\\']).ok_or(MALFORMED)?;
        let (before, found) = (&rest[..at], &rest[at + 1..]);
        if rest.as_bytes()[at] == b'"' {
            if unescaped.is_empty() {
                return Ok((Cow::Borrowed(before), found));
            }
            unescaped.push_str(before);
            return Ok((Cow::Owned(unescaped), found));
        }
        unescaped.push_str(before);
        let escaped = found.chars().next().ok_or(MALFORMED)?;
        unescaped.push(escaped);
        rest = &found[escaped.len_utf8()..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str, delimiter: u8) -> Option<String> {
        let mut out = String::new();
        let read = read_array(text, delimiter, |token| {
            match token {
                ArrayToken::Open => out.push('<'),
                ArrayToken::Close => out.push('>'),
                ArrayToken::Element(element) => out.push_str(&format!("({element})")),
                ArrayToken::Null => out.push('-'),
            }
            Ok(())
        });
        read.is_ok().then_some(out)
    }

    #[test]
    fn elements_slices_and_nulls_are_read() {
        for (text, tokens) in [
            ("{}", Some("<>")),
            ("{1,2}", Some("<(1)(2)>")),
            ("[0:1]={1,2}", Some("<(1)(2)>")),
            ("{{1,NULL},{3,4}}", Some("<<(1)-><(3)(4)>>")),
            (r#"{"NULL","","a\"b\\c","é,}"}"#, Some(r#"<(NULL)()(a"b\c)(é,})>"#)),
            (r#"{"\"","\\"}"#, Some(r#"<(")(\)>"#)),
            ("", None),
            ("1", None),
            ("{", None),
            ("{1", None),
            ("{1,", None),
            ("{1,}", None),
            ("{,1}", None),
            ("{1}}", None),
            ("{1}x", None),
            ("{{1}{2}}", None),
            ("{\"a", None),
            ("{\"a\\", None),
            ("{{{{{{{1}}}}}}}", None),
        ] {
            assert_eq!(read(text, b',').as_deref(), tokens, "{text}");
        }
        assert_eq!(read("{(1,2),(3,4);(5,6),(7,8)}", b';').as_deref(), Some("<((1,2),(3,4))((5,6),(7,8))>"));
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(
            text in r#"[\[{]?[{}",\\ aé=\]N;]{0,40}"#, delimiter in prop::sample::select(&b",;"[..]),
        ) {
            if let Some(tokens) = read(&text, delimiter) {
                prop_assert!(!tokens.is_empty());
            }
        }
    }
}
