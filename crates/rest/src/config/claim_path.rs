//! The path to the role in the claims of a token: `.role`, `$.realm_access.roles[0]`,
//! `."https://example.com/role"`, `.roles[?(@ ^== "app-")][4:]`.

use std::borrow::Cow;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

/// A path into the claims: the part of JSONPath that finds one value, and the older dotted form
/// without `$`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimPath(Vec<PathStep>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PathStep {
    Key(String),
    /// An index; a negative one counts from the end.
    Index(i64),
    /// `[?(@ == "a")]`: the first element of an array that matches.
    First(ElementTest),
    /// `[a:b]`: characters of a text, or the first element of a part of an array.
    Slice(Option<i64>, Option<i64>),
}

/// The condition on an element.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ElementTest {
    Anything,
    Equals(String),
    Differs(String),
    Begins(String),
    Ends(String),
    Contains(String),
    Matches(Pattern),
}

/// A regular expression. Two are equal if their texts are.
#[derive(Debug, Clone)]
struct Pattern(Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

impl Default for ClaimPath {
    fn default() -> Self {
        Self(vec![PathStep::Key("role".into())])
    }
}

impl ClaimPath {
    /// Parses a path.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim();
        rest = rest.strip_prefix('$').unwrap_or(rest);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let end = closing(after)?;
                steps.push(bracketed(after.get(..end)?.trim())?);
                rest = after.get(end + 1..)?;
                continue;
            }
            rest = rest.strip_prefix('.')?;
            if let Some(after) = rest.strip_prefix('"') {
                let (key, after) = after.split_once('"')?;
                steps.push(PathStep::Key(key.to_owned()));
                rest = after;
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                let (key, after) = rest.split_at(end);
                if key.is_empty() {
                    return None;
                }
                steps.push(PathStep::Key(key.to_owned()));
                rest = after;
            }
        }
        (!steps.is_empty()).then_some(Self(steps))
    }

    /// Returns the value at the path; the first one, if there are several.
    pub fn find<'a>(&self, claims: &'a Map<String, Value>) -> Option<Cow<'a, Value>> {
        let (first, rest) = self.0.split_first()?;
        let PathStep::Key(key) = first else { return None };
        rest.iter().try_fold(Cow::Borrowed(claims.get(key)?), |value, step| match value {
            Cow::Borrowed(value) => step.follow(value),
            Cow::Owned(value) => step.follow(&value).map(|found| Cow::Owned(found.into_owned())),
        })
    }
}

impl PathStep {
    fn follow<'a>(&self, value: &'a Value) -> Option<Cow<'a, Value>> {
        match (self, value) {
            (Self::Key(key), value) => value.get(key).map(Cow::Borrowed),
            (Self::Index(index), Value::Array(elements)) => {
                elements.get(resolve_index(*index, elements.len())?).map(Cow::Borrowed)
            }
            (Self::First(test), Value::Array(elements)) => {
                elements.iter().find(|element| test.passes(element)).map(Cow::Borrowed)
            }
            (Self::Slice(from, to), Value::Array(elements)) => {
                let (from, to) = bounds(*from, *to, elements.len());
                elements.get(from..to)?.first().map(Cow::Borrowed)
            }
            (Self::Slice(from, to), Value::String(text)) => {
                let (from, to) = bounds(*from, *to, text.chars().count());
                let part: String = text.chars().skip(from).take(to - from).collect();
                Some(Cow::Owned(Value::String(part)))
            }
            _ => None,
        }
    }
}

impl ElementTest {
    fn passes(&self, element: &Value) -> bool {
        let Value::String(element) = element else { return *self == Self::Anything };
        match self {
            Self::Anything => true,
            Self::Equals(text) => element == text,
            Self::Differs(text) => element != text,
            Self::Begins(text) => element.starts_with(text),
            Self::Ends(text) => element.ends_with(text),
            Self::Contains(text) => element.contains(text),
            Self::Matches(pattern) => pattern.0.is_match(element),
        }
    }
}

/// Returns the position of the bracket that closes the text. A bracket in quotes does not count.
fn closing(text: &str) -> Option<usize> {
    let mut open: Option<char> = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match open {
            _ if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(mark) if c == mark => open = None,
            Some(_) => {}
            None if matches!(c, '"' | '\'') => open = Some(c),
            None if c == ']' => return Some(at),
            None => {}
        }
    }
    None
}

/// Parses the text between brackets.
fn bracketed(inner: &str) -> Option<PathStep> {
    if let Some(test) = inner.strip_prefix('?') {
        return Some(PathStep::First(self::test(test.trim())?));
    }
    if inner == "*" {
        return Some(PathStep::First(ElementTest::Anything));
    }
    if let Some(key) = quoted(inner) {
        return Some(PathStep::Key(key));
    }
    if let Some((from, to)) = inner.split_once(':') {
        let bound = |text: &str| match text.trim() {
            "" => Some(None),
            number => number.parse().ok().map(Some),
        };
        return Some(PathStep::Slice(bound(from)?, bound(to)?));
    }
    Some(PathStep::Index(inner.parse().ok()?))
}

