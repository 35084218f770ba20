//! Splits the incoming bytes into messages.

use bytes::buf::Limit;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The size of one read, and of the buffer that a connection keeps between batches.
const CHUNK: usize = 16 * 1024;
/// A message of this size or more gets a buffer of exactly its size, so that it is not copied while
/// the buffer grows, and so that the connection does not keep the large buffer.
const LARGE: usize = 32 * 1024;
/// The maximum length of a message: PostgreSQL returns no value larger than 1 GiB, and a row adds
/// little.
const MAX_LENGTH: usize = (1 << 30) + (1 << 20);
/// The type byte and the length.
const HEADER: usize = 5;

/// A message that violates PostgreSQL's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedMessage(pub &'static str);

/// The head of a message that has arrived completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageHead {
    /// The type byte.
    pub tag: u8,
    length: usize,
}

/// Collects the incoming bytes and splits them into messages.
///
/// The cycle is: call [`next`](Self::next) until it returns a message, and read more into
/// [`space`](Self::space) while it returns none; then use [`body`](Self::body), and finally either
/// [`skip`](Self::skip) or [`take`](Self::take).
#[derive(Debug, Default)]
pub(crate) struct MessageReader {
    buffer: BytesMut,
    large: Option<LargeMessage>,
}

/// A large message that is arriving, without its head.
#[derive(Debug)]
struct LargeMessage {
    tag: u8,
    length: usize,
    body: BytesMut,
}

impl MessageReader {
    /// Returns the buffer for the next bytes, which has room for at least one.
    pub fn space(&mut self) -> Limit<&mut BytesMut> {
        match &mut self.large {
            Some(large) if large.body.len() < large.length => {
                let missing = large.length - large.body.len();
                (&mut large.body).limit(missing)
            }
            _ => {
                if self.buffer.capacity() - self.buffer.len() < CHUNK / 4 {
                    self.buffer.reserve(CHUNK);
                }
                let room = self.buffer.capacity() - self.buffer.len();
                (&mut self.buffer).limit(room)
            }
        }
    }

    /// Returns the next message if it has arrived completely. Returns the same one again until it
    /// is skipped or taken.
    pub fn next(&mut self) -> Result<Option<MessageHead>, MalformedMessage> {
        if let Some(large) = &mut self.large {
            // While a batch is still being written, the rest may already be in the buffer
            let missing = large.length - large.body.len();
            if missing > 0 && !self.buffer.is_empty() {
                let arrived = self.buffer.split_to(missing.min(self.buffer.len()));
                large.body.extend_from_slice(&arrived);
            }
            let whole = large.body.len() == large.length;
            return Ok(whole.then_some(MessageHead { tag: large.tag, length: large.length }));
        }
        let Some((&[tag, length @ ..], rest)) = self.buffer.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        // The length includes its own four bytes
        let length = length.checked_sub(4).ok_or(MalformedMessage("a message shorter than its head"))?;
        if length > MAX_LENGTH {
            return Err(MalformedMessage("a message longer than any"));
        }
        if rest.len() >= length {
            return Ok(Some(MessageHead { tag, length }));
        }
        if length >= LARGE {
            let mut body = BytesMut::with_capacity(length);
            body.extend_from_slice(rest);
            self.buffer.clear();
            self.large = Some(LargeMessage { tag, length, body });
        }
        Ok(None)
    }

    /// Returns the body of the message.
    pub fn body(&self, message: MessageHead) -> &[u8] {
        match &self.large {
            Some(large) => &large.body,
            None => self.buffer.get(HEADER..HEADER + message.length).unwrap_or_default(),
        }
    }

    /// Discards the message.
    pub fn skip(&mut self, message: MessageHead) {
        if self.large.take().is_none() {
            self.buffer.advance((HEADER + message.length).min(self.buffer.len()));
        }
    }

