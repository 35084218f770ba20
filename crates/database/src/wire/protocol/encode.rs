//! Messages of ours, as bytes.

use std::fmt::Write as _;

use bytes::{BufMut, BytesMut};

use super::batch::{Batch, Statement};
use super::channel::Aside;
use super::error::WireError;

/// A value from this size on is written from where it lies.
const ASIDE: usize = 32 * 1024;
/// PostgreSQL's own limit of a message.
const LONGEST: usize = (1 << 30) - 1;
/// Executes the unnamed portal to its end: no name, no limit of rows.
pub(crate) const EXECUTE: &[u8] = b"E\0\0\0\x09\0\0\0\0\0";
pub(crate) const SYNC: &[u8] = b"S\0\0\0\x04";

/// Refuses what can not be put on the wire, before anything is sent.
pub(crate) fn check(batch: &Batch<'_>) -> Result<(), WireError> {
    for statement in &batch.statements {
        if statement.text.as_bytes().contains(&0) {
            return Err(WireError::ZeroByte);
        }
        if statement.text.len() > LONGEST - 64 {
            return Err(WireError::TooLarge("a statement"));
        }
        if statement.params.len() > usize::from(u16::MAX) {
            return Err(WireError::TooLarge("the number of a statement's values"));
        }
        let values = statement.params.iter().flatten().map(|value| value.len()).fold(0, usize::saturating_add);
        if values > LONGEST - 64 - 4 * usize::from(u16::MAX) {
            return Err(WireError::TooLarge("a value"));
        }
    }
    Ok(())
}

/// Parses a statement.
pub(crate) fn parse(out: &mut BytesMut, name: Option<u64>, text: &str) {
    message(out, b'P', 0, |out| {
        put_name(out, name);
        out.put_slice(text.as_bytes());
        // The text's end, and no types: the server infers them.
        out.put_slice(b"\0\0\0");
    });
}

/// Binds the values, all in text form, to the unnamed portal; what is returned is in text form too.
pub(crate) fn bind<'a>(out: &mut BytesMut, name: Option<u64>, statement: &Statement<'a>, aside: &mut Vec<Aside<'a>>) {
    let params = statement.params;
    let left_out = params.iter().flatten().map(|value| value.len()).filter(|length| *length >= ASIDE).sum();
    message(out, b'B', left_out, |out| {
        out.put_u8(0);
        put_name(out, name);
        out.put_u16(0);
        out.put_u16(u16::try_from(params.len()).unwrap_or(u16::MAX));
        for param in params {
            let Some(value) = param else {
                out.put_i32(-1);
                continue;
            };
            out.put_i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
            if value.len() >= ASIDE {
                aside.push((out.len(), value));
            } else {
                out.put_slice(value);
            }
        }
        // One format for all columns, or none: text
        out.put_u16(u16::from(statement.binary));
        if statement.binary {
            out.put_u16(1);
        }
    });
}

/// A message whose length is known when its body is written; `left_out` bytes of it go out from elsewhere.
pub(crate) fn message(out: &mut BytesMut, tag: u8, left_out: usize, body: impl FnOnce(&mut BytesMut)) {
    out.put_u8(tag);
    let start = out.len();
    out.put_u32(0);
    body(out);
    // Lengths were checked before.
    let length = u32::try_from(out.len() - start + left_out).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// The name of a prepared statement, or of the unnamed one.
pub(crate) fn put_name(out: &mut BytesMut, name: Option<u64>) {
    if let Some(name) = name {
        // Grows as needed: it can not fail.
        let _ = write!(out, "{name:x}");
    }
    out.put_u8(0);
}
