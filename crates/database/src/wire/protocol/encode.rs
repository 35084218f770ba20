//! Encodes the messages to the server.

use std::fmt::Write as _;

use bytes::{BufMut, BytesMut};

use super::batch::{Batch, Statement};
use super::error::WireError;
use super::message_channel::LargeValue;

/// Values of this size and more are not copied into the write buffer.
const LARGE_VALUE: usize = 32 * 1024;
/// PostgreSQL's limit for the length of a message.
const MAX_LENGTH: usize = (1 << 30) - 1;
/// Executes the unnamed portal to its end: no name, no row limit.
pub(crate) const EXECUTE: &[u8] = b"E\0\0\0\x09\0\0\0\0\0";
pub(crate) const SYNC: &[u8] = b"S\0\0\0\x04";

/// Rejects a batch that cannot be encoded, before anything is sent.
pub(crate) fn check(batch: &Batch<'_>) -> Result<(), WireError> {
    for statement in &batch.statements {
        if statement.text.as_bytes().contains(&0) {
            return Err(WireError::ZeroByte);
        }
        if statement.text.len() > MAX_LENGTH - 64 {
            return Err(WireError::TooLarge("a statement"));
        }
        if statement.params.len() > usize::from(u16::MAX) {
            return Err(WireError::TooLarge("the number of a statement's values"));
        }
        let values = statement.params.iter().flatten().map(|value| value.len()).fold(0, usize::saturating_add);
        if values > MAX_LENGTH - 64 - 4 * usize::from(u16::MAX) {
            return Err(WireError::TooLarge("a value"));
        }
    }
    Ok(())
}

/// Encodes the message that parses a statement.
pub(crate) fn parse(out: &mut BytesMut, name: Option<u64>, text: &str) {
    message(out, b'P', 0, |out| {
        put_name(out, name);
        out.put_slice(text.as_bytes());
        // The end of the text, and no parameter types: the server infers them
        out.put_slice(b"\0\0\0");
    });
}

/// Encodes the message that binds the values, all in text form, to the unnamed portal.
pub(crate) fn bind<'a>(
    out: &mut BytesMut,
    name: Option<u64>,
    statement: &Statement<'a>,
    large_values: &mut Vec<LargeValue<'a>>,
) {
    let params = statement.params;
    let written_separately =
        params.iter().flatten().map(|value| value.len()).filter(|length| *length >= LARGE_VALUE).sum();
    message(out, b'B', written_separately, |out| {
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
            if value.len() >= LARGE_VALUE {
                large_values.push((out.len(), value));
            } else {
                out.put_slice(value);
            }
        }
        // One format code for all columns (binary), or none (text)
        out.put_u16(u16::from(statement.binary));
        if statement.binary {
            out.put_u16(1);
        }
    });
}

/// Encodes a message. `written_separately` bytes of its body are not in the buffer, but count in
/// its length.
pub(crate) fn message(out: &mut BytesMut, tag: u8, written_separately: usize, body: impl FnOnce(&mut BytesMut)) {
    out.put_u8(tag);
    let start = out.len();
    out.put_u32(0);
    body(out);
    // `check` has limited the lengths
    let length = u32::try_from(out.len() - start + written_separately).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Writes the name of a prepared statement; `None` is the unnamed one.
pub(crate) fn put_name(out: &mut BytesMut, name: Option<u64>) {
    if let Some(name) = name {
        // The buffer grows as needed, so this cannot fail
        let _ = write!(out, "{name:x}");
    }
    out.put_u8(0);
}
