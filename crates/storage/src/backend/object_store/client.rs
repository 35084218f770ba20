//! Requests to a store: signed, bounded in time, and repeated where that helps.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use portico_base::{Clock, error_chain, hash, random, spawn_blocking};
use reqwest::Response;
use url::Url;

use super::credentials::StoreCredentials;
use super::error::StoreError;
use super::signature::{RequestSigner, encode_key, encode_query};
use super::xml;
use crate::settings::{S3StoreKey, S3StoreSettings};

pub(super) const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
pub(super) const COPY_SOURCE_RANGE: HeaderName = HeaderName::from_static("x-amz-copy-source-range");
/// The time for a request during which a store copies content.
pub(super) const COPY_TIMEOUT: Duration = Duration::from_secs(900);
/// The times that a request is sent.
const ATTEMPTS: u32 = 4;
/// The longest pause before the second attempt. Each further one may be twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest document that is read: a page of a thousand keys.
const MAX_DOCUMENT: usize = 16 * 1024 * 1024;
/// Bodies from this size are hashed on a thread that may block.
const LARGE_BODY: usize = 256 * 1024;

/// A request to a store.
#[derive(Debug, Clone)]
pub(super) struct StoreRequest<'a> {
    method: Method,
    /// The object; `None`: the bucket.
    key: Option<&'a str>,
    query: Vec<(&'a str, &'a str)>,
    headers: HeaderMap,
    body: Bytes,
    /// The time for one attempt with its response; `None`: as long as bytes arrive.
    timeout: Option<Duration>,
}

impl<'a> StoreRequest<'a> {
    /// Returns a request about an object.
    pub fn of_object(method: Method, key: &'a str) -> Self {
        Self { key: Some(key), ..Self::of_bucket(method) }
    }

    /// Returns a request about the bucket.
    pub fn of_bucket(method: Method) -> Self {
        Self { method, key: None, query: Vec::new(), headers: HeaderMap::new(), body: Bytes::new(), timeout: None }
    }

    /// Adds a parameter.
    pub fn query(mut self, name: &'a str, value: &'a str) -> Self {
        self.query.push((name, value));
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the time for one attempt with its response.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// The head and the document of a response.
#[derive(Debug)]
pub(super) struct StoreResponse {
    pub headers: HeaderMap,
    pub document: Bytes,
}

/// Sends requests about the objects of one bucket.
#[derive(Debug)]
pub(super) struct StoreClient {
    http: reqwest::Client,
    /// For requests whose response begins late, since the store copies or receives content before.
    patient: reqwest::Client,
    /// The URL of the bucket, with a slash at the end.
    bucket_url: Url,
    region: String,
    credentials: StoreCredentials,
    clock: Clock,
}

impl StoreClient {
    /// Makes a client.
    ///
    /// # Errors
    /// When the endpoint is not a URL, or the system's root certificates cannot be loaded.
    pub fn new(settings: &S3StoreSettings, clock: Clock) -> std::io::Result<Self> {
        // An error only means that a provider is installed already
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let with_timeout = |timeout: Duration| {
            let http = reqwest::Client::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                // From the first byte of the request to the head of the response, and between bytes
                .read_timeout(timeout)
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(concat!("portico/", env!("CARGO_PKG_VERSION")))
                // HTTP/2 would put all transfers on one connection
                .http1_only();
            http.build().map_err(std::io::Error::other)
        };
        let (http, patient) = (with_timeout(settings.timeout)?, with_timeout(COPY_TIMEOUT.max(settings.timeout))?);
        let region = settings.region.clone();
        let credentials = StoreCredentials::new(&settings.credentials, &clock)?;
        Ok(Self { http, patient, bucket_url: bucket_url(settings)?, region, credentials, clock })
    }

    /// Returns the current time.
    pub fn now(&self) -> time::OffsetDateTime {
        self.clock.now()
    }

    /// Returns the value of `x-amz-copy-source` for an object.
    pub fn copy_source(bucket: &str, key: &str) -> String {
        format!("/{}/{}", encode_key(bucket), encode_key(key))
    }

    /// Sends a request and returns the head of its response. The body is read by the caller.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub async fn open(&self, request: StoreRequest<'_>) -> Result<Response, StoreError> {
        let payload = digest_of(&request.body).await;
        let mut attempt = 1;
        loop {
            match self.attempt(&request, &payload).await {
                Err(error) if error.is_passing() && attempt < ATTEMPTS => pause(attempt, &error).await,
                outcome => return outcome,
            }
            attempt += 1;
        }
    }

    /// Sends a request and reads the response.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub async fn call(&self, request: StoreRequest<'_>) -> Result<StoreResponse, StoreError> {
        let payload = digest_of(&request.body).await;
        let mut attempt = 1;
        loop {
            let outcome = async {
                let response = self.attempt(&request, &payload).await?;
                let (status, headers) = (response.status().as_u16(), response.headers().clone());
                let document = read(response).await?;
                // The response to a long operation is a success before it is complete
                match xml::error_code(&document) {
                    Some(code) => Err(StoreError::Refused { status, code }),
                    None => Ok(StoreResponse { headers, document }),
                }
            };
            match outcome.await {
                Err(error) if error.is_passing() && attempt < ATTEMPTS => pause(attempt, &error).await,
                outcome => return outcome,
            }
            attempt += 1;
        }
    }

