//! The messages of `pgoutput`, protocol version 1.

use bytes::{Buf, Bytes};

use super::change::{
    ChangeKind, CommitTime, OldTuple, PublishedRelation, RelationColumn, ReplicaIdentity, TransactionId,
};
use super::error::DecodeError;
use super::tuple::Tuple;

/// A message of the output plugin.
#[derive(Debug, Clone)]
pub(super) enum PgOutputMessage {
    Begin {
        commit_time: CommitTime,
        transaction: TransactionId,
    },
    Commit {
        end: u64,
    },
    Relation(PublishedRelation),
    Change {
        relation: u32,
        kind: ChangeKind,
    },
    Truncate,
    /// Origins, types and messages of applications, which change no row.
    Other,
}

impl PgOutputMessage {
    /// Reads a message.
    pub fn read(mut body: Bytes) -> Result<Self, DecodeError> {
        let body = &mut body;
        Ok(match u8(body)? {
            b'B' => {
                let _commit = u64(body)?;
                let commit_time = CommitTime(u64(body)?.cast_signed());
                Self::Begin { commit_time, transaction: TransactionId(u32(body)?) }
            }
            b'C' => {
                let (_flags, _commit) = (u8(body)?, u64(body)?);
                Self::Commit { end: u64(body)? }
            }
            b'R' => Self::Relation(relation(body)?),
            b'I' => {
                let relation = u32(body)?;
                Self::Change { relation, kind: ChangeKind::Insert { new: new_tuple(body)? } }
            }
            b'U' => {
                let relation = u32(body)?;
                let old = match body.first() {
                    Some(b'N') => None,
                    _ => Some(old_tuple(body)?),
                };
                Self::Change { relation, kind: ChangeKind::Update { old, new: new_tuple(body)? } }
            }
            b'D' => {
                let relation = u32(body)?;
                Self::Change { relation, kind: ChangeKind::Delete { old: old_tuple(body)? } }
            }
            b'T' => Self::Truncate,
            b'O' | b'Y' | b'M' => Self::Other,
            _ => return Err(DecodeError::UnknownKind),
        })
    }
}

fn new_tuple(body: &mut Bytes) -> Result<Tuple, DecodeError> {
    match u8(body)? {
        b'N' => Tuple::take(body),
        _ => Err(DecodeError::UnknownKind),
    }
}

fn old_tuple(body: &mut Bytes) -> Result<OldTuple, DecodeError> {
    match u8(body)? {
        b'K' => Tuple::take(body).map(OldTuple::Key),
        b'O' => Tuple::take(body).map(OldTuple::Full),
        _ => Err(DecodeError::UnknownKind),
    }
}

fn relation(body: &mut Bytes) -> Result<PublishedRelation, DecodeError> {
    let oid = u32(body)?;
    let schema = match name(body)? {
        // The stream leaves out the name of this schema
        schema if schema.is_empty() => "pg_catalog".into(),
        schema => schema,
    };
    let name_of_table = name(body)?;
    let identity = ReplicaIdentity::of_letter(u8(body)?).ok_or(DecodeError::UnknownKind)?;
    let count = body.try_get_u16().map_err(|_| DecodeError::Truncated)?;
    // A column has at least a byte each for its flags and its name, and two integers
    let mut columns = Vec::with_capacity(usize::from(count).min(body.len() / 10));
    for _ in 0..count {
        let is_identity = u8(body)? & 1 != 0;
        let name = name(body)?;
        let type_oid = u32(body)?;
        let _modifier = u32(body)?;
        columns.push(RelationColumn { name, type_oid, is_identity });
    }
    Ok(PublishedRelation { oid, schema, name: name_of_table, identity, columns: columns.into() })
}

/// Reads a zero-terminated name.
fn name(body: &mut Bytes) -> Result<Box<str>, DecodeError> {
    let end = body.iter().position(|byte| *byte == 0).ok_or(DecodeError::Truncated)?;
    let name = body.split_to(end);
    body.advance(1);
    std::str::from_utf8(&name).map(Into::into).map_err(|_| DecodeError::InvalidName)
}

fn u8(body: &mut Bytes) -> Result<u8, DecodeError> {
    body.try_get_u8().map_err(|_| DecodeError::Truncated)
}

fn u32(body: &mut Bytes) -> Result<u32, DecodeError> {
    body.try_get_u32().map_err(|_| DecodeError::Truncated)
}

fn u64(body: &mut Bytes) -> Result<u64, DecodeError> {
    body.try_get_u64().map_err(|_| DecodeError::Truncated)
}
