//! The properties of decoded changes.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::decode::change::{Change, ChangeKind, OldTuple};
use crate::decode::decoder::{Decoded, Decoder};
use crate::decode::json::write_column;
use crate::decode::shape::{Attribute, Shape};
use crate::decode::tuple::{ColumnValue, Tuple};

/// Decodes a stream of messages, each behind its length in two bytes, up to the first error. The
/// rows have the columns of their table, and a value that is rendered is JSON.
pub fn check_decoder(mut input: &[u8]) {
    let shapes = shapes();
    let mut decoder = Decoder::default();
    while let Some((length, rest)) = input.split_first_chunk() {
        let (message, rest) = rest.split_at(rest.len().min(u16::from_be_bytes(*length).into()));
        input = rest;
        match decoder.decode(Bytes::copy_from_slice(message)) {
            Ok(Decoded::Change(change)) => check_change(&change, &shapes),
            Ok(Decoded::Begin { commit_time, .. }) => assert!(commit_time.to_string().ends_with('Z')),
            Ok(Decoded::Relation(_) | Decoded::Commit { .. } | Decoded::Nothing) => {}
            Err(error) => return assert!(!error.to_string().is_empty()),
        }
    }
}

fn check_change(change: &Change, shapes: &[Shape]) {
    let (old, new) = match &change.kind {
        ChangeKind::Insert { new } => (None, Some(new)),
        ChangeKind::Update { old, new } => (old.as_ref().map(OldTuple::tuple), Some(new)),
        ChangeKind::Delete { old } => (Some(old.tuple()), None),
    };
    for tuple in old.into_iter().chain(new) {
        check_tuple(change, tuple, shapes);
    }
}

fn check_tuple(change: &Change, tuple: &Tuple, shapes: &[Shape]) {
    let columns = &change.relation.columns;
    assert_eq!((tuple.len(), tuple.values().count()), (columns.len(), columns.len()));
    for (at, (column, value)) in columns.iter().zip(tuple.values()).enumerate() {
        assert_eq!(tuple.get(at), Some(value));
        let ColumnValue::Text(bytes) = value else { continue };
        assert_eq!(tuple.slice(bytes), bytes);
        check_rendering(&shapes[column.type_oid as usize % shapes.len()], &String::from_utf8_lossy(bytes));
    }
}

fn check_rendering(shape: &Shape, text: &str) {
    let is_document = matches!(shape, Shape::Json | Shape::Jsonb);
    // PostgreSQL has checked documents when they were written
    if is_document && serde_json::from_str::<&RawValue>(text).is_err() {
        return;
    }
    let mut json = Vec::new();
    if write_column(&mut json, shape, text).is_err() {
        return;
    }
    let rendered = String::from_utf8(json).expect("UTF-8");
    assert!(serde_json::from_str::<&RawValue>(&rendered).is_ok(), "{shape:?} {text:?}: {rendered}");
    if is_document && let Ok(document) = serde_json::from_str::<Value>(text) {
        assert_eq!(serde_json::from_str::<Value>(&rendered).ok(), Some(document));
    }
}

/// Returns a shape of each kind that renders without the server.
fn shapes() -> Vec<Shape> {
    let array = |element: Shape, delimiter| Shape::Array { element: Arc::new(element), delimiter };
    let attribute = |name: &str, shape| Attribute { name: name.into(), shape: Arc::new(shape) };
    let pair = || {
        Shape::Composite([attribute("yy", array(Shape::Float, b',')), attribute("x", Shape::TimestampWithZone)].into())
    };
    vec![
        Shape::Boolean,
        Shape::Number,
        Shape::Float,
        Shape::Text,
        Shape::Bytes,
        Shape::Timestamp,
        Shape::TimestampWithZone,
        Shape::Json,
        Shape::Jsonb,
        array(Shape::Number, b','),
        array(Shape::Text, b';'),
        array(pair(), b','),
        Shape::Vector(Arc::new(Shape::Number)),
        Shape::Vector(Arc::new(Shape::Text)),
        pair(),
        Shape::Composite([attribute("inner", pair()), attribute("list", array(pair(), b','))].into()),
    ]
}
