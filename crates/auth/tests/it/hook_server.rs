//! A server for hooks, whose responses a test chooses.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use portico_auth::AuthSettings;
use portico_auth::settings::{HookPoint, HookSettings};
use portico_testkit::TestServer;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::local_server::serve;

/// A request that the server received.
#[derive(Clone)]
pub struct HookRequest {
    pub headers: HeaderMap,
    pub input: Value,
}

type Respond = Arc<dyn Fn(HookRequest) -> BoxFuture<'static, Response> + Send + Sync>;

/// The server, on a port of its own.
pub struct HookServer {
    url: String,
    respond: Arc<Mutex<Respond>>,
    requests: watch::Sender<Vec<HookRequest>>,
}

/// Returns a response in JSON.
pub fn json_response(body: &Value) -> Response {
    (StatusCode::OK, [("content-type", "application/json")], body.to_string()).into_response()
}

/// Returns the error that a hook states.
pub fn refused(status: u16, message: &str) -> Response {
    json_response(&json!({"error": {"http_code": status, "message": message}}))
}

impl HookServer {
    /// Starts a server that responds with `{}`.
    pub async fn start() -> Self {
        let ready: Respond = Arc::new(|_| Box::pin(async { json_response(&json!({})) }));
        let respond = Arc::new(Mutex::new(ready));
        let requests = watch::Sender::new(Vec::new());
        let (current, received) = (respond.clone(), requests.clone());
        let router = Router::new().fallback(move |headers: HeaderMap, body: Bytes| {
            let request = HookRequest { headers, input: serde_json::from_slice(&body).unwrap() };
            received.send_modify(|requests| requests.push(request.clone()));
            let respond = current.lock().unwrap().clone();
            async move { respond(request).await }
        });
        let url = format!("{}/hook", serve(router).await);
        Self { url, respond, requests }
    }

    /// Chooses the response to the next requests.
    pub fn respond(&self, respond: impl Fn(&HookRequest) -> Response + Send + Sync + 'static) {
        let respond = Arc::new(respond);
        self.respond_later(move |request| {
            let respond = respond.clone();
            async move { respond(&request) }
        });
    }

    /// Like [`HookServer::respond`], but for a response that waits.
    pub fn respond_later<F>(&self, respond: impl Fn(HookRequest) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Response> + Send + 'static,
    {
        *self.respond.lock().unwrap() = Arc::new(move |request| Box::pin(respond(request)));
    }

    /// Like [`HookServer::respond`], but no response is sent before the returned sender has sent
    /// `true`.
    pub fn respond_when_open(
        &self,
        respond: impl Fn(&HookRequest) -> Response + Send + Sync + 'static,
    ) -> watch::Sender<bool> {
        let (open, opened) = watch::channel(false);
        let respond = Arc::new(respond);
        self.respond_later(move |request| {
            let (mut opened, respond) = (opened.clone(), respond.clone());
            async move {
                opened.wait_for(|is_open| *is_open).await.unwrap();
                respond(&request)
            }
        });
        open
    }

    /// Makes this the hook of a point.
    pub fn serve(&self, settings: &mut AuthSettings, point: HookPoint) {
        let secrets = "v1,whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=".into();
        settings.hooks.insert(point, HookSettings { uri: self.url.clone(), secrets });
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<HookRequest> {
        self.requests.borrow().clone()
    }

    /// Returns the inputs of the requests so far, without `metadata`.
    pub fn inputs(&self) -> Vec<Value> {
        let inputs = self.requests().into_iter().map(|request| request.input);
        inputs
            .map(|mut input| {
                input.as_object_mut().unwrap().remove("metadata");
                input
            })
            .collect()
    }

    /// Waits until `count` requests have arrived.
    pub async fn wait_for(&self, count: usize) {
        let mut requests = self.requests.subscribe();
        let arrived = requests.wait_for(|requests| requests.len() >= count);
        tokio::time::timeout(std::time::Duration::from_secs(60), arrived).await.expect("the requests arrive").unwrap();
    }
}

/// Makes a PostgreSQL function of the schema `public` the hook of a point.
pub fn function(settings: &mut AuthSettings, point: HookPoint, name: &str) {
    let uri = format!("pg-functions://postgres/public/{name}");
    settings.hooks.insert(point, HookSettings { uri, secrets: "".into() });
}

/// Starts a server that calls a hook at one point.
pub async fn server_with_hook(point: HookPoint, change: impl FnOnce(&mut AuthSettings)) -> (TestServer, HookServer) {
    let hook = HookServer::start().await;
    let t = TestServer::with_auth(|settings| {
        hook.serve(settings, point);
        change(settings);
    })
    .await;
    (t, hook)
}

/// Responds with the claims of the request and a further one.
pub fn with_tenant(request: &HookRequest) -> Response {
    let mut claims = request.input["claims"].clone();
    claims["tenant"] = json!("acme");
    json_response(&json!({"claims": claims}))
}