    /// Removes the message and returns its body, without a copy.
    pub fn take(&mut self, message: MessageHead) -> Bytes {
        match self.large.take() {
            Some(large) => large.body.freeze(),
            None => {
                let mut whole = self.buffer.split_to((HEADER + message.length).min(self.buffer.len()));
                whole.advance(HEADER.min(whole.len()));
                whole.freeze()
            }
        }
    }

    #[cfg(test)]
    /// Returns true if every byte that has arrived was skipped or taken.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.large.is_none()
    }

    /// Frees a buffer that has grown. Called between two batches.
    pub fn shrink(&mut self) {
        if self.buffer.capacity() > 4 * CHUNK && self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Passes bytes to the reader, as many as fit.
    fn arrive(reader: &mut MessageReader, bytes: &mut &[u8], most: usize) {
        let mut space = reader.space();
        let count = bytes.len().min(most).min(space.remaining_mut());
        assert!(count > 0);
        space.put_slice(&bytes[..count]);
        bytes.advance(count);
    }

    fn encoded(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[tag], &length.to_be_bytes()[..], body].concat()
    }

    proptest! {
        #[test]
        fn messages_are_read_unchanged_however_they_are_split(
            bodies in prop::collection::vec((any::<u8>(), 0_usize..100, any::<bool>()), 1..8),
            cuts in prop::collection::vec(1_usize..50_000, 1..8),
        ) {
            // Every third body is large
            let bodies: Vec<(u8, Vec<u8>, bool)> = bodies.into_iter()
                .map(|(tag, length, keep)| (tag, vec![tag; if length % 3 == 0 { length * 1000 } else { length }], keep))
                .collect();
            let all: Vec<u8> = bodies.iter().flat_map(|(tag, body, _)| encoded(*tag, body)).collect();
            let (mut reader, mut rest, mut cut) = (MessageReader::default(), &all[..], cuts.iter().cycle());
            let mut kept = Vec::new();
            for (tag, body, keep) in &bodies {
                let message = loop {
                    match reader.next().unwrap() {
                        Some(message) => break message,
                        None => arrive(&mut reader, &mut rest, *cut.next().unwrap()),
                    }
                };
                prop_assert_eq!(message.tag, *tag);
                prop_assert_eq!(reader.body(message), &body[..]);
                if *keep {
                    kept.push((reader.take(message), body));
                } else {
                    reader.skip(message);
                }
                reader.shrink();
            }
            prop_assert!(rest.is_empty() && reader.is_empty());
            for (taken, body) in kept {
                prop_assert_eq!(&taken[..], &body[..]);
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>, cut in 1_usize..64) {
            let (mut reader, mut rest) = (MessageReader::default(), &bytes[..]);
            loop {
                match reader.next() {
                    Err(_) => break,
                    Ok(Some(message)) => {
                        let length = reader.body(message).len();
                        prop_assert_eq!(reader.take(message).len(), length);
                    }
                    Ok(None) if rest.is_empty() => break,
                    Ok(None) => arrive(&mut reader, &mut rest, cut),
                }
            }
        }
    }

    #[test]
    fn a_large_message_uses_a_buffer_of_its_own_size_that_is_not_kept() {
        let length = 20 << 20;
        let all = encoded(b'D', &vec![7; length]);
        let (mut reader, mut rest) = (MessageReader::default(), &all[..]);
        let message = loop {
            match reader.next().unwrap() {
                Some(message) => break message,
                None => arrive(&mut reader, &mut rest, 1 << 18),
            }
        };
        assert_eq!(reader.large.as_ref().unwrap().body.capacity(), length);
        assert_eq!(reader.take(message).len(), length);
        assert!(reader.is_empty() && reader.buffer.capacity() <= 4 * CHUNK);
    }

    #[test]
    fn impossible_lengths_are_rejected() {
        for length in [0_u32, 3, u32::MAX, 1 << 31] {
            let mut reader = MessageReader::default();
            reader.space().put_slice(&[&b"D"[..], &length.to_be_bytes()].concat());
            assert!(reader.next().is_err(), "{length}");
        }
    }
}
