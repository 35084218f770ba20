//! Messages of PostgreSQL's protocol, as far as [`SessionEmulation`](super::SessionEmulation) reads
//! and writes them.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::wire::{PostgresError, WireError};

/// A message: its tag and its body.
pub(super) type PoolerMessage = (u8, Bytes);

/// Writes a message.
pub(super) fn put(out: &mut BytesMut, tag: u8, body: &[u8]) {
    out.put_u8(tag);
    out.put_u32(u32::try_from(body.len() + 4).unwrap_or(u32::MAX));
    out.put_slice(body);
}

/// Writes a simple query.
pub(super) fn put_query(out: &mut BytesMut, text: &str) {
    put(out, b'Q', &[text.as_bytes(), &[0]].concat());
}

/// Writes the error by which a connection attempt failed.
pub(super) fn put_error(out: &mut BytesMut, error: &WireError) {
    let refused;
    let error = match error {
        WireError::Postgres(error) => error,
        other => {
            let message = other.to_string();
            refused = PostgresError { code: "08001".into(), message, ..PostgresError::default() };
            &refused
        }
    };
    let mut body = format!("SFATAL\0VFATAL\0C{}\0M{}\0", error.code, error.message);
    for (field, text) in [('D', &error.detail), ('H', &error.hint)] {
        if let Some(text) = text {
            body.push_str(&format!("{field}{text}\0"));
        }
    }
    body.push('\0');
    put(out, b'E', body.as_bytes());
}

/// Takes a whole message from what was read, if there is one.
pub(super) fn take(buffer: &mut BytesMut) -> Option<PoolerMessage> {
    let length = usize::try_from(u32::from_be_bytes(*buffer.get(1..5)?.first_chunk()?)).ok()?;
    if buffer.len() < length + 1 {
        return None;
    }
    let mut message = buffer.split_to(length + 1);
    let tag = message.get_u8();
    message.advance(4);
    Some((tag, message.freeze()))
}

/// Splits a body behind its first text, which ends with a zero byte.
pub(super) fn split_text(body: &Bytes) -> (Bytes, Bytes) {
    let end = body.iter().position(|byte| *byte == 0).unwrap_or(body.len());
    (body.slice(..end), body.slice((end + 1).min(body.len())..))
}
