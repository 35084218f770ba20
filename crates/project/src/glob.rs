//! File patterns: `*`, `?`, `[a-z]`, `[^a]`, within one path segment each; no `**`.

use std::io;
use std::path::{Component, Path, PathBuf};

/// Returns the files that match a pattern relative to `base`, sorted. Folders are left out.
///
/// # Errors
/// When a folder exists and cannot be read.
pub(crate) fn files(base: &Path, pattern: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![base.to_owned()];
    for component in Path::new(pattern).components() {
        match component {
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => found = vec![PathBuf::from(component.as_os_str())],
            Component::ParentDir => found.iter_mut().for_each(|path| {
                path.pop();
            }),
            Component::Normal(segment) => {
                let segment = segment.to_string_lossy();
                let mut next = Vec::new();
                for folder in &found {
                    if segment.contains(['*', '?', '[', '\\']) {
                        matching_entries(folder, &segment, &mut next)?;
                    } else if folder.join(segment.as_ref()).exists() {
                        next.push(folder.join(segment.as_ref()));
                    }
                }
                found = next;
            }
        }
    }
    found.retain(|path| path.is_file());
    found.sort_unstable();
    Ok(found)
}

fn matching_entries(folder: &Path, segment: &str, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(()),
        Err(error) => return Err(error),
    };
    let pattern: Vec<char> = segment.chars().collect();
    for entry in entries {
        let entry = entry?;
        let name: Vec<char> = entry.file_name().to_string_lossy().chars().collect();
        if matches(&pattern, &name) {
            found.push(entry.path());
        }
    }
    Ok(())
}

/// Returns true if a whole name matches. Backtracks to the last star only, hence quadratic at
/// worst.
fn matches(pattern: &[char], name: &[char]) -> bool {
    let (mut at, mut position) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while position < name.len() || at < pattern.len() {
        if pattern.get(at) == Some(&'*') {
            retry = Some((at + 1, position));
            at += 1;
            continue;
        }
        let step = name.get(position).and_then(|character| one(&pattern[at..], *character));
        match (step, retry) {
            (Some(length), _) => {
                at += length;
                position += 1;
            }
            (None, Some((after_star, from))) if from < name.len() => {
                retry = Some((after_star, from + 1));
                at = after_star;
                position = from + 1;
            }
            _ => return false,
        }
    }
    true
}

/// Matches one character against the beginning of a pattern. Returns how much of the pattern that
/// consumed.
fn one(pattern: &[char], character: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '\\' => (pattern.get(1) == Some(&character)).then_some(2),
        '[' => {
            let is_negated = matches!(pattern.get(1), Some('^' | '!'));
            let start = if is_negated { 2 } else { 1 };
            // A bracket at the start is a member of the set
            let length = pattern[start..].iter().skip(1).position(|other| *other == ']')? + 1;
            let set = &pattern[start..start + length];
            let mut is_member = false;
            let mut index = 0;
            while index < set.len() {
                if set.get(index + 1) == Some(&'-') && index + 2 < set.len() {
                    is_member |= (set[index]..=set[index + 2]).contains(&character);
                    index += 3;
                } else {
                    is_member |= set[index] == character;
                    index += 1;
                }
            }
            (is_member != is_negated).then_some(start + length + 1)
        }
        other => (*other == character).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fits(pattern: &str, name: &str) -> bool {
        matches(&pattern.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>())
    }

    #[test]
    fn a_pattern_matches_whole_names() {
        for (pattern, name) in [
            ("*.sql", "a.sql"),
            ("*", "anything"),
            ("a*b*c", "a-b-b-c"),
            ("0?_*.sql", "01_users.sql"),
            ("[0-9]*.sql", "7.sql"),
            ("[^a]x", "bx"),
            ("[]a]", "]"),
            ("a\\*", "a*"),
            ("größe?", "größe1"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("*.sql", "a.sqlx"), ("?", ""), ("[0-9]", "a"), ("[a", "a"), ("a*b", "ac"), ("", "a"), ("a\\*", "ab")]
        {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }

    proptest! {
        #[test]
        fn no_pattern_makes_matching_panic(pattern in "[a\\[\\]*?^!\\\\-]{0,12}", name in "[a\\[\\]-]{0,8}") {
            let _ = fits(&pattern, &name);
        }

        #[test]
        fn a_star_matches_everything(name in ".{0,20}") {
            prop_assert!(fits("*", &name));
        }
    }
}
