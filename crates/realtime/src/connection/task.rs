//! The task of one socket: it reads frames, writes what waits in the outbox, and carries out the
//! work of its channels. Everything of a socket happens in this one task, on one thread.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Sink as _, Stream as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, Sleep};
use tokio_websockets::{CloseCode, Config, Limits, Message, ServerBuilder, WebSocketStream};

use super::metered_io::MeteredIo;
use crate::channel::SocketChannels;
use crate::service::RealtimeService;
use crate::socket::frame::{Frame, Inbound, Version};
use crate::socket::outbox::{Outbox, OutboxItem, SocketCommand};
use crate::socket::{SocketEnd, SocketHead};

/// The time for a client to acknowledge that the socket is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which a client may go on sending after it broke the protocol.
const LINGER: Duration = Duration::from_secs(2);
/// The bytes that are collected before they are written.
const WRITE_THRESHOLD: usize = 64 * 1024;
/// The time after which a socket is closed whose client has read nothing of what waits for it.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The time without a channel after which a socket is closed.
const NO_CHANNEL_TIMEOUT: Duration = Duration::from_secs(600);

/// Serves a socket on a connection that is upgraded, until one side closes it.
pub(crate) async fn serve(service: Arc<RealtimeService>, head: SocketHead, io: impl AsyncRead + AsyncWrite + Unpin) {
    let limits = &service.settings.limits;
    let websocket = ServerBuilder::new()
        // A message is one frame, whatever its size: clients may not join fragments
        .config(Config::default().flush_threshold(WRITE_THRESHOLD).frame_size(usize::MAX))
        .limits(Limits::default().max_payload_len(Some(limits.max_frame_bytes)))
        .serve(MeteredIo::new(io));
    let outbox = Arc::new(Outbox::new(limits, &service.memory));
    let count = service.count_connection(&outbox);
    if service.is_closing() {
        // It was upgraded while the others were closed
        outbox.command(SocketCommand::Disconnect(SocketEnd::SERVICE_RESTART));
    }
    let version = head.version;
    let channels = SocketChannels::new(&service, head, Arc::clone(&outbox));
    let now = Instant::now();
    let mut connection = SocketConnection {
        websocket,
        version,
        channels,
        outbox,
        idle_timeout: limits.idle_timeout,
        received_at: now,
        had_channels_at: now,
        stall: None,
        timer: Box::pin(tokio::time::sleep(limits.idle_timeout)),
        closing: false,
        violated: false,
        ending: None,
    };
    while let Some(event) = std::future::poll_fn(|context| connection.poll_event(context)).await {
        connection.handle(event);
    }
    connection.outbox.close();
    drop(count);
    if connection.violated {
        let SocketConnection { websocket, channels, .. } = connection;
        drop(channels);
        linger(websocket.into_inner()).await;
    }
}

/// Reads and discards what a client still sends, within bounds: a connection that is closed while
/// data arrives loses the close frame.
async fn linger(mut io: impl AsyncRead + AsyncWrite + Unpin) {
    let mut scratch = vec![0; 16 * 1024];
    let read = async {
        let _ = io.shutdown().await;
        while let Ok(1..) = io.read(&mut scratch).await {}
    };
    let _ = tokio::time::timeout(LINGER, read).await;
}

struct SocketConnection<S> {
    websocket: WebSocketStream<MeteredIo<S>>,
    version: Version,
    channels: SocketChannels,
    outbox: Arc<Outbox>,
    idle_timeout: Duration,
    /// The time of the last frame of the client.
    received_at: Instant,
    /// The last time at which there were channels, or the beginning of the socket.
    had_channels_at: Instant,
    /// Something waits that the system does not take.
    stall: Option<Stall>,
    /// Fires at the next time limit, or before: limits that moved are checked then.
    timer: Pin<Box<Sleep>>,
    /// The close frame is sent; only its acknowledgement is awaited.
    closing: bool,
    /// The client broke the protocol, and may be sending still.
    violated: bool,
    /// The channels have ended; the socket is closed at its turn.
    ending: Option<(Instant, SocketEnd)>,
}

/// A client that has read nothing since a moment.
struct Stall {
    since: Instant,
    /// The bytes that were written until then.
    written: u64,
}

enum SocketEvent {
    Message(Message),
    /// The client broke the protocol.
    Violation(CloseCode),
    Command(SocketCommand),
    /// Work of a channel is done and was handled.
    Worked(Option<SocketEnd>),
    Timer,
}

