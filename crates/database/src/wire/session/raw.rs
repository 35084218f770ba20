//! An authenticated connection whose messages the caller writes and reads itself.

use std::io;

use bytes::Bytes;

use crate::endpoint::Endpoint;
use crate::tls::Tls;
use crate::wire::protocol::authentication::authenticate;
use crate::wire::protocol::connect::open_stream;
use crate::wire::protocol::error::WireError;
use crate::wire::protocol::message_channel::MessageChannel;

/// An authenticated connection without any state of its own.
pub(crate) struct RawConnection {
    channel: MessageChannel,
}

impl RawConnection {
    /// Connects as the endpoint's login role and authenticates, up to the first `ReadyForQuery`.
    pub async fn open(endpoint: &Endpoint, tls: &Tls) -> Result<Self, WireError> {
        let mut channel = MessageChannel::new(open_stream(endpoint, tls).await?);
        authenticate(&mut channel, endpoint, &[]).await?;
        Ok(Self { channel })
    }

    /// Writes messages.
    pub async fn send(&mut self, messages: &[u8]) -> io::Result<()> {
        self.channel.out.extend_from_slice(messages);
        self.channel.send(&[]).await
    }

    /// Waits for the next message. Returns its tag and its body.
    pub async fn message(&mut self) -> Result<(u8, Bytes), WireError> {
        let message = self.channel.message().await?;
        Ok((message.tag, self.channel.reader.take(message)))
    }
}
