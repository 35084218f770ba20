//! The dotenv syntax: `KEY=value`, `KEY: value`, `export`, quotes, comments, `$VAR`.
//!
//! Errors name the kind of mistake and the line, never the content: these files contain secrets.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{ProjectError, SourcePosition};

/// A mistake in an environment file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DotenvError {
    line: usize,
    reason: String,
}

impl DotenvError {
    pub(crate) fn in_file(self, path: &Path) -> ProjectError {
        ProjectError::EnvironmentFile { position: SourcePosition::line(path, self.line), reason: self.reason }
    }
}

/// Parses a file into its variables, in the order in which they are written; a later line of the
/// same name wins.
///
/// `outer` provides variables from outside the file for `$NAME` references.
pub(crate) fn parse(
    text: &str,
    outer: impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, DotenvError> {
    let mut parser = Parser { text, position: 0, outer, variables: BTreeMap::new() };
    while parser.skip_blank() {
        let name = parser.name()?;
        let value = parser.value()?;
        parser.variables.insert(name, value);
    }
    Ok(parser.variables)
}

struct Parser<'a, F> {
    text: &'a str,
    position: usize,
    outer: F,
    variables: BTreeMap<String, String>,
}

impl<'a, F: Fn(&str) -> Option<String>> Parser<'a, F> {
    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn error(&self, reason: impl Into<String>) -> DotenvError {
        let line = self.text[..self.position].matches('\n').count() + 1;
        DotenvError { line, reason: reason.into() }
    }

