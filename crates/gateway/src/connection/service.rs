//! The service of one connection: requests with their peer, and bodies that end a request.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;

use super::connection_limit::AdmittedConnection;
use super::read_blocks::ReadBlocks;
use super::request_line::RequestInFlight;
use super::serve::Serve;
use super::workers::WorkerConnection;

/// The places of a connection among those of the listener and of its worker, until the last clone
/// is dropped. In the extensions of a request that may upgrade its connection: the service that
/// upgrades it keeps the guard for as long as the connection is open.
#[derive(Clone)]
pub struct ConnectionGuard(pub(super) Arc<(AdmittedConnection, WorkerConnection)>);

/// A service with the address of the other end of the connection.
#[derive(Clone)]
pub(super) struct ConnectionService<S> {
    pub(super) service: S,
    pub(super) peer: SocketAddr,
    pub(super) guard: ConnectionGuard,
    /// The memory for long bodies.
    pub(super) blocks: ReadBlocks,
}

impl<S: Serve> ConnectionService<S> {
    pub(super) async fn respond(self, request: hyper::Request<Incoming>) -> Response {
        // Most requests have no body, and need no allocation for it
        let request = request.map(|body| if body.is_end_stream() { Body::empty() } else { Body::new(body) });
        self.service.respond(request, self.peer).await
    }
}

/// The body of a response. Dropping it ends the request.
pub(super) struct ResponseBody {
    pub(super) body: Body,
    pub(super) _in_flight: RequestInFlight,
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
