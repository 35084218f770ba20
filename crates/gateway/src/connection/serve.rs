//! The services that respond to the requests of a listener.

use std::future::Future;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use tower::Service;

use crate::gateway::{Gateway, infallible};

/// A service that responds to the requests of a listener.
pub trait Serve: Clone + Send + Sync + 'static {
    /// Responds to a request that came from `peer`.
    fn respond(&self, request: Request, peer: SocketAddr) -> impl Future<Output = Response> + Send;
}

impl Serve for Gateway {
    fn respond(&self, request: Request, peer: SocketAddr) -> impl Future<Output = Response> + Send {
        Gateway::respond(self, request, peer)
    }
}

impl Serve for Router {
    async fn respond(&self, mut request: Request, peer: SocketAddr) -> Response {
        request.extensions_mut().insert(ConnectInfo(peer));
        infallible(Service::call(&mut self.clone(), request).await)
    }
}
