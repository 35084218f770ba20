//! Whole messages over a stream: what goes out is collected first, what comes in is cut by the [`Reader`].

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWrite};

use super::error::WireError;
use super::reader::{Message, Reader};
use super::stream::Stream;

/// A write buffer that had to grow beyond this is not kept.
const KEPT: usize = 64 * 1024;

/// A stream with its buffers.
pub(crate) struct Channel {
    pub stream: Stream,
    pub reader: Reader,
    /// What the next [`send`](Self::send) sends.
    pub out: BytesMut,
}

/// A value too large to be copied into the write buffer, and its place there: it is written from where it lies.
pub(crate) type Aside<'a> = (usize, &'a [u8]);

impl Channel {
    pub fn new(stream: Stream) -> Self {
        Self { stream, reader: Reader::default(), out: BytesMut::new() }
    }

    /// Writes what was collected, with the values `aside` at their places (in rising order), in one write as far as the system
    /// takes it.
    pub async fn send(&mut self, aside: &[Aside<'_>]) -> io::Result<()> {
        let mut written = 0;
        for (place, value) in aside {
            write(&mut self.stream, &mut self.reader, self.out.get(written..*place).unwrap_or_default()).await?;
            write(&mut self.stream, &mut self.reader, value).await?;
            written = *place;
        }
        write(&mut self.stream, &mut self.reader, self.out.get(written..).unwrap_or_default()).await?;
        if let Stream::Tls(stream) = &mut self.stream {
            poll_fn(|context| Pin::new(&mut *stream).poll_flush(context)).await?;
        }
        if self.out.capacity() > KEPT {
            self.out = BytesMut::new();
        }
        self.out.clear();
        Ok(())
    }

    /// Waits for the next message.
    pub async fn message(&mut self) -> Result<Message, WireError> {
        loop {
            if let Some(message) = self.reader.next()? {
                return Ok(message);
            }
            if self.stream.read_buf(&mut self.reader.space()).await.map_err(WireError::Lost)? == 0 {
                return Err(WireError::Lost(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// The next message of those that are there already.
    pub fn message_now(&mut self) -> Result<Option<Message>, WireError> {
        loop {
            if let Some(message) = self.reader.next()? {
                return Ok(Some(message));
            }
            match self.stream.read_now(&mut self.reader.space()) {
                None => return Ok(None),
                Some(Ok(0)) => return Err(WireError::Lost(io::ErrorKind::UnexpectedEof.into())),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(WireError::Lost(error)),
            }
        }
    }
}

/// Writes all of it. While the server does not take more, what it says is read: it may itself wait for us to listen.
async fn write(stream: &mut Stream, reader: &mut Reader, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let step = |context: &mut Context<'_>| match Pin::new(&mut *stream).poll_write(context, bytes) {
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending => poll_listen(stream, reader, context).map(Err),
        };
        match poll_fn(step).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

/// Reads what comes until nothing more does; ready only when the stream fails.
fn poll_listen(stream: &mut Stream, reader: &mut Reader, context: &mut Context<'_>) -> Poll<io::Error> {
    loop {
        let mut space = reader.space();
        let read = pin!(stream.read_buf(&mut space)).poll(context);
        match read {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(0)) => return Poll::Ready(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(error),
        }
        // A large message gets its buffer as soon as its head is in. What is malformed shows when it is asked for.
        let _ = reader.next();
    }
}
