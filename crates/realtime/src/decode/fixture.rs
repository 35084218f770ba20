//! Tables and changes for tests without a database.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use super::change::{Change, ChangeKind, PublishedRelation, RelationColumn, ReplicaIdentity};
use super::record::DescribedTable;
use super::table::{Table, TableColumn};
use super::tuple::Tuple;
use super::types::TypeCache;

const TEXT: u32 = 25;

/// Returns a table of text columns, the first of which is its primary key.
pub(crate) fn described_table(oid: u32, columns: &[&str]) -> Arc<DescribedTable> {
    let of_table = |(at, name): (usize, &&str)| TableColumn {
        name: (*name).into(),
        number: i16::try_from(at + 1).unwrap(),
        type_oid: TEXT,
        is_primary_key: at == 0,
    };
    let table = Table {
        oid,
        schema: "public".into(),
        name: format!("table_{oid}").into(),
        has_row_security: true,
        identity: ReplicaIdentity::Default,
        partition_root: None,
        columns: columns.iter().enumerate().map(of_table).collect(),
    };
    Arc::new(DescribedTable::new(table, &relation(oid, columns), &TypeCache::default()))
}

/// Returns an inserted row of texts.
pub(crate) fn inserted(values: &[&str]) -> Change {
    let mut body = BytesMut::new();
    body.put_u16(values.len().try_into().unwrap());
    for value in values {
        body.put_u8(b't');
        body.put_u32(value.len().try_into().unwrap());
        body.put_slice(value.as_bytes());
    }
    let mut body: Bytes = body.freeze();
    let new = Tuple::take(&mut body).unwrap();
    Change { relation: Arc::new(relation(0, &[])), kind: ChangeKind::Insert { new } }
}

fn relation(oid: u32, columns: &[&str]) -> PublishedRelation {
    let of_relation =
        |(at, name): (usize, &&str)| RelationColumn { name: (*name).into(), type_oid: TEXT, is_identity: at == 0 };
    PublishedRelation {
        oid,
        schema: "public".into(),
        name: format!("table_{oid}").into(),
        identity: ReplicaIdentity::Default,
        columns: columns.iter().enumerate().map(of_relation).collect(),
    }
}
