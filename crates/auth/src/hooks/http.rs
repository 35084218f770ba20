//! Hooks over HTTP: a POST with the headers of Standard Webhooks, within limits of time and size.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portico_base::{Secret, random};
use reqwest::dns::Resolve;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, ClientBuilder, Response, StatusCode, redirect};
use time::OffsetDateTime;
use url::Url;

use super::output::MAX_BYTES;
use crate::error::ContractError;
use crate::http_client::public_address::{PrivateAddressError, PublicAddressResolver};

const ATTEMPTS: usize = 3;

/// A call without a usable response. `Display` is the text of the contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum HttpHookError {
    #[error("Invalid Content-Type: Missing Content-Type header")]
    NoContentType,
    #[error("Invalid JSON response. Received content-type: {0}")]
    ContentType(String),
    #[error("Payload size exceeded size limit of 204800 bytes")]
    TooLarge,
    #[error("Service currently unavailable due to hook")]
    Unavailable,
    #[error("Invalid payload sent to hook")]
    InvalidPayload,
    #[error("Hook requires authorization token")]
    Unauthorized,
    #[error("Unexpected status code returned from hook: {}", .0.as_u16())]
    Status(StatusCode),
    #[error("Failed to reach hook after maximum retries")]
    Unreachable,
    #[error("Failed to reach hook within maximum time of 5.000000 seconds")]
    TimedOut,
}

impl From<HttpHookError> for ContractError {
    fn from(error: HttpHookError) -> Self {
        match error {
            HttpHookError::NoContentType => Self::HookContentTypeMissing,
            HttpHookError::ContentType(received) => Self::HookContentTypeUnknown { received },
            HttpHookError::TooLarge => Self::HookOutputTooLarge,
            HttpHookError::Unavailable => Self::HookUnavailable,
            HttpHookError::InvalidPayload => Self::HookRejectedPayload,
            HttpHookError::Unauthorized => Self::HookUnauthorized,
            HttpHookError::Status(status) => Self::HookStatus { status: status.as_u16() },
            HttpHookError::Unreachable => Self::HookUnreachable,
            HttpHookError::TimedOut => Self::HookTimedOut,
        }
    }
}

/// The result of one attempt.
enum Attempt {
    /// The body of a response; `None` for one without content.
    Output(Option<Vec<u8>>),
    Failed(HttpHookError),
    /// To be retried at once, or after a pause.
    Retry {
        after_pause: bool,
        last: HttpHookError,
    },
}

/// The times of one call.
#[derive(Debug, Clone, Copy)]
pub(super) struct HookTimes {
    /// The longest that all attempts take together.
    pub budget: Duration,
    /// The pause behind an attempt that got no connection.
    pub pause: Duration,
}

impl Default for HookTimes {
    fn default() -> Self {
        Self { budget: Duration::from_secs(5), pause: Duration::from_secs(2) }
    }
}

/// This machine, at any port.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn client(times: HookTimes) -> ClientBuilder {
    // An error only says that a provider is installed already
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Client::builder()
        .redirect(redirect::Policy::none())
        // Containers have this name for the machine on which they run: here it is this one
        .resolve("host.docker.internal", LOOPBACK)
        .connect_timeout(times.budget)
        .pool_idle_timeout(Duration::from_secs(30))
}

/// Resolves names with `resolver`, except that `localhost` is this machine.
fn guarded(client: ClientBuilder, resolver: impl Resolve + 'static) -> ClientBuilder {
    let localhost = [LOOPBACK, SocketAddr::from((Ipv6Addr::LOCALHOST, 0))];
    client.no_proxy().resolve_to_addrs("localhost", &localhost).dns_resolver(Arc::new(resolver))
}

/// Calls hooks. It follows no redirects: a response cannot choose another receiver.
#[derive(Debug, Clone)]
pub(super) struct HttpHooks {
    client: Client,
    times: HookTimes,
}

