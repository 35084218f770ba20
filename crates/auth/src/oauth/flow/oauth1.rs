//! OAuth 1.0a (RFC 5849), which one provider still speaks: three calls, each signed with HMAC-SHA-1.
//!
//! The flow's id travels in the callback address, since there is no `state`. The request token and its secret are kept
//! where the proof keys of other providers are.

use std::collections::BTreeMap;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use portico_base::random;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde_json::Value;
use url::Url;
use uuid::Uuid;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::RequestInfo;
use crate::oauth::protocol::http_client::CallError;
use crate::oauth::provider::exchange::{ExchangeError, Tokens};
use crate::oauth::provider::profile::{Object, Profile};
use crate::oauth::provider::resolved::{Configured, Place};
use crate::sql::{Tx, flow_state};

/// RFC 5849, 3.6.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn escape(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// A token and its secret.
struct Credentials<'a> {
    token: &'a str,
    secret: &'a str,
}

/// The `Authorization` header of a request (RFC 5849, 3.4 and 3.5.1). The request has no form body.
fn authorization(
    provider: &Configured,
    verb: &str,
    url: &Url,
    extra: &[(&str, &str)],
    credentials: Option<&Credentials<'_>>,
    timestamp: i64,
    nonce: &str,
) -> String {
    let timestamp = timestamp.to_string();
    let mut own: BTreeMap<&str, &str> = BTreeMap::from([
        ("oauth_consumer_key", provider.client_id()),
        ("oauth_nonce", nonce),
        ("oauth_signature_method", "HMAC-SHA1"),
        ("oauth_timestamp", timestamp.as_str()),
        ("oauth_version", "1.0"),
    ]);
    own.extend(extra.iter().copied());
    if let Some(credentials) = credentials {
        own.insert("oauth_token", credentials.token);
    }
    let mut signed: Vec<(String, String)> = own.iter().map(|(name, value)| (escape(name), escape(value))).collect();
    signed.extend(url.query_pairs().map(|(name, value)| (escape(&name), escape(&value))));
    signed.sort();
    let parameters: Vec<String> = signed.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut base = url.clone();
    base.set_query(None);
    base.set_fragment(None);
    let text = format!("{verb}&{}&{}", escape(base.as_str()), escape(&parameters.join("&")));
    let token_secret = credentials.map_or("", |credentials| credentials.secret);
    let key = format!("{}&{}", escape(provider.secret.expose()), escape(token_secret));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key.as_bytes()), text.as_bytes());
    let signature = STANDARD.encode(tag);
    own.insert("oauth_signature", &signature);
    let fields: Vec<String> =
        own.iter().map(|(name, value)| format!("{}=\"{}\"", escape(name), escape(value))).collect();
    format!("OAuth {}", fields.join(", "))
}

fn headers(value: &str) -> Result<HeaderMap, CallError> {
    let mut value = HeaderValue::from_str(value).map_err(|_| CallError::Malformed("a token"))?;
    value.set_sensitive(true);
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, value);
    Ok(headers)
}

async fn post(
    auth: &Auth,
    provider: &Configured,
    url: &str,
    extra: &[(&str, &str)],
    credentials: Option<&Credentials<'_>>,
    request: &RequestInfo,
) -> Result<Object, ExchangeError> {
    let url = auth.engine().client.check(provider.trust, url)?;
    let now = request.now.unix_timestamp();
    let header = authorization(provider, "POST", &url, extra, credentials, now, &random::alphanumeric(32));
    let answer = auth.engine().client.post_form(provider.trust, url.as_str(), headers(&header)?, &[]).await?;
    if !answer.status.is_success() {
        return Err(CallError::Status(answer.status).into());
    }
    Ok(form_urlencoded::parse(&answer.body).take(32).map(|(name, value)| (name.into_owned(), value.into())).collect())
}

fn field<'a>(answer: &'a Object, name: &str) -> Result<&'a str, ExchangeError> {
    let value = answer.get(name).and_then(Value::as_str).unwrap_or_default();
    // Kept in one column, separated by a space
    if value.is_empty() || value.len() > 1024 || value.contains(char::is_whitespace) {
        return Err(ExchangeError::Refused(format!("no {name}")));
    }
    Ok(value)
}

/// Announces a sign-in and says where the person goes.
///
/// # Errors
/// 500 when the provider does not answer.
pub(crate) async fn begin(
    auth: &Auth,
    provider: &Configured,
    state: &str,
    client_state: Option<Uuid>,
    request: &RequestInfo,
) -> Result<String, AuthError> {
    let (Place::Signed { request: announce, authorize, .. }, Some(id)) = (&provider.place, client_state) else {
        return Err(AuthError::internal(anyhow::anyhow!("not a provider of signed requests")));
    };
    let unreachable = |error: ExchangeError| AuthError::failed(ContractError::ProviderUnreachable, error);
    let mut callback = Url::parse(&provider.redirect_uri).map_err(AuthError::internal)?;
    callback.query_pairs_mut().append_pair("state", state);
    let announced = post(auth, provider, announce, &[("oauth_callback", callback.as_str())], None, request).await;
    let announced = announced.map_err(unreachable)?;
    let token = field(&announced, "oauth_token").map_err(unreachable)?;
    let secret = field(&announced, "oauth_token_secret").map_err(unreachable)?;
    let tx = Tx::begin(auth.database()).await?;
    flow_state::put_client_state(&tx, id, &provider.name, &format!("{token} {secret}"), request.now).await?;
    tx.commit().await?;
    let mut url = Url::parse(authorize).map_err(AuthError::internal)?;
    url.query_pairs_mut().append_pair("oauth_token", token);
    Ok(url.into())
}

/// What the provider sent back.
pub(crate) struct Verified<'a> {
    pub(crate) token: &'a str,
    pub(crate) verifier: &'a str,
    /// `request token, its secret`, as [`begin`] kept them.
    pub(crate) kept: &'a str,
}

/// Who signed in.
pub(crate) async fn finish(
    auth: &Auth,
    provider: &Configured,
    verified: &Verified<'_>,
    request: &RequestInfo,
) -> Result<(Tokens, Profile), ExchangeError> {
    let Place::Signed { token: url, .. } = &provider.place else {
        return Err(ExchangeError::Refused("not a provider of signed requests".into()));
    };
    let (token, secret) = verified.kept.split_once(' ').unwrap_or_default();
    if token.is_empty() || token != verified.token {
        return Err(ExchangeError::Refused("the token is of another sign-in".into()));
    }
    let credentials = Credentials { token, secret };
    let answer =
        post(auth, provider, url, &[("oauth_verifier", verified.verifier)], Some(&credentials), request).await?;
    let access = field(&answer, "oauth_token")?.to_owned();
    let secret = field(&answer, "oauth_token_secret")?.to_owned();
    let mut documents = Vec::new();
    for (url, _) in &provider.documents {
        let url = auth.engine().client.check(provider.trust, url)?;
        let credentials = Credentials { token: &access, secret: &secret };
        let now = request.now.unix_timestamp();
        let header = authorization(provider, "GET", &url, &[], Some(&credentials), now, &random::alphanumeric(32));
        documents.push(auth.engine().client.get_json(provider.trust, url.as_str(), headers(&header)?).await?);
    }
    let profile = crate::oauth::provider::exchange::read(provider, &answer, None, &documents, None)?;
    Ok((Tokens { access, refresh: None, id_token: None, answer }, profile))
}
