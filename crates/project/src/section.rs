//! Reads typed values from the configuration tree.
//!
//! A [`Section`] is one table. Reading a key applies the rules of the format: the environment
//! overrides the file, `env(NAME)` is replaced, text is converted to the requested type, and a
//! wrong type becomes a [`Problem`] with file, line and key. Keys that were never read are unknown
//! keys when the section is dropped.

mod secret;

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;

use crate::document::{Node, Origin, Value};
use crate::encrypted::DecryptionKeys;
use crate::environment::Environment;
use crate::error::{Problem, SourcePosition, Warning, WarningKind};
use crate::nearest::nearest;
use crate::units;

/// The treatment of unknown keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnknownKeys {
    /// They are warnings: newer versions of the format add keys.
    Warn,
    /// They are errors: only Portico reads the file.
    Fail,
}

/// One pass over a configuration tree, with its findings.
pub(crate) struct Reading<'e> {
    environment: &'e Environment,
    keys: DecryptionKeys,
    /// `SUPABASE` or `PORTICO`: the prefix of overriding variables.
    variable_prefix: &'static str,
    unknown: UnknownKeys,
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Warning>>,
}

impl<'e> Reading<'e> {
    pub fn new(environment: &'e Environment, variable_prefix: &'static str, unknown: UnknownKeys) -> Self {
        Self {
            environment,
            keys: DecryptionKeys::from_environment(environment),
            variable_prefix,
            unknown,
            problems: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    pub fn environment(&self) -> &'e Environment {
        self.environment
    }

    /// Returns the root table of a tree.
    pub fn root<'r, 'n>(&'r self, node: &'n Node) -> Section<'r, 'e, 'n> {
        Section {
            reading: self,
            path: String::new(),
            table: node.as_table(),
            origin: Some(&node.origin),
            asked: Vec::new(),
            unresolved: Vec::new(),
            takes_any: false,
            quiet: false,
        }
    }

    /// Adds a problem that makes the configuration unusable.
    pub fn fail(&self, place: Option<SourcePosition>, key: impl Into<String>, message: impl Into<String>) {
        self.problems.borrow_mut().push(Problem { place, key: key.into(), message: message.into() });
    }

    /// Adds a warning.
    pub fn warn(
        &self,
        kind: WarningKind,
        place: Option<SourcePosition>,
        key: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.warnings.borrow_mut().push(Warning { kind, place, key: key.into(), message: message.into() });
    }

    pub fn into_findings(self) -> (Vec<Problem>, Vec<Warning>) {
        (self.problems.into_inner(), self.warnings.into_inner())
    }
}

/// A table of the configuration. If it is absent, all of its keys are.
pub(crate) struct Section<'r, 'e, 'n> {
    reading: &'r Reading<'e>,
    path: String,
    table: Option<&'n IndexMap<String, Node>>,
    origin: Option<&'n Origin>,
    asked: Vec<&'static str>,
    /// Keys that are written, but as an `env(NAME)` without a value.
    unresolved: Vec<String>,
    /// True if the names in the table are the user's own, so that none is unknown.
    takes_any: bool,
    quiet: bool,
}

/// A value that was found, with its description for messages.
struct Found<'n> {
    value: Source<'n>,
    place: Option<SourcePosition>,
    /// The variable that it came from; if there is one, the text is never shown.
    variable: Option<String>,
}

enum Source<'n> {
    Written(&'n Value),
    Text(String),
}

impl Found<'_> {
    fn kind(&self) -> &'static str {
        match &self.value {
            Source::Written(value) => value.kind(),
            Source::Text(_) => "text",
        }
    }

    /// Returns the value for an error message, without anything that may be secret.
    fn shown(&self) -> String {
        match (&self.variable, &self.value) {
            (Some(variable), _) => format!("the value of {variable}"),
            (None, Source::Written(Value::Text(text))) => {
                let short: String = text.chars().take(40).collect();
                format!("{short:?}")
            }
            (None, Source::Written(Value::Integer(number))) => number.to_string(),
            (None, _) => self.kind().to_owned(),
        }
    }

    fn text(&self) -> Option<&str> {
        match &self.value {
            Source::Written(Value::Text(text)) => Some(text),
            Source::Written(_) => None,
            Source::Text(text) => Some(text),
        }
    }
}

impl<'r, 'e, 'n> Section<'r, 'e, 'n> {
    /// Returns the full name of a key of this section. An empty name is the section itself.
    pub fn key(&self, name: &str) -> String {
        match (self.path.is_empty(), name.is_empty()) {
            (true, _) => name.to_owned(),
            (false, true) => self.path.clone(),
            (false, false) => format!("{}.{name}", self.path),
        }
    }

    /// Returns the pass of this section.
    pub fn reading(&self) -> &'r Reading<'e> {
        self.reading
    }

