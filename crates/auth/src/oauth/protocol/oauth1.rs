//! OAuth 1.0a (RFC 5849): requests that are signed with HMAC-SHA-1.

use std::collections::BTreeMap;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use portico_base::random;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde_json::Value;
use url::Url;

use crate::http_client::{CallError, HttpClient, UrlTrust, secret_header};
use crate::model::JsonObject;

/// The characters that are not escaped (RFC 5849, 3.6).
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn escape(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// The reason why a signed call failed. Texts are for the log and name no secret.
#[derive(Debug, thiserror::Error)]
pub enum OAuth1Error {
    /// The provider could not be called.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The response lacks a field, or its value is not usable.
    #[error("the response has no usable {0}")]
    MissingField(&'static str),
    /// The callback belongs to another request token.
    #[error("the token belongs to another sign-in")]
    OtherRequestToken,
    /// The provider does not speak OAuth 1.0a.
    #[error("the provider does not speak OAuth 1.0a")]
    Unsupported,
}

/// A request token or access token, and its secret.
#[derive(Debug)]
pub struct TokenCredentials<'a> {
    /// The token.
    pub token: &'a str,
    /// Its secret.
    pub secret: &'a str,
}

/// A client of one provider.
#[derive(Debug)]
pub struct SigningClient<'a> {
    /// Sends the calls.
    pub http: &'a HttpClient,
    /// The trust in the provider's URLs.
    pub trust: UrlTrust,
    /// The client id.
    pub consumer_key: &'a str,
    /// The client secret.
    pub consumer_secret: &'a str,
    /// The time of the calls, in unix seconds.
    pub timestamp: i64,
}

impl SigningClient<'_> {
    /// Sends a POST without a body, and reads the form in the response.
    ///
    /// # Errors
    /// When the provider cannot be called or does not respond with success.
    pub async fn post(
        &self,
        url: &str,
        parameters: &[(&str, &str)],
        credentials: Option<&TokenCredentials<'_>>,
    ) -> Result<JsonObject, CallError> {
        let url = self.http.check(self.trust, url)?;
        let headers = self.headers("POST", &url, parameters, credentials)?;
        let response = self.http.post_form(self.trust, url.as_str(), headers, &[]).await?;
        if !response.status.is_success() {
            return Err(CallError::Status(response.status));
        }
        let fields = form_urlencoded::parse(&response.body).take(32);
        Ok(fields.map(|(name, value)| (name.into_owned(), value.into())).collect())
    }

    /// Sends a GET that must respond with JSON.
    ///
    /// # Errors
    /// When the provider cannot be called or does not respond with JSON.
    pub async fn get_json(&self, url: &str, credentials: &TokenCredentials<'_>) -> Result<Value, CallError> {
        let url = self.http.check(self.trust, url)?;
        let headers = self.headers("GET", &url, &[], Some(credentials))?;
        self.http.get_json(self.trust, url.as_str(), headers).await
    }

    fn headers(
        &self,
        verb: &str,
        url: &Url,
        parameters: &[(&str, &str)],
        credentials: Option<&TokenCredentials<'_>>,
    ) -> Result<HeaderMap, CallError> {
        let value = secret_header(&self.authorization(verb, url, parameters, credentials))?;
        Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
    }

    /// Returns the `Authorization` header of a request without a body (RFC 5849, 3.4 and 3.5.1).
    fn authorization(
        &self,
        verb: &str,
        url: &Url,
        parameters: &[(&str, &str)],
        credentials: Option<&TokenCredentials<'_>>,
    ) -> String {
        let (timestamp, nonce) = (self.timestamp.to_string(), random::alphanumeric(32));
        let mut fields: BTreeMap<&str, &str> = BTreeMap::from([
            ("oauth_consumer_key", self.consumer_key),
            ("oauth_nonce", nonce.as_str()),
            ("oauth_signature_method", "HMAC-SHA1"),
            ("oauth_timestamp", timestamp.as_str()),
            ("oauth_version", "1.0"),
        ]);
        fields.extend(parameters.iter().copied());
        if let Some(credentials) = credentials {
            fields.insert("oauth_token", credentials.token);
        }
        let mut signed: Vec<(String, String)> =
            fields.iter().map(|(name, value)| (escape(name), escape(value))).collect();
        signed.extend(url.query_pairs().map(|(name, value)| (escape(&name), escape(&value))));
        signed.sort();
        let signed: Vec<String> = signed.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut base = url.clone();
        base.set_query(None);
        base.set_fragment(None);
        let text = format!("{verb}&{}&{}", escape(base.as_str()), escape(&signed.join("&")));
        let token_secret = credentials.map_or("", |credentials| credentials.secret);
        let key = format!("{}&{}", escape(self.consumer_secret), escape(token_secret));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key.as_bytes()), text.as_bytes());
        let signature = STANDARD.encode(tag);
        fields.insert("oauth_signature", &signature);
        let fields: Vec<String> =
            fields.iter().map(|(name, value)| format!("{}=\"{}\"", escape(name), escape(value))).collect();
        format!("OAuth {}", fields.join(", "))
    }
}

/// Returns a token or secret of a response.
///
/// # Errors
/// When it is missing, longer than 1 KiB, or contains a space: a token and its secret are stored in
/// one column, separated by a space.
pub fn token_field<'a>(response: &'a JsonObject, name: &'static str) -> Result<&'a str, OAuth1Error> {
    let value = response.get(name).and_then(Value::as_str).unwrap_or_default();
    if value.is_empty() || value.len() > 1024 || value.contains(char::is_whitespace) {
        return Err(OAuth1Error::MissingField(name));
    }
    Ok(value)
}
