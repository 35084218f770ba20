//! The credentials of requests to a store: a fixed key, or the temporary keys of a role, which are
//! fetched when they are needed. They are renewed before they expire, while requests use them.

use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use portico_base::{Clock, Secret, error_chain};
use reqwest::{Client, RequestBuilder};
use serde::Deserialize;
use time::OffsetDateTime;
use tokio::sync::OwnedMutexGuard;

use super::client::read;
use super::error::StoreError;
use super::xml;
use crate::model::parse_timestamp;
use crate::settings::{ContainerToken, S3StoreCredentials, S3StoreKey, S3StoreRole};

/// The time before its expiry from which on a key is renewed.
const RENEWAL: Duration = Duration::from_secs(300);
/// The time after a failure to renew a key that is still valid until that is tried again.
const RETRY: Duration = Duration::from_secs(30);
/// The same where no key is valid. Requests that have waited for it get the same error.
const RETRY_WITHOUT_KEY: Duration = Duration::from_millis(500);
/// The time to connect: the services of the platform are near, and elsewhere nothing responds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The lifetime of a session with the metadata of an instance, in seconds. Each has few requests.
const METADATA_SESSION: HeaderValue = HeaderValue::from_static("60");
const METADATA_TTL: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");
const METADATA_TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");

/// The credentials of a client.
#[derive(Debug)]
pub(super) enum StoreCredentials {
    Key(Arc<S3StoreKey>),
    Role(Arc<RoleKeys>),
}

impl StoreCredentials {
    /// Makes the credentials that the settings describe.
    ///
    /// # Errors
    /// When the system's root certificates cannot be loaded.
    pub fn new(credentials: &S3StoreCredentials, clock: &Clock) -> std::io::Result<Self> {
        Ok(match credentials {
            S3StoreCredentials::Key(key) => Self::Key(Arc::new(key.clone())),
            S3StoreCredentials::Role(role) => {
                let http = Client::builder()
                    .connect_timeout(CONNECT_TIMEOUT)
                    .timeout(TIMEOUT)
                    .redirect(reqwest::redirect::Policy::none())
                    // The metadata of an instance is behind no proxy
                    .no_proxy()
                    .build()
                    .map_err(std::io::Error::other)?;
                Self::Role(Arc::new(RoleKeys {
                    role: (**role).clone(),
                    http,
                    clock: clock.clone(),
                    current: std::sync::Mutex::default(),
                    fetching: Arc::default(),
                }))
            }
        })
    }

    /// Returns the key for a request.
    ///
    /// # Errors
    /// When a role's key has expired and cannot be fetched.
    pub async fn key(&self) -> Result<Arc<S3StoreKey>, StoreError> {
        match self {
            Self::Key(key) => Ok(Arc::clone(key)),
            Self::Role(role) => role.key().await,
        }
    }

    /// Discards a key that the store takes for expired, so that the next request has another one.
    /// Returns false if there is no other one: for a fixed key, and for one that was fetched a
    /// moment ago.
    pub fn discard(&self, expired: &Arc<S3StoreKey>) -> bool {
        let Self::Role(role) = self else { return false };
        let mut current = role.current();
        let is_it = |key: &mut TemporaryKey| Arc::ptr_eq(&key.key, expired);
        let now = role.clock.monotonic();
        if current.key.take_if(|key| is_it(key) && now >= key.fetched + RETRY).is_some() {
            return true;
        }
        // Otherwise another request has replaced it
        !current.key.as_mut().is_some_and(is_it)
    }
}

