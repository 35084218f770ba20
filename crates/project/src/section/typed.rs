//! The types of values: text, numbers, durations, lists, words.

use std::path::PathBuf;
use std::time::Duration;

use super::Section;
use super::found_value::{ValueSource, reference};
use crate::document::Value;
use crate::units;

impl<'n> Section<'_, '_, 'n> {
    /// Reads a value that `convert` converts. If it fails, the problem names what was `expected`.
    fn convert<T>(
        &mut self,
        name: &str,
        expected: &str,
        convert: impl FnOnce(&ValueSource<'n>) -> Option<T>,
    ) -> Option<T> {
        let found = self.find(name)?;
        let converted = convert(&found.value);
        if converted.is_none() {
            self.mismatch(name, &found, expected);
        }
        converted
    }

    /// Reads text. A number becomes its digits.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        self.asked.push(name);
        self.any_text(name)
    }

    /// Reads text under one of the user's own names.
    pub fn any_text(&mut self, name: &str) -> Option<String> {
        self.convert(name, "text", |source| match source {
            ValueSource::Text(text) | ValueSource::Written(Value::Text(text)) => Some(text.clone()),
            ValueSource::Written(Value::Integer(number)) => Some(number.to_string()),
            ValueSource::Written(_) => None,
        })
    }

    /// Reads text with a default.
    pub fn text_or(&mut self, name: &'static str, default: &str) -> String {
        self.text(name).unwrap_or_else(|| default.to_owned())
    }

    /// Reads a path as written. The caller knows what it is relative to.
    pub fn path(&mut self, name: &'static str) -> Option<PathBuf> {
        self.text(name).filter(|text| !text.is_empty()).map(PathBuf::from)
    }

    /// Reads a boolean.
    pub fn flag(&mut self, name: &'static str) -> Option<bool> {
        self.asked.push(name);
        self.convert(name, "true or false", |source| match source {
            ValueSource::Written(Value::Boolean(is_true)) => Some(*is_true),
            ValueSource::Text(text) | ValueSource::Written(Value::Text(text)) => match text.as_str() {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
                _ => None,
            },
            ValueSource::Written(_) => None,
        })
    }

    /// Reads a boolean with a default.
    pub fn flag_or(&mut self, name: &'static str, default: bool) -> bool {
        self.flag(name).unwrap_or(default)
    }

    /// Reads a whole number that fits into `T`.
    pub fn number<T: TryFrom<i64>>(&mut self, name: &'static str) -> Option<T> {
        self.asked.push(name);
        let expected = match size_of::<T>() {
            2 => "a whole number from 0 to 65535",
            _ => "a whole number that is not negative",
        };
        self.convert(name, expected, |source| {
            let number = match source {
                ValueSource::Written(Value::Integer(number)) => *number,
                ValueSource::Text(text) | ValueSource::Written(Value::Text(text)) => text.trim().parse().ok()?,
                ValueSource::Written(_) => return None,
            };
            T::try_from(number).ok()
        })
    }

    /// Reads a whole number with a default.
    pub fn number_or<T: TryFrom<i64>>(&mut self, name: &'static str, default: T) -> T {
        self.number(name).unwrap_or(default)
    }

    /// Reads a duration such as `"1h30m"`.
    pub fn duration(&mut self, name: &'static str) -> Option<Duration> {
        self.asked.push(name);
        self.convert(name, "a duration such as \"90s\" or \"1h30m\"", |source| match source {
            ValueSource::Text(text) | ValueSource::Written(Value::Text(text)) => units::duration(text),
            ValueSource::Written(Value::Integer(0)) => Some(Duration::ZERO),
            ValueSource::Written(_) => None,
        })
    }

    /// Reads a duration with a default.
    pub fn duration_or(&mut self, name: &'static str, default: Duration) -> Duration {
        self.duration(name).unwrap_or(default)
    }

    /// Reads a size in bytes such as `"50MiB"`.
    pub fn size(&mut self, name: &'static str) -> Option<u64> {
        self.asked.push(name);
        self.convert(name, "a size such as \"50MiB\" or a number of bytes", |source| match source {
            ValueSource::Text(text) | ValueSource::Written(Value::Text(text)) => units::size(text),
            ValueSource::Written(Value::Integer(number)) => u64::try_from(*number).ok(),
            ValueSource::Written(_) => None,
        })
    }

    /// Reads a list of texts. One text is a list separated by commas.
    pub fn list(&mut self, name: &'static str) -> Option<Vec<String>> {
        self.asked.push(name);
        self.any_list(name)
    }

    /// Like [`Self::list`], but under one of the user's own names.
    pub fn any_list(&mut self, name: &str) -> Option<Vec<String>> {
        let found = self.find(name)?;
        if let Some(text) = found.text() {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            return Some(items.map(str::to_owned).collect());
        }
        let ValueSource::Written(Value::Array(items)) = found.value else {
            self.mismatch(name, &found, "a list of texts");
            return None;
        };
        let mut list = Vec::with_capacity(items.len());
        for item in items {
            match &item.value {
                Value::Text(text) => match reference(text) {
                    None => list.push(text.clone()),
                    Some(variable) => match self.reading.environment.get(variable) {
                        Some(value) => list.push(value.to_owned()),
                        None => self.report_unset(name, variable, Some(item.origin.position())),
                    },
                },
                Value::Integer(number) => list.push(number.to_string()),
                other => {
                    let key = self.key(name);
                    let message = format!("{key}: expected a list of texts, found {} in it", other.kind());
                    self.reading.fail(Some(item.origin.position()), key, message);
                }
            }
        }
        Some(list)
    }

    /// Reads a list of texts with a default.
    pub fn list_or(&mut self, name: &'static str, default: &[&str]) -> Vec<String> {
        self.list(name).unwrap_or_else(|| default.iter().map(|item| (*item).to_owned()).collect())
    }

    /// Reads one of a few words.
    pub fn choice<T: Copy>(&mut self, name: &'static str, choices: &[(&str, T)]) -> Option<T> {
        self.asked.push(name);
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let found = self.find(name)?;
        let chosen = found.text().and_then(|text| choices.iter().find(|(word, _)| *word == text));
        if chosen.is_none() {
            let key = self.key(name);
            let message = format!("{key}: must be one of [{}], found {}", words.join(" "), found.shown());
            self.reading.fail(found.position, key, message);
        }
        chosen.map(|(_, value)| *value)
    }
}
