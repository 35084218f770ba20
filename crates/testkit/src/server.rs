//! The server under test and everything around it.

mod messages;
mod statements;

use std::sync::Arc;
use std::time::Duration;

use portico::compose::emulators::EmulatedGoogle;
use portico::compose::keys::ServerKeys;
use portico::{Server, ServerDescription};
use portico_auth::{AuthSettings, TextTransport};
use portico_base::{AllowedOrigins, Clock};
use portico_database::scratch::{self, PoolerMode, TestPooler};
use portico_database::{Database, Endpoint, PoolSettings};
use portico_emulators::Development;
use portico_gateway::{KeyPolicy, ServeLimits, Workers};
use portico_mail::Transport;
use portico_realtime::RealtimeSettings;
use portico_rest::RestSettings;
use portico_storage::{Storage, StorageSettings};
use portico_tokens::ApiKeys;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::mail::CollectedMails;
use crate::request::Cookies;
use crate::text_messages::OutgoingTextMessages;
use crate::{Request, cluster};

/// The time for which a test waits for the server. It only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server with its own database, mailbox, emulated Google and clock.
pub struct TestServer {
    base: String,
    http: reqwest::Client,
    cookies: Cookies,
    outgoing: CollectedMails,
    texts: OutgoingTextMessages,
    description: ServerDescription,
    pool: PoolSettings,
    /// The listening socket, which stays open while the server restarts: connections wait
    /// meanwhile.
    listener: std::net::TcpListener,
    /// `None` only while the server restarts.
    running: Option<RunningServer>,
    admin: tokio_postgres::Client,
    /// The content of the storage service.
    files: Option<tempfile::TempDir>,
    scratch: cluster::TestDatabase,
}

/// The settings that a test may change before the server starts.
pub struct TestSettings {
    /// The account service. By default with confirmations, a cheap password hash, and no pause
    /// between emails.
    pub auth: AuthSettings,
    /// The requests that need an API key.
    pub key_policy: KeyPolicy,
    /// Delivers email in place of the mailbox that the test reads.
    pub mail: Option<Arc<dyn Transport>>,
    /// Delivers text messages in place of the collection that the test reads.
    pub texts: Option<Arc<dyn TextTransport>>,
    /// The settings of the connections to the database.
    pub pool: PoolSettings,
    /// The origin of the server: `http://127.0.0.1:<port>`.
    pub origin: String,
    /// True if Google is emulated.
    pub emulate_google: bool,
    /// The data API. Off by default, since most tests do not need it and its start reads the whole
    /// schema.
    pub rest: Option<RestSettings>,
    /// Reaches the database through a connection pooler. The test's own connection passes it by.
    pub pooler: Option<PoolerMode>,
    /// The storage service. Off by default.
    pub storage: Option<StorageSettings>,
    /// The realtime service. Off by default.
    pub realtime: Option<RealtimeSettings>,
}

impl TestServer {
    /// Starts a server with the defaults of [`TestSettings`].
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts a server with other settings of the account service.
    pub async fn with_auth(change: impl FnOnce(&mut AuthSettings)) -> Self {
        Self::with(|settings| change(&mut settings.auth)).await
    }

    /// Starts a server with the storage service, whose content is in a folder of this test.
    pub async fn with_storage(change: impl FnOnce(&mut StorageSettings)) -> Self {
        let files = tempfile::tempdir().expect("a temporary folder");
        let mut storage = StorageSettings::in_folder(files.path());
        change(&mut storage);
        Self::with_storage_in(files, storage).await
    }

    /// Starts a server with the storage service, whose settings refer to a folder that is removed
    /// with the server.
    pub async fn with_storage_in(files: tempfile::TempDir, storage: StorageSettings) -> Self {
        let server = Self::with(|settings| settings.storage = Some(storage)).await;
        Self { files: Some(files), ..server }
    }

