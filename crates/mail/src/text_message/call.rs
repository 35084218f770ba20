//! One call of a gateway, with strict limits: it is another party, and a person waits for it.

use std::sync::OnceLock;
use std::time::Duration;

use portico_base::error_chain;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, USER_AGENT};
use reqwest::{Client, StatusCode, redirect};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::error::TextError;

/// Greatest response that is read.
const MAX_RESPONSE: usize = 64 * 1024;

/// The way to authenticate at a gateway.
pub(super) enum GatewayAuthorization<'a> {
    /// By fields of the form.
    InForm,
    /// HTTP Basic.
    Basic { user: &'a str, password: &'a str },
    /// A header of its own scheme.
    Header { scheme: &'a str, key: &'a str },
}

/// A complete response.
pub(super) struct GatewayResponse {
    status: StatusCode,
    body: Vec<u8>,
}

impl GatewayResponse {
    pub(super) fn is_success(&self) -> bool {
        self.status.is_success()
    }

    pub(super) fn is(&self, status: u16) -> bool {
        self.status.as_u16() == status
    }

    /// Parses the body that the gateway documents for a success.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, TextError> {
        serde_json::from_slice(&self.body).map_err(|_| TextError::Malformed)
    }

    /// Returns the failure that `explain` finds in the response, or else its status.
    pub(super) fn failure(&self, explain: impl FnOnce(&Value) -> Option<String>) -> TextError {
        let explained = serde_json::from_slice(&self.body).ok().and_then(|body| explain(&body));
        match explained.filter(|text| !text.trim().is_empty()) {
            Some(text) => TextError::refused(&text),
            None if self.status.is_success() => TextError::Malformed,
            None => TextError::Status(self.status.as_u16()),
        }
    }
}

/// Makes the calls of one gateway.
pub(super) struct GatewayClient {
    base: Url,
    is_local: bool,
    timeout: Duration,
    /// Made at the first call: loading root certificates takes time that a start need not.
    client: OnceLock<Client>,
}

impl GatewayClient {
    pub(super) fn new(base: Url, is_local: bool, timeout: Duration) -> Self {
        Self { base, is_local, timeout, client: OnceLock::new() }
    }

    /// Posts a form to a path below the base address. Each segment is encoded, so none can lead
    /// elsewhere.
    pub(super) async fn post(
        &self,
        path: &[&str],
        authorisation: GatewayAuthorization<'_>,
        form: &[(&str, &str)],
    ) -> Result<GatewayResponse, TextError> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let request = self.client()?.post(url).form(form);
        let request = match authorisation {
            GatewayAuthorization::InForm => request,
            GatewayAuthorization::Basic { user, password } => request.basic_auth(user, Some(password)),
            GatewayAuthorization::Header { scheme, key } => {
                let mut value = HeaderValue::try_from(format!("{scheme} {key}"))
                    .map_err(|_| TextError::Refused("the configured key has characters that no key has".to_owned()))?;
                value.set_sensitive(true);
                request.header(AUTHORIZATION, value)
            }
        };
        let mut response = request.send().await.map_err(no_response)?;
        let status = response.status();
        if response.content_length().is_some_and(|length| length > MAX_RESPONSE as u64) {
            return Err(TextError::TooLarge);
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(no_response)? {
            if body.len() + chunk.len() > MAX_RESPONSE {
                return Err(TextError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(GatewayResponse { status, body })
    }

    fn client(&self) -> Result<&Client, TextError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = self.build().map_err(no_response)?;
        Ok(self.client.get_or_init(|| client))
    }

    fn build(&self) -> reqwest::Result<Client> {
        // An error only says that an implementation is installed already
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("portico/", env!("CARGO_PKG_VERSION"))));
        let builder = Client::builder()
            .default_headers(headers)
            .timeout(self.timeout)
            .connect_timeout(self.timeout)
            .pool_max_idle_per_host(2)
            .pool_idle_timeout(Duration::from_secs(30))
            // The form contains a code, and often our key, which must not reach another server
            .redirect(redirect::Policy::none());
        // A proxy knows nothing of this machine's own addresses
        if self.is_local { builder.no_proxy() } else { builder }.build()
    }
}

/// Logs the details at the debug level only, since they could contain numbers and addresses.
fn no_response(error: reqwest::Error) -> TextError {
    let error = error.without_url();
    tracing::debug!(error = %error_chain(&error), "a text message gateway could not be called");
    if error.is_timeout() { TextError::TimedOut } else { TextError::Unreachable }
}