    /// Sends a request, once more with another key if the store takes that of a role for expired.
    async fn attempt(&self, request: &StoreRequest<'_>, payload: &str) -> Result<Response, StoreError> {
        let key = self.credentials.key().await?;
        match self.send(request, payload, &key).await {
            Err(error) if error.may_be_expired_key() && self.credentials.discard(&key) => {
                let key = self.credentials.key().await?;
                self.send(request, payload, &key).await
            }
            outcome => outcome,
        }
    }

    async fn send(&self, request: &StoreRequest<'_>, payload: &str, key: &S3StoreKey) -> Result<Response, StoreError> {
        let mut url = self.bucket_url.clone();
        if let Some(key) = request.key {
            url.set_path(&format!("{}{}", url.path(), encode_key(key)));
        }
        if !request.query.is_empty() {
            url.set_query(Some(&encode_query(&request.query)));
        }
        let mut headers = request.headers.clone();
        let signer = RequestSigner { region: &self.region, key };
        signer.sign(&request.method, &url, &mut headers, payload, self.now());
        let is_late = request.timeout.is_some() || !request.body.is_empty();
        let http = if is_late { &self.patient } else { &self.http };
        if request.body.is_empty() && matches!(request.method, Method::PUT | Method::POST) {
            // Some stores require the header, which is not sent for an empty body otherwise
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        let mut sent = http.request(request.method.clone(), url).headers(headers).body(request.body.clone());
        if let Some(timeout) = request.timeout {
            sent = sent.timeout(timeout);
        }
        let response = sent.send().await.map_err(unreachable)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let code = match status {
            StatusCode::NOT_MODIFIED => String::new(),
            _ => read(response).await.ok().and_then(|document| xml::error_code(&document)).unwrap_or_default(),
        };
        Err(StoreError::Refused { status: status.as_u16(), code })
    }
}

/// Returns the URL of the bucket, with a slash at the end.
fn bucket_url(settings: &S3StoreSettings) -> std::io::Result<Url> {
    let invalid = |text: &str| std::io::Error::new(std::io::ErrorKind::InvalidInput, text.to_owned());
    let endpoint = match &settings.endpoint {
        Some(endpoint) => endpoint.clone(),
        None => format!("https://s3.{}.amazonaws.com", settings.region),
    };
    let mut url = Url::parse(&endpoint).map_err(|_| invalid("the endpoint of the object store is not a URL"))?;
    let host = url.host_str().filter(|_| matches!(url.scheme(), "http" | "https")).map(str::to_owned);
    let host = host.ok_or_else(|| invalid("the endpoint of the object store is not a URL of the web"))?;
    url.set_query(None);
    let path = url.path().trim_end_matches('/').to_owned();
    if settings.path_style {
        url.set_path(&format!("{path}/{}/", encode_key(&settings.bucket)));
    } else {
        let host = format!("{}.{host}", settings.bucket);
        url.set_host(Some(&host)).map_err(|_| invalid("the bucket of the object store is not a host name"))?;
        url.set_path(&format!("{path}/"));
    }
    Ok(url)
}

/// Returns the SHA-256 of a body in hexadecimal digits.
async fn digest_of(body: &Bytes) -> String {
    if body.len() < LARGE_BODY {
        return hash::sha256_hex(body);
    }
    let body = body.clone();
    // A panic there is impossible, and an empty digest would only be refused
    spawn_blocking(move || hash::sha256_hex(&body)).await.unwrap_or_default()
}

/// Reads a document of bounded size.
pub(super) async fn read(mut response: Response) -> Result<Bytes, StoreError> {
    let mut document = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if document.len() + chunk.len() > MAX_DOCUMENT {
            return Err(StoreError::Malformed);
        }
        document.extend_from_slice(&chunk);
    }
    Ok(document.freeze())
}

