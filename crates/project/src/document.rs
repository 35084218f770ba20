//! A TOML document as a tree in which every value knows where it was written.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{ProjectError, SourcePosition};

/// A value and its line.
#[derive(Debug, Clone)]
pub(crate) struct DocumentNode {
    pub value: Value,
    pub origin: ValueOrigin,
}

/// The source of a value.
#[derive(Debug, Clone)]
pub(crate) struct ValueOrigin {
    file: Arc<PathBuf>,
    line: usize,
    /// True for values of a chosen remote, which take precedence over the environment.
    pub beats_environment: bool,
}

impl ValueOrigin {
    pub fn position(&self) -> SourcePosition {
        SourcePosition::line(self.file.as_ref(), self.line)
    }
}

/// A TOML value. Names of tables are lower-case, in the order in which they are written.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Table(IndexMap<String, DocumentNode>),
    Array(Vec<DocumentNode>),
    Text(String),
    Integer(i64),
    Float,
    Boolean(bool),
    Date,
}

impl Value {
    /// Returns the type of the value in words, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Table(_) => "a table",
            Self::Array(_) => "a list",
            Self::Text(_) => "text",
            Self::Integer(_) => "a whole number",
            Self::Float => "a decimal number",
            Self::Boolean(_) => "true or false",
            Self::Date => "a date",
        }
    }
}

impl DocumentNode {
    /// Parses the text of a file. `shown` is the file name for messages.
    pub fn parse(text: &str, shown: &Path) -> Result<Self, ProjectError> {
        let file = Arc::new(shown.to_owned());
        let lines = LineIndex::new(text);
        let table = DeTable::parse(text).map_err(|error| ProjectError::Syntax {
            position: SourcePosition::line(shown, error.span().map_or(1, |span| lines.line(span.start))),
            message: error.message().to_owned(),
        })?;
        let reader = Reader { file, lines };
        let mut problems = Vec::new();
        let node = Self { origin: reader.origin(&(0..0)), value: reader.table(table.get_ref(), &mut problems) };
        match problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(node),
        }
    }

    /// Returns an empty table, for a project without a configuration file.
    pub fn empty() -> Self {
        Self {
            value: Value::Table(IndexMap::new()),
            origin: ValueOrigin { file: Arc::new(PathBuf::new()), line: 0, beats_environment: false },
        }
    }

    pub fn as_table(&self) -> Option<&IndexMap<String, Self>> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Returns the value at a path of lower-case names.
    pub fn find(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, name| node.as_table()?.get(*name))
    }

    /// Merges another tree into this one: tables are merged, everything else is replaced.
    pub fn merge(&mut self, over: Self) {
        match (&mut self.value, over.value) {
            (Value::Table(below), Value::Table(above)) => {
                for (name, node) in above {
                    match below.get_mut(&name) {
                        Some(existing) => existing.merge(node),
                        None => {
                            below.insert(name, node);
                        }
                    }
                }
            }
            (_, value) => *self = Self { value, origin: over.origin },
        }
    }

    /// Gives the whole tree precedence over the environment.
    pub fn beat_environment(&mut self) {
        self.origin.beats_environment = true;
        match &mut self.value {
            Value::Table(table) => table.values_mut().for_each(Self::beat_environment),
            Value::Array(items) => items.iter_mut().for_each(Self::beat_environment),
            _ => {}
        }
    }
}

struct Reader {
    file: Arc<PathBuf>,
    lines: LineIndex,
}

impl Reader {
    fn origin(&self, span: &Range<usize>) -> ValueOrigin {
        ValueOrigin { file: self.file.clone(), line: self.lines.line(span.start), beats_environment: false }
    }

    fn table(&self, table: &DeTable<'_>, problems: &mut Vec<ProjectError>) -> Value {
        let mut entries: IndexMap<String, DocumentNode> = IndexMap::with_capacity(table.len());
        for (key, value) in table {
            // Keys are case-insensitive and become lower-case
            let name = key.get_ref().to_lowercase();
            let mut node = self.node(value, problems);
            node.origin = self.origin(&key.span());
            match entries.get_mut(&name) {
                Some(existing) => existing.merge(node),
                None => {
                    entries.insert(name, node);
                }
            }
        }
        Value::Table(entries)
    }

    fn node(&self, value: &Spanned<DeValue<'_>>, problems: &mut Vec<ProjectError>) -> DocumentNode {
        let origin = self.origin(&value.span());
        let mut fail = |message: String| {
            problems.push(ProjectError::Syntax { position: origin.position(), message });
            Value::Boolean(false)
        };
        let value = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.as_ref().to_owned()),
            DeValue::Integer(number) => {
                // The parser has removed underscores and the prefix of the radix
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => Value::Integer(number),
                    Err(_) => fail("number out of range".to_owned()),
                }
            }
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(_) => Value::Float,
                Err(_) => fail("number out of range".to_owned()),
            },
            DeValue::Boolean(is_true) => Value::Boolean(*is_true),
            DeValue::Datetime(_) => Value::Date,
            DeValue::Array(items) => Value::Array(items.iter().map(|item| self.node(item, problems)).collect()),
            DeValue::Table(table) => self.table(table, problems),
        };
        DocumentNode { value, origin }
    }
}

/// An index of the lines of a text, by byte offset.
pub(crate) struct LineIndex {
    starts: Vec<usize>,
}

impl LineIndex {
    pub fn new(text: &str) -> Self {
        let after_breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(index, _)| index + 1);
        Self { starts: std::iter::once(0).chain(after_breaks).collect() }
    }

    /// Returns the 1-based line that contains the byte at `offset`.
    pub fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset).max(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_value_knows_its_line() -> Result<(), ProjectError> {
        let node = DocumentNode::parse(
            "a = 1\n\n[Auth]\nSite_URL = \"x\"\nlist = [\n 0x10,\n 2_000,\n]\n",
            Path::new("c.toml"),
        )?;
        let line = |path: &[&str]| node.find(path).map(|node| node.origin.position().to_string());
        assert_eq!(line(&["a"]).as_deref(), Some("c.toml:1"));
        assert_eq!(line(&["auth", "site_url"]).as_deref(), Some("c.toml:4"));
        let Some(Value::Array(items)) = node.find(&["auth", "list"]).map(|node| &node.value) else {
            unreachable!("the list was parsed");
        };
        assert!(matches!(items[0].value, Value::Integer(16)));
        assert!(matches!(items[1].value, Value::Integer(2000)));
        assert_eq!(items[1].origin.position().to_string(), "c.toml:7");
        Ok(())
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let error =
            DocumentNode::parse("a = 1\nb = \n", Path::new("c.toml")).map(|_| ()).map_err(|error| error.to_string());
        assert!(error.as_ref().is_err_and(|text| text.contains("c.toml:2")), "{error:?}");
        let error = DocumentNode::parse("a = 99999999999999999999999\n", Path::new("c.toml")).map(|_| ());
        assert!(matches!(error, Err(ProjectError::Syntax { .. })));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[\\[\\]={}\"'a-c.#\\n0-9_x ]{0,60}") {
            let _ = DocumentNode::parse(&text, Path::new("c.toml"));
        }
    }
}
