//! Any query string is parsed or rejected. A parsed one has the properties that later stages rely
//! on.

#![no_main]

use libfuzzer_sys::fuzz_target;
use portico_rest::RestError;
use portico_rest::query::{FilterOperation, LogicTree, QueryTarget, RequestQuery, SelectItem, canonical, parse};

fuzz_target!(|raw: &str| {
    for target in [QueryTarget::Relation, QueryTarget::Function { read: false }, QueryTarget::Function { read: true }] {
        match parse(raw, target) {
            Ok(query) => check(&query),
            Err(RestError::Parse { message, details }) => {
                assert!(message.starts_with("\"failed to parse ") && message.ends_with(')') && !details.is_empty());
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(canonical(raw).is_ascii());
});

fn check(query: &RequestQuery) {
    select(&query.select, 0);
    for at in &query.filters {
        configuration(&at.value.operation);
    }
    for at in &query.logic {
        assert!(matches!(at.value, LogicTree::Group { .. }));
        logic(&at.value, 0);
    }
    for list in query.columns.iter().chain(&query.on_conflict) {
        assert!(!list.is_empty());
    }
    for (place, at) in query.orders.iter().enumerate() {
        assert!(!at.value.is_empty());
        assert!(query.orders[..place].iter().all(|earlier| earlier.path != at.path));
    }
}

fn select(items: &[SelectItem], depth: usize) {
    assert!(depth <= 64);
    for item in items {
        match item {
            SelectItem::Star => {}
            SelectItem::CountRows { cast, .. } => cast.iter().for_each(|text| plain(text)),
            SelectItem::Column(column) => {
                column.cast.iter().chain(&column.aggregate_cast).for_each(|text| plain(text));
                assert!(column.aggregate.is_some() || column.aggregate_cast.is_none());
            }
            SelectItem::Relation(relation) => {
                assert!(!relation.spread || relation.alias.is_none());
                select(&relation.select, depth + 1);
            }
        }
    }
}

fn logic(tree: &LogicTree, depth: usize) {
    assert!(depth <= 64);
    match tree {
        LogicTree::Filter(filter) => configuration(&filter.operation),
        LogicTree::Group { parts, .. } => {
            assert!(!parts.is_empty());
            parts.iter().for_each(|part| logic(part, depth + 1));
        }
    }
}

fn configuration(operation: &FilterOperation) {
    if let FilterOperation::Fts { config: Some(config), .. } = operation {
        plain(config);
    }
}

/// Checks that no character ends a word of SQL.
fn plain(text: &str) {
    assert!(text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | ' ' | '$')), "{text}");
}
