//! Arrays in PostgreSQL's text format.

/// Returns `{"a","b"}`. Every value is quoted, so that no part of it is read as syntax of the
/// array.
pub(crate) fn text_array<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let mut array = String::from("{");
    for value in values {
        array.push_str(if array.len() == 1 { "\"" } else { ",\"" });
        for c in value.chars() {
            if matches!(c, '"' | '\\') {
                array.push('\\');
            }
            array.push(c);
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
        assert_eq!(text_array([]), "{}");
        let array = text_array(["a", "", "b,c", r#"q"u\o"#, "NULL", "{x}"]);
        assert_eq!(array, r#"{"a","","b,c","q\"u\\o","NULL","{x}"}"#);
    }
}
