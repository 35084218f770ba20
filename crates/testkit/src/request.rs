//! Requests as a test writes them, and responses as it reads them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

/// The cookies of a browser, by name: all are for one server, and none expires.
pub(crate) type Cookies = Arc<Mutex<BTreeMap<String, String>>>;

/// A request that is being built. Redirects are never followed: tests check them.
#[must_use = "a request does nothing until it is sent"]
pub struct Request {
    builder: reqwest::RequestBuilder,
    cookies: Cookies,
}

impl Request {
    pub(crate) fn new(builder: reqwest::RequestBuilder, cookies: Cookies) -> Self {
        Self { builder, cookies }
    }

    /// Sends the request from a browser without cookies.
    pub fn from_another_browser(self) -> Self {
        Self { cookies: Cookies::default(), ..self }
    }

    /// Adds a header.
    pub fn header(self, name: &str, value: &str) -> Self {
        Self { builder: self.builder.header(name, value), ..self }
    }

    /// Sends an API key.
    pub fn key(self, key: &str) -> Self {
        self.header("apikey", key)
    }

    /// Sends a bearer token.
    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Sends `body` as JSON.
    pub fn json(self, body: &Value) -> Self {
        Self { builder: self.builder.json(body), ..self }
    }

    /// Sends `fields` as a form.
    pub fn form(self, fields: &[(&str, &str)]) -> Self {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        self.header("content-type", "application/x-www-form-urlencoded").body(body)
    }

    /// Sends `body` as it is.
    pub fn body(self, body: impl Into<reqwest::Body>) -> Self {
        Self { builder: self.builder.body(body), ..self }
    }

    /// Sends the request and reads the whole response.
    ///
    /// # Panics
    /// When there is no response.
    pub async fn send(self) -> TestResponse {
        self.try_send().await.expect("the server answers")
    }

    /// Sends the request.
    ///
    /// # Errors
    /// When there is no complete response.
    pub async fn try_send(self) -> Result<TestResponse, reqwest::Error> {
        let jar = || self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
        let known: Vec<String> = jar().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let builder = match known.as_slice() {
            [] => self.builder,
            _ => self.builder.header("cookie", known.join("; ")),
        };
        let response = builder.send().await?;
        for cookie in response.headers().get_all("set-cookie") {
            let pair = cookie.to_str().unwrap_or_default().split(';').next().and_then(|pair| pair.split_once('='));
            if let Some((name, value)) = pair {
                jar().insert(name.to_owned(), value.to_owned());
            }
        }
        Ok(TestResponse {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.bytes().await?,
        })
    }
}

/// A complete response.
#[derive(Clone)]
pub struct TestResponse {
    /// The HTTP status.
    pub status: u16,
    /// The HTTP header fields.
    pub headers: http::HeaderMap,
    /// The bytes of the body.
    pub body: bytes::Bytes,
}

impl TestResponse {
    /// Returns the body as JSON.
    ///
    /// # Panics
    /// When it is not JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Returns the body as text.
    #[track_caller]
    pub fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).expect("the body is text")
    }

    /// Returns the first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the target of a redirect.
    ///
    /// # Panics
    /// When this is not a redirect.
    #[track_caller]
    pub fn location(&self) -> url::Url {
        let location = self.header("location").unwrap_or_else(|| panic!("no redirect: {self:?}"));
        location.parse().unwrap_or_else(|error| panic!("{error}: {location}"))
    }

    /// Returns a query parameter of the redirect's target.
    #[track_caller]
    pub fn location_query(&self, name: &str) -> Option<String> {
        parameter(self.location().query().unwrap_or(""), name)
    }

    /// Returns a parameter of the fragment of the redirect's target.
    #[track_caller]
    pub fn location_fragment(&self, name: &str) -> Option<String> {
        parameter(self.location().fragment().unwrap_or(""), name)
    }

    /// Returns the response if it has this status.
    ///
    /// # Panics
    /// When it has another one; the message shows the whole response.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// Returns the status and the error code of a rejection.
    #[track_caller]
    pub fn rejection(&self) -> (u16, String) {
        let body = self.json();
        let code = body["error_code"].as_str().or_else(|| body["code"].as_str());
        (self.status, code.unwrap_or_else(|| panic!("no error code in {self:?}")).to_owned())
    }
}

impl fmt::Debug for TestResponse {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.body[..self.body.len().min(2000)];
        write!(out, "{} {:?} {}", self.status, self.headers, String::from_utf8_lossy(shown))
    }
}

fn parameter(encoded: &str, name: &str) -> Option<String> {
    form_urlencoded::parse(encoded.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}
