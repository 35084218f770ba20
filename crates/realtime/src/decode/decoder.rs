//! Makes changes of messages.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::change::{Change, ChangeKind, CommitTime, OldTuple, PublishedRelation, TransactionId};
use super::error::DecodeError;
use super::message::PgOutputMessage;

/// The result of one message.
#[derive(Debug, Clone)]
pub(crate) enum Decoded {
    /// A transaction begins. It was committed at this time; its changes follow.
    Begin { commit_time: CommitTime, transaction: TransactionId },
    /// A table is described, for the first time or since it has changed.
    Relation(#[cfg_attr(not(test), expect(dead_code, reason = "tests compare it"))] Arc<PublishedRelation>),
    /// A row has changed.
    Change(Change),
    /// The transaction is complete. The log before `end` is not needed again.
    Commit { end: u64 },
    /// Nothing that concerns a row.
    Nothing,
}

/// The state of a stream: its relations, and whether a transaction is open. One for each stream.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    relations: HashMap<u32, Arc<PublishedRelation>>,
    in_transaction: bool,
}

impl Decoder {
    /// Decodes the next message of the stream.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that do not follow the protocol. The stream cannot go on then.
    pub fn decode(&mut self, body: Bytes) -> Result<Decoded, DecodeError> {
        match PgOutputMessage::read(body)? {
            PgOutputMessage::Begin { commit_time, transaction } => {
                self.set_in_transaction(true)?;
                Ok(Decoded::Begin { commit_time, transaction })
            }
            PgOutputMessage::Commit { end } => {
                self.set_in_transaction(false)?;
                Ok(Decoded::Commit { end })
            }
            PgOutputMessage::Relation(relation) => {
                let relation = Arc::new(relation);
                self.relations.insert(relation.oid, Arc::clone(&relation));
                Ok(Decoded::Relation(relation))
            }
            PgOutputMessage::Change { relation, kind } => {
                if !self.in_transaction {
                    return Err(DecodeError::OutOfOrder);
                }
                let relation = self.relations.get(&relation).ok_or(DecodeError::UnknownRelation(relation))?;
                if !has_columns(&kind, relation.columns.len()) {
                    return Err(DecodeError::ColumnCount(relation.oid));
                }
                Ok(Decoded::Change(Change { relation: Arc::clone(relation), kind }))
            }
            PgOutputMessage::Truncate | PgOutputMessage::Other => Ok(Decoded::Nothing),
        }
    }

    fn set_in_transaction(&mut self, begins: bool) -> Result<(), DecodeError> {
        if self.in_transaction == begins {
            return Err(DecodeError::OutOfOrder);
        }
        self.in_transaction = begins;
        Ok(())
    }
}

