//! Calls to identity providers, each with strict limits.
//!
//! A provider is another party: it may be slow, answer with megabytes, redirect somewhere else, or (when its address
//! comes from a database row) point into our own network. Nothing of that may reach further than one failed sign-in.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderMap, HeaderValue, USER_AGENT};
use reqwest::{Client, Method, StatusCode, redirect};
use serde_json::Value;
use url::{Host, Url};

use crate::oauth::protocol::public_address::is_public;

/// Greatest answer that is read.
const MAX_BODY: usize = 1024 * 1024;
/// Longest address that is called.
const MAX_URL: usize = 8 * 1024;

/// Where an address came from, which decides what it may point to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// From the operator's configuration, or from a document that such an address gave.
    Configured,
    /// From a row that somebody could write through an API: public addresses over https only.
    Guarded,
}

/// Why a call gave nothing usable. Texts name no secret: they go to the log.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The address may not be called.
    #[error("refused to call {0}")]
    Forbidden(&'static str),
    /// No connection, no answer in time, broken off.
    #[error("no answer: {0}")]
    Unreachable(String),
    /// More than [`MAX_BODY`] bytes.
    #[error("the answer is larger than 1 MiB")]
    TooLarge,
    /// An answer that is not a success.
    #[error("status {0}")]
    Status(StatusCode),
    /// Not the JSON that was expected.
    #[error("the answer is not {0}")]
    Malformed(&'static str),
}

/// An answer, read completely.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// At most [`MAX_BODY`] bytes.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON. Non-success statuses are errors.
    pub fn json(&self) -> Result<Value, CallError> {
        if !self.status.is_success() {
            return Err(CallError::Status(self.status));
        }
        serde_json::from_slice(&self.body).map_err(|_| CallError::Malformed("JSON"))
    }
}

/// Makes the calls. Clients are built at the first call: loading root certificates takes time that a start need not.
#[derive(Debug)]
pub struct ProviderClient {
    timeout: Duration,
    allow_loopback: bool,
    configured: OnceLock<Client>,
    guarded: OnceLock<Client>,
}

impl ProviderClient {
    /// `allow_loopback` admits plain http to this machine, for development stand-ins.
    #[must_use]
    pub fn new(timeout: Duration, allow_loopback: bool) -> Self {
        Self { timeout, allow_loopback, configured: OnceLock::new(), guarded: OnceLock::new() }
    }

    /// A GET that must answer with JSON.
    pub async fn get_json(&self, trust: Trust, url: &str, headers: HeaderMap) -> Result<Value, CallError> {
        self.send(trust, Method::GET, url, headers, None).await?.json()
    }

    /// A GET that must answer with text in UTF-8.
    pub async fn get_text(&self, trust: Trust, url: &str, headers: HeaderMap) -> Result<String, CallError> {
        let answer = self.send(trust, Method::GET, url, headers, None).await?;
        if !answer.status.is_success() {
            return Err(CallError::Status(answer.status));
        }
        String::from_utf8(answer.body).map_err(|_| CallError::Malformed("text in UTF-8"))
    }

    /// A POST of a form.
    pub async fn post_form(
        &self,
        trust: Trust,
        url: &str,
        headers: HeaderMap,
        form: &[(&str, &str)],
    ) -> Result<Answer, CallError> {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        self.send(trust, Method::POST, url, headers, Some(body)).await
    }