impl<S: AsyncRead + AsyncWrite + Unpin> SocketConnection<S> {
    /// Polls for the next event; ready with `None` when the socket has ended.
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<SocketEvent>> {
        let may_read = match self.poll_write(context) {
            WriteProgress::Event(event) => return Poll::Ready(Some(event)),
            WriteProgress::Ended => return Poll::Ready(None),
            // A client that does not read is not read from: its pings would be answered without end
            WriteProgress::Blocked => self.closing,
            WriteProgress::All => true,
        };
        if let Some(limit) = self.stall_limit()
            && limit < self.timer.deadline()
        {
            self.timer.as_mut().reset(limit);
        }
        if let Poll::Ready(end) = self.channels.poll_work(context) {
            return Poll::Ready(Some(SocketEvent::Worked(end)));
        }
        if may_read
            && (self.closing || self.channels.may_receive())
            && let Poll::Ready(read) = Pin::new(&mut self.websocket).poll_next(context)
        {
            return Poll::Ready(match read {
                Some(Ok(message)) => Some(SocketEvent::Message(message)),
                Some(Err(tokio_websockets::Error::PayloadTooLong { .. })) => {
                    Some(SocketEvent::Violation(CloseCode::MESSAGE_TOO_BIG))
                }
                Some(Err(tokio_websockets::Error::Protocol(_))) => {
                    Some(SocketEvent::Violation(CloseCode::PROTOCOL_ERROR))
                }
                Some(Err(_)) | None => None,
            });
        }
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(Some(SocketEvent::Timer))
    }