    /// Starts a server with other settings.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn with(change: impl FnOnce(&mut TestSettings)) -> Self {
        portico::install_cryptography();
        let (listener, origin) = free_port();
        // Today, to the second: tokens carry whole seconds, so fractions would disturb comparisons
        let now = Clock::system().now().replace_nanosecond(0).expect("zero is a nanosecond");
        let clock = Clock::movable(now);
        let mut settings = TestSettings {
            auth: auth_settings(&origin),
            key_policy: KeyPolicy::Development,
            mail: None,
            texts: None,
            pool: PoolSettings { role_connections: 8, login_connections: 2, ..PoolSettings::default() },
            origin: origin.clone(),
            emulate_google: true,
            rest: None,
            pooler: None,
            storage: None,
            realtime: None,
        };
        change(&mut settings);
        let scratch = match settings.pooler {
            None => cluster::TestDatabase::new().await,
            Some(mode) => cluster::pooled_database(mode).await,
        };
        let keys = portico::compose::keys::development().expect("the development keys are usable");
        let outgoing = CollectedMails::new();
        let texts = OutgoingTextMessages::new();
        let description = ServerDescription {
            auth: settings.auth,
            rest: settings.rest,
            storage: settings.storage,
            realtime: settings.realtime,
            avatars: false,
            key_policy: settings.key_policy,
            mail: settings.mail.unwrap_or_else(|| Arc::new(outgoing.clone())),
            text_transport: Some(settings.texts.unwrap_or_else(|| Arc::new(texts.clone()))),
            page: json!({ "anonKey": keys.api.publishable() }),
            keys,
            trusted_proxies: vec!["127.0.0.0/8".parse().expect("a network")],
            https: false,
            development: true,
            secret_key_pages: None,
            google: settings.emulate_google.then(|| EmulatedGoogle {
                witness: Development::confirm(),
                origin: origin.clone(),
                accounts: None,
                people: Vec::new(),
                pages: AllowedOrigins::default(),
            }),
            mark: None,
            clock,
        };
        let running = RunningServer::start(&listener, description.clone(), scratch.endpoint(), settings.pool.clone());
        let admin = scratch::connect(scratch.direct()).await.expect("the scratch database answers");
        Self {
            base: origin,
            http: http_client(),
            cookies: Cookies::default(),
            outgoing,
            texts,
            description,
            pool: settings.pool,
            listener,
            running: Some(running),
            admin,
            files: None,
            scratch,
        }
    }

    /// Stops the server and starts it again at the same address. Only the database, the clock and
    /// the captured messages are the same; nothing is left of what the first server kept in memory.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn restart(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
        let description = self.description.clone();
        self.running = Some(RunningServer::start(&self.listener, description, self.endpoint(), self.pool.clone()));
        // Connections to the first server are closed; a new client has none of them
        self.http = http_client();
    }

    /// Starts a second server like the first one, at another address. They share the database and
    /// the clock, and deliver to the same mailbox.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn peer(&self) -> PeerServer {
        let (listener, base) = free_port();
        let running = RunningServer::start(&listener, self.description.clone(), self.endpoint(), self.pool.clone());
        PeerServer { base, _running: running }
    }

    fn running(&self) -> &RunningServer {
        self.running.as_ref().expect("the server runs")
    }

    /// Returns the origin: `http://127.0.0.1:<port>`.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Builds a request to a path of the server, or to a whole URL.
    pub fn request(&self, method: http::Method, target: &str) -> Request {
        let url = if target.starts_with("http") { target.to_owned() } else { format!("{}{target}", self.base) };
        Request::new(self.http.request(method, url), Cookies::clone(&self.cookies))
    }

    /// Builds a `GET` request.
    pub fn get(&self, target: &str) -> Request {
        self.request(http::Method::GET, target)
    }

    /// Builds a `POST` request.
    pub fn post(&self, target: &str) -> Request {
        self.request(http::Method::POST, target)
    }

    /// Builds a `PUT` request.
    pub fn put(&self, target: &str) -> Request {
        self.request(http::Method::PUT, target)
    }

    /// Builds a `DELETE` request.
    pub fn delete(&self, target: &str) -> Request {
        self.request(http::Method::DELETE, target)
    }

    /// Creates a confirmed account and signs it in. Returns the response of the sign-in.
    ///
    /// # Panics
    /// When it cannot be created.
    pub async fn signed_in(&self, email: &str, password: &str) -> Value {
        self.account(email, password).await;
        self.sign_in(email, password).await
    }

    /// Creates a confirmed account, by sign-up and SQL. Returns its id. The confirmation email has
    /// been delivered.
    ///
    /// # Panics
    /// When it cannot be created.
    pub async fn account(&self, email: &str, password: &str) -> String {
        let body = json!({ "email": email, "password": password });
        self.post("/auth/v1/signup").json(&body).send().await.expect(200);
        let confirm = "update auth.users set email_confirmed_at = now(), confirmation_token = '' where email = $1 returning id::text";
        let rows = self.query_with(confirm, &[&email]).await;
        self.execute(&format!("delete from auth.one_time_tokens where user_id = '{}'", rows[0].get::<_, String>(0)))
            .await;
        self.mail_is_out().await;
        rows[0].get(0)
    }

    /// Signs in with a password. Returns the response.
    ///
    /// # Panics
    /// When it is rejected.
    pub async fn sign_in(&self, email: &str, password: &str) -> Value {
        let body = json!({ "email": email, "password": password });
        self.post("/auth/v1/token?grant_type=password").json(&body).send().await.expect(200).json()
    }

    /// Returns the server's clock, which the test moves.
    pub fn clock(&self) -> &Clock {
        &self.description.clock
    }

    /// Returns the API keys.
    pub fn api_keys(&self) -> &ApiKeys {
        &self.description.keys.api
    }

    /// Returns the keys of the server.
    pub fn keys(&self) -> &ServerKeys {
        &self.description.keys
    }

    /// Runs the clean-up that the server does in the background.
    pub async fn clean_up(&self) {
        self.running().server.auth().clean_up().await;
    }

    /// Returns the storage service.
    ///
    /// # Panics
    /// When it is turned off.
    pub fn storage(&self) -> &Storage {
        self.running().server.storage().expect("the storage service is on")
    }

    /// Returns the folder with the content of the storage service.
    ///
    /// # Panics
    /// When it is turned off.
    pub fn files(&self) -> &std::path::Path {
        self.files.as_ref().expect("the storage service is on").path()
    }

    /// Returns the server's connections to the database.
    pub fn database(&self) -> &Database {
        &self.running().database
    }

    /// Returns the endpoint of the scratch database.
    pub fn endpoint(&self) -> &Endpoint {
        self.scratch.endpoint()
    }

    /// Returns the connection pooler before the database, if the test has asked for one.
    pub fn pooler(&self) -> Option<&TestPooler> {
        self.scratch.pooler()
    }

    /// Returns a connection of the superuser to the scratch database.
    pub fn admin(&self) -> &tokio_postgres::Client {
        &self.admin
    }
}