/// Returns true if every row of a change has this number of values.
fn has_columns(kind: &ChangeKind, columns: usize) -> bool {
    let (old, new) = match kind {
        ChangeKind::Insert { new } => (None, Some(new)),
        ChangeKind::Update { old, new } => (old.as_ref().map(OldTuple::tuple), Some(new)),
        ChangeKind::Delete { old } => (Some(old.tuple()), None),
    };
    old.into_iter().chain(new).all(|tuple| tuple.len() == columns)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::change::{RelationColumn, ReplicaIdentity};
    use super::super::tuple::ColumnValue;
    use super::*;
    use proptest::prelude::*;

    type Values = Vec<Option<Option<Vec<u8>>>>;

    fn tuple(values: &Values) -> Vec<u8> {
        let mut body = u16::try_from(values.len()).unwrap().to_be_bytes().to_vec();
        for value in values {
            match value {
                None => body.push(b'u'),
                Some(None) => body.push(b'n'),
                Some(Some(text)) => {
                    body.push(b't');
                    body.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
                    body.extend(text);
                }
            }
        }
        body
    }

    fn relation(columns: usize) -> Vec<u8> {
        let mut body = b"R\0\0\0\x2apublic\0items\0d".to_vec();
        body.extend(u16::try_from(columns).unwrap().to_be_bytes());
        for column in 0..columns {
            body.push(u8::from(column == 0));
            body.extend(format!("c{column}\0").as_bytes());
            body.extend(25_u32.to_be_bytes());
            body.extend((-1_i32).to_be_bytes());
        }
        body
    }

    fn begin() -> Vec<u8> {
        [b"B", &[0; 8][..], &1_620_999_i64.to_be_bytes(), &7_u32.to_be_bytes()].concat()
    }

    fn read(tuple: &super::super::tuple::Tuple) -> Values {
        let value = |value| match value {
            ColumnValue::Null => Some(None),
            ColumnValue::Unchanged => None,
            ColumnValue::Text(text) => Some(Some(text.to_vec())),
        };
        tuple.values().map(value).collect()
    }

    fn decoder(columns: usize) -> Decoder {
        let mut decoder = Decoder::default();
        decoder.decode(begin().into()).unwrap();
        decoder.decode(relation(columns).into()).unwrap();
        decoder
    }

    fn rows() -> impl Strategy<Value = (Values, Values)> {
        let value = || prop::option::of(prop::option::of(prop::collection::vec(any::<u8>(), 0..40)));
        (0_usize..12).prop_flat_map(move |columns| {
            (prop::collection::vec(value(), columns), prop::collection::vec(value(), columns))
        })
    }

    proptest! {
        #[test]
        fn the_values_of_a_change_are_those_of_its_message((old, new) in rows(), full: bool) {
            let mut decoder = decoder(new.len());
            let id = 42_u32.to_be_bytes();
            let letter: &[u8] = if full { b"O" } else { b"K" };
            let mut change = |message: Vec<u8>| match decoder.decode(message.into()).unwrap() {
                Decoded::Change(change) => change.kind,
                other => panic!("{other:?}"),
            };
            match change([&b"I"[..], &id, b"N", &tuple(&new)].concat()) {
                ChangeKind::Insert { new: got } => prop_assert_eq!(read(&got), new.clone()),
                other => panic!("{other:?}"),
            }
            match change([&b"U"[..], &id, letter, &tuple(&old), b"N", &tuple(&new)].concat()) {
                ChangeKind::Update { old: Some(got_old), new: got } => {
                    prop_assert_eq!(matches!(got_old, OldTuple::Full(_)), full);
                    prop_assert_eq!(read(got_old.tuple()), old.clone());
                    prop_assert_eq!(read(&got), new.clone());
                }
                other => panic!("{other:?}"),
            }
            match change([&b"U"[..], &id, b"N", &tuple(&new)].concat()) {
                ChangeKind::Update { old: None, new: got } => prop_assert_eq!(read(&got), new),
                other => panic!("{other:?}"),
            }
            match change([&b"D"[..], &id, letter, &tuple(&old)].concat()) {
                ChangeKind::Delete { old: got } => prop_assert_eq!(read(got.tuple()), old),
                other => panic!("{other:?}"),
            }
        }

        #[test]
        fn a_truncated_message_is_rejected((old, new) in rows(), cut: prop::sample::Index) {
            let message = [&b"U\0\0\0\x2aO"[..], &tuple(&old), b"N", &tuple(&new)].concat();
            let columns = relation(new.len());
            for message in [message, columns, begin()] {
                let cut = cut.index(message.len());
                prop_assert!(decoder(new.len()).decode(Bytes::from(message).slice(..cut)).is_err());
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(messages: Vec<Vec<u8>>, kind in prop::sample::select(&b"BCRIUDTOYM"[..])) {
            let mut decoder = decoder(2);
            for mut message in messages {
                let _ = decoder.decode(Bytes::from(message.clone()));
                message.insert(0, kind);
                if let Ok(Decoded::Change(change)) = decoder.decode(message.into()) {
                    let _ = format!("{change:?}");
                }
            }
        }
    }

    #[test]
    fn a_relation_replaces_the_one_before() {
        let mut decoder = decoder(1);
        let insert = |columns: usize| [&b"I\0\0\0\x2aN"[..], &tuple(&vec![Some(None); columns])].concat();
        assert!(matches!(decoder.decode(insert(1).into()), Ok(Decoded::Change(_))));
        assert_eq!(decoder.decode(insert(2).into()).unwrap_err(), DecodeError::ColumnCount(42));
        let Decoded::Relation(described) = decoder.decode(relation(2).into()).unwrap() else { panic!() };
        let column = |name: &str, is_identity| RelationColumn { name: name.into(), type_oid: 25, is_identity };
        assert_eq!(
            *described,
            PublishedRelation {
                oid: 42,
                schema: "public".into(),
                name: "items".into(),
                identity: ReplicaIdentity::Default,
                columns: [column("c0", true), column("c1", false)].into(),
            }
        );
        assert!(matches!(
            decoder.decode(insert(2).into()),
            Ok(Decoded::Change(change)) if Arc::ptr_eq(&change.relation, &described)
        ));
    }

    #[test]
    fn messages_out_of_order_are_rejected() {
        let insert = || Bytes::from([&b"I\0\0\0\x2aN"[..], &tuple(&vec![Some(None)])].concat());
        let commit = || Bytes::from([&b"C\0"[..], &[0; 8], &9_u64.to_be_bytes(), &[0; 8]].concat());
        let mut decoder = decoder(1);
        assert_eq!(decoder.decode(begin().into()).unwrap_err(), DecodeError::OutOfOrder);
        assert!(matches!(decoder.decode(commit()), Ok(Decoded::Commit { end: 9 })));
        assert_eq!(decoder.decode(commit()).unwrap_err(), DecodeError::OutOfOrder);
        assert_eq!(decoder.decode(insert()).unwrap_err(), DecodeError::OutOfOrder);
        let mut fresh = Decoder::default();
        fresh.decode(begin().into()).unwrap();
        assert_eq!(fresh.decode(insert()).unwrap_err(), DecodeError::UnknownRelation(42));
    }
}
