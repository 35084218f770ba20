//! A server for hooks, whose answers a test chooses.

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

type Answer = Arc<dyn Fn(HookRequest) -> BoxFuture<'static, Response> + Send + Sync>;

/// The server, on a port of its own.
pub struct HookServer {
    url: String,
    answer: Arc<Mutex<Answer>>,
    requests: watch::Sender<Vec<HookRequest>>,
}

/// Returns a response in JSON.
pub fn answered(body: &Value) -> Response {
    (StatusCode::OK, [("content-type", "application/json")], body.to_string()).into_response()
}

/// Returns the error that a hook states.
pub fn refused(status: u16, message: &str) -> Response {
    answered(&json!({"error": {"http_code": status, "message": message}}))
}

impl HookServer {
    /// Starts a server that responds with `{}`.
    pub async fn start() -> Self {
        let ready: Answer = Arc::new(|_| Box::pin(async { answered(&json!({})) }));
        let answer = Arc::new(Mutex::new(ready));
        let requests = watch::Sender::new(Vec::new());
        let (answers, received) = (answer.clone(), requests.clone());
        let router = Router::new().fallback(move |headers: HeaderMap, body: Bytes| {
            let request = HookRequest { headers, input: serde_json::from_slice(&body).unwrap() };
            received.send_modify(|requests| requests.push(request.clone()));
            let answer = answers.lock().unwrap().clone();
            async move { answer(request).await }
        });
        let url = format!("{}/hook", serve(router).await);
        Self { url, answer, requests }
    }

    /// Chooses the response to the next requests.
    pub fn answer(&self, answer: impl Fn(&HookRequest) -> Response + Send + Sync + 'static) {
        let answer = Arc::new(answer);
        self.answer_later(move |request| {
            let answer = answer.clone();
            async move { answer(&request) }
        });
    }

    /// Like [`HookServer::answer`], but for a response that waits.
    pub fn answer_later<F>(&self, answer: impl Fn(HookRequest) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Response> + Send + 'static,
    {
        *self.answer.lock().unwrap() = Arc::new(move |request| Box::pin(answer(request)));
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
    answered(&json!({"claims": claims}))
}