    /// Writes what waits, as far as the client takes it.
    fn poll_write(&mut self, context: &mut Context<'_>) -> WriteProgress {
        if !self.closing {
            loop {
                match Pin::new(&mut self.websocket).poll_ready(context) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return WriteProgress::Ended,
                    Poll::Pending => {
                        return match self.outbox.next_command(context.waker()) {
                            OutboxItem::Command(command) => WriteProgress::Event(SocketEvent::Command(command)),
                            OutboxItem::Overflowed => WriteProgress::Ended,
                            OutboxItem::Frame(_) | OutboxItem::Empty => self.stalled(WriteProgress::Blocked),
                        };
                    }
                }
                let message = match self.outbox.next(context.waker()) {
                    OutboxItem::Frame(Frame::Text(bytes)) => Message::text(bytes),
                    OutboxItem::Frame(Frame::Binary(bytes)) => Message::binary(bytes),
                    OutboxItem::Command(command) => return WriteProgress::Event(SocketEvent::Command(command)),
                    OutboxItem::Overflowed => return WriteProgress::Ended,
                    OutboxItem::Empty => break,
                };
                if Pin::new(&mut self.websocket).start_send(message).is_err() {
                    return WriteProgress::Ended;
                }
            }
        }
        match Pin::new(&mut self.websocket).poll_flush(context) {
            Poll::Ready(Err(_)) => WriteProgress::Ended,
            Poll::Ready(Ok(())) => {
                self.stall = None;
                WriteProgress::All
            }
            Poll::Pending => self.stalled(WriteProgress::All),
        }
    }

    /// Notes that the system does not take what was written, since the client does not read at the
    /// moment. That ends the socket while too much waits for all clients together.
    fn stalled(&mut self, progress: WriteProgress) -> WriteProgress {
        if self.closing {
            return progress;
        }
        if self.outbox.memory().is_exceeded() {
            tracing::warn!("a client that does not read is disconnected: too much waits for all clients together");
            return WriteProgress::Ended;
        }
        let written = self.websocket.get_ref().written();
        if self.stall.as_ref().is_none_or(|stall| stall.written != written) {
            self.stall = Some(Stall { since: Instant::now(), written });
        }
        progress
    }

    /// Returns the time from which on the client counts as one that does not read.
    fn stall_limit(&self) -> Option<Instant> {
        self.stall.as_ref().filter(|_| !self.closing).map(|stall| stall.since + STALL_TIMEOUT)
    }

    fn handle(&mut self, event: SocketEvent) {
        let end = match event {
            SocketEvent::Message(message) => self.receive(message),
            SocketEvent::Violation(code) => {
                self.violated = true;
                Some(SocketEnd { code: code.into(), reason: "" })
            }
            SocketEvent::Command(SocketCommand::Disconnect(end)) => {
                self.channels.announce_disconnect();
                Some(end)
            }
            SocketEvent::Command(SocketCommand::CheckTokens { close_after }) => {
                let end = self.channels.check_tokens();
                end.and_then(|end| self.end_after(end, close_after))
            }
            SocketEvent::Command(SocketCommand::ShutDown(channel, reason)) => {
                self.channels.shut_down(channel, &reason);
                None
            }
            SocketEvent::Worked(end) => end,
            SocketEvent::Timer => self.check_times(),
        };
        match end {
            Some(end) => self.close(&end),
            None if self.closing => {}
            None => self.rearm(),
        }
    }

    fn receive(&mut self, message: Message) -> Option<SocketEnd> {
        self.received_at = Instant::now();
        if message.is_close() {
            // The library acknowledges it. Nothing may be written behind the acknowledgement
            self.end_channels();
        }
        // The token of a socket that waits for its close is void
        if self.closing || self.ending.is_some() || message.is_ping() || message.is_pong() {
            return None;
        }
        let is_text = message.is_text();
        let bytes = Bytes::from(message.into_payload());
        let inbound = match (is_text, self.version) {
            (true, version) => Inbound::parse_text(version, &bytes),
            (false, Version::V2) => Inbound::parse_binary(&bytes),
            (false, Version::V1) => None,
        };
        let Some(inbound) = inbound else {
            tracing::debug!(bytes = bytes.len(), "a malformed message was dropped");
            return None;
        };
        self.channels.receive(inbound)
    }

    /// Checks the time limits, and sets the timer to the next one.
    fn check_times(&mut self) -> Option<SocketEnd> {
        let now = Instant::now();
        if self.closing {
            // The client does not acknowledge: the next write finds the outbox closed
            self.outbox.close();
            self.closing = false;
            return None;
        }
        if self.stall_limit().is_some_and(|limit| now >= limit) {
            // A close frame would not be read either: the next write finds the outbox closed
            self.outbox.close();
            return None;
        }
        if let Some((_, end)) = self.ending.take_if(|(at, _)| now >= *at) {
            return Some(end);
        }
        if now >= self.received_at + self.idle_timeout {
            return Some(SocketEnd { code: CloseCode::NORMAL_CLOSURE.into(), reason: "" });
        }
        if self.channels.is_empty() {
            if now >= self.had_channels_at + NO_CHANNEL_TIMEOUT {
                return Some(SocketEnd { code: CloseCode::NORMAL_CLOSURE.into(), reason: "" });
            }
        } else {
            self.had_channels_at = now;
        }
        self.channels.check_times();
        let next = self.next_limit();
        self.timer.as_mut().reset(next);
        None
    }

    /// Sets the timer to an earlier limit, if there is one now.
    fn rearm(&mut self) {
        if let Some(limit) = self.channels.next_limit()
            && limit < self.timer.deadline()
        {
            self.timer.as_mut().reset(limit);
        }
    }

    fn next_limit(&self) -> Instant {
        let idle = self.received_at + self.idle_timeout;
        let ending = self.ending.as_ref().map(|(at, _)| *at);
        [self.channels.next_limit(), self.stall_limit(), ending].into_iter().flatten().fold(idle, Instant::min)
    }

    /// Hands everything that waits in the outbox to the library, for a last message before a close.
    fn write_out(&mut self) {
        for frame in self.outbox.take_frames() {
            let message = match frame {
                Frame::Text(bytes) => Message::text(bytes),
                Frame::Binary(bytes) => Message::binary(bytes),
            };
            let _ = Pin::new(&mut self.websocket).start_send(message);
        }
    }

    /// Ends the channels at once, and the socket after a time. Returns the end if that time is now.
    fn end_after(&mut self, end: SocketEnd, after: Duration) -> Option<SocketEnd> {
        if after.is_zero() {
            return Some(end);
        }
        self.channels.end();
        let at = Instant::now() + after;
        self.ending = Some((at, end));
        self.timer.as_mut().reset(at);
        None
    }

    fn close(&mut self, end: &SocketEnd) {
        if self.closing {
            return;
        }
        self.write_out();
        let code = CloseCode::try_from(end.code).unwrap_or(CloseCode::NORMAL_CLOSURE);
        // Fails if the library has closed the socket itself, for a violation that it found
        let _ = Pin::new(&mut self.websocket).start_send(Message::close(Some(code), end.reason));
        self.end_channels();
    }

    /// Ends the channels, and waits only for the end of the connection from now on.
    fn end_channels(&mut self) {
        self.channels.end();
        self.closing = true;
        self.timer.as_mut().reset(Instant::now() + CLOSE_TIMEOUT);
    }
}

/// The progress of the writing.
enum WriteProgress {
    /// Nothing waits any more, apart from what the system has not taken yet.
    All,
    /// The client does not read at the moment.
    Blocked,
    /// There is something else to do first.
    Event(SocketEvent),
    /// The socket has ended.
    Ended,
}

#[cfg(test)]
mod tests;
