//! The bytes' way to the server: a socket, TCP, or TLS over it.

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
pub(crate) enum Stream {
    Socket(UnixStream),
    Tcp(TcpStream),
    Tls(tls::Stream<TcpStream>),
}

impl Stream {
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

    /// Whether nobody between us and the server can listen: it is encrypted, or does not leave the machine.
    pub fn is_private(&self) -> bool {
        match self {
            Self::Socket(_) | Self::Tls(_) => true,
            Self::Tcp(stream) => stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback()),
        }
    }

    /// What a password exchange can be bound to: the hash of the server's certificate.
    pub fn end_point(&self) -> Option<Vec<u8>> {
        match self {
            Self::Tls(stream) => stream.end_point(),
            Self::Socket(_) | Self::Tcp(_) => None,
        }
    }

    /// Lets the current runtime wake whoever waits for the stream, and no other. What is there already goes into `buffer`, since this runtime
    /// learns of it only when it looks next; an error when the stream has ended. `false`: it stays where it is, since what encrypts it can not
    /// be taken apart.
    pub fn register_here(&mut self, buffer: &mut impl BufMut) -> io::Result<bool> {
        match self {
            Self::Socket(stream) => {
                let mut same = net::UnixStream::from(rustix::io::fcntl_dupfd_cloexec(&*stream, 0)?);
                take_in(&mut same, buffer)?;
                *stream = UnixStream::from_std(same)?;
            }
            Self::Tcp(stream) => {
                let mut same = std::net::TcpStream::from(rustix::io::fcntl_dupfd_cloexec(&*stream, 0)?);
                take_in(&mut same, buffer)?;
                *stream = TcpStream::from_std(same)?;
            }
            Self::Tls(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Reads what is there already; `None` when nothing is. Nobody is woken when more comes.
    pub fn read_now(&mut self, buffer: &mut impl BufMut) -> Option<io::Result<usize>> {
        let mut read = std::pin::pin!(tokio::io::AsyncReadExt::read_buf(self, buffer));
        match read.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    /// Writes what can be written at once, for a message that the other side need not get.
    pub fn write_now(&mut self, bytes: &[u8]) {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(Ok(_)) = Pin::new(&mut *self).poll_write(&mut context, bytes) {
            let _ = Pin::new(self).poll_flush(&mut context);
        }
    }
}

/// Reads what is there already from a stream that does not block, as far as there is room.
fn take_in(stream: &mut impl io::Read, buffer: &mut impl BufMut) -> io::Result<()> {
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

/// A peer that vanished without a word is noticed after a minute, not after hours.
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

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Socket(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
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