/// A second server on the database of a [`TestServer`]. It ends when this is dropped.
pub struct PeerServer {
    base: String,
    _running: RunningServer,
}

impl PeerServer {
    /// Returns the address of a path, for [`TestServer::request`].
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

/// A server that is being served, with its own connections to the database. It stops when this is
/// dropped.
struct RunningServer {
    server: Server,
    database: Database,
    stopping: DropGuard,
    serving: JoinHandle<std::io::Result<()>>,
}

impl RunningServer {
    fn start(
        listener: &std::net::TcpListener,
        description: ServerDescription,
        endpoint: &Endpoint,
        pool: PoolSettings,
    ) -> Self {
        let database = Database::open(endpoint, pool).expect("the pools are made");
        let server = Server::new(description, &database).expect("the server is made");
        let listener = listener.try_clone().and_then(TcpListener::from_std).expect("the listener can be shared");
        let stopping = CancellationToken::new();
        let stopped = stopping.clone().cancelled_owned();
        let limits = ServeLimits { drain: Duration::from_secs(1), ..ServeLimits::default() };
        let workers = Workers::on_current_runtime();
        let serving = tokio::spawn(portico_gateway::serve(listener, server.gateway(), stopped, limits, workers));
        Self { server, database, stopping: stopping.drop_guard(), serving }
    }

    /// Waits until requests in flight are complete, and closes everything.
    async fn stop(self) {
        drop(self.stopping);
        let _ = self.serving.await;
        self.server.finish().await;
        self.database.close().await;
    }
}

/// Listens on a free port. Returns the listener and its origin.
fn free_port() -> (std::net::TcpListener, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a listener can be non-blocking");
    let origin = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    (listener, origin)
}

fn http_client() -> reqwest::Client {
    reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(PATIENCE).build().expect("a client")
}

fn auth_settings(origin: &str) -> AuthSettings {
    let mut auth = AuthSettings {
        site_url: "http://127.0.0.1:3000".into(),
        external_url: format!("{origin}/auth/v1"),
        redirect_allow_list: vec!["http://127.0.0.1:3000/**".into(), "http://localhost:3000/app".into()],
        allow_insecure_loopback_providers: true,
        ..AuthSettings::default()
    };
    auth.jwt.issuer.clone_from(&auth.external_url);
    auth.password.bcrypt_cost = 4;
    auth.email.max_frequency = Duration::ZERO;
    auth.email.otp_expiry = Duration::from_secs(3600);
    auth.refresh.reuse_interval = Duration::from_secs(10);
    auth.rate_limits.emails = None;
    auth.rate_limits.texts = None;
    auth
}