/// Parses a condition such as `(@ == "a")` or `search(@, "^a")`.
fn test(text: &str) -> Option<ElementTest> {
    let text = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(text).trim();
    if let Some(arguments) = text.strip_prefix("search(").and_then(|text| text.strip_suffix(')')) {
        let pattern = arguments.trim().strip_prefix('@')?.trim().strip_prefix(',')?;
        let pattern = RegexBuilder::new(&quoted(pattern.trim())?).size_limit(LARGEST_PATTERN).build().ok()?;
        return Some(ElementTest::Matches(Pattern(pattern)));
    }
    let comparison = text.strip_prefix('@')?.trim_start();
    let (sign, text) = comparison.split_at(comparison.find(['"', '\''])?);
    let text = quoted(text.trim_end())?;
    match sign.trim_end() {
        "==" => Some(ElementTest::Equals(text)),
        "!=" => Some(ElementTest::Differs(text)),
        "^==" => Some(ElementTest::Begins(text)),
        "==^" => Some(ElementTest::Ends(text)),
        "*==" => Some(ElementTest::Contains(text)),
        _ => None,
    }
}

/// The memory limit of a regular expression, in bytes.
const LARGEST_PATTERN: usize = 1 << 20;

/// Parses a text in single or double quotes; a backslash escapes the quote and itself.
fn quoted(text: &str) -> Option<String> {
    let mark = text.chars().next().filter(|mark| matches!(mark, '"' | '\''))?;
    let inner = text.strip_prefix(mark)?.strip_suffix(mark)?;
    let mut out = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(c) = characters.next() {
        match (c, characters.clone().next()) {
            ('\\', Some(next)) if next == mark || next == '\\' => {
                out.push(next);
                characters.next();
            }
            (c, _) => out.push(c),
        }
    }
    Some(out)
}

/// Resolves an index; a negative one counts from the end.
fn resolve_index(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { length.checked_add(index)? } else { index }).ok()
}

/// Resolves the bounds of a slice; the end is never before the start.
fn bounds(from: Option<i64>, to: Option<i64>, length: usize) -> (usize, usize) {
    let bound = |bound: i64| resolve_index(bound, length).unwrap_or(0).min(length);
    let from = from.map_or(0, bound);
    (from, to.map_or(length, bound).max(from))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn assert_found(claims: &Value, path: &str, expected: Option<&str>) {
        let found = ClaimPath::parse(path).unwrap().find(claims.as_object().unwrap()).map(Cow::into_owned);
        assert_eq!(found.as_ref().and_then(Value::as_str), expected, "{path}");
    }

    #[test]
    fn both_forms_of_paths_find_the_claim() {
        let claims = json!({ "role": "a", "x": { "y-z": ["b", { "c d": "c" }] }, "https://example.com/role": "d" });
        for (path, found) in [
            (".role", Some("a")),
            ("$.role", Some("a")),
            (".x.y-z[0]", Some("b")),
            ("$.x.y-z[1].\"c d\"", Some("c")),
            ("$['x']['y-z'][0]", Some("b")),
            (".\"https://example.com/role\"", Some("d")),
            ("$['https://example.com/role']", Some("d")),
            ("$.x['y-z'][-2]", Some("b")),
            (".x.y-z[-3]", None),
            (".x.y", None),
            (".x[0]", None),
        ] {
            assert_found(&claims, path, found);
        }
        for path in
            ["", "role", ".", "..a", ".a[", ".a[x]", "$", ".a[?(@ = 'b')]", ".a[?(@ == b)]", ".a['b]", ".a[1:x]"]
        {
            assert_eq!(ClaimPath::parse(path), None, "{path}");
        }
    }

    #[test]
    fn elements_of_arrays_are_found_by_their_value() {
        let claims = json!({ "app": { "roles": ["other", 5, "author", "it's ]"] } });
        for (filter, found) in [
            (r#"?(@ == "author")"#, Some("author")),
            (r#"?(@ != "other")"#, Some("author")),
            (r#"?(@ ^== "aut")"#, Some("author")),
            (r#"?(@ ==^ "hor")"#, Some("author")),
            (r#"?(@ *== "utho")"#, Some("author")),
            ("?@ == 'author'", Some("author")),
            (r"?(@ == 'it\'s ]')", Some("it's ]")),
            ("?search(@, '^au')", Some("author")),
            ("?search(@, 'x|ther$')", Some("other")),
            ("*", Some("other")),
            ("?(@ == '5')", None),
            ("2:", Some("author")),
            (":-2", Some("other")),
            ("9:", None),
        ] {
            assert_found(&claims, &format!("$.app.roles[{filter}]"), found);
            assert_found(&claims, &format!(".app[\"roles\"][{filter}]"), found);
        }
        assert_found(&claims, ".app[?(@ == 'author')]", None);
        assert_eq!(ClaimPath::parse("$.a[?search(@, '(')]"), None);
    }

    #[test]
    fn a_slice_of_a_text_can_be_selected() {
        let claims = json!({ "role": "äpp-author", "roles": ["x", "app-author"] });
        for (path, found) in [
            (".role[4:]", Some("author")),
            (".role[:3]", Some("äpp")),
            (".role[4:-3]", Some("aut")),
            (".role[-6:]", Some("author")),
            (".role[5:2]", Some("")),
            (".role[0:99]", Some("äpp-author")),
            (r#".roles[?(@ ^== "app-")][4:]"#, Some("author")),
            (r#".roles[?(@ ^== "app-")][4:][1:]"#, Some("uthor")),
        ] {
            assert_found(&claims, path, found);
        }
    }
}
