//! Messages out of bytes that arrive as they like.

use bytes::buf::Limit;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// How much one read asks for, and what a connection keeps between batches.
const CHUNK: usize = 16 * 1024;
/// A message from this size on gets a buffer of exactly its size, so that it is not copied while the buffer grows, and so
/// that the connection does not keep the large buffer.
const LARGE: usize = 32 * 1024;
/// PostgreSQL makes no value larger than 1 GiB; a row holds little beside it.
const LONGEST: usize = (1 << 30) + (1 << 20);
/// The type byte and the length.
const HEADER: usize = 5;

/// The other side does not speak PostgreSQL's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub &'static str);

/// The head of a message that has arrived in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its type.
    pub tag: u8,
    length: usize,
}

/// Collects what arrives, and cuts it into messages.
///
/// The cycle is: [`next`](Self::next) until it gives a message, and [`space`](Self::space) to read more when it does not; then
/// [`body`](Self::body) and at last either [`skip`](Self::skip) or [`take`](Self::take).
#[derive(Debug, Default)]
pub(crate) struct Reader {
    buffer: BytesMut,
    large: Option<Large>,
}

/// A large message under way, without its head.
#[derive(Debug)]
struct Large {
    tag: u8,
    length: usize,
    body: BytesMut,
}

impl Reader {
    /// Where the next bytes go; at least one fits.
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

    /// The next message, when it has arrived in full. The same one again until it is skipped or taken.
    pub fn next(&mut self) -> Result<Option<Message>, Malformed> {
        if let Some(large) = &mut self.large {
            // While a batch is still being written, what follows may lie in the buffer already.
            let missing = large.length - large.body.len();
            if missing > 0 && !self.buffer.is_empty() {
                let arrived = self.buffer.split_to(missing.min(self.buffer.len()));
                large.body.extend_from_slice(&arrived);
            }
            let whole = large.body.len() == large.length;
            return Ok(whole.then_some(Message { tag: large.tag, length: large.length }));
        }
        let Some((&[tag, length @ ..], rest)) = self.buffer.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        // The length counts itself.
        let length = length.checked_sub(4).ok_or(Malformed("a message shorter than its head"))?;
        if length > LONGEST {
            return Err(Malformed("a message longer than any"));
        }
        if rest.len() >= length {
            return Ok(Some(Message { tag, length }));
        }
        if length >= LARGE {
            let mut body = BytesMut::with_capacity(length);
            body.extend_from_slice(rest);
            self.buffer.clear();
            self.large = Some(Large { tag, length, body });
        }
        Ok(None)
    }

    /// What the message says.
    pub fn body(&self, message: Message) -> &[u8] {
        match &self.large {
            Some(large) => &large.body,
            None => self.buffer.get(HEADER..HEADER + message.length).unwrap_or_default(),
        }
    }

    /// Goes on behind the message.
    pub fn skip(&mut self, message: Message) {
        if self.large.take().is_none() {
            self.buffer.advance((HEADER + message.length).min(self.buffer.len()));
        }
    }

    /// What the message says, to keep, without a copy; and goes on behind it.
    pub fn take(&mut self, message: Message) -> Bytes {
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
    /// Whether nothing has arrived that was not skipped or taken.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.large.is_none()
    }

    /// Lets go of a buffer that had to grow. For the time between two batches.
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

    /// Lets bytes arrive, as many as fit.
    fn arrive(reader: &mut Reader, bytes: &mut &[u8], most: usize) {
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
        fn messages_come_out_as_they_went_in_however_they_are_cut(
            bodies in prop::collection::vec((any::<u8>(), 0_usize..100, any::<bool>()), 1..8),
            cuts in prop::collection::vec(1_usize..50_000, 1..8),
        ) {
            // Every third body is large.
            let bodies: Vec<(u8, Vec<u8>, bool)> = bodies.into_iter()
                .map(|(tag, length, keep)| (tag, vec![tag; if length % 3 == 0 { length * 1000 } else { length }], keep))
                .collect();
            let all: Vec<u8> = bodies.iter().flat_map(|(tag, body, _)| encoded(*tag, body)).collect();
            let (mut reader, mut rest, mut cut) = (Reader::default(), &all[..], cuts.iter().cycle());
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
        fn any_bytes_are_messages_or_malformed_without_harm(bytes: Vec<u8>, cut in 1_usize..64) {
            let (mut reader, mut rest) = (Reader::default(), &bytes[..]);
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
    fn a_large_message_takes_its_own_size_and_nothing_stays() {
        let length = 20 << 20;
        let all = encoded(b'D', &vec![7; length]);
        let (mut reader, mut rest) = (Reader::default(), &all[..]);
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
    fn lengths_that_can_not_be_are_refused() {
        for length in [0_u32, 3, u32::MAX, 1 << 31] {
            let mut reader = Reader::default();
            reader.space().put_slice(&[&b"D"[..], &length.to_be_bytes()].concat());
            assert!(reader.next().is_err(), "{length}");
        }
    }
}
