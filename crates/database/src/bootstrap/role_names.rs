//! The name of a role in statements that were written for another one.
//!
//! Migrations and dumps name `postgres` as the role that owns the project's objects:
//! `alter … owner to postgres`, `set role postgres`, `grant … to postgres`. Where another role has
//! its part, the name is replaced, and only where a statement names a role. Literals, the bodies of
//! functions and comments are left as they are.

use std::borrow::Cow;
use std::ops::Range;

/// Returns the statements of a text with the role `to` in the place of `from`. Both are plain
/// identifiers.
pub(super) fn replaced<'a>(sql: &'a str, from: &str, to: &str) -> Cow<'a, str> {
    if !sql.contains(from) && !sql.to_ascii_lowercase().contains(from) {
        return Cow::Borrowed(sql);
    }
    let tokens = tokens(sql);
    let mut text = String::new();
    let mut copied = 0;
    for statement in tokens.split(|token| &sql[token.clone()] == ";") {
        let words: Vec<Cow<'_, str>> = statement.iter().map(|token| word(&sql[token.clone()])).collect();
        for (index, token) in statement.iter().enumerate() {
            if words[index] == from && names_a_role(&words, index) {
                text.push_str(&sql[copied..token.start]);
                text.push_str(to);
                copied = token.end;
            }
        }
    }
    match copied {
        0 => Cow::Borrowed(sql),
        _ => Cow::Owned(text + &sql[copied..]),
    }
}

/// Returns true if the word at `index` stands where the statement names a role.
fn names_a_role(words: &[Cow<'_, str>], index: usize) -> bool {
    // An element of a list has the meaning of the first one
    let mut before = index;
    while before >= 2 && words[before - 1] == "," {
        before -= 2;
    }
    let word = |back: usize| before.checked_sub(back).map_or("", |at| &*words[at]);
    let statement = &*words[0];
    match (word(1), word(2)) {
        ("role" | "user" | "group", _) => matches!(statement, "set" | "alter" | "drop" | "create"),
        ("authorization", "session" | "schema" | _) => matches!(statement, "set" | "create"),
        ("to", "rename") => false,
        ("to", _) => matches!(statement, "alter" | "grant" | "create" | "reassign"),
        ("from", _) => {
            matches!(statement, "revoke") || statement == "alter" && words.iter().any(|word| word == "revoke")
        }
        ("by", "owned" | "granted") => true,
        ("grant" | "revoke", _) => before == 1 && !words.iter().any(|word| word == "on"),
        _ => false,
    }
}

/// Returns an identifier as PostgreSQL understands it; other tokens are themselves.
fn word(token: &str) -> Cow<'_, str> {
    match token.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => Cow::Borrowed(quoted),
        None => Cow::Owned(token.to_ascii_lowercase()),
    }
}

/// Returns the positions of words, quoted identifiers, literals and other characters, without
/// comments.
fn tokens(sql: &str) -> Vec<Range<usize>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(next) = sql[at..].chars().next() {
        let rest = &sql[at..];
        let length = if next.is_whitespace() {
            at += next.len_utf8();
            continue;
        } else if rest.starts_with("--") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        } else if rest.starts_with("/*") {
            at += comment(rest);
            continue;
        } else if next == '"' {
            quoted(rest, '"', false)
        } else if next == '\'' {
            let escapes = at > 0
                && sql[..at].ends_with(['e', 'E'])
                && tokens.last().is_some_and(|last: &Range<usize>| last.len() == 1 && last.end == at);
            quoted(rest, '\'', escapes)
        } else if let Some(length) = (next == '$').then(|| dollar_quoted(rest)).flatten() {
            length
        } else if is_in_word(next) {
            rest.find(|c| !is_in_word(c)).unwrap_or(rest.len())
        } else {
            next.len_utf8()
        };
        tokens.push(at..at + length);
        at += length;
    }
    tokens
}

fn is_in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length of a comment, which may contain others.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Returns the length of a text in quotes; doubled quotes are part of it.
fn quoted(text: &str, quote: char, escapes: bool) -> usize {
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = characters.next() {
        if escapes && c == '\\' {
            characters.next();
        } else if c == quote && characters.next_if(|(_, next)| *next == quote).is_none() {
            return at + 1;
        }
    }
    text.len()
}

/// Returns the length of a text in dollar quotes, if it is one.
fn dollar_quoted(text: &str) -> Option<usize> {
    let end = text[1..].find('$')? + 2;
    let tag = &text[..end];
    if !tag[1..end - 1].chars().all(is_in_word) || tag[1..].starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some(text[end..].find(tag).map_or(text.len(), |close| end + close + end))
}

#[cfg(test)]
mod tests {
    use super::replaced;

    #[test]
    fn a_role_is_replaced_where_a_statement_names_one() {
        for (sql, expected) in [
            ("ALTER TABLE \"public\".\"t\" OWNER TO \"postgres\";", "ALTER TABLE \"public\".\"t\" OWNER TO o;"),
            ("set role postgres", "set role o"),
            (
                "set local role 'x'; SET SESSION AUTHORIZATION Postgres",
                "set local role 'x'; SET SESSION AUTHORIZATION o",
            ),
            (
                "grant all on database postgres to anon, postgres, \"a\"",
                "grant all on database postgres to anon, o, \"a\"",
            ),
            ("revoke all on t from postgres, anon", "revoke all on t from o, anon"),
            (
                "alter default privileges for role postgres in schema postgres grant all on tables to postgres, anon",
                "alter default privileges for role o in schema postgres grant all on tables to o, anon",
            ),
            (
                "alter default privileges for user \"postgres\" revoke all on tables from \"postgres\"",
                "alter default privileges for user o revoke all on tables from o",
            ),
            ("create schema s authorization postgres", "create schema s authorization o"),
            (
                "create policy p on t to anon /* , */, postgres -- postgres\n using (true)",
                "create policy p on t to anon /* , */, o -- postgres\n using (true)",
            ),
            ("reassign owned by postgres to x", "reassign owned by o to x"),
            ("grant postgres to x; grant select on postgres to x", "grant o to x; grant select on postgres to x"),
            ("grant x to postgres granted by postgres", "grant x to o granted by o"),
            ("alter role postgres set a to 'postgres'", "alter role o set a to 'postgres'"),
        ] {
            assert_eq!(replaced(sql, "postgres", "o"), expected, "{sql}");
        }
        for sql in [
            "select * from postgres",
            "create view v as select a from postgres order by postgres",
            "alter table t rename to postgres",
            "set search_path to postgres",
            "alter database postgres set x = 1",
            "create function f() returns text language sql as $f$ set role postgres $f$",
            "select E'it\\'s; set role postgres'",
            "comment on role postgres is 'set role postgres'",
            "drop schema postgres",
            "/* set /* role */ postgres */ select 'é'",
            "create table a (to_postgres text, postgres text)",
        ] {
            assert_eq!(replaced(sql, "postgres", "o"), sql);
        }
    }
}