/// The keys of a role.
#[derive(Debug)]
pub(super) struct RoleKeys {
    role: S3StoreRole,
    http: Client,
    clock: Clock,
    current: std::sync::Mutex<CurrentKey>,
    /// Locked while a key is fetched, so that it is fetched once for all requests.
    fetching: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct CurrentKey {
    key: Option<TemporaryKey>,
    /// The last failure, which is the outcome until a moment of the monotonic time.
    failure: Option<(Duration, StoreError)>,
}

/// A key that expires.
#[derive(Debug)]
struct TemporaryKey {
    key: Arc<S3StoreKey>,
    /// The moment of the monotonic time.
    fetched: Duration,
    expires: OffsetDateTime,
    /// The time from which on it is renewed.
    renewed: OffsetDateTime,
}

/// The keys as a request finds them.
enum KnownKey {
    /// Nothing is to be fetched.
    Settled(Result<Arc<S3StoreKey>, StoreError>),
    /// It is valid, but not for long.
    Renewable(Arc<S3StoreKey>),
    Missing,
}

/// A key as the services of the platform describe it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct IssuedKey {
    access_key_id: String,
    secret_access_key: String,
    /// Only the token service calls it the token of a session.
    #[serde(alias = "SessionToken")]
    token: String,
    expiration: String,
}

/// The response of the token service.
#[derive(Deserialize)]
struct AssumedRole {
    #[serde(rename = "AssumeRoleWithWebIdentityResult")]
    result: AssumedRoleResult,
}

#[derive(Deserialize)]
struct AssumedRoleResult {
    #[serde(rename = "Credentials")]
    key: IssuedKey,
}

impl RoleKeys {
    fn current(&self) -> MutexGuard<'_, CurrentKey> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> KnownKey {
        let (now, moment) = (self.clock.now(), self.clock.monotonic());
        let current = self.current();
        let failure = current.failure.as_ref().filter(|(until, _)| moment < *until);
        match (current.key.as_ref().filter(|key| now < key.expires), failure) {
            (Some(key), failure) if now < key.renewed || failure.is_some() => {
                KnownKey::Settled(Ok(Arc::clone(&key.key)))
            }
            (Some(key), _) => KnownKey::Renewable(Arc::clone(&key.key)),
            (None, Some((_, error))) => KnownKey::Settled(Err(error.clone())),
            (None, None) => KnownKey::Missing,
        }
    }

    async fn key(self: &Arc<Self>) -> Result<Arc<S3StoreKey>, StoreError> {
        match self.known() {
            KnownKey::Settled(outcome) => outcome,
            KnownKey::Renewable(key) => {
                if let Ok(fetching) = Arc::clone(&self.fetching).try_lock_owned() {
                    let keys = Arc::clone(self);
                    tokio::spawn(async move { keys.fetch_if_needed(&fetching).await });
                }
                Ok(key)
            }
            KnownKey::Missing => {
                let fetching = Arc::clone(&self.fetching).lock_owned().await;
                self.fetch_if_needed(&fetching).await
            }
        }
    }

    /// Fetches a key, unless that was done before this had the lock.
    async fn fetch_if_needed(&self, _: &OwnedMutexGuard<()>) -> Result<Arc<S3StoreKey>, StoreError> {
        if let KnownKey::Settled(outcome) = self.known() {
            return outcome;
        }
        let fetched = self.fetch().await;
        let (now, moment) = (self.clock.now(), self.clock.monotonic());
        let mut current = self.current();
        let error = match fetched {
            Ok(fetched) => {
                current.failure = None;
                return Ok(Arc::clone(&current.key.insert(fetched).key));
            }
            Err(error) => error,
        };
        // As it is now: the store may have refused the key meanwhile
        let valid = current.key.as_ref().filter(|key| now < key.expires);
        let valid = valid.map(|key| (Arc::clone(&key.key), Duration::try_from(key.expires - now).unwrap_or_default()));
        match valid {
            Some((key, left)) => {
                tracing::warn!(error = %error, "the key of the object store could not be renewed, and is still valid");
                current.failure = Some((moment + left.min(RETRY), error));
                Ok(key)
            }
            None => {
                current.failure = Some((moment + RETRY_WITHOUT_KEY, error.clone()));
                Err(error)
            }
        }
    }

    async fn fetch(&self) -> Result<TemporaryKey, StoreError> {
        let issued = match &self.role {
            S3StoreRole::WebIdentity { sts_url, role_arn, session_name, token_file } => {
                let token = text_of(token_file).await?;
                let form = [
                    ("Action", "AssumeRoleWithWebIdentity"),
                    ("Version", "2011-06-15"),
                    ("RoleArn", role_arn),
                    ("RoleSessionName", session_name),
                    ("WebIdentityToken", token.expose()),
                ];
                xml::parse::<AssumedRole>(&sent(self.http.post(sts_url).form(&form)).await?)?.result.key
            }
            S3StoreRole::Container { url, token } => {
                let token = match token {
                    None => None,
                    Some(ContainerToken::Text(token)) => Some(token.clone()),
                    Some(ContainerToken::File(path)) => Some(text_of(path).await?),
                };
                let mut request = self.http.get(url);
                if let Some(token) = token {
                    request = request.header(header::AUTHORIZATION, sensitive(token.expose())?);
                }
                parse(&sent(request).await?)?
            }
            S3StoreRole::Instance { metadata_url } => {
                let session = self.http.put(format!("{metadata_url}/latest/api/token"));
                let session = sent(session.header(METADATA_TTL, METADATA_SESSION)).await?;
                let session = sensitive(std::str::from_utf8(&session).map_err(|_| StoreError::Malformed)?.trim())?;
                let roles = format!("{metadata_url}/latest/meta-data/iam/security-credentials/");
                let names = sent(self.http.get(&roles).header(METADATA_TOKEN, session.clone())).await?;
                // An instance has one role at most
                let name = std::str::from_utf8(&names).ok().and_then(|names| names.lines().next()).map(str::trim);
                let name = name.filter(|name| !name.is_empty()).ok_or(StoreError::Malformed)?;
                parse(&sent(self.http.get(format!("{roles}{name}")).header(METADATA_TOKEN, session)).await?)?
            }
        };
        let expires = parse_timestamp(&issued.expiration).ok_or(StoreError::Malformed)?;
        let key = S3StoreKey {
            access_key_id: issued.access_key_id,
            secret_access_key: Secret::new(issued.secret_access_key),
            session_token: Some(Secret::new(issued.token)),
        };
        let now = self.clock.now();
        // The platform may give out a key for as long as it is valid, and clocks differ: no key is
        // fetched again at once
        let renewed = (expires - RENEWAL).max(now + RETRY);
        Ok(TemporaryKey { key: Arc::new(key), fetched: self.clock.monotonic(), expires: expires.max(renewed), renewed })
    }
}

