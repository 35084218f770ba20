//! The keys of a third party whose tokens are accepted (`[auth.third_party]`), fetched from the
//! issuer and kept up to date.
//!
//! The issuer is read at the start, at an interval, and when a token names a key that is not known;
//! in the background, so that an issuer that is slow or does not respond delays only requests with
//! tokens of keys that are not known. The last keys stay in use meanwhile.

use std::sync::Arc;
use std::time::Duration;

use portico_tokens::{CurrentKeys, KeyError, ThirdPartyKeys};
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::http_client::{CallError, HttpClient, UrlTrust};
use crate::settings::{AuthSettings, ThirdPartySettings};

/// Least time between two reads, so that invented keys cannot make this server flood the issuer.
const LEAST_INTERVAL: Duration = Duration::from_secs(3);
/// The pause after a read that failed; doubles up to the longest one.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Requests that wait for one read; more go on with the known keys.
const MAX_WAITING: usize = 1024;

/// The members of a discovery document that are used. Some issuers publish no others.
#[derive(Deserialize)]
struct ThirdPartyDiscovery {
    issuer: String,
    jwks_uri: String,
}

/// The reasons for which the keys of an issuer cannot be read. Texts are for the log.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{document}: {source}")]
    Call {
        document: &'static str,
        #[source]
        source: CallError,
    },
    #[error("the discovery document is of the issuer {0:?}")]
    OtherIssuer(String),
    #[error("the key set has no usable key")]
    NoUsableKey,
    #[error("the key set has a wrong key: {0}")]
    Keys(KeyError),
}

/// Asks the task of [`follow`] to read the issuer's keys again.
#[derive(Debug, Clone)]
pub struct ThirdPartyFollower(mpsc::Sender<oneshot::Sender<()>>);

impl ThirdPartyFollower {
    /// Returns when the keys have been read, or could not be. A read that is under way counts.
    pub async fn refresh(&self) {
        let (done, waiting) = oneshot::channel();
        if self.0.try_send(done).is_ok() {
            let _ = waiting.await;
        }
    }
}

/// Returns a task that keeps the keys of the configured third party in `current` up to date for as
/// long as it runs; `None` if there is no third party. From this call on, tokens that name the
/// issuer are verified with its keys only.
pub fn follow(
    settings: &AuthSettings,
    current: CurrentKeys,
) -> Option<(ThirdPartyFollower, impl Future<Output = ()> + Send + use<>)> {
    let third_party = settings.third_party.clone()?;
    current.replace_third_party(ThirdPartyKeys::unknown(third_party.issuer.clone()));
    let (sender, requests) = mpsc::channel(MAX_WAITING);
    let client = Arc::new(HttpClient::new(settings.http_timeout, settings.allow_insecure_loopback_providers));
    let task =
        ThirdPartyKeysTask { settings: third_party, client, interval: settings.oidc_cache_ttl, current, requests };
    Some((ThirdPartyFollower(sender), task.run()))
}

struct ThirdPartyKeysTask {
    settings: ThirdPartySettings,
    client: Arc<HttpClient>,
    /// The interval at which the keys are read.
    interval: Duration,
    current: CurrentKeys,
    requests: mpsc::Receiver<oneshot::Sender<()>>,
}

impl ThirdPartyKeysTask {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut in_use = None;
        let mut waiting = Vec::new();
        loop {
            let read = self.read_while_collecting(&mut waiting).await;
            let read_at = Instant::now();
            let next = match read.and_then(|keys| self.use_keys(keys, &mut in_use)) {
                Ok(()) => {
                    tracing::debug!(issuer = self.settings.issuer.url, "keys of the third party loaded");
                    pause = FIRST_PAUSE;
                    read_at + self.interval.max(LEAST_INTERVAL)
                }
                Err(error) => {
                    tracing::warn!(
                        issuer = self.settings.issuer.url,
                        error = %error,
                        "the keys of the third party could not be read; the last ones stay in use"
                    );
                    let next = read_at + pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    next
                }
            };
            waiting.drain(..).for_each(acknowledge);
            match timeout_at(next, self.requests.recv()).await {
                Ok(Some(request)) => {
                    waiting.push(request);
                    sleep_until(read_at + LEAST_INTERVAL).await;
                }
                // No follower is left that could ask
                Ok(None) => sleep_until(next).await,
                Err(_) => {}
            }
        }
    }

    /// Verifies with a key set from now on. One that is in use already stays, with its cache of
    /// verified tokens: invented key ids must not empty that.
    fn use_keys(&self, keys: Value, in_use: &mut Option<Value>) -> Result<(), FetchError> {
        if in_use.as_ref() == Some(&keys) {
            return Ok(());
        }
        let published = ThirdPartyKeys::published(self.settings.issuer.clone(), &keys);
        self.current.replace_third_party(published.map_err(|error| match error {
            KeyError::NoKey => FetchError::NoUsableKey,
            error => FetchError::Keys(error),
        })?);
        *in_use = Some(keys);
        Ok(())
    }

    /// Reads the keys. Requests that come meanwhile wait for the same result.
    async fn read_while_collecting(&mut self, waiting: &mut Vec<oneshot::Sender<()>>) -> Result<Value, FetchError> {
        let (settings, client) = (self.settings.clone(), Arc::clone(&self.client));
        let mut read = std::pin::pin!(async move { fetch(&settings, &client).await });
        loop {
            tokio::select! {
                outcome = &mut read => return outcome,
                Some(request) = self.requests.recv() => waiting.push(request),
            }
        }
    }
}

/// Reads the discovery document and the key set.
async fn fetch(settings: &ThirdPartySettings, client: &HttpClient) -> Result<Value, FetchError> {
    let own = || format!("{}/.well-known/openid-configuration", settings.issuer.url.trim_end_matches('/'));
    let url = settings.discovery_url.clone().unwrap_or_else(own);
    let document = get(client, "discovery document", &url).await?;
    let wrong = |_| FetchError::Call { document: "discovery document", source: CallError::Malformed("one") };
    let discovery: ThirdPartyDiscovery = serde_json::from_value(document).map_err(wrong)?;
    if !settings.issuer.is_named(&discovery.issuer) {
        return Err(FetchError::OtherIssuer(discovery.issuer.chars().take(200).collect()));
    }
    get(client, "key set", &discovery.jwks_uri).await
}

async fn get(client: &HttpClient, document: &'static str, url: &str) -> Result<Value, FetchError> {
    let response = client.get_json(UrlTrust::Configured, url, HeaderMap::new()).await;
    response.map_err(|source| FetchError::Call { document, source })
}

fn acknowledge(request: oneshot::Sender<()>) {
    let _ = request.send(());
}
