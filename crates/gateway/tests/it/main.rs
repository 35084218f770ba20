//! The gateway over real sockets, with a service behind it that returns what it received.

#![allow(clippy::unwrap_used)]

mod compression;
mod connection_limit;
mod connections;
mod cors;
mod keys;
mod limits;
mod log;
mod long_bodies;
mod proxies;
mod request_line;
mod web_app;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::routing::{any, get, post};
use portico_base::{ClientAddress, Clock, RequestId, Secret};
use portico_gateway::{AccessRules, Gateway, GatewayBuilder, KeyPolicy, ServeLimits, Workers, serve};
use portico_tokens::{ApiKeys, Caller, CurrentKeys, KeyRefresh, KeyRing, development};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// Long enough for a machine under load; no passing test waits that long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running gateway.
struct Server {
    address: SocketAddr,
    client: reqwest::Client,
    ring: CurrentKeys,
    stop: Option<oneshot::Sender<()>>,
    ended: JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start(settle: impl FnOnce(GatewayBuilder) -> GatewayBuilder) -> Self {
        Self::start_with(ServeLimits { head_timeout: PATIENCE, ..ServeLimits::default() }, settle).await
    }

    async fn start_with(limits: ServeLimits, settle: impl FnOnce(GatewayBuilder) -> GatewayBuilder) -> Self {
        Self::start_on(Workers::start(2, || ()).unwrap(), limits, settle).await
    }

    async fn start_on(
        workers: Workers,
        limits: ServeLimits,
        settle: impl FnOnce(GatewayBuilder) -> GatewayBuilder,
    ) -> Self {
        let ring = Arc::new(KeyRing::hs256(&Secret::new(development::JWT_SECRET)));
        let keys = CurrentKeys::new(ring, Arc::new(ApiKeys::development()));
        let builder = settle(Gateway::builder(keys.clone(), Clock::system()));
        Self::serve(builder, keys, workers, limits).await
    }

    async fn serve(builder: GatewayBuilder, ring: CurrentKeys, workers: Workers, limits: ServeLimits) -> Self {
        // Another test may have installed it
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            let _ = stopped.await;
        };
        let ended = tokio::spawn(serve(listener, builder.build(), shutdown, limits, workers));
        let client =
            reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(PATIENCE).build().unwrap();
        Self { address, client, ring, stop: Some(stop), ended }
    }

    /// Starts the echo service with keys that `refresh` reads again.
    async fn start_with_keys(refresh: impl FnOnce(&CurrentKeys) -> KeyRefresh) -> Self {
        let ring = Arc::new(KeyRing::hs256(&Secret::new(development::JWT_SECRET)));
        let keys = CurrentKeys::new(ring, Arc::new(ApiKeys::development()));
        let refresh = refresh(&keys);
        let limits = ServeLimits { head_timeout: PATIENCE, ..ServeLimits::default() };
        let builder = Gateway::builder(keys.clone(), Clock::system())
            .refresh_keys(refresh)
            .mount("/auth/v1", echo(), AccessRules::keyed())
            .mount("/accounts", echo(), AccessRules::keyed().own_tokens());
        Self::serve(builder, keys, Workers::start(2, || ()).unwrap(), limits).await
    }

    /// Starts the echo service behind `/auth/v1`, with the open paths of the real one.
    async fn with_echo(policy: KeyPolicy) -> Self {
        Self::start(|gateway| {
            let access = AccessRules::keyed().except(["/verify", "/callback"]).body_limit(1000);
            let accounts = access.clone().own_tokens();
            gateway.key_policy(policy).mount("/auth/v1", echo(), access).mount("/accounts", echo(), accounts)
        })
        .await
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(self.url(path))
    }

    fn token(&self, claims: Value) -> String {
        format!("Bearer {}", self.ring.sign(&claims).unwrap())
    }
}

/// Returns a service that returns what the gateway adds to the request.
fn echo() -> Router {
    async fn tell(request: Request) -> axum::Json<Value> {
        let caller = request.extensions().get::<Caller>().expect("every request has a caller");
        let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        axum::Json(json!({
            "path": request.uri().path(),
            "query": request.uri().query(),
            "role": caller.role(),
            "api_key": caller.api_key.map(|role| role.as_str()),
            "token": caller.token.as_ref().map(|token| token.text()),
            "authorization": caller.authorization.as_ref().map(|authorization| authorization.expose()),
            "refused": caller.rejected.as_ref().map(ToString::to_string),
            "address": request.extensions().get::<ClientAddress>().unwrap().0.to_string(),
            "id": request.extensions().get::<RequestId>().unwrap().as_str(),
            "x-forwarded-for": header("x-forwarded-for"),
            "x-forwarded-host": header("x-forwarded-host"),
            "x-forwarded-proto": header("x-forwarded-proto"),
            "x-forwarded-port": header("x-forwarded-port"),
            "x-forwarded-path": header("x-forwarded-path"),
            "x-forwarded-prefix": header("x-forwarded-prefix"),
            "x-real-ip": header("x-real-ip"),
            "x-request-id": header("x-request-id"),
        }))
    }
    Router::new()
        .route("/user", any(tell))
        .route("/callback", get(tell))
        .route("/verify", get(tell))
        .route("/things/{id}", get(tell))
        .route("/read", post(async |body: Bytes| body.len().to_string()))
        .route("/ignore", post(async || "ignored"))
        .route("/panic", get(async || -> String { panic!("on purpose: {}", 1) }))
}

/// Returns a service that reports a request and responds when it is notified.
fn slow() -> (Router, Arc<Notify>, Arc<Notify>) {
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let router = {
        let (asked, go) = (Arc::clone(&asked), Arc::clone(&go));
        Router::new().route(
            "/wait",
            get(move || async move {
                asked.notify_one();
                go.notified().await;
                "done"
            }),
        )
    };
    (router, asked, go)
}

async fn json_of(response: reqwest::Response) -> Value {
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}
