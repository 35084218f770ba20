//! Names and texts as SQL, for the few statements that cannot have parameters.

/// Returns a quoted identifier. A zero byte, which no identifier can hold, is left out.
pub fn identifier(name: &str) -> String {
    let mut sql = String::with_capacity(name.len() + 2);
    push_identifier(&mut sql, name);
    sql
}

/// Appends a quoted identifier, as [`identifier`].
pub fn push_identifier(sql: &mut String, name: &str) {
    sql.push('"');
    for character in name.chars() {
        match character {
            '"' => sql.push_str("\"\""),
            '\0' => {}
            character => sql.push(character),
        }
    }
    sql.push('"');
}

/// Returns a text literal, which is the same whatever `standard_conforming_strings` says. The space
/// before `E` keeps it apart from a word in front.
pub fn literal(text: &str) -> String {
    match text.contains('\\') {
        true => format!(" E'{}'", text.replace('\\', "\\\\").replace('\'', "''")),
        false => format!("'{}'", text.replace('\'', "''")),
    }
}

/// Returns texts as the text form of an array, for a parameter: `{"a","b"}`. Every text is quoted,
/// so that no part of it is read as syntax of the array.
pub fn text_array<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let mut array = String::from("{");
    for text in texts {
        array.push_str(if array.len() == 1 { "\"" } else { ",\"" });
        for character in text.as_ref().chars() {
            if matches!(character, '"' | '\\') {
                array.push('\\');
            }
            array.push(character);
        }
        array.push('"');
    }
    array.push('}');
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_in_an_array_is_quoted() {
        assert_eq!(text_array::<&str>([]), "{}");
        let array = text_array(["a", "", "b,c", r#"q"u\o"#, "NULL", "{x}"]);
        assert_eq!(array, r#"{"a","","b,c","q\"u\\o","NULL","{x}"}"#);
    }

    #[test]
    fn a_name_cannot_end_its_quotation_marks() {
        assert_eq!(identifier("films"), r#""films""#);
        assert_eq!(identifier("a\"; drop table x; --"), r#""a""; drop table x; --""#);
        assert_eq!(identifier("a\0\"b"), r#""a""b""#);
    }

    #[test]
    fn a_text_cannot_end_its_literal() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal(r"\'; drop table x; --"), r" E'\\''; drop table x; --'");
    }
}
