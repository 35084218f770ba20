//! The words of SQL statements.

/// Returns the words of the first statement in lower case, without comments and the quotes of
/// identifiers. `rest` is moved on to the semicolon that ends it, or to the end.
pub(crate) fn words<'a>(rest: &'a mut &str) -> impl Iterator<Item = String> + 'a {
    std::iter::from_fn(move || next_word(rest).map(|(word, _)| word))
}

/// Takes one word as [`words`] gives it, together with its length in the text.
pub(crate) fn next_word(rest: &mut &str) -> Option<(String, usize)> {
    loop {
        *rest = rest.trim_start();
        if let Some(comment) = rest.strip_prefix("--") {
            *rest = comment.split_once('\n').map_or("", |(_, after)| after);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            *rest = comment.split_once("*/").map_or("", |(_, after)| after);
        } else {
            break;
        }
    }
    if rest.is_empty() || rest.starts_with(';') {
        return None;
    }
    let before = rest.len();
    for quote in ['"', '\''] {
        if let Some(quoted) = rest.strip_prefix(quote) {
            let (word, after) = quoted.split_once(quote).unwrap_or((quoted, ""));
            *rest = after;
            return Some((word.to_owned(), before - rest.len()));
        }
    }
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    let end = if end == 0 { rest.chars().next().map_or(1, char::len_utf8) } else { end };
    let (word, after) = rest.split_at(end);
    *rest = after;
    Some((word.to_ascii_lowercase(), end))
}
