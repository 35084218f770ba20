//! An identity provider whose responses a test chooses, including those that no provider should
//! give.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use aws_lc_rs::encoding::AsBigEndian as _;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portico_auth::AuthSettings;
use portico_testkit::{TestResponse, TestServer};
use portico_tokens::{KeyRing, SigningKey};
use serde_json::{Value, json};
use url::Url;

use crate::local_server::serve;
use crate::oauth::query_of;

pub const CLIENT_ID: &str = "the-client";
pub const CLIENT_SECRET: &str = "the-secret";

/// A key that signs id_tokens.
pub struct Key {
    ring: KeyRing,
    public: Value,
}

impl Key {
    pub fn new(id: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let point = pair.public_key().as_ref();
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let public = json!({"kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "alg": "ES256", "x": part(&point[1..33]), "y": part(&point[33..65])});
        let mut private = public.clone();
        private["d"] = part(pair.private_key().as_be_bytes().unwrap().as_ref()).into();
        let ring = KeyRing::new(None, vec![SigningKey::parse_jwk(&private).unwrap()]).unwrap();
        Self { ring, public }
    }

    /// Returns the public key as a JWK.
    pub fn public(&self) -> &Value {
        &self.public
    }

    pub fn sign(&self, claims: &Value) -> String {
        self.ring.sign(claims).unwrap()
    }
}

/// Fields of query and form, and headers.
type Call = (HashMap<String, String>, http::HeaderMap);
type Handler = Arc<dyn Fn(&HashMap<String, String>) -> Response + Send + Sync>;

#[derive(Clone)]
struct ProviderConduct {
    answers: Arc<Mutex<HashMap<String, Handler>>>,
    calls: Arc<Mutex<Vec<(String, Call)>>>,
    key_reads: Arc<AtomicUsize>,
}

/// The provider, on a port of its own.
pub struct Provider {
    pub base: String,
    pub key: Key,
    shared: ProviderConduct,
}

impl Provider {
    /// Starts a well-behaved provider.
    pub async fn start() -> Self {
        let shared = ProviderConduct { answers: Arc::default(), calls: Arc::default(), key_reads: Arc::default() };
        let router = Router::new().fallback(answer).with_state(shared.clone());
        let base = serve(router).await;
        let provider = Self { base: base.clone(), key: Key::new("first"), shared };
        provider.says("/.well-known/openid-configuration", json!({
            "issuer": base, "authorization_endpoint": format!("{base}/authorize"), "token_endpoint": format!("{base}/token"),
            "jwks_uri": format!("{base}/jwks"), "userinfo_endpoint": format!("{base}/userinfo"),
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }));
        provider.says("/jwks", json!({"keys": [
            {"kty": "oct", "k": "c2VjcmV0", "kid": "secret", "alg": "HS256"}, {"kty": "AKP", "kid": "unknown"}, provider.key.public,
        ]}));
        provider
    }

    /// Sets the JSON response of a path.
    pub fn says(&self, path: &str, body: Value) {
        self.answers(path, move |_| axum::Json(body.clone()).into_response());
    }

    /// Sets the handler of a path. Its argument has the fields of query and form.
    pub fn answers(&self, path: &str, handler: impl Fn(&HashMap<String, String>) -> Response + Send + Sync + 'static) {
        self.shared.answers.lock().unwrap().insert(path.to_owned(), Arc::new(handler));
    }

    /// Sets the id_token of the token endpoint.
    pub fn gives(&self, id_token: String) {
        self.says("/token", json!({"access_token": "at", "token_type": "bearer", "id_token": id_token}));
    }

    /// Returns how often the keys were read.
    pub fn key_reads(&self) -> usize {
        self.shared.key_reads.load(Ordering::SeqCst)
    }

    /// Returns the fields and headers of the calls to a path.
    pub fn calls(&self, path: &str) -> Vec<Call> {
        let calls = self.shared.calls.lock().unwrap();
        calls.iter().filter(|(called, _)| called == path).map(|(_, call)| call.clone()).collect()
    }

    /// Returns the claims of a valid id_token for this flow.
    pub fn claims(&self, server: &TestServer, nonce: Option<&str>) -> Value {
        let now = server.clock().now().unix_timestamp();
        let mut claims = json!({
            "iss": self.base, "aud": CLIENT_ID, "sub": "subject-1", "email": "ada@example.com", "email_verified": true, "name": "Ada L",
            "iat": now, "exp": now + 600,
        });
        if let Some(nonce) = nonce {
            claims["nonce"] = nonce.into();
        }
        claims
    }
}

async fn answer(State(shared): State<ProviderConduct>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let headers = request.headers().clone();
    let body = axum::body::to_bytes(request.into_body(), 1_000_000).await.unwrap_or_default();
    let text = format!("{query}&{}", String::from_utf8_lossy(&body));
    let fields: HashMap<String, String> = form_urlencoded::parse(text.as_bytes()).into_owned().collect();
    if path == "/jwks" {
        shared.key_reads.fetch_add(1, Ordering::SeqCst);
    }
    shared.calls.lock().unwrap().push((path.clone(), (fields.clone(), headers)));
    let handler = shared.answers.lock().unwrap().get(&path).cloned();
    match handler {
        Some(handler) => handler(&fields),
        None => http::StatusCode::NOT_FOUND.into_response(),
    }
}

/// Returns a body that never ends.
pub fn silence() -> Response {
    Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::convert::Infallible>>()).into_response()
}

/// Starts a server whose provider `name` is this one.
pub async fn server_with(name: &str, provider: &Provider) -> TestServer {
    server_and(name, provider, |_| {}).await
}

/// Like [`server_with`], but with further settings.
pub async fn server_and(name: &str, provider: &Provider, change: impl FnOnce(&mut AuthSettings)) -> TestServer {
    let url = provider.base.clone();
    TestServer::with(|settings| {
        settings.emulate_google = false;
        // Long enough for a busy machine, and short enough for a test
        settings.auth.http_timeout = std::time::Duration::from_secs(5);
        settings.auth.manual_linking = true;
        settings.auth.external.insert(
            name.to_owned(),
            portico_auth::settings::ProviderSettings {
                enabled: true,
                client_ids: vec![CLIENT_ID.to_owned(), "the-phone-app".to_owned()],
                secret: CLIENT_SECRET.into(),
                url,
                ..Default::default()
            },
        );
        change(&mut settings.auth);
    })
    .await
}

/// A started flow.
pub struct StartedFlow {
    pub url: Url,
    pub state: String,
    pub nonce: Option<String>,
}

pub async fn begin(server: &TestServer, provider: &str) -> StartedFlow {
    begin_at(server, provider, server.base().trim_start_matches("http://")).await
}

/// Like [`begin`], but by a browser that calls the server at `host`.
pub async fn begin_at(server: &TestServer, provider: &str, host: &str) -> StartedFlow {
    let request = server.get(&format!("/auth/v1/authorize?provider={provider}")).header("host", host);
    let url = request.send().await.expect(302).location();
    let field = |name| query_of(&url, name);
    StartedFlow { state: field("state").unwrap(), nonce: field("nonce"), url }
}

pub async fn return_from_provider(server: &TestServer, started: &StartedFlow) -> TestResponse {
    server.get(&format!("/auth/v1/callback?code=the-code&state={}", started.state)).send().await.expect(302)
}
