//! The HTTP client for services that are not Portico's own, with strict limits for each call:
//! identity providers, captcha services, and sources of email bodies.
//!
//! Such a service is not trusted: it may be slow, respond with megabytes, redirect elsewhere, or
//! (when its URL comes from a database row) point into a private network. The effect of any of
//! these must not exceed one failed call.

pub(crate) mod public_address;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use portico_base::error_chain;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue, USER_AGENT};
use reqwest::{Client, Method, StatusCode, redirect};
use serde_json::Value;
use url::{Host, Url};

use public_address::{PublicAddressResolver, is_public};

/// Largest response that is read.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;
/// Longest URL that is called.
const MAX_URL_BYTES: usize = 8 * 1024;

/// The source of a URL, which decides what it may point to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlTrust {
    /// The operator's configuration, or a document from a URL of that configuration.
    Configured,
    /// A database row that an API can write: public addresses over https only.
    Guarded,
}

/// The reason why a call returned nothing usable. Texts are for the log and name no secret.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The URL must not be called.
    #[error("refused to call {0}")]
    Forbidden(&'static str),
    /// No connection, no response in time, or an interrupted one.
    #[error("no answer: {0}")]
    Unreachable(String),
    /// More than 1 MiB.
    #[error("the answer is larger than 1 MiB")]
    TooLarge,
    /// The response is not a success.
    #[error("status {0}")]
    Status(StatusCode),
    /// The response is not of the expected form.
    #[error("the answer is not {0}")]
    Malformed(&'static str),
}

/// A response, read completely.
#[derive(Debug)]
pub struct HttpResponse {
    /// HTTP status.
    pub status: StatusCode,
    /// At most 1 MiB.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// Parses the body as JSON.
    ///
    /// # Errors
    /// When the status is not a success, or the body is not JSON.
    pub fn json(&self) -> Result<Value, CallError> {
        if !self.status.is_success() {
            return Err(CallError::Status(self.status));
        }
        serde_json::from_slice(&self.body).map_err(|_| CallError::Malformed("JSON"))
    }
}

/// Returns a header value that is never logged.
///
/// # Errors
/// [`CallError::Malformed`] when the text does not fit into a header.
pub(crate) fn secret_header(text: &str) -> Result<HeaderValue, CallError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| CallError::Malformed("a token"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Sends the calls. Its clients are built at the first call, since loading root certificates would
/// delay the start.
#[derive(Debug)]
pub struct HttpClient {
    timeout: Duration,
    allow_loopback: bool,
    configured: OnceLock<Client>,
    guarded: OnceLock<Client>,
}

impl HttpClient {
    /// Makes a client. `allow_loopback` permits plain http to this machine, for emulators in
    /// development.
    #[must_use]
    pub fn new(timeout: Duration, allow_loopback: bool) -> Self {
        Self { timeout, allow_loopback, configured: OnceLock::new(), guarded: OnceLock::new() }
    }

    /// Sends a GET that must respond with JSON.
    ///
    /// # Errors
    /// [`CallError`], also for statuses other than success.
    pub async fn get_json(&self, trust: UrlTrust, url: &str, headers: HeaderMap) -> Result<Value, CallError> {
        self.send(trust, Method::GET, url, headers, None).await?.json()
    }

    /// Sends a GET that must respond with text in UTF-8.
    ///
    /// # Errors
    /// [`CallError`], also for statuses other than success.
    pub async fn get_text(&self, trust: UrlTrust, url: &str, headers: HeaderMap) -> Result<String, CallError> {
        let response = self.send(trust, Method::GET, url, headers, None).await?;
        if !response.status.is_success() {
            return Err(CallError::Status(response.status));
        }
        String::from_utf8(response.body).map_err(|_| CallError::Malformed("text in UTF-8"))
    }

    /// Sends a form by POST. Any status is a response.
    ///
    /// # Errors
    /// [`CallError`] when there is no complete response.
    pub async fn post_form(
        &self,
        trust: UrlTrust,
        url: &str,
        headers: HeaderMap,
        form: &[(&str, &str)],
    ) -> Result<HttpResponse, CallError> {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        self.send(trust, Method::POST, url, headers, Some(body)).await
    }

    async fn send(
        &self,
        trust: UrlTrust,
        method: Method,
        url: &str,
        headers: HeaderMap,
        form: Option<String>,
    ) -> Result<HttpResponse, CallError> {
        let url = self.check(trust, url)?;
        let mut request = self.client(trust)?.request(method, url).headers(headers);
        if let Some(form) = form {
            request = request.header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(form);
        }
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        if response.content_length().is_some_and(|length| length > MAX_RESPONSE_BYTES as u64) {
            return Err(CallError::TooLarge);
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                return Err(CallError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(HttpResponse { status, body })
    }

    /// Checks that `url` may be called: https, or http to this machine where that is allowed.
    ///
    /// # Errors
    /// [`CallError::Forbidden`].
    pub fn check(&self, trust: UrlTrust, url: &str) -> Result<Url, CallError> {
        if url.len() > MAX_URL_BYTES {
            return Err(CallError::Forbidden("an address that is too long"));
        }
        let url = Url::parse(url).map_err(|_| CallError::Forbidden("something that is not an address"))?;
        let local = match url.host() {
            None => return Err(CallError::Forbidden("an address without host")),
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
        };
        let local = local && self.allow_loopback;
        if url.scheme() != "https" && !(url.scheme() == "http" && local) {
            return Err(CallError::Forbidden("an address that is not https"));
        }
        if trust == UrlTrust::Guarded && !local {
            let public = match url.host() {
                Some(Host::Ipv4(ip)) => is_public(ip.into()),
                Some(Host::Ipv6(ip)) => is_public(ip.into()),
                // Names are checked when they are resolved, so that a second lookup cannot differ
                Some(Host::Domain(name)) => name != "localhost" && !name.ends_with(".localhost"),
                None => false,
            };
            if !public {
                return Err(CallError::Forbidden("an address inside a private network"));
            }
        }
        Ok(url)
    }

    fn client(&self, trust: UrlTrust) -> Result<&Client, CallError> {
        let client = match trust {
            UrlTrust::Configured => &self.configured,
            UrlTrust::Guarded => &self.guarded,
        };
        if let Some(client) = client.get() {
            return Ok(client);
        }
        let built = self.build(trust).map_err(unreachable)?;
        Ok(client.get_or_init(|| built))
    }

    fn build(&self, trust: UrlTrust) -> reqwest::Result<Client> {
        // An error only means that a provider is installed already
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("portico/", env!("CARGO_PKG_VERSION"))));
        let mut builder = Client::builder()
            .default_headers(headers)
            .timeout(self.timeout)
            .connect_timeout(self.timeout)
            .pool_max_idle_per_host(2)
            .pool_idle_timeout(Duration::from_secs(30))
            // These calls carry credentials: only redirects to the same origin are followed
            .redirect(redirect::Policy::custom(|attempt| {
                let same = attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
                if same && attempt.previous().len() <= 3 { attempt.follow() } else { attempt.stop() }
            }));
        if trust == UrlTrust::Guarded {
            builder = builder
                .no_proxy()
                .dns_resolver(Arc::new(PublicAddressResolver { allow_loopback: self.allow_loopback }));
        }
        builder.build()
    }
}

/// Returns the error with its causes but without the URL, whose query may contain a token.
fn unreachable(error: reqwest::Error) -> CallError {
    CallError::Unreachable(error_chain(&error.without_url()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked_before_the_call() {
        let strict = HttpClient::new(Duration::from_secs(5), false);
        let lenient = HttpClient::new(Duration::from_secs(5), true);
        let cases = [
            ("https://accounts.google.com/x", UrlTrust::Configured, true, true),
            ("http://accounts.google.com/x", UrlTrust::Configured, false, false),
            ("http://127.0.0.1:9/x", UrlTrust::Configured, false, true),
            ("http://localhost:9/x", UrlTrust::Guarded, false, true),
            ("https://10.0.0.1/", UrlTrust::Configured, true, true),
            ("https://10.0.0.1/", UrlTrust::Guarded, false, false),
            ("https://localhost/", UrlTrust::Guarded, false, true),
            ("https://[::ffff:192.168.0.1]/", UrlTrust::Guarded, false, false),
            ("https://[fec0::1]/", UrlTrust::Guarded, false, false),
            ("https://0x7f.1/", UrlTrust::Guarded, false, true),
            ("https://3232235521/", UrlTrust::Guarded, false, false),
            ("file:///etc/passwd", UrlTrust::Configured, false, false),
            ("nonsense", UrlTrust::Configured, false, false),
        ];
        for (url, trust, by_strict, by_lenient) in cases {
            assert_eq!(strict.check(trust, url).is_ok(), by_strict, "{url} {trust:?}");
            assert_eq!(lenient.check(trust, url).is_ok(), by_lenient, "{url} {trust:?}");
        }
    }
}
