//! Composite values in PostgreSQL's text form: `(1,"a b",)`.

use std::borrow::Cow;

use super::error::ValueRenderError;

const MALFORMED: ValueRenderError = ValueRenderError::Malformed("composite value");

/// Reads the values of a row, `None` for null.
pub(super) fn read_row(text: &str) -> Result<Vec<Option<Cow<'_, str>>>, ValueRenderError> {
    let mut rest = text.strip_prefix('(').ok_or(MALFORMED)?;
    let mut values = Vec::new();
    // A row without attributes
    if rest == ")" {
        return Ok(vec![None]);
    }
    loop {
        let (value, after) = value(rest)?;
        values.push(value);
        match after {
            ")" => return Ok(values),
            _ => rest = after.strip_prefix(',').ok_or(MALFORMED)?,
        }
    }
}

/// Reads one value. Quotes may begin and end anywhere in it; a quote is doubled inside of them, and
/// a backslash escapes.
fn value(text: &str) -> Result<(Option<Cow<'_, str>>, &str), ValueRenderError> {
    let end = text.find([',', ')', '"', '\\']).ok_or(MALFORMED)?;
    if matches!(text.as_bytes().get(end), Some(b',' | b')')) {
        let (value, after) = (&text[..end], &text[end..]);
        return Ok(((!value.is_empty()).then_some(Cow::Borrowed(value)), after));
    }
    let mut unescaped = String::new();
    let mut is_quoted = false;
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            ',' | ')' if !is_quoted => return Ok((Some(Cow::Owned(unescaped)), &text[at..])),
            '\\' => unescaped.push(characters.next().ok_or(MALFORMED)?.1),
            '"' if is_quoted && characters.as_str().starts_with('"') => {
                characters.next();
                unescaped.push('"');
            }
            '"' => is_quoted = !is_quoted,
            other => unescaped.push(other),
        }
    }
    Err(MALFORMED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quotes_escapes_and_nulls_are_read() {
        let some = |text: &'static str| Some(Cow::Borrowed(text));
        for (text, values) in [
            ("()", Some(vec![None])),
            ("(,)", Some(vec![None, None])),
            ("(1,z)", Some(vec![some("1"), some("z")])),
            (r#"("",1)"#, Some(vec![some(""), some("1")])),
            (r#"("z z","a""b\\c")"#, Some(vec![some("z z"), some(r#"a"b\c"#)])),
            (r#"("(1,""x"")",é)"#, Some(vec![some(r#"(1,"x")"#), some("é")])),
            (r"(a\,b)", Some(vec![some("a,b")])),
            ("", None),
            ("(", None),
            ("(1", None),
            ("(1))", None),
            ("(1)x", None),
            ("(\"1)", None),
            ("(\\", None),
        ] {
            assert_eq!(read_row(text).ok(), values, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in r#"\(?[(),"\\ aé]{0,40}"#) {
            let _ = read_row(&text);
        }
    }
}