    async fn send(
        &self,
        trust: Trust,
        method: Method,
        url: &str,
        headers: HeaderMap,
        form: Option<String>,
    ) -> Result<Answer, CallError> {
        let url = self.check(trust, url)?;
        let mut request = self.client(trust)?.request(method, url).headers(headers);
        if let Some(form) = form {
            request = request.header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(form);
        }
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        if response.content_length().is_some_and(|length| length > MAX_BODY as u64) {
            return Err(CallError::TooLarge);
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > MAX_BODY {
                return Err(CallError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, body })
    }

    /// Whether `url` may be called at all: https, or http to this machine where that is allowed.
    pub fn check(&self, trust: Trust, url: &str) -> Result<Url, CallError> {
        if url.len() > MAX_URL {
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
        if trust == Trust::Guarded && !local {
            let public = match url.host() {
                Some(Host::Ipv4(ip)) => is_public(ip.into()),
                Some(Host::Ipv6(ip)) => is_public(ip.into()),
                // Names are checked when they are resolved, so that a second look-up can not differ
                Some(Host::Domain(name)) => name != "localhost" && !name.ends_with(".localhost"),
                None => false,
            };
            if !public {
                return Err(CallError::Forbidden("an address inside a private network"));
            }
        }
        Ok(url)
    }

    fn client(&self, trust: Trust) -> Result<&Client, CallError> {
        let slot = match trust {
            Trust::Configured => &self.configured,
            Trust::Guarded => &self.guarded,
        };
        if let Some(client) = slot.get() {
            return Ok(client);
        }
        let client = self.build(trust).map_err(unreachable)?;
        Ok(slot.get_or_init(|| client))
    }

    fn build(&self, trust: Trust) -> reqwest::Result<Client> {
        // An error only says that a provider is installed already
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
            // Credentials go out in these calls: only the same origin may ask for them again
            .redirect(redirect::Policy::custom(|attempt| {
                let same = attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
                if same && attempt.previous().len() <= 3 { attempt.follow() } else { attempt.stop() }
            }));
        if trust == Trust::Guarded {
            builder = builder.no_proxy().dns_resolver(Arc::new(PublicOnly { allow_loopback: self.allow_loopback }));
        }
        builder.build()
    }
}

/// The chain of causes without the address, whose query could hold a token.
fn unreachable(error: reqwest::Error) -> CallError {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    CallError::Unreachable(text)
}

/// Resolves names to public addresses only, so that a name cannot lead into a private network. The
/// client connects to the addresses that were checked, so that a second answer cannot differ.
struct PublicOnly {
    allow_loopback: bool,
}

impl reqwest::dns::Resolve for PublicOnly {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let allow_loopback = self.allow_loopback;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // One private address among public ones is an attack, not a mistake
            if found.iter().any(|address| !(is_public(address.ip()) || allow_loopback && address.ip().is_loopback())) {
                return Err("the name leads into a private network".into());
            }
            Ok(Box::new(found.into_iter()) as reqwest::dns::Addrs)
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_before_the_call() {
        let strict = ProviderClient::new(Duration::from_secs(5), false);
        let lenient = ProviderClient::new(Duration::from_secs(5), true);
        let cases = [
            ("https://accounts.google.com/x", Trust::Configured, true, true),
            ("http://accounts.google.com/x", Trust::Configured, false, false),
            ("http://127.0.0.1:9/x", Trust::Configured, false, true),
            ("http://localhost:9/x", Trust::Guarded, false, true),
            ("https://10.0.0.1/", Trust::Configured, true, true),
            ("https://10.0.0.1/", Trust::Guarded, false, false),
            ("https://localhost/", Trust::Guarded, false, true),
            ("https://[::ffff:192.168.0.1]/", Trust::Guarded, false, false),
            ("https://[fec0::1]/", Trust::Guarded, false, false),
            ("https://0x7f.1/", Trust::Guarded, false, true),
            ("https://3232235521/", Trust::Guarded, false, false),
            ("file:///etc/passwd", Trust::Configured, false, false),
            ("nonsense", Trust::Configured, false, false),
        ];
        for (url, trust, by_strict, by_lenient) in cases {
            assert_eq!(strict.check(trust, url).is_ok(), by_strict, "{url} {trust:?}");
            assert_eq!(lenient.check(trust, url).is_ok(), by_lenient, "{url} {trust:?}");
        }
    }

    #[tokio::test]
    async fn a_name_of_a_private_network_is_not_resolved() {
        use reqwest::dns::Resolve as _;
        // The name of this machine, from its own files: no name server is asked
        let resolve = async |allow_loopback| PublicOnly { allow_loopback }.resolve("localhost".parse().unwrap()).await;
        assert!(resolve(false).await.is_err());
        assert!(resolve(true).await.is_ok());
    }
}
