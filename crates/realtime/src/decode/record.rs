//! The columns of a row as JSON.

use std::ops::Range;
use std::sync::Arc;

use super::change::PublishedRelation;
use super::change::RelationColumn;
use super::json::write_column;
use super::json_string::write_string;
use super::shape::key_order;
use super::table::{Table, TableColumn};
use super::tuple::{ColumnValue, Tuple};
use super::types::{ColumnType, TypeCache};

/// A table as the catalog and the stream describe it, with the types of its columns.
#[derive(Debug)]
pub(crate) struct DescribedTable {
    pub table: Table,
    /// The types, in the order of the table's columns.
    types: Box<[Arc<ColumnType>]>,
    /// For each column of the table the position of its value in a message, if it is published.
    positions: Box<[Option<usize>]>,
    /// Marks the columns of the replica identity, in the order of the table's columns.
    identity: Box<[bool]>,
    /// The columns in the order of the keys of a `jsonb` object.
    key_order: Box<[usize]>,
}

impl DescribedTable {
    /// Combines what is known about a table. The types of its columns have to be loaded.
    pub fn new(table: Table, relation: &PublishedRelation, types: &TypeCache) -> Self {
        // Behind the column before, and of the same type: a column that was renamed or made anew
        // since the change has the name of another one's value
        let mut next = 0;
        let mut position = |column: &TableColumn| {
            let rest = relation.columns.get(next..).unwrap_or_default();
            let is_same = |other: &RelationColumn| other.name == column.name && other.type_oid == column.type_oid;
            let found = next + rest.iter().position(is_same)?;
            next = found + 1;
            Some(found)
        };
        let positions: Box<[_]> = table.columns.iter().map(&mut position).collect();
        let is_identity = |position: &Option<usize>| {
            position.and_then(|at| relation.columns.get(at)).is_some_and(|column| column.is_identity)
        };
        let type_of = |column: &TableColumn| types.get(column.type_oid).cloned().unwrap_or_default();
        let mut key_order_of_columns: Vec<usize> = (0..table.columns.len()).collect();
        key_order_of_columns.sort_by(|left, right| match (table.columns.get(*left), table.columns.get(*right)) {
            (Some(left), Some(right)) => key_order(&left.name, &right.name),
            _ => std::cmp::Ordering::Equal,
        });
        Self {
            types: table.columns.iter().map(type_of).collect(),
            identity: positions.iter().map(is_identity).collect(),
            positions,
            key_order: key_order_of_columns.into(),
            table,
        }
    }

    /// Returns the name of a column's type without its schema, as clients see it.
    pub fn type_name(&self, column: usize) -> &str {
        self.types.get(column).map_or("", |column_type| &column_type.name)
    }

    /// Returns the name of a column's type in SQL, with its schema and quoted.
    pub fn type_sql(&self, column: usize) -> &str {
        self.types.get(column).map_or("", |column_type| &column_type.qualified)
    }

    /// Returns true if a column belongs to the replica identity.
    pub fn is_identity(&self, column: usize) -> bool {
        self.identity.get(column).copied().unwrap_or_default()
    }

