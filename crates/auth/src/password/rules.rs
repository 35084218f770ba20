//! The rules for new passwords.

use crate::error::WeakPasswordReason;
use crate::settings::PasswordSettings;

pub(super) struct PasswordRules {
    min_length: usize,
    required: Vec<String>,
}

impl PasswordRules {
    pub(super) fn new(settings: &PasswordSettings) -> Self {
        Self {
            min_length: settings.min_length,
            required: settings.required_characters.iter().filter(|set| !set.is_empty()).cloned().collect(),
        }
    }

    /// Returns the rules that a password breaks, with their texts, in the order that clients
    /// expect.
    pub(super) fn broken_by(&self, password: &str) -> Vec<(WeakPasswordReason, String)> {
        let mut broken = Vec::new();
        if password.len() < self.min_length {
            let text = format!("Password should be at least {} characters.", self.min_length);
            broken.push((WeakPasswordReason::Length, text));
        }
        if !self.required.iter().all(|set| password.contains(|c| set.contains(c))) {
            let sets = self.required.join(", ");
            let text = format!("Password should contain at least one character of each: {sets}.");
            broken.push((WeakPasswordReason::Characters, text));
        }
        broken
    }
}

/// Parses the setting: sets separated by colons; `\:` is a colon.
pub fn parse_required_characters(text: &str) -> Vec<String> {
    let mut sets = vec![String::new()];
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\\' if characters.peek() == Some(&':') => {
                characters.next();
                if let Some(set) = sets.last_mut() {
                    set.push(':');
                }
            }
            ':' => sets.push(String::new()),
            other => {
                if let Some(set) = sets.last_mut() {
                    set.push(other);
                }
            }
        }
    }
    sets.retain(|set| !set.is_empty());
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_separated_by_colons() {
        assert_eq!(parse_required_characters("abc:012"), ["abc", "012"]);
        assert_eq!(parse_required_characters("a\\:b:c\\d"), ["a:b", "c\\d"]);
        assert!(parse_required_characters("").is_empty());
    }
}
