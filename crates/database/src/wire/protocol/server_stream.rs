//! The byte stream to the server: a Unix socket, TCP, or TLS over TCP.

use std::io;
use std::os::unix::net;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::endpoint::{Endpoint, Host};
use crate::tls;

/// A connected stream.
pub(crate) enum ServerStream {
    Socket(UnixStream),
    Tcp(TcpStream),
    Tls(tls::EncryptedStream<TcpStream>),
}

impl ServerStream {
    /// Connects to the endpoint's host, without TLS.
    pub async fn connect(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint.host() {
            Host::Socket(folder) => {
                let file = folder.join(format!(".s.PGSQL.{}", endpoint.port()));
                Ok(Self::Socket(UnixStream::connect(file).await?))
            }
            Host::Tcp(host) => {
                let stream = TcpStream::connect((&**host, endpoint.port())).await?;
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                Ok(Self::Tcp(stream))
            }
        }
    }

    /// Returns true if the connection cannot be intercepted: it is encrypted, or does not leave the
    /// machine.
    pub fn is_private(&self) -> bool {
        match self {
            Self::Socket(_) | Self::Tls(_) => true,
            Self::Tcp(stream) => stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback()),
        }
    }

    /// Returns the hash of the server's certificate, which a password exchange can be bound to
    /// (`tls-server-end-point`).
    pub fn tls_server_end_point(&self) -> Option<Vec<u8>> {
        match self {
            Self::Tls(stream) => stream.end_point(),
            Self::Socket(_) | Self::Tcp(_) => None,
        }
    }

    /// Registers the stream with the current runtime instead of its previous one. Bytes that have
    /// already arrived are read into `buffer`, since this runtime is not notified of them. Returns
    /// an error when the stream has ended, and `false` when it could not be moved: a TLS stream
    /// cannot be separated from its registered socket.
    pub fn move_to_current_runtime(&mut self, buffer: &mut impl BufMut) -> io::Result<bool> {
        match self {
            Self::Socket(stream) => {
                let mut duplicate = net::UnixStream::from(rustix::io::fcntl_dupfd_cloexec(&*stream, 0)?);
                read_available(&mut duplicate, buffer)?;
                *stream = UnixStream::from_std(duplicate)?;
            }
            Self::Tcp(stream) => {
                let mut duplicate = std::net::TcpStream::from(rustix::io::fcntl_dupfd_cloexec(&*stream, 0)?);
                read_available(&mut duplicate, buffer)?;
                *stream = TcpStream::from_std(duplicate)?;
            }
            Self::Tls(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Reads bytes that have already arrived; `None` when there are none. Registers no wake-up.
    pub fn try_read(&mut self, buffer: &mut impl BufMut) -> Option<io::Result<usize>> {
        let mut read = std::pin::pin!(tokio::io::AsyncReadExt::read_buf(self, buffer));
        match read.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    /// Writes as much as is possible without waiting, for a message whose loss does not matter.
    pub fn try_write(&mut self, bytes: &[u8]) {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(Ok(_)) = Pin::new(&mut *self).poll_write(&mut context, bytes) {
            let _ = Pin::new(self).poll_flush(&mut context);
        }
    }
}

/// Reads the bytes that have already arrived from a non-blocking stream, as far as there is room.
fn read_available(stream: &mut impl io::Read, buffer: &mut impl BufMut) -> io::Result<()> {
    let mut bytes = [0; 512];
    loop {
        let room = buffer.remaining_mut().min(bytes.len());
        let Some(room) = bytes.get_mut(..room).filter(|room| !room.is_empty()) else { return Ok(()) };
        match stream.read(room) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => buffer.put_slice(room.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Enables keep-alive probes, so that a peer that vanished is detected after a minute, not after
/// hours.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    #[cfg(target_os = "linux")]
    {
        sockopt::set_tcp_keepidle(stream, Duration::from_secs(30))?;
        sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10))?;
        sockopt::set_tcp_keepcnt(stream, 3)?;
        sockopt::set_tcp_user_timeout(stream, 60_000)?;
    }
    Ok(())
}

impl AsyncRead for ServerStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Socket(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Socket(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Socket(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Socket(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