    /// Moves to the next variable. Returns false at the end of the file.
    fn skip_blank(&mut self) -> bool {
        loop {
            let trimmed = self.rest().trim_start();
            self.position = self.text.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return !trimmed.is_empty();
            }
            self.position += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn name(&mut self) -> Result<String, DotenvError> {
        if let Some(rest) = self.rest().strip_prefix("export")
            && rest.starts_with([' ', '\t'])
        {
            self.position = self.text.len() - rest.trim_start_matches([' ', '\t']).len();
        }
        let start = self.position;
        for (index, character) in self.text[start..].char_indices() {
            self.position = start + index;
            match character {
                '=' | ':' => {
                    let name = self.text[start..self.position].trim();
                    if name.is_empty() {
                        return Err(self.error(format!("unexpected character {character:?} in variable name")));
                    }
                    let name = name.to_owned();
                    self.position += 1;
                    return Ok(name);
                }
                '\n' => return Err(self.error("unexpected character in variable name")),
                '_' | '.' | ' ' | '\t' | '\r' => {}
                _ if character.is_alphanumeric() => {}
                _ if character.is_control() => {
                    return Err(self.error("unexpected character in variable name"));
                }
                _ => return Err(self.error(format!("unexpected character {character:?} in variable name"))),
            }
        }
        Err(self.error("syntax error"))
    }

    fn value(&mut self) -> Result<String, DotenvError> {
        let trimmed = self.rest().trim_start_matches([' ', '\t', '\r']);
        self.position = self.text.len() - trimmed.len();
        match trimmed.chars().next() {
            Some(quote @ ('\'' | '"')) => self.quoted(quote),
            _ => Ok(self.unquoted()),
        }
    }

    fn unquoted(&mut self) -> String {
        let rest = self.rest();
        let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
        let end = self.position + line.len();
        // A comment begins at a `#` after white space, or at the start of the value
        let mut value = line;
        for (index, _) in line.match_indices('#') {
            if index == 0 || line[..index].ends_with([' ', '\t']) {
                value = &line[..index];
                break;
            }
        }
        let value = self.expand(value.trim());
        self.position = end;
        value
    }

    fn quoted(&mut self, quote: char) -> Result<String, DotenvError> {
        let body = &self.rest()[1..];
        let mut escaped = false;
        let mut end = None;
        for (index, character) in body.char_indices() {
            if character == quote && !escaped {
                end = Some(index);
                break;
            }
            escaped = character == '\\' && !escaped;
        }
        let Some(end) = end else {
            return Err(self.error("unterminated quoted value"));
        };
        let value = if quote == '"' { self.expand(&unescape(&body[..end])) } else { body[..end].to_owned() };
        self.position += end + 2;
        // Only a comment can follow a quoted value on its line
        let rest = self.rest();
        let line = rest[..rest.find('\n').unwrap_or(rest.len())].trim();
        if !line.is_empty() && !line.starts_with('#') {
            return Err(self.error("syntax error"));
        }
        self.position += rest.find('\n').unwrap_or(rest.len());
        Ok(value)
    }

    /// Replaces `$NAME` and `${NAME}`. Only upper-case names are references, as the format defines,
    /// so that a password with a dollar sign usually survives.
    fn expand(&self, value: &str) -> String {
        let mut expanded = String::with_capacity(value.len());
        let mut rest = value;
        while let Some(index) = rest.find('$') {
            let (before, after) = (&rest[..index], &rest[index + 1..]);
            if let Some(kept) = before.strip_suffix('\\') {
                expanded.push_str(kept);
                expanded.push('$');
                rest = after;
                continue;
            }
            expanded.push_str(before);
            let (name, next) = reference(after);
            if name.is_empty() {
                expanded.push('$');
                rest = after;
            } else {
                let found = self.variables.get(name).cloned().or_else(|| (self.outer)(name));
                expanded.push_str(&found.unwrap_or_default());
                rest = next;
            }
        }
        expanded.push_str(rest);
        expanded
    }
}

/// Returns the name after a dollar sign, and the text behind it. An empty name: no reference.
fn reference(text: &str) -> (&str, &str) {
    let is_name = |character: char| character.is_ascii_uppercase() || character.is_ascii_digit() || character == '_';
    match text.strip_prefix('{') {
        Some(braced) => match braced.find('}') {
            Some(end) if end > 0 && braced[..end].chars().all(is_name) => (&braced[..end], &braced[end + 1..]),
            _ => ("", text),
        },
        None => text.split_at(text.find(|character| !is_name(character)).unwrap_or(text.len())),
    }
}

/// Resolves the escapes of a double-quoted value. `\$` is kept for the expansion that follows.
fn unescape(value: &str) -> String {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        match characters.next() {
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some('$') => plain.push_str("\\$"),
            Some(other) => plain.push(other),
            None => plain.push('\\'),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Vec<(String, String)> {
        parse(text, |name| (name == "OUTER").then(|| "outside".to_owned())).unwrap_or_default().into_iter().collect()
    }

    fn one(text: &str) -> String {
        read(text).pop().map(|(_, value)| value).unwrap_or_else(|| "(no variable)".to_owned())
    }

    #[test]
    fn a_value_has_the_usual_syntax() {
        let table = [
            ("A=plain", "plain"),
            ("A = spaced ", "spaced"),
            ("export A=exported", "exported"),
            ("A: yaml", "yaml"),
            ("A=with # comment", "with"),
            ("A=with#no-comment", "with#no-comment"),
            ("A=# nothing", ""),
            ("A=", ""),
            ("A='literal $OUTER \\n'", "literal $OUTER \\n"),
            ("A=\"line\\nbreak\"", "line\nbreak"),
            ("A=\"two\nlines\"", "two\nlines"),
            ("A=\"quote \\\" inside\" # note", "quote \" inside"),
            ("A=$OUTER/x", "outside/x"),
            ("A=\"${OUTER}\"", "outside"),
            ("A=\"\\$OUTER\"", "$OUTER"),
            ("A=$NOWHERE.", "."),
            ("A=pa$word", "pa$word"),
            ("A=pa$", "pa$"),
            ("A=postgres://u:p@h:5/d?x=y", "postgres://u:p@h:5/d?x=y"),
            ("A=windows\r\n", "windows"),
        ];
        for (text, expected) in table {
            assert_eq!(one(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_variable_can_use_an_earlier_one() {
        assert_eq!(read("HOST=example.test\nURL=https://${HOST}/\n")[1].1, "https://example.test/");
    }

    #[test]
    fn an_error_does_not_contain_the_text() {
        let table = [
            ("OK=1\nsecret-name=x", 2, "unexpected character '-' in variable name"),
            ("A=\"never closed", 1, "unterminated quoted value"),
            ("\n\nJUST_A_NAME\nB=1", 3, "unexpected character in variable name"),
            ("JUST_A_NAME", 1, "syntax error"),
            ("A=\"x\" tail", 1, "syntax error"),
            ("=x", 1, "unexpected character '=' in variable name"),
        ];
        for (text, line, reason) in table {
            let error = parse(text, |_| None);
            assert_eq!(error, Err(DotenvError { line, reason: reason.to_owned() }), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>()) {
            let _ = parse(&text, |_| None);
        }

        #[test]
        fn a_single_quoted_value_comes_back_as_written(value in "[^'\\\\]*") {
            prop_assert_eq!(one(&format!("A='{value}'")), value);
        }
    }
}
