//! Sends and receives whole messages over a stream. Outgoing messages are collected in a buffer,
//! incoming bytes are split into messages by the [`MessageReader`].

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWrite};

use super::error::WireError;
use super::message_reader::{MessageHead, MessageReader};
use super::server_stream::ServerStream;

/// A write buffer that has grown beyond this is freed after the write.
const MAX_KEPT_BUFFER: usize = 64 * 1024;

/// A stream with its read and write buffers.
pub(crate) struct MessageChannel {
    pub stream: ServerStream,
    pub reader: MessageReader,
    /// The bytes that the next [`send`](Self::send) writes.
    pub out: BytesMut,
}

/// A value that is too large to be copied into the write buffer, and its position there. It is
/// written directly from its own memory.
pub(crate) type LargeValue<'a> = (usize, &'a [u8]);

impl MessageChannel {
    pub fn new(stream: ServerStream) -> Self {
        Self { stream, reader: MessageReader::default(), out: BytesMut::new() }
    }

    /// Writes the collected bytes and, at their positions (in ascending order), the large values.
    /// Uses a single write where the system accepts everything.
    pub async fn send(&mut self, large_values: &[LargeValue<'_>]) -> io::Result<()> {
        let mut written = 0;
        for (position, value) in large_values {
            write(&mut self.stream, &mut self.reader, self.out.get(written..*position).unwrap_or_default()).await?;
            write(&mut self.stream, &mut self.reader, value).await?;
            written = *position;
        }
        write(&mut self.stream, &mut self.reader, self.out.get(written..).unwrap_or_default()).await?;
        if let ServerStream::Tls(stream) = &mut self.stream {
            poll_fn(|context| Pin::new(&mut *stream).poll_flush(context)).await?;
        }
        if self.out.capacity() > MAX_KEPT_BUFFER {
            self.out = BytesMut::new();
        }
        self.out.clear();
        Ok(())
    }

    /// Waits for the next message.
    pub async fn message(&mut self) -> Result<MessageHead, WireError> {
        loop {
            if let Some(message) = self.reader.next()? {
                return Ok(message);
            }
            if self.stream.read_buf(&mut self.reader.space()).await.map_err(WireError::Lost)? == 0 {
                return Err(WireError::Lost(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Returns the next message if it has already arrived.
    pub fn try_next_message(&mut self) -> Result<Option<MessageHead>, WireError> {
        loop {
            if let Some(message) = self.reader.next()? {
                return Ok(Some(message));
            }
            match self.stream.try_read(&mut self.reader.space()) {
                None => return Ok(None),
                Some(Ok(0)) => return Err(WireError::Lost(io::ErrorKind::UnexpectedEof.into())),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(WireError::Lost(error)),
            }
        }
    }
}

/// Writes all bytes. While the server accepts no more, its messages are read: the server may itself
/// be blocked on a write to this client.
async fn write(stream: &mut ServerStream, reader: &mut MessageReader, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let step = |context: &mut Context<'_>| match Pin::new(&mut *stream).poll_write(context, bytes) {
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending => poll_receive(stream, reader, context).map(Err),
        };
        match poll_fn(step).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

/// Reads until no more bytes are available. Ready only when the stream fails.
fn poll_receive(stream: &mut ServerStream, reader: &mut MessageReader, context: &mut Context<'_>) -> Poll<io::Error> {
    loop {
        let mut space = reader.space();
        let read = pin!(stream.read_buf(&mut space)).poll(context);
        match read {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(0)) => return Poll::Ready(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(error),
        }
        // A large message gets its own buffer as soon as its head has arrived. A malformed one is
        // reported when the caller asks for it.
        let _ = reader.next();
    }
}