/// Sends a request and returns the document of its response.
async fn sent(request: RequestBuilder) -> Result<Bytes, StoreError> {
    let response = request.send().await.map_err(|error| StoreError::NoKey(error_chain(&error.without_url())))?;
    let status = response.status();
    if status.is_success() { read(response).await } else { Err(StoreError::NoKey(format!("status {status}"))) }
}

fn parse(document: &Bytes) -> Result<IssuedKey, StoreError> {
    // Not its cause, which can have a part of the document
    serde_json::from_slice(document).map_err(|_| StoreError::NoKey("a response of another form".to_owned()))
}

/// Returns the text of a file, which the platform replaces from time to time.
async fn text_of(path: &Path) -> Result<Secret, StoreError> {
    let text = tokio::fs::read_to_string(path).await;
    let text = text.map_err(|error| StoreError::NoKey(format!("{}: {}", path.display(), error_chain(&error))))?;
    Ok(Secret::new(text.trim().to_owned()))
}

fn sensitive(text: &str) -> Result<HeaderValue, StoreError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| StoreError::Malformed)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use axum::Router;
    use axum::extract::State;
    use axum::routing::{get, post, put};
    use http::{HeaderMap, StatusCode};
    use time::macros::datetime;
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;
    use url::form_urlencoded;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-01-01 12:00 UTC);

    fn minutes(minutes: i64) -> time::Duration {
        time::Duration::minutes(minutes)
    }

    /// The keys of a role, which are issued by services of a test, and their clock.
    struct TestKeys {
        credentials: StoreCredentials,
        clock: Clock,
    }

    impl TestKeys {
        fn new(role: S3StoreRole, clock: Clock) -> Self {
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
            let role = S3StoreCredentials::Role(Box::new(role));
            Self { credentials: StoreCredentials::new(&role, &clock).unwrap(), clock }
        }

        /// Returns the key for a request at a time, which is not before that of the last one.
        async fn key(&self, now: OffsetDateTime) -> Result<Arc<S3StoreKey>, StoreError> {
            self.clock.advance(now - self.clock.now());
            self.credentials.key().await
        }

        /// Waits until no key is fetched any more, and returns the id of the current one.
        async fn fetched(&self) -> String {
            let StoreCredentials::Role(keys) = &self.credentials else { panic!("a fixed key") };
            drop(keys.fetching.lock().await);
            keys.current().key.as_ref().unwrap().key.access_key_id.clone()
        }
    }

    async fn serve(services: Router) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, services).await });
        url
    }

    fn parts(key: &S3StoreKey) -> (&str, &str, &str) {
        let token = key.session_token.as_ref().map_or("", |token| token.expose());
        (&key.access_key_id, key.secret_access_key.expose(), token)
    }

    fn document(id: &str, expires: &str) -> String {
        format!(
            r#"{{"Code":"Success","AccessKeyId":"{id}","SecretAccessKey":"secret","Token":"token","Expiration":"{expires}"}}"#
        )
    }

    /// The agent of a container, which issues a key for an hour.
    struct Agent {
        clock: Clock,
        /// The time that it takes.
        takes: time::Duration,
        asked: AtomicUsize,
        is_broken: AtomicBool,
        /// It responds while there is a permit.
        may_respond: Semaphore,
    }

    impl Agent {
        fn new(takes: time::Duration) -> Arc<Self> {
            let (clock, may_respond) = (Clock::movable(NOW), Semaphore::new(1));
            Arc::new(Self { clock, takes, asked: AtomicUsize::new(0), is_broken: AtomicBool::new(false), may_respond })
        }

        async fn serve(self: &Arc<Self>) -> String {
            let key = async |State(agent): State<Arc<Self>>, headers: HeaderMap| {
                let number = agent.asked.fetch_add(1, Ordering::Relaxed) + 1;
                let _permit = agent.may_respond.acquire().await.unwrap();
                agent.clock.advance(agent.takes);
                if agent.is_broken.load(Ordering::Relaxed) {
                    return (StatusCode::SERVICE_UNAVAILABLE, "later".to_owned());
                }
                assert_eq!(headers[header::AUTHORIZATION], "of the pod");
                let expires = format!("2026-01-01T{}:00:00Z", 12 + number);
                (StatusCode::OK, document(&format!("key {number}"), &expires))
            };
            serve(Router::new().route("/key", get(key)).with_state(Arc::clone(self))).await
        }
    }

    async fn container(agent: &Arc<Agent>) -> TestKeys {
        let token = Some(ContainerToken::Text(Secret::new("of the pod")));
        let role = S3StoreRole::Container { url: format!("{}/key", agent.serve().await), token };
        TestKeys::new(role, agent.clock.clone())
    }

    #[tokio::test]
    async fn a_key_is_fetched_once_and_renewed_before_it_expires() {
        let agent = Agent::new(minutes(0));
        let keys = container(&agent).await;
        let all = futures_util::future::join_all((0..20).map(|_| keys.key(NOW))).await;
        for key in all {
            assert_eq!(parts(&key.unwrap()), ("key 1", "secret", "token"));
        }
        assert_eq!(parts(&keys.key(NOW + minutes(54)).await.unwrap()).0, "key 1");
        assert_eq!(agent.asked.load(Ordering::Relaxed), 1);
        assert_eq!(parts(&keys.key(NOW + minutes(55)).await.unwrap()).0, "key 1");
        assert_eq!(keys.fetched().await, "key 2");
        assert_eq!(parts(&keys.credentials.key().await.unwrap()).0, "key 2");
        assert!(!format!("{:?}", keys.credentials).contains("\"secret\""));
    }

    #[tokio::test]
    async fn a_valid_key_is_used_while_it_is_renewed() {
        let agent = Agent::new(minutes(0));
        let keys = container(&agent).await;
        keys.key(NOW).await.unwrap();
        let held = agent.may_respond.acquire().await.unwrap();
        assert_eq!(parts(&keys.key(NOW + minutes(55)).await.unwrap()).0, "key 1");
        while agent.asked.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            assert_eq!(parts(&keys.credentials.key().await.unwrap()).0, "key 1");
        }
        drop(held);
        assert_eq!(keys.fetched().await, "key 2");
        assert_eq!(parts(&keys.credentials.key().await.unwrap()).0, "key 2");
        assert_eq!(agent.asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_key_that_the_store_refuses_while_it_is_renewed_is_fetched_again_soon() {
        let agent = Agent::new(minutes(0));
        let keys = container(&agent).await;
        keys.key(NOW).await.unwrap();
        agent.is_broken.store(true, Ordering::Relaxed);
        let held = agent.may_respond.acquire().await.unwrap();
        let refused = keys.key(NOW + minutes(55)).await.unwrap();
        assert!(keys.credentials.discard(&refused));
        drop(held);
        keys.credentials.key().await.unwrap_err();
        agent.is_broken.store(false, Ordering::Relaxed);
        let later = NOW + minutes(55) + time::Duration::try_from(RETRY_WITHOUT_KEY).unwrap();
        assert_eq!(parts(&keys.key(later).await.unwrap()).0, "key 3");
    }

    #[tokio::test]
    async fn requests_that_wait_for_a_key_share_the_failure() {
        let agent = Agent::new(minutes(1));
        agent.is_broken.store(true, Ordering::Relaxed);
        let keys = container(&agent).await;
        let all = futures_util::future::join_all((0..20).map(|_| keys.credentials.key())).await;
        assert!(all.iter().all(Result::is_err));
        assert_eq!(agent.asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_key_that_expires_at_once_is_used_for_a_while() {
        let agent = Agent::new(minutes(300));
        let keys = container(&agent).await;
        for _ in 0..3 {
            assert_eq!(parts(&keys.credentials.key().await.unwrap()).0, "key 1");
        }
        assert_eq!(parts(&keys.key(NOW + minutes(301)).await.unwrap()).0, "key 2");
    }

    #[tokio::test]
    async fn a_key_that_cannot_be_renewed_is_used_until_it_expires() {
        let agent = Agent::new(minutes(0));
        let keys = container(&agent).await;
        keys.key(NOW).await.unwrap();
        agent.is_broken.store(true, Ordering::Relaxed);
        // Not every request tries it
        for (minute, second, asked) in [(56, 0, 2), (56, 29, 2), (56, 30, 3), (59, 59, 4)] {
            let now = NOW + minutes(minute) + Duration::from_secs(second);
            assert_eq!(parts(&keys.key(now).await.unwrap()).0, "key 1");
            assert_eq!(keys.fetched().await, "key 1");
            assert_eq!(agent.asked.load(Ordering::Relaxed), asked, "{minute} minutes, {second} seconds");
        }
        let expired = NOW + minutes(60);
        for now in [expired, expired + Duration::from_millis(499)] {
            let error = keys.key(now).await.unwrap_err();
            assert!(error.is_passing() && error.to_string().contains("503"), "{error}");
            assert_eq!(agent.asked.load(Ordering::Relaxed), 5);
        }
        agent.is_broken.store(false, Ordering::Relaxed);
        assert_eq!(parts(&keys.key(expired + Duration::from_secs(1)).await.unwrap()).0, "key 6");
    }

    #[tokio::test]
    async fn a_key_that_the_store_refuses_is_replaced_once_for_all() {
        let agent = Agent::new(minutes(0));
        let keys = container(&agent).await;
        let first = keys.key(NOW).await.unwrap();
        keys.clock.advance(time::Duration::try_from(RETRY).unwrap() - time::Duration::MILLISECOND);
        // Another one would be refused as well
        assert!(!keys.credentials.discard(&first));
        keys.clock.advance(time::Duration::MILLISECOND);
        for _ in 0..3 {
            assert!(keys.credentials.discard(&first));
            assert_eq!(parts(&keys.credentials.key().await.unwrap()).0, "key 2");
        }
        let fixed = S3StoreKey { access_key_id: "id".into(), secret_access_key: Secret::new("x"), session_token: None };
        let fixed = StoreCredentials::new(&S3StoreCredentials::Key(fixed), &keys.clock).unwrap();
        keys.clock.advance(minutes(60));
        assert!(!fixed.discard(&fixed.key().await.unwrap()));
    }

    #[tokio::test]
    async fn a_virtual_machine_gives_the_key_within_a_session() {
        let session = |headers: &HeaderMap| assert_eq!(headers[METADATA_TOKEN], "of the session");
        let services = Router::new()
            .route(
                "/latest/api/token",
                put(async |headers: HeaderMap| {
                    assert_eq!(headers[METADATA_TTL], METADATA_SESSION);
                    "of the session"
                }),
            )
            .route(
                "/latest/meta-data/iam/security-credentials/",
                get(async move |headers: HeaderMap| {
                    session(&headers);
                    "portico-role\n"
                }),
            )
            .route(
                "/latest/meta-data/iam/security-credentials/portico-role",
                get(async move |headers: HeaderMap| {
                    session(&headers);
                    document("key", "2026-01-01T18:00:00Z")
                }),
            );
        let role = S3StoreRole::Instance { metadata_url: serve(services).await };
        let keys = TestKeys::new(role, Clock::movable(NOW));
        assert_eq!(parts(&keys.key(NOW).await.unwrap()), ("key", "secret", "token"));
    }

    #[tokio::test]
    async fn the_token_of_a_service_account_is_read_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let token_file = folder.path().join("token");
        let assume = async |body: String| {
            let fields: Vec<(String, String)> = form_urlencoded::parse(body.as_bytes()).into_owned().collect();
            let field = |name: &str| fields.iter().find(|field| field.0 == name).unwrap().1.clone();
            assert_eq!(field("Action"), "AssumeRoleWithWebIdentity");
            assert_eq!(
                (field("RoleArn").as_str(), field("RoleSessionName").as_str()),
                ("arn:aws:iam::1:role/x", "portico")
            );
            format!(
                "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
                 <AccessKeyId>key of {}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>\
                 <SessionToken>token</SessionToken><Expiration>2026-01-01T13:00:00.5Z</Expiration></Credentials>\
                 </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
                field("WebIdentityToken")
            )
        };
        let role = S3StoreRole::WebIdentity {
            sts_url: serve(Router::new().route("/", post(assume))).await,
            role_arn: "arn:aws:iam::1:role/x".into(),
            session_name: "portico".into(),
            token_file: token_file.clone(),
        };
        let keys = TestKeys::new(role, Clock::movable(NOW));
        let missing = keys.key(NOW).await.unwrap_err().to_string();
        assert!(missing.contains(token_file.to_str().unwrap()), "{missing}");
        for (hour, token) in [(1, "one"), (2, "two")] {
            std::fs::write(&token_file, format!("{token}\n")).unwrap();
            let key = keys.key(NOW + minutes(60 * hour)).await.unwrap();
            assert_eq!(parts(&key), (format!("key of {token}").as_str(), "secret", "token"));
        }
    }
}
