//! The effect of a statement on the emulated session.

use crate::statement_words::words;

/// The meaning of a statement that is sent outside of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SessionStatement<'a> {
    /// Begins a transaction that stays open; other statements may follow in the same text.
    Begin { begin: &'a str, rest: &'a str },
    /// Changes settings of the session; the statements that do the same for one transaction.
    Settings(Vec<String>),
    /// Cannot run inside of a transaction.
    OutsideTransaction,
    /// Runs in a transaction of its own.
    Other,
}

impl<'a> SessionStatement<'a> {
    /// Reads a text of one or more statements.
    pub fn read(text: &'a str) -> Self {
        let first = first_words(text);
        let first: Vec<&str> = first.iter().map(String::as_str).collect();
        match first.as_slice() {
            ["begin", ..] | ["start", "transaction", ..] => {
                let (begin, rest) = text.split_once(';').unwrap_or((text, ""));
                Self::Begin { begin, rest: rest.trim() }
            }
            ["set" | "reset", ..] => Self::settings(text).map_or(Self::Other, Self::Settings),
            ["vacuum" | "cluster", ..]
            | ["create" | "drop", "database" | "tablespace" | "subscription", ..]
            | ["alter", "system", ..] => Self::OutsideTransaction,
            ["create" | "drop" | "reindex", rest @ ..] if rest.contains(&"concurrently") => Self::OutsideTransaction,
            _ => Self::Other,
        }
    }

    fn settings(text: &str) -> Option<Vec<String>> {
        let statements = text.split(';').map(str::trim).filter(|statement| !statement.is_empty());
        statements.map(local).collect()
    }
}

/// Returns true if a statement sets the role or the session user.
pub(super) fn sets_role(statement: &str) -> bool {
    let found = first_words(statement);
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    matches!(
        found.as_slice(),
        ["set", "local", "role", ..]
            | ["set", "local", "session", "authorization", ..]
            | ["reset", "role", ..]
            | ["reset", "session", "authorization", ..]
    )
}

/// Returns true if a text ends the transaction in which it is sent.
pub(super) fn ends_transaction(text: &str) -> bool {
    let first = first_words(text);
    let first: Vec<&str> = first.iter().map(String::as_str).collect();
    match first.as_slice() {
        [.., "chain"] => false,
        ["rollback" | "abort", "to", ..] | ["rollback" | "abort", "work" | "transaction", "to", ..] => false,
        ["commit" | "rollback", "prepared", ..] => false,
        ["commit" | "end" | "rollback" | "abort", ..] => true,
        _ => false,
    }
}

/// Returns the statement that does for one transaction what `statement` does for a session.
fn local(statement: &str) -> Option<String> {
    let found = first_words(statement);
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    let behind = |word: &str| {
        let at = statement.to_ascii_lowercase().find(word)? + word.len();
        Some(format!("set local{}", &statement[at..]))
    };
    match found.as_slice() {
        ["reset", ..] => Some(statement.to_owned()),
        ["set", "local" | "transaction" | "constraints", ..] | ["set", "session", "characteristics", ..] => None,
        ["set", "session", "authorization", ..] => behind("set"),
        ["set", "session", ..] => behind("session"),
        ["set", ..] => behind("set"),
        _ => None,
    }
}

fn first_words(text: &str) -> Vec<String> {
    let mut rest = text;
    words(&mut rest).take(6).collect()
}

#[cfg(test)]
mod tests {
    use super::{SessionStatement, ends_transaction};

    #[test]
    fn statements_are_classified_by_their_first_words() {
        let begin = SessionStatement::Begin { begin: "-- x\nBEGIN ISOLATION LEVEL SERIALIZABLE", rest: "" };
        assert_eq!(SessionStatement::read("-- x\nBEGIN ISOLATION LEVEL SERIALIZABLE"), begin);
        let begin = SessionStatement::Begin { begin: "begin", rest: "select 1; commit" };
        assert_eq!(SessionStatement::read("begin; select 1; commit"), begin);
        for text in ["vacuum", "drop database if exists x with (force)", "create unique index concurrently i on t (x)"]
        {
            assert_eq!(SessionStatement::read(text), SessionStatement::OutsideTransaction, "{text}");
        }
        for text in ["", "select 'begin'", "set local role anon", "create index i on t (x)", "set a = 1; select 1"] {
            assert_eq!(SessionStatement::read(text), SessionStatement::Other, "{text}");
        }
    }

    #[test]
    fn settings_of_a_session_become_settings_of_a_transaction() {
        let set = "set statement_timeout = '60s'; SET SESSION timezone = 'UTC'; set session authorization a; reset all";
        let local = [
            "set local statement_timeout = '60s'",
            "set local timezone = 'UTC'",
            "set local session authorization a",
            "reset all",
        ];
        assert_eq!(SessionStatement::read(set), SessionStatement::Settings(local.map(str::to_owned).to_vec()));
    }

    #[test]
    fn the_end_of_a_transaction_is_recognised() {
        assert!(["COMMIT", "end", "rollback", " abort work"].into_iter().all(ends_transaction));
        let others =
            ["rollback to savepoint s", "rollback to s", "commit and chain", "commit prepared 'x'", "select 1"];
        assert!(!others.into_iter().any(ends_transaction));
    }
}
