//! Opens streams to a server.

use std::io::ErrorKind;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};

use super::authentication::BackendKey;
use super::error::WireError;
use super::server_stream::ServerStream;
use crate::endpoint::{Endpoint, Host, TlsMode};
use crate::tls::Tls;

/// Connects, with TLS as the endpoint requires it.
pub(crate) async fn open_stream(endpoint: &Endpoint, tls: &Tls) -> Result<ServerStream, WireError> {
    let stream = ServerStream::connect(endpoint).await.map_err(WireError::Lost)?;
    let (mut stream, host) = match (stream, endpoint.host()) {
        (ServerStream::Tcp(stream), Host::Tcp(host)) => (stream, host),
        (stream, _) => return Ok(stream),
    };
    let mode = endpoint.tls().mode;
    if mode == TlsMode::Disable {
        return Ok(ServerStream::Tcp(stream));
    }
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    stream.write_all(&request).await.map_err(WireError::Lost)?;
    // Exactly one byte: unencrypted bytes that an attacker injects after it must not be read as
    // encrypted ones
    match stream.read_u8().await.map_err(WireError::Lost)? {
        b'S' => {}
        b'N' if mode == TlsMode::Prefer => return Ok(ServerStream::Tcp(stream)),
        b'N' => {
            let text = format!("the database at {} does not speak TLS, and sslmode demands it", endpoint.description());
            return Err(WireError::Refused(text));
        }
        _ => return Err(WireError::Protocol("an answer to the request for TLS that is none")),
    }
    let refused = |error: &dyn std::fmt::Display| {
        WireError::Refused(format!("TLS with the database at {} failed: {error}", endpoint.description()))
    };
    let mut tls = tls.clone();
    let connector = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut tls, host).map_err(|error| refused(&error))?;
    match connector.connect(stream).await {
        Ok(stream) => Ok(ServerStream::Tls(stream)),
        Err(error) if error.kind() == ErrorKind::InvalidData || error.kind() == ErrorKind::Other => {
            Err(refused(&error))
        }
        Err(error) => Err(WireError::Lost(error)),
    }
}

/// Sends a cancel request for a session, over a connection of its own.
pub(crate) async fn cancel(endpoint: &Endpoint, tls: &Tls, key: BackendKey) -> Result<(), WireError> {
    let mut stream = open_stream(endpoint, tls).await?;
    let mut request = BytesMut::new();
    frontend::cancel_request(key.process, key.secret, &mut request);
    stream.write_all(&request).await.map_err(WireError::Lost)?;
    stream.flush().await.map_err(WireError::Lost)?;
    // The server closes the connection once it has processed the request
    let _ = stream.read_u8().await;
    Ok(())
}
