//! The messages inside `CopyData` while the server replicates.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::wire::protocol::message_reader::MalformedMessage;

/// A position in the server's log (log sequence number). Displayed as PostgreSQL does: `0/16B3748`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

/// A message of the output plugin and its position in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalMessage {
    /// The start of the logged change: of the first one for the begin of a transaction, and zero
    /// for the description of a table.
    pub start: Lsn,
    /// The message as the plugin has written it: a slice of the read buffer.
    pub body: Bytes,
}

impl WalMessage {
    /// Returns the position behind the transaction, for the message that ends one.
    pub fn transaction_end(&self) -> Option<Lsn> {
        // The kind, flags, and the start of the commit come before
        let (head, rest) = self.body.split_first_chunk::<10>()?;
        let end = rest.first_chunk()?;
        (head[0] == b'C').then(|| Lsn(u64::from_be_bytes(*end)))
    }

    /// Returns true if the message begins a transaction.
    pub fn begins_transaction(&self) -> bool {
        self.body.first() == Some(&b'B')
    }
}

/// A message of a server that replicates.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServerMessage {
    /// `XLogData`.
    Data(WalMessage),
    /// A keep-alive.
    KeepAlive {
        /// The position up to which everything was sent.
        sent: Lsn,
        /// The server expects a status at once.
        wants_status: bool,
    },
}

impl ServerMessage {
    /// Reads the content of a `CopyData` message.
    pub fn read(mut body: Bytes) -> Result<Self, MalformedMessage> {
        const CUT: MalformedMessage = MalformedMessage("a replication message that ends too early");
        match body.try_get_u8().map_err(|_| CUT)? {
            b'w' => {
                let start = Lsn(body.try_get_u64().map_err(|_| CUT)?);
                // The end of the log and the server's clock
                if body.len() < 16 {
                    return Err(CUT);
                }
                body.advance(16);
                Ok(Self::Data(WalMessage { start, body }))
            }
            b'k' => {
                let sent = Lsn(body.try_get_u64().map_err(|_| CUT)?);
                let _clock = body.try_get_u64().map_err(|_| CUT)?;
                let wants_status = body.try_get_u8().map_err(|_| CUT)? != 0;
                Ok(Self::KeepAlive { sent, wants_status })
            }
            _ => Err(MalformedMessage("an unknown replication message")),
        }
    }
}

/// Encodes a standby status update: everything before `processed` was processed and is not needed
/// again. `wants_answer` requests a keep-alive at once.
pub(super) fn status(out: &mut BytesMut, processed: Lsn, wants_answer: bool) {
    out.put_u8(b'd');
    // Four bytes of length, the kind, three positions, the clock, the request
    out.put_u32(4 + 1 + 3 * 8 + 8 + 1);
    out.put_u8(b'r');
    for _written_flushed_applied in 0..3 {
        out.put_u64(processed.0);
    }
    // The server displays the clock of this message, and uses it for nothing
    out.put_u64(0);
    out.put_u8(u8::from(wants_answer));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) {
            let _ = ServerMessage::read(Bytes::from(bytes));
        }

        #[test]
        fn a_message_is_read_and_a_truncated_one_is_rejected(start: u64, content: Vec<u8>, wanted: bool) {
            let mut data = BytesMut::from(&b"w"[..]);
            data.put_u64(start);
            data.put_slice(&[7; 16]);
            data.put_slice(&content);
            let cut = data.clone().freeze().slice(..24);
            let body = Bytes::from(content);
            let expected = ServerMessage::Data(WalMessage { start: Lsn(start), body });
            prop_assert_eq!(ServerMessage::read(data.freeze()).unwrap(), expected);
            prop_assert!(ServerMessage::read(cut).is_err());

            let mut alive = BytesMut::from(&b"k"[..]);
            alive.put_u64(start);
            alive.put_u64(0);
            alive.put_u8(wanted.into());
            let cut = alive.clone().freeze().slice(..17);
            prop_assert_eq!(
                ServerMessage::read(alive.freeze()).unwrap(),
                ServerMessage::KeepAlive { sent: Lsn(start), wants_status: wanted }
            );
            prop_assert!(ServerMessage::read(cut).is_err());
        }
    }

    #[test]
    fn a_status_is_one_message_of_the_declared_length() {
        let mut out = BytesMut::new();
        status(&mut out, Lsn(0x16_B374_8000), true);
        assert_eq!(u32::from_be_bytes(out[1..5].try_into().unwrap()) as usize, out.len() - 1);
        assert_eq!(out[6..14], 0x16_B374_8000_u64.to_be_bytes());
        assert_eq!(out[out.len() - 1], 1);
    }

    #[test]
    fn a_position_is_displayed_as_postgresql_does() {
        assert_eq!(Lsn(0x1_016B_3748).to_string(), "1/16B3748");
        assert_eq!(Lsn(0).to_string(), "0/0");
    }
}
