//! Reads typed values from the configuration tree.
//!
//! A [`Section`] is one table. Reading a key applies the rules of the format: the environment
//! overrides the file, `env(NAME)` is replaced, text is converted to the requested type, and a
//! wrong type becomes a [`Problem`] with file, line and key. Keys that were never read are unknown
//! keys when the section is dropped.

mod found_value;
mod reading;
mod secret;
mod typed;

use indexmap::IndexMap;

use crate::document::{DocumentNode, Value, ValueOrigin};
use crate::error::{SourcePosition, WarningKind};
use crate::nearest::nearest;
use found_value::{FoundValue, ValueSource, reference};

pub(crate) use reading::{ConfigReader, UnknownKeys};

/// A table of the configuration. If it is absent, all of its keys are.
pub(crate) struct Section<'r, 'e, 'n> {
    reading: &'r ConfigReader<'e>,
    path: String,
    table: Option<&'n IndexMap<String, DocumentNode>>,
    origin: Option<&'n ValueOrigin>,
    asked: Vec<&'static str>,
    /// Keys that are written, but as an `env(NAME)` without a value.
    unresolved: Vec<String>,
    /// True if the names in the table are the user's own, so that none is unknown.
    takes_any: bool,
    quiet: bool,
}

impl<'e> ConfigReader<'e> {
    /// Returns the root table of a tree.
    pub fn root<'r, 'n>(&'r self, node: &'n DocumentNode) -> Section<'r, 'e, 'n> {
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
    pub fn reading(&self) -> &'r ConfigReader<'e> {
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
    pub fn position(&self, name: &str) -> Option<SourcePosition> {
        match self.node(name) {
            Some(node) => Some(node.origin.position()),
            None => self.table.and(self.origin).filter(|_| !self.path.is_empty()).map(ValueOrigin::position),
        }
    }

    /// Returns true if the file has a key, whatever its value.
    pub fn is_written(&self, name: &str) -> bool {
        self.node(name).is_some()
    }

    fn node(&self, name: &str) -> Option<&'n DocumentNode> {
        self.table?.get(name)
    }

    /// Adds a problem with a key of this section.
    pub fn fail(&self, name: &str, message: impl Into<String>) {
        self.reading.fail(self.position(name), self.key(name), message);
    }

    /// Returns a nested table.
    pub fn section(&mut self, name: &'static str) -> Section<'r, 'e, 'n> {
        self.asked.push(name);
        self.below(name)
    }

    fn below(&self, name: &str) -> Section<'r, 'e, 'n> {
        let key = self.key(name);
        let node = self.node(name);
        let table = node.and_then(DocumentNode::as_table);
        if let Some(node) = node
            && table.is_none()
        {
            self.reading.fail(
                Some(node.origin.position()),
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
                    Some(item.origin.position()),
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
    fn find(&mut self, name: &str) -> Option<FoundValue<'n>> {
        let node = self.node(name);
        if !node.is_some_and(|node| node.origin.beats_environment) {
            let variable = self.variable(name);
            if let Some(text) = self.reading.environment.get(&variable) {
                return self.resolve(name, text.to_owned(), None, Some(variable));
            }
        }
        let node = node?;
        let position = Some(node.origin.position());
        match &node.value {
            Value::Text(text) if reference(text).is_some() => self.resolve(name, text.clone(), position, None),
            value => Some(FoundValue { value: ValueSource::Written(value), position, variable: None }),
        }
    }

    /// Replaces a text that is an `env(NAME)` as a whole.
    fn resolve(
        &mut self,
        name: &str,
        text: String,
        position: Option<SourcePosition>,
        variable: Option<String>,
    ) -> Option<FoundValue<'n>> {
        let Some(wanted) = reference(&text) else {
            return Some(FoundValue { value: ValueSource::Text(text), position, variable });
        };
        match self.reading.environment.get(wanted) {
            Some(value) => Some(FoundValue {
                value: ValueSource::Text(value.to_owned()),
                position,
                variable: Some(wanted.to_owned()),
            }),
            None => {
                let wanted = wanted.to_owned();
                self.report_unset(name, &wanted, position);
                None
            }
        }
    }

    fn report_unset(&mut self, name: &str, variable: &str, position: Option<SourcePosition>) {
        self.unresolved.push(name.to_owned());
        if !self.quiet {
            let key = self.key(name);
            let message = format!("environment variable is unset: {variable} ({key} counts as not set)");
            self.reading.warn(WarningKind::UnsetVariable, position, key, message);
        }
    }

    fn mismatch(&self, name: &str, found: &FoundValue<'_>, expected: &str) {
        let key = self.key(name);
        let message = format!("{key}: expected {expected}, found {}", found.shown());
        self.reading.fail(found.position.clone(), key, message);
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
            let position = Some(node.origin.position());
            match self.reading.unknown {
                UnknownKeys::Warn => {
                    let message = format!("unknown key {key} has no effect{meant}");
                    self.reading.warn(WarningKind::UnknownKey, position, key, message);
                }
                UnknownKeys::Fail => self.reading.fail(position, key.clone(), format!("unknown key {key}{meant}")),
            }
        }
    }
}