impl HttpHooks {
    /// Makes the client. Unless `allow_private_addresses`, a name may lead into no private network,
    /// except that `localhost` is this machine, and no proxy is used, which would resolve the names
    /// itself.
    ///
    /// # Errors
    /// When the system's root certificates cannot be loaded.
    pub fn new(times: HookTimes, allow_private_addresses: bool) -> Result<Self, reqwest::Error> {
        let client = match allow_private_addresses {
            true => client(times),
            false => guarded(client(times), PublicAddressResolver { allow_loopback: false }),
        };
        Ok(Self { client: client.build()?, times })
    }

    /// Sends `input` to a hook and returns its response body; `None` for a response without
    /// content. `now` is the time that the signature states.
    ///
    /// # Errors
    /// [`HttpHookError`] when no attempt within the time limit had a usable response.
    pub async fn call(
        &self,
        url: &Url,
        secrets: &[Secret],
        now: OffsetDateTime,
        input: &[u8],
    ) -> Result<Option<Vec<u8>>, HttpHookError> {
        let attempts = async {
            let mut last = HttpHookError::Unreachable;
            for attempt in 1..=ATTEMPTS {
                match self.attempt(url, secrets, now, input).await {
                    Attempt::Output(body) => return Ok(body),
                    Attempt::Failed(error) => return Err(error),
                    Attempt::Retry { after_pause, last: error } => {
                        last = error;
                        if after_pause && attempt < ATTEMPTS {
                            tokio::time::sleep(self.times.pause).await;
                        }
                    }
                }
            }
            Err(last)
        };
        tokio::time::timeout(self.times.budget, attempts).await.unwrap_or(Err(HttpHookError::TimedOut))
    }

    async fn attempt(&self, url: &Url, secrets: &[Secret], now: OffsetDateTime, input: &[u8]) -> Attempt {
        let request = self
            .client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT_ENCODING, "identity")
            .headers(signature_headers(secrets, now, input))
            .body(input.to_vec());
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) if leads_into_private_network(&error) => {
                tracing::error!(
                    host = url.host_str(),
                    "a hook was not called: its name leads into a private network, which only \
                     `private_addresses` of [auth.hook] in portico.toml permits"
                );
                return Attempt::Failed(HttpHookError::Unreachable);
            }
            Err(error) => {
                tracing::warn!(error = %error.without_url(), "a hook did not respond");
                return Attempt::Retry { after_pause: true, last: HttpHookError::Unreachable };
            }
        };
        match response.status() {
            StatusCode::NO_CONTENT => Attempt::Output(None),
            StatusCode::OK | StatusCode::ACCEPTED => read(response).await,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                match response.headers().contains_key(RETRY_AFTER) {
                    true => Attempt::Retry { after_pause: false, last: HttpHookError::Unavailable },
                    false => Attempt::Failed(HttpHookError::Unavailable),
                }
            }
            StatusCode::BAD_REQUEST => Attempt::Failed(HttpHookError::InvalidPayload),
            StatusCode::UNAUTHORIZED => Attempt::Failed(HttpHookError::Unauthorized),
            status => Attempt::Failed(HttpHookError::Status(status)),
        }
    }
}

fn leads_into_private_network(error: &reqwest::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.is::<PrivateAddressError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Reads the body of a response that should be JSON.
async fn read(mut response: Response) -> Attempt {
    let Some(content_type) = response.headers().get(CONTENT_TYPE) else {
        return Attempt::Failed(HttpHookError::NoContentType);
    };
    let content_type = String::from_utf8_lossy(content_type.as_bytes()).into_owned();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Attempt::Failed(HttpHookError::ContentType(content_type));
    }
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > MAX_BYTES => {
                return Attempt::Failed(HttpHookError::TooLarge);
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Attempt::Output(Some(body)),
            Err(error) => {
                tracing::warn!(error = %error.without_url(), "the response of a hook ended early");
                return Attempt::Retry { after_pause: true, last: HttpHookError::Unreachable };
            }
        }
    }
}

