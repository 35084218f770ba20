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

    /// Returns true if the response to a request never begins before its body was read or dropped.
    /// Then a long body does not pass through the HTTP library. Default: it does.
    fn reads_before_responding(&self, _path: &str) -> bool {
        false
    }
}

impl Serve for Gateway {
    fn respond(&self, request: Request, peer: SocketAddr) -> impl Future<Output = Response> + Send {
        Gateway::respond(self, request, peer)
    }

    fn reads_before_responding(&self, path: &str) -> bool {
        Gateway::reads_before_responding(self, path)
    }
}

impl Serve for Router {
    async fn respond(&self, mut request: Request, peer: SocketAddr) -> Response {
        request.extensions_mut().insert(ConnectInfo(peer));
        infallible(Service::call(&mut self.clone(), request).await)
    }
}