    /// Returns the value of a column of the table. `None`: it is not published.
    pub fn value<'a>(&self, tuple: &'a Tuple, column: usize) -> Option<ColumnValue<'a>> {
        self.positions.get(column).copied().flatten().and_then(|position| tuple.get(position))
    }

    /// Renders a row. A value that an update has not changed is taken from `old`, the whole old
    /// row, if there is one; otherwise the column is absent.
    ///
    /// Values that only the server can render are absent too until [`fill`](Self::fill).
    pub fn render(&self, tuple: &Tuple, old: Option<&Tuple>) -> RenderedRow {
        let mut row = RenderedRow {
            json: Vec::with_capacity(tuple.size() + 8 * self.table.columns.len()),
            columns: vec![None; self.table.columns.len()].into(),
            waiting: Vec::new(),
        };
        let values: Vec<_> = tuple.values().collect();
        let mut old_values: Option<Vec<_>> = None;
        for (column, position) in self.positions.iter().enumerate() {
            let Some(position) = *position else { continue };
            let value = match values.get(position) {
                Some(ColumnValue::Unchanged) => {
                    let old =
                        old_values.get_or_insert_with(|| old.map(|old| old.values().collect()).unwrap_or_default());
                    old.get(position)
                }
                value => value,
            };
            match value {
                None | Some(ColumnValue::Unchanged) => {}
                Some(ColumnValue::Null) => row.set(column, |json| json.extend_from_slice(b"null")),
                Some(ColumnValue::Text(text)) => self.render_text(&mut row, column, &String::from_utf8_lossy(text)),
            }
        }
        row
    }

    fn render_text(&self, row: &mut RenderedRow, column: usize, text: &str) {
        let Some(column_type) = self.types.get(column) else { return };
        let start = row.json.len();
        match write_column(&mut row.json, &column_type.shape, text) {
            Ok(()) => row.note(column, start),
            // The server knows the type as it is now
            Err(_) => {
                row.json.truncate(start);
                row.waiting.push((column, text.into()));
            }
        }
    }

    /// Returns the values of rows that only the server can render, by column.
    pub fn waiting_columns(&self, rows: &[RenderedRow]) -> Vec<WaitingColumn> {
        let waiting = self.types.iter().enumerate().map(|(column, column_type)| WaitingColumn {
            column,
            statement: column_type.rendering(),
            texts: rows.iter().flat_map(|row| row.waiting_of(column)).map(Into::into).collect(),
        });
        waiting.filter(|waiting| !waiting.texts.is_empty()).collect()
    }

    /// Fills in the values of a column that the server has rendered as JSON. `None`: it could not,
    /// since the type was changed or its cast fails; each value is its text.
    pub fn fill(&self, rows: &mut [RenderedRow], waiting: &WaitingColumn, rendered: Option<Vec<String>>) {
        let rendered = rendered.filter(|rendered| rendered.len() == waiting.texts.len());
        let mut rendered =
            rendered.unwrap_or_else(|| waiting.texts.iter().map(|text| json_string(text)).collect()).into_iter();
        for row in rows.iter_mut().filter(|row| row.waiting_of(waiting.column).next().is_some()) {
            let Some(json) = rendered.next() else { return };
            row.set(waiting.column, |out| out.extend_from_slice(json.as_bytes()));
            row.waiting.retain(|(column, _)| *column != waiting.column);
        }
    }

    /// Writes the object of a row with those columns that `includes` accepts, by their position in
    /// the table.
    pub fn write_object(&self, out: &mut Vec<u8>, row: &RenderedRow, includes: impl Fn(usize, &TableColumn) -> bool) {
        out.push(b'{');
        let mut is_first = true;
        for position in &self.key_order {
            let Some(column) = self.table.columns.get(*position) else { continue };
            let Some(json) = row.column(*position).filter(|_| includes(*position, column)) else { continue };
            if !is_first {
                out.push(b',');
            }
            is_first = false;
            write_string(out, &column.name);
            out.push(b':');
            out.extend_from_slice(json);
        }
        out.push(b'}');
    }
}

fn json_string(text: &str) -> String {
    let mut json = Vec::new();
    write_string(&mut json, text);
    String::from_utf8_lossy(&json).into_owned()
}

/// Values of a column that only the server can render.
#[derive(Debug)]
pub(crate) struct WaitingColumn {
    column: usize,
    /// Renders the values. Its parameter is an array of their texts; it has a row of JSON text for
    /// each. A cast may be a function of the project, which runs with the rights of the role that
    /// runs the statement.
    pub statement: String,
    /// PostgreSQL's text form of the values.
    pub texts: Vec<Box<str>>,
}

/// A row whose columns are JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RenderedRow {
    json: Vec<u8>,
    /// The place of each column of the table in `json`. `None`: absent.
    columns: Box<[Option<Range<usize>>]>,
    /// The columns that only the server can render, and their text.
    waiting: Vec<(usize, Box<str>)>,
}

impl RenderedRow {
    /// Returns the JSON of a column, by its position in the table. `None`: the value is not known.
    pub fn column(&self, column: usize) -> Option<&[u8]> {
        self.columns.get(column)?.clone().and_then(|range| self.json.get(range))
    }

    /// Returns true if values wait for the server.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the size of all columns together, in bytes.
    pub fn size(&self) -> usize {
        self.json.len()
    }

    fn waiting_of(&self, column: usize) -> impl Iterator<Item = &str> {
        self.waiting.iter().filter(move |(waiting, _)| *waiting == column).map(|(_, text)| &**text)
    }

    fn set(&mut self, column: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.json.len();
        write(&mut self.json);
        self.note(column, start);
    }

    fn note(&mut self, column: usize, start: usize) {
        if let Some(place) = self.columns.get_mut(column) {
            *place = Some(start..self.json.len());
        }
    }
}
