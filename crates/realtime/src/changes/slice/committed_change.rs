//! A change as filters, policies and messages look at it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::changes::entries::column_test::FieldValue;
use crate::changes::entries::entry::ChangeAction;
use crate::decode::{Change, ChangeKind, ColumnValue, CommitTime, DescribedTable, OldTuple, Tuple};

/// The primary key of a row: its values in PostgreSQL's text form, in the order of the columns.
pub(crate) type RowKey = Box<[Box<str>]>;

/// A committed change of a row.
#[derive(Debug)]
pub(crate) struct CommittedChange {
    pub commit_time: CommitTime,
    pub table: Arc<DescribedTable>,
    pub change: Change,
}

impl CommittedChange {
    /// Returns the kind.
    pub fn action(&self) -> ChangeAction {
        match self.change.kind {
            ChangeKind::Insert { .. } => ChangeAction::Insert,
            ChangeKind::Update { .. } => ChangeAction::Update,
            ChangeKind::Delete { .. } => ChangeAction::Delete,
        }
    }

    /// Returns true if the policies decide about the change, as its table was described.
    pub fn needs_rows(&self) -> bool {
        self.action() != ChangeAction::Delete && self.table.table.has_row_security
    }

    /// Returns the size of the row's values in bytes.
    pub fn size(&self) -> usize {
        match &self.change.kind {
            ChangeKind::Insert { new } => new.size(),
            ChangeKind::Update { old, new } => new.size() + old.as_ref().map_or(0, |old| old.tuple().size()),
            ChangeKind::Delete { old } => old.tuple().size(),
        }
    }

    /// Returns schema and name of the table.
    pub fn table_name(&self) -> (&str, &str) {
        (&self.table.table.schema, &self.table.table.name)
    }

    /// Returns the new row, and the whole old one if it is known.
    pub fn new_row(&self) -> Option<(&Tuple, Option<&Tuple>)> {
        match &self.change.kind {
            ChangeKind::Insert { new } => Some((new, None)),
            ChangeKind::Update { old: Some(OldTuple::Full(old)), new } => Some((new, Some(old))),
            ChangeKind::Update { new, .. } => Some((new, None)),
            ChangeKind::Delete { .. } => None,
        }
    }

    /// Returns the row with the old values of the replica identity. That of an update that has not
    /// changed them is the new row.
    pub fn old_row(&self) -> Option<&Tuple> {
        match &self.change.kind {
            ChangeKind::Insert { .. } => None,
            ChangeKind::Update { old: None, new } => Some(new),
            ChangeKind::Update { old: Some(old), .. } | ChangeKind::Delete { old } => Some(old.tuple()),
        }
    }

    /// Returns true if the change contains old values.
    pub fn has_old_values(&self) -> bool {
        matches!(self.change.kind, ChangeKind::Update { old: Some(_), .. } | ChangeKind::Delete { .. })
    }

    /// Returns the values that filters compare, by column: of the new row, or of what is known of a
    /// deleted one.
    pub fn fields(&self) -> HashMap<&str, FieldValue<'_>> {
        let columns = self.table.table.columns.iter().enumerate();
        columns.map(|(at, column)| (&*column.name, self.field(at, column.type_oid))).collect()
    }

    /// Returns one of the [`fields`](Self::fields), with its name in the table's description.
    pub fn named_field(&self, name: &str) -> Option<(&str, FieldValue<'_>)> {
        let mut columns = self.table.table.columns.iter().enumerate();
        let (at, column) = columns.find(|(_, column)| *column.name == *name)?;
        Some((&column.name, self.field(at, column.type_oid)))
    }

    /// Returns the primary key of the new row. `None`: the change does not contain all of it.
    pub fn key(&self) -> Option<RowKey> {
        let columns = self.table.table.columns.iter().enumerate().filter(|(_, column)| column.is_primary_key);
        columns.map(|(at, _)| self.value(at).and_then(text).map(Into::into)).collect()
    }

    fn field(&self, column: usize, type_oid: u32) -> FieldValue<'_> {
        match self.value(column) {
            Some(ColumnValue::Null) => FieldValue::Null,
            Some(value) => text(value).map_or(FieldValue::Absent, |text| FieldValue::of_text(type_oid, text)),
            None => FieldValue::Absent,
        }
    }

    fn value(&self, column: usize) -> Option<ColumnValue<'_>> {
        let table = &self.table;
        match &self.change.kind {
            ChangeKind::Delete { old: OldTuple::Key(old) } => {
                table.is_identity(column).then(|| table.value(old, column)).flatten()
            }
            ChangeKind::Delete { old: OldTuple::Full(old) } => table.value(old, column),
            ChangeKind::Insert { .. } | ChangeKind::Update { .. } => {
                let (new, old) = self.new_row()?;
                match table.value(new, column) {
                    // A large value that has not changed
                    Some(ColumnValue::Unchanged) => old.and_then(|old| table.value(old, column)),
                    value => value,
                }
            }
        }
    }
}

fn text(value: ColumnValue<'_>) -> Option<&str> {
    match value {
        ColumnValue::Text(text) => std::str::from_utf8(text).ok(),
        ColumnValue::Null | ColumnValue::Unchanged => None,
    }
}