/// Returns the headers of Standard Webhooks, or none where there is no secret. Each attempt has an
/// id of its own.
fn signature_headers(secrets: &[Secret], now: OffsetDateTime, input: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if secrets.is_empty() {
        return headers;
    }
    let id = random::uuid().to_string();
    let timestamp = now.unix_timestamp().to_string();
    let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", input].concat();
    let signatures: Vec<String> = secrets.iter().map(|secret| sign(secret, &signed)).collect();
    for (name, value) in
        [("webhook-id", id), ("webhook-timestamp", timestamp), ("webhook-signature", signatures.join(", "))]
    {
        if let Ok(value) = value.parse() {
            headers.insert(name, value);
        }
    }
    headers
}

fn sign(secret: &Secret, signed: &[u8]) -> String {
    let key = STANDARD.decode(secret.expose()).unwrap_or_default();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), signed);
    format!("v1,{}", STANDARD.encode(tag))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::HeaderMap;
    use axum::response::IntoResponse;
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-01-01 0:00 UTC);

    /// Serves a hook that responds as `answer` says to the call of that number.
    async fn serve<A, R>(answer: A) -> (Url, Arc<AtomicUsize>)
    where
        A: Fn(usize, HeaderMap, Vec<u8>) -> R + Clone + Send + Sync + 'static,
        R: IntoResponse + Send,
    {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let router = Router::new().fallback(move |headers: HeaderMap, body: bytes::Bytes| {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            let answer = answer(number, headers, body.to_vec()).into_response();
            async move { answer }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        (url, calls)
    }

    async fn call(url: &Url) -> Result<Option<Vec<u8>>, HttpHookError> {
        HttpHooks::new(HookTimes::default(), false).unwrap().call(url, &[], NOW, b"{}").await
    }

    const JSON: [(&str, &str); 1] = [("content-type", "application/json; charset=utf-8")];

    #[tokio::test]
    async fn the_request_is_signed_by_each_secret() {
        let keys = [[1u8; 32], [2; 32]].map(|key| STANDARD.encode(key));
        let secrets = keys.clone().map(Secret::new);
        let (url, _) = serve(move |_, headers: HeaderMap, body| {
            let header = |name: &str| headers[name].to_str().unwrap().to_owned();
            let signed = [header("webhook-id").as_bytes(), b".1767225600.", &body].concat();
            assert_eq!(header("webhook-timestamp"), "1767225600");
            assert_eq!(header("content-type"), "application/json");
            assert_eq!(header("accept-encoding"), "identity");
            let expected = keys.clone().map(|key| sign(&Secret::new(key), &signed)).join(", ");
            let is_signed = header("webhook-signature") == expected && expected.starts_with("v1,");
            (JSON, format!("{{\"is_signed\":{is_signed}}}"))
        })
        .await;
        let hooks = HttpHooks::new(HookTimes::default(), false).unwrap();
        let answer = hooks.call(&url, &secrets, NOW, b"{\"a\":1}").await.unwrap();
        assert_eq!(answer.unwrap(), b"{\"is_signed\":true}");
    }

    #[tokio::test]
    async fn each_answer_has_its_outcome() {
        /// The status and media type of a response, and what becomes of it.
        type Case = (StatusCode, Option<&'static str>, Result<Option<&'static str>, HttpHookError>);
        let cases: [Case; 9] = [
            (StatusCode::NO_CONTENT, None, Ok(None)),
            (StatusCode::ACCEPTED, Some("application/json"), Ok(Some("{}"))),
            (StatusCode::OK, Some("text/plain"), Err(HttpHookError::ContentType("text/plain".into()))),
            (StatusCode::BAD_REQUEST, None, Err(HttpHookError::InvalidPayload)),
            (StatusCode::UNAUTHORIZED, None, Err(HttpHookError::Unauthorized)),
            (StatusCode::SERVICE_UNAVAILABLE, None, Err(HttpHookError::Unavailable)),
            (StatusCode::TOO_MANY_REQUESTS, None, Err(HttpHookError::Unavailable)),
            (StatusCode::FOUND, None, Err(HttpHookError::Status(StatusCode::FOUND))),
            (StatusCode::IM_A_TEAPOT, None, Err(HttpHookError::Status(StatusCode::IM_A_TEAPOT))),
        ];
        for (status, content_type, outcome) in cases {
            let (url, calls) = serve(move |_, _, _| {
                let mut response = (status, "{}").into_response();
                response.headers_mut().remove(CONTENT_TYPE);
                if let Some(content_type) = content_type {
                    response.headers_mut().insert(CONTENT_TYPE, content_type.parse().unwrap());
                }
                response.headers_mut().insert("location", "/elsewhere".parse().unwrap());
                response
            })
            .await;
            assert_eq!(call(&url).await, outcome.map(|body| body.map(|body| body.as_bytes().to_vec())), "{status}");
            assert_eq!(calls.load(Ordering::SeqCst), 1, "{status}");
        }
    }

    #[tokio::test]
    async fn a_busy_hook_is_retried_if_it_names_a_time() {
        let busy = |succeeds_at: usize| {
            move |number: usize, _, _| match number < succeeds_at {
                true => (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")], "").into_response(),
                false => (JSON, "{}").into_response(),
            }
        };
        let (url, calls) = serve(busy(2)).await;
        assert_eq!(call(&url).await.unwrap().unwrap(), b"{}");
        assert_eq!(calls.load(Ordering::SeqCst), 3);
        let (url, calls) = serve(busy(9)).await;
        assert_eq!(call(&url).await, Err(HttpHookError::Unavailable));
        assert_eq!(calls.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_large_answer_is_rejected() {
        let (url, _) = serve(|_, _, _| (JSON, " ".repeat(MAX_BYTES + 1))).await;
        assert_eq!(call(&url).await, Err(HttpHookError::TooLarge));
        let (url, _) = serve(|_, _, _| (JSON, " ".repeat(MAX_BYTES))).await;
        assert_eq!(call(&url).await.map(|body| body.map_or(0, |body| body.len())), Ok(MAX_BYTES));
    }

    /// A resolver by which every name leads into a private network.
    struct PrivateNetwork;

    impl Resolve for PrivateNetwork {
        fn resolve(&self, _: reqwest::dns::Name) -> reqwest::dns::Resolving {
            Box::pin(async { Err(PrivateAddressError.into()) })
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_into_a_private_network_is_not_called() {
        let (url, calls) = serve(|_, _, _| (JSON, "{}")).await;
        // Minutes, so that a further attempt does not end in time
        let times = HookTimes { budget: Duration::from_secs(120), pause: Duration::from_secs(240) };
        let hooks = HttpHooks { client: guarded(client(times), PrivateNetwork).build().unwrap(), times };
        let call = async |host: &str| {
            let mut url = url.clone();
            url.set_host(Some(host)).unwrap();
            hooks.call(&url, &[], NOW, b"{}").await
        };
        assert_eq!(call("hooks.example").await, Err(HttpHookError::Unreachable));
        assert_eq!(calls.load(Ordering::SeqCst), 0);
        // Names of this machine, which the operator wrote
        for host in ["localhost", "host.docker.internal", "127.0.0.1"] {
            assert!(call(host).await.is_ok(), "{host}");
        }
    }

    #[tokio::test]
    async fn a_hook_that_is_not_there_or_silent_ends_in_time() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let call = async |budget, pause| {
            let hooks = HttpHooks::new(HookTimes { budget, pause }, false).unwrap();
            hooks.call(&url, &[], NOW, b"{}").await
        };
        // Connections are accepted, and get no response
        let outcome = call(Duration::from_millis(50), Duration::ZERO).await;
        assert_eq!(outcome, Err(HttpHookError::TimedOut));
        drop(listener);
        let outcome = call(Duration::from_secs(60), Duration::from_millis(1)).await;
        assert_eq!(outcome, Err(HttpHookError::Unreachable));
    }
}