    /// Returns true if the table is written.
    pub fn is_present(&self) -> bool {
        self.table.is_some()
    }

    /// Suppresses warnings about unset variables in this section: a feature that is off needs no
    /// secrets.
    pub fn quiet_unless(&mut self, is_used: bool) {
        self.quiet |= !is_used;
    }

    /// Returns true if the section, or one around it, is off.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Returns the position of a key, else of its table.
    pub fn place(&self, name: &str) -> Option<SourcePosition> {
        match self.node(name) {
            Some(node) => Some(node.origin.place()),
            None => self.table.and(self.origin).filter(|_| !self.path.is_empty()).map(Origin::place),
        }
    }

    fn node(&self, name: &str) -> Option<&'n Node> {
        self.table?.get(name)
    }

    /// Adds a problem with a key of this section.
    pub fn fail(&self, name: &str, message: impl Into<String>) {
        self.reading.fail(self.place(name), self.key(name), message);
    }

    /// Returns a nested table.
    pub fn section(&mut self, name: &'static str) -> Section<'r, 'e, 'n> {
        self.asked.push(name);
        self.below(name)
    }

    fn below(&self, name: &str) -> Section<'r, 'e, 'n> {
        let key = self.key(name);
        let node = self.node(name);
        let table = node.and_then(Node::as_table);
        if let Some(node) = node
            && table.is_none()
        {
            self.reading.fail(
                Some(node.origin.place()),
                key.clone(),
                format!("{key}: expected a table, found {}", node.value.kind()),
            );
        }
        Section {
            reading: self.reading,
            path: key,
            table,
            origin: node.map(|node| &node.origin),
            asked: Vec::new(),
            unresolved: Vec::new(),
            takes_any: false,
            quiet: self.quiet,
        }
    }

    /// Returns the names in this table, which are the user's own.
    pub fn names(&mut self) -> Vec<&'n str> {
        self.takes_any = true;
        self.table.map(|table| table.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    /// Returns true if one of the user's own names is a table.
    pub fn holds_table(&self, name: &str) -> bool {
        self.node(name).is_some_and(|node| node.as_table().is_some())
    }

    /// Returns nested tables whose names are the user's own.
    pub fn sections(&mut self) -> Vec<(&'n str, Section<'r, 'e, 'n>)> {
        self.names().into_iter().map(|name| (name, self.below(name))).collect()
    }

    /// Returns the tables of an array of tables.
    pub fn list_of_sections(&mut self, name: &'static str) -> Vec<Section<'r, 'e, 'n>> {
        self.asked.push(name);
        let Some(node) = self.node(name) else { return Vec::new() };
        let Value::Array(items) = &node.value else {
            self.fail(name, format!("{}: expected a list of tables, found {}", self.key(name), node.value.kind()));
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{}[{index}]", self.key(name));
            if item.as_table().is_none() {
                self.reading.fail(
                    Some(item.origin.place()),
                    path.clone(),
                    format!("{path}: expected a table, found {}", item.value.kind()),
                );
            }
            sections.push(Section {
                reading: self.reading,
                path,
                table: item.as_table(),
                origin: Some(&item.origin),
                asked: Vec::new(),
                unresolved: Vec::new(),
                takes_any: false,
                quiet: self.quiet,
            });
        }
        sections
    }

    /// Returns the name of the variable that overrides a key.
    fn variable(&self, name: &str) -> String {
        let path = self.key(name).to_uppercase().replace(['.', '-'], "_");
        format!("{}_{path}", self.reading.variable_prefix)
    }

    /// Finds a value: the environment before the file, `env(NAME)` replaced.
    fn find(&mut self, name: &str) -> Option<Found<'n>> {
        let node = self.node(name);
        if !node.is_some_and(|node| node.origin.beats_environment) {
            let variable = self.variable(name);
            if let Some(text) = self.reading.environment.get(&variable) {
                return self.resolve(name, text.to_owned(), None, Some(variable));
            }
        }
        let node = node?;
        let place = Some(node.origin.place());
        match &node.value {
            Value::Text(text) if reference(text).is_some() => self.resolve(name, text.clone(), place, None),
            value => Some(Found { value: Source::Written(value), place, variable: None }),
        }
    }

    /// Replaces a text that is an `env(NAME)` as a whole.
    fn resolve(
        &mut self,
        name: &str,
        text: String,
        place: Option<SourcePosition>,
        variable: Option<String>,
    ) -> Option<Found<'n>> {
        let Some(wanted) = reference(&text) else {
            return Some(Found { value: Source::Text(text), place, variable });
        };
        match self.reading.environment.get(wanted) {
            Some(value) => {
                Some(Found { value: Source::Text(value.to_owned()), place, variable: Some(wanted.to_owned()) })
            }
            None => {
                let wanted = wanted.to_owned();
                self.report_unset(name, &wanted, place);
                None
            }
        }
    }

    fn report_unset(&mut self, name: &str, variable: &str, place: Option<SourcePosition>) {
        self.unresolved.push(name.to_owned());
        if !self.quiet {
            let key = self.key(name);
            let message = format!("environment variable is unset: {variable} ({key} counts as not set)");
            self.reading.warn(WarningKind::UnsetVariable, place, key, message);
        }
    }

    fn mismatch(&self, name: &str, found: &Found<'_>, expected: &str) {
        let key = self.key(name);
        let message = format!("{key}: expected {expected}, found {}", found.shown());
        self.reading.fail(found.place.clone(), key, message);
    }

    /// Reads a value that `convert` converts. If it fails, the problem names what was `expected`.
    fn convert<T>(&mut self, name: &str, expected: &str, convert: impl FnOnce(&Source<'n>) -> Option<T>) -> Option<T> {
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
            Source::Text(text) | Source::Written(Value::Text(text)) => Some(text.clone()),
            Source::Written(Value::Integer(number)) => Some(number.to_string()),
            Source::Written(_) => None,
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
            Source::Written(Value::Boolean(is_true)) => Some(*is_true),
            Source::Text(text) | Source::Written(Value::Text(text)) => match text.as_str() {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
                _ => None,
            },
            Source::Written(_) => None,
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
                Source::Written(Value::Integer(number)) => *number,
                Source::Text(text) | Source::Written(Value::Text(text)) => text.trim().parse().ok()?,
                Source::Written(_) => return None,
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
            Source::Text(text) | Source::Written(Value::Text(text)) => units::duration(text),
            Source::Written(Value::Integer(0)) => Some(Duration::ZERO),
            Source::Written(_) => None,
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
            Source::Text(text) | Source::Written(Value::Text(text)) => units::size(text),
            Source::Written(Value::Integer(number)) => u64::try_from(*number).ok(),
            Source::Written(_) => None,
        })
    }

    /// Reads a list of texts. One text is a list separated by commas.
    pub fn list(&mut self, name: &'static str) -> Option<Vec<String>> {
        self.asked.push(name);
        self.any_list(name)
    }

    /// As [`Self::list`], under one of the user's own names.
    pub fn any_list(&mut self, name: &str) -> Option<Vec<String>> {
        let found = self.find(name)?;
        if let Some(text) = found.text() {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            return Some(items.map(str::to_owned).collect());
        }
        let Source::Written(Value::Array(items)) = found.value else {
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
                        None => self.report_unset(name, variable, Some(item.origin.place())),
                    },
                },
                Value::Integer(number) => list.push(number.to_string()),
                other => {
                    let key = self.key(name);
                    let message = format!("{key}: expected a list of texts, found {} in it", other.kind());
                    self.reading.fail(Some(item.origin.place()), key, message);
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
            self.reading.fail(found.place, key, message);
        }
        chosen.map(|(_, value)| *value)
    }

    /// Accepts a key that has no effect.
    pub fn ignore(&mut self, name: &'static str) {
        self.asked.push(name);
    }

    /// Adds a problem if a required key is missing, unless the section is off. A key that is
    /// written but whose variable is unset has had its warning already.
    pub fn require(&self, name: &str, is_given: bool) {
        if !is_given && !self.quiet && !self.unresolved.iter().any(|unresolved| unresolved == name) {
            self.fail(name, format!("Missing required field in config: {}", self.key(name)));
        }
    }
}

impl Drop for Section<'_, '_, '_> {
    fn drop(&mut self) {
        let Some(table) = self.table else { return };
        if self.takes_any {
            return;
        }
        for (name, node) in table {
            if self.asked.contains(&name.as_str()) {
                continue;
            }
            let key = self.key(name);
            let meant = match nearest(name, self.asked.iter().copied()) {
                Some(known) => format!("; did you mean {}?", self.key(known)),
                None => String::new(),
            };
            let place = Some(node.origin.place());
            match self.reading.unknown {
                UnknownKeys::Warn => {
                    let message = format!("unknown key {key} has no effect{meant}");
                    self.reading.warn(WarningKind::UnknownKey, place, key, message);
                }
                UnknownKeys::Fail => self.reading.fail(place, key.clone(), format!("unknown key {key}{meant}")),
            }
        }
    }
}

/// Returns the name of the variable if the whole text is `env(NAME)`.
pub(crate) fn reference(text: &str) -> Option<&str> {
    let name = text.strip_prefix("env(")?.strip_suffix(')')?;
    (!name.is_empty() && !name.contains(['(', ')', ' ', '\n'])).then_some(name)
}