/// Waits before the next attempt: at random, so that many clients do not return at once.
async fn pause(attempt: u32, error: &StoreError) {
    tracing::debug!(error = %error, attempt, "a request to the object store is sent again");
    let longest = FIRST_PAUSE * 2_u32.saturating_pow(attempt.saturating_sub(1));
    let share = f64::from(u16::from_le_bytes(random::bytes::<2>())) / f64::from(u16::MAX);
    tokio::time::sleep(longest.mul_f64(0.5 + share / 2.0)).await;
}

/// Returns the error of a connection with its causes but without the URL, which has the key.
pub(super) fn unreachable(error: reqwest::Error) -> StoreError {
    StoreError::Unreachable(error_chain(&error.without_url()))
}

/// Returns the length of the body that a response describes.
pub(super) fn size_of(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::extract::State;
    use axum::routing::get;
    use time::OffsetDateTime;
    use tokio::net::TcpListener;

    use super::*;
    use crate::settings::{S3StoreCredentials, S3StoreRole};

    fn settings(endpoint: Option<&str>, path_style: bool) -> S3StoreSettings {
        let credentials = S3StoreCredentials::Key(S3StoreKey {
            access_key_id: "id".into(),
            secret_access_key: portico_base::Secret::new("secret"),
            session_token: None,
        });
        let settings = S3StoreSettings::new("files", "eu-west-1", credentials);
        S3StoreSettings { endpoint: endpoint.map(str::to_owned), path_style, ..settings }
    }

    #[test]
    fn the_bucket_is_in_the_host_or_in_the_path() {
        let url = |endpoint, path_style| bucket_url(&settings(endpoint, path_style)).map(String::from).ok();
        assert_eq!(url(None, false).as_deref(), Some("https://files.s3.eu-west-1.amazonaws.com/"));
        assert_eq!(url(None, true).as_deref(), Some("https://s3.eu-west-1.amazonaws.com/files/"));
        assert_eq!(url(Some("http://127.0.0.1:9000/s3/"), true).as_deref(), Some("http://127.0.0.1:9000/s3/files/"));
        for endpoint in ["minio:9000", "ftp://minio", "not a url"] {
            assert_eq!(url(Some(endpoint), true), None, "{endpoint}");
        }
    }

    #[test]
    fn no_text_of_the_settings_has_the_secret() {
        let client = StoreClient::new(&settings(None, false), Clock::system());
        let text = format!("{:?} {client:?}", settings(None, false));
        assert!(!text.contains("\"secret\""), "{text}");
    }

    /// Serves the keys of a role and a store that takes the first one for expired. Returns their
    /// URL, and the numbers of keys and requests so far.
    async fn role_and_store() -> (String, Arc<[AtomicUsize; 2]>) {
        let count = |counts: &[AtomicUsize; 2], which: usize| counts[which].fetch_add(1, Ordering::Relaxed) + 1;
        let issue = async move |State(counts): State<Arc<[AtomicUsize; 2]>>| {
            let key = count(&counts, 0);
            format!(
                r#"{{"AccessKeyId":"key{key}","SecretAccessKey":"s","Token":"t","Expiration":"2100-01-01T00:00:00Z"}}"#
            )
        };
        let store = async move |State(counts): State<Arc<[AtomicUsize; 2]>>, headers: HeaderMap| {
            count(&counts, 1);
            let authorization = headers[header::AUTHORIZATION].to_str().unwrap();
            match authorization.contains("Credential=key1/") {
                true => (StatusCode::BAD_REQUEST, "<Error><Code>ExpiredToken</Code></Error>"),
                false => (StatusCode::OK, ""),
            }
        };
        let counts = Arc::default();
        let app = Router::new().route("/key", get(issue)).fallback(store).with_state(Arc::clone(&counts));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (url, counts)
    }

    #[tokio::test]
    async fn a_request_with_an_expired_key_is_sent_again_with_another_one() {
        let (url, counts) = role_and_store().await;
        let role = S3StoreRole::Container { url: format!("{url}/key"), token: None };
        let settings =
            S3StoreSettings { credentials: S3StoreCredentials::Role(Box::new(role)), ..settings(Some(&url), true) };
        let clock = Clock::movable(OffsetDateTime::UNIX_EPOCH);
        let client = StoreClient::new(&settings, clock.clone()).unwrap();
        let call = || client.call(StoreRequest::of_object(Method::GET, "x"));
        // A key that was just fetched is the newest one
        assert!(call().await.unwrap_err().is("ExpiredToken"));
        clock.advance(time::Duration::MINUTE);
        call().await.unwrap();
        call().await.unwrap();
        assert_eq!(counts.each_ref().map(|count| count.load(Ordering::Relaxed)), [2, 4]);
    }
}
