//! The extractors of handlers: bodies, query parameters, request data, and the signed-in user.
//!
//! An extractor is a precondition. A handler that takes [`SignedIn`] runs only for a user whose
//! token, account and session were checked; one that takes [`Json`] only for a body of the right
//! form.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use http::HeaderMap;
use http::header::{AUTHORIZATION, REFERER, USER_AGENT};
use http::request::Parts;
use http_body_util::{BodyExt as _, Limited};
use portico_base::ClientAddress;
use portico_tokens::{Caller, Claims, TokenError, bearer};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::Auth;
use crate::error::{API_VERSION_HEADER, ApiVersion, AuthError, ContractError};
use crate::hooks::HookLedger;
use crate::model::User;
use crate::model::ids::{SessionId, UserId};
use crate::sql::users::{self, SessionSummary};

/// Largest body, in bytes.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Deepest nesting of a body.
const MAX_JSON_DEPTH: usize = 100;
/// The width of the column `aud`.
const MAX_AUDIENCE_BYTES: usize = 255;
/// Longest `User-Agent` that is stored; a longer one is truncated.
const MAX_USER_AGENT_BYTES: usize = 1024;

/// A JSON body, with any `Content-Type`. `null` is the same as a missing field, unknown fields are
/// ignored, names are matched without regard to case, and the last of two equal names counts.
#[derive(Debug)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Auth> for Json<T> {
    type Rejection = AuthError;

    async fn from_request(request: Request, _auth: &Auth) -> Result<Self, AuthError> {
        let bytes = read_body(request).await?;
        parse_json(&bytes).map(Json)
    }
}

/// Reads a whole body.
///
/// # Errors
/// 413 for more than [`MAX_BODY_BYTES`], 400 when the client disconnected.
pub async fn read_body(request: Request) -> Result<bytes::Bytes, AuthError> {
    match Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() || is_too_large(error.as_ref()) => {
            Err(ContractError::BodyTooLarge.into())
        }
        Err(_) => Err(bad_json("the body could not be read")),
    }
}

/// Returns true for the limit of an outer layer, which is a cause of the error.
fn is_too_large(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Parses a JSON object by the rules of [`Json`].
///
/// # Errors
/// 400 `bad_json`.
pub fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, AuthError> {
    let text = std::str::from_utf8(bytes).map_err(|_| bad_json("the body is not UTF-8"))?;
    check_shape(text).map_err(bad_json)?;
    let value: Value = serde_json::from_str(text).map_err(|error| bad_json(error.to_string()))?;
    match value {
        Value::Object(fields) => of_fields(fields),
        // Go decodes null into an empty struct
        Value::Null => of_fields(Map::new()),
        _ => Err(bad_json("the body is not a JSON object")),
    }
}

fn of_fields<T: DeserializeOwned>(fields: impl IntoIterator<Item = (String, Value)>) -> Result<T, AuthError> {
    let given: Map<String, Value> = fields
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_lowercase(), value))
        .collect();
    serde_json::from_value(Value::Object(given)).map_err(|error| bad_json(error.to_string()))
}

/// The body of a token request: JSON, or the form that OAuth libraries send (RFC 6749, 4), where
/// every value is a text.
///
/// It is a form if it has that `Content-Type` and names a grant: `curl -d` sends JSON with that
/// type as well.
#[derive(Debug)]
pub struct TokenBody {
    bytes: bytes::Bytes,
    form: Option<Query>,
}

impl FromRequest<Auth> for TokenBody {
    type Rejection = AuthError;

    async fn from_request(request: Request, _auth: &Auth) -> Result<Self, AuthError> {
        let has_form_type = header(request.headers(), "content-type")
            .and_then(|value| value.split(';').next())
            .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded"));
        let bytes = read_body(request).await?;
        let form = std::str::from_utf8(&bytes).ok().filter(|_| has_form_type).map(Query::parse);
        Ok(Self { form: form.filter(|form| form.get("grant_type").is_some()), bytes })
    }
}

impl TokenBody {
    /// Returns the grant that a form names.
    pub fn grant(&self) -> Option<&str> {
        self.form.as_ref()?.get("grant_type")
    }

    /// Parses it by the rules of [`Json`].
    ///
    /// # Errors
    /// 400 `bad_json`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, AuthError> {
        let Some(form) = &self.form else { return parse_json(&self.bytes) };
        if form.pairs().iter().any(|(_, value)| value.contains('\0')) {
            return Err(bad_json(NUL_IN_TEXT));
        }
        of_fields(form.pairs().iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))))
    }
}

fn bad_json(detail: impl std::fmt::Display) -> AuthError {
    ContractError::UnreadableBody { detail: detail.to_string() }.into()
}

const NUL_IN_TEXT: &str = "a text contains the character U+0000";

/// Rejects what the parser accepts but cannot be stored: deep nesting, and NUL characters, which
/// PostgreSQL texts cannot contain.
fn check_shape(text: &str) -> Result<(), &'static str> {
    let (mut depth, mut in_string) = (0usize, false);
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                if bytes[at + 1..].starts_with(b"u0000") {
                    return Err(NUL_IN_TEXT);
                }
                at += 1;
            }
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > MAX_JSON_DEPTH {
                    return Err("it is nested too deeply");
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// The query parameters of a request. The first of a name counts.
#[derive(Debug, Clone, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the query of a URL, or a form body.
    pub fn parse(text: &str) -> Self {
        Self(
            form_urlencoded::parse(text.as_bytes())
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .take(256)
                .collect(),
        )
    }

    /// Returns the value of a parameter, if it is present and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty() && !value.contains('\0'))
    }

    /// Returns all parameters in their order.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }
}

impl FromRequestParts<Auth> for Query {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, _auth: &Auth) -> Result<Self, AuthError> {
        Ok(Self::parse(parts.uri.query().unwrap_or_default()))
    }
}

/// The data of a request that concepts need.
#[derive(Debug, Clone)]
pub struct RequestInfo {
    /// The time of the request, in microseconds as PostgreSQL stores it.
    pub now: OffsetDateTime,
    /// The client's address.
    pub ip: Option<IpAddr>,
    /// The `User-Agent`, truncated; empty without one.
    pub user_agent: String,
    /// The audience of the users that are looked up.
    pub aud: String,
    /// The request itself names its audience.
    pub names_aud: bool,
    /// The version that decides the form of errors.
    pub api_version: ApiVersion,
    /// Base URL of this service, without a slash at the end. A request may choose among configured
    /// hosts.
    pub external_url: String,
    /// The final redirect target: the requested one if allowed, else the referring page, else the
    /// site.
    pub redirect_to: String,
    /// The network of the client, which a browser keeps during a sign-in at a provider. `None`: not
    /// known.
    pub network: Option<String>,
    /// The key of the limits by client address. `None`: they do not apply.
    pub limit_key: Option<String>,
    /// The subject of the request's access token. Its account and session were not checked: it
    /// states for which account the request is meant, and proves nothing.
    pub subject: Option<UserId>,
    /// The caller's token has an administrator's role.
    pub is_operator: bool,
    /// The hooks that were called for the request.
    pub(crate) hooks: HookLedger,
}

impl RequestInfo {
    /// Returns the data of an operation that no request caused.
    pub(crate) fn of_service(auth: &Auth) -> Self {
        let settings = auth.settings();
        Self {
            now: auth.now(),
            ip: None,
            user_agent: String::new(),
            aud: settings.jwt.audience.clone(),
            names_aud: false,
            api_version: ApiVersion::default(),
            external_url: settings.external_url.trim_end_matches('/').to_owned(),
            redirect_to: auth.allow_list().site_url().to_owned(),
            network: None,
            limit_key: None,
            subject: None,
            is_operator: true,
            hooks: HookLedger::new(),
        }
    }

    /// Returns the key under which guesses are counted: that of the limits by client address, else
    /// the network.
    pub fn network_key(&self) -> Option<&str> {
        self.limit_key.as_deref().or(self.network.as_deref())
    }
}

impl FromRequestParts<Auth> for RequestInfo {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        let settings = auth.settings();
        let headers = &parts.headers;
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let requested = header(headers, "redirect_to").or(query.get("redirect_to"));
        let ip = client_ip(parts, settings.sb_forwarded_for);
        // `localhost` has two addresses
        let network = ip.map(|ip| if ip.is_loopback() { "loopback".to_owned() } else { limit_address(ip).to_string() });
        let aud = header(headers, "x-jwt-aud");
        if aud.is_some_and(|aud| aud.len() > MAX_AUDIENCE_BYTES) {
            return Err(ContractError::AudienceTooLong.into());
        }
        let limit_key = limit_key(headers, auth, ip);
        Ok(Self {
            now: auth.now(),
            ip,
            user_agent: headers
                .get(USER_AGENT)
                .map(|value| String::from_utf8_lossy(value.as_bytes()).chars().take(MAX_USER_AGENT_BYTES).collect())
                .unwrap_or_default(),
            aud: aud.map_or_else(|| settings.jwt.audience.clone(), str::to_owned),
            names_aud: aud.is_some(),
            api_version: ApiVersion::parse(header(headers, API_VERSION_HEADER.as_str())),
            external_url: external_url(headers, auth),
            redirect_to: auth
                .allow_list()
                .resolve(requested, headers.get(REFERER).and_then(|value| value.to_str().ok())),
            network,
            limit_key,
            subject: parts
                .extensions
                .get::<Caller>()
                .and_then(|caller| UserId::parse(caller.token.as_ref()?.subject()?)),
            is_operator: parts.extensions.get::<Caller>().is_some_and(|caller| {
                caller.refused.is_none() && settings.jwt.admin_roles.iter().any(|role| role == caller.role())
            }),
            hooks: HookLedger::new(),
        })
    }
}

/// Returns the text of a header, if it is present and not empty.
pub fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim).filter(|value| !value.is_empty())
}

/// Returns the key of the limits by client address: the value of the configured header, else the
/// address if limits by address are enabled or a trusted proxy sent it. So a client cannot avoid
/// limits by address by omitting the header.
fn limit_key(headers: &HeaderMap, auth: &Auth, ip: Option<IpAddr>) -> Option<String> {
    let settings = auth.settings();
    let limits = &settings.rate_limits;
    let named = limits
        .header
        .as_ref()
        .and_then(|name| header(headers, name)?.split(',').next())
        .map(|key| key.trim().chars().take(128).collect::<String>())
        .filter(|key| !key.is_empty());
    let is_forwarded = settings.sb_forwarded_for && forwarded_by_proxy(headers).is_some();
    let addressed = ip.filter(|_| limits.per_address || is_forwarded).map(|ip| limit_address(ip).to_string());
    named.or(addressed)
}

/// Reduces an IPv6 address to its network, since one household has many of them.
fn limit_address(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => {
            let network = u128::from(ip) & !((1u128 << 64) - 1);
            IpAddr::V6(network.into())
        }
        v4 => v4,
    }
}

/// Returns the client's address: the one that the gateway found; without a gateway, the first of
/// `X-Forwarded-For`. If the operator has a proxy that writes `Sb-Forwarded-For`, its first address
/// wins; the gateway removes that header from other clients.
fn client_ip(parts: &Parts, sb_forwarded_for: bool) -> Option<IpAddr> {
    if sb_forwarded_for && let Some(ip) = forwarded_by_proxy(&parts.headers) {
        return Some(ip);
    }
    if let Some(ClientAddress(ip)) = parts.extensions.get::<ClientAddress>() {
        return Some(ip.to_canonical());
    }
    header(&parts.headers, "x-forwarded-for")?.split(',').find_map(|part| part.trim().parse().ok())
}

fn forwarded_by_proxy(headers: &HeaderMap) -> Option<IpAddr> {
    let first = header(headers, "sb-forwarded-for")?.split(',').next()?;
    first.trim().parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

fn external_url(headers: &HeaderMap, auth: &Auth) -> String {
    let settings = auth.settings();
    let configured = settings.external_url.trim_end_matches('/');
    let Some(host) = header(headers, "x-forwarded-host") else {
        return configured.to_owned();
    };
    if !settings.email.external_hosts.iter().any(|known| known.eq_ignore_ascii_case(host)) {
        return configured.to_owned();
    }
    let name = host.split(':').next().unwrap_or_default();
    let scheme = if name == "localhost" || name == "127.0.0.1" { "http" } else { "https" };
    let path = url::Url::parse(configured).map(|url| url.path().trim_end_matches('/').to_owned()).unwrap_or_default();
    format!("{scheme}://{}{path}", host.to_ascii_lowercase())
}

/// The claims of a verified bearer token of any subject.
#[derive(Debug, Clone)]
pub struct Bearer(pub Arc<Claims>);

impl FromRequestParts<Auth> for Bearer {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        if let Some(caller) = parts.extensions.get::<Caller>() {
            if let Some(refused) = &caller.refused {
                return Err(bad_token(refused));
            }
            if let Some(claims) = &caller.token {
                return Ok(Self(claims.clone()));
            }
        }
        let token = bearer_token(&parts.headers).ok_or(ContractError::BearerMissing)?;
        auth.keys().verify(token, auth.now()).map(Self).map_err(|error| bad_token(&error))
    }
}

/// Returns the token of an `Authorization: Bearer` header.
pub fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()))
}

fn bad_token(error: &TokenError) -> AuthError {
    ContractError::InvalidJwt { detail: error.to_string() }.into()
}

/// The signed-in user, whose token, account and session were checked.
#[derive(Debug, Clone)]
pub struct SignedIn {
    /// With identities and factors.
    pub user: User,
    /// `None`: the token belongs to no session.
    pub session: Option<SessionSummary>,
    /// The claims of the token.
    pub claims: Arc<Claims>,
}

impl SignedIn {
    /// Checks a verified token against the database, in one round trip.
    ///
    /// # Errors
    /// 403 for a token, account or session that is not valid, in this order.
    pub async fn check(auth: &Auth, claims: Arc<Claims>) -> Result<Self, AuthError> {
        let subject = claims.subject().filter(|sub| !sub.is_empty()).ok_or(ContractError::SubjectMissing)?;
        let user_id = UserId::parse(subject).ok_or(ContractError::SubjectNotUuid)?;
        let session_claim = claims.session_id().filter(|id| !id.is_empty());
        let session_id = session_claim.map(SessionId::parse);
        let client = auth.database().auth().await?;
        let lookup = session_id.flatten().filter(|id| !id.0.is_nil());
        let found = users::signed_in(&client, user_id, lookup).await?;
        drop(client);
        let Some((user, session)) = found else {
            return Err(ContractError::SubjectGone.into());
        };
        if session_id == Some(None) {
            return Err(ContractError::SessionClaimNotUuid.into());
        }
        if lookup.is_some() && session.is_none() {
            return Err(ContractError::SessionOfTokenGone.into());
        }
        if user.is_banned(auth.now()) {
            return Err(ContractError::Banned.into());
        }
        Ok(Self { user, session, claims })
    }
}

impl FromRequestParts<Auth> for SignedIn {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        let Bearer(claims) = Bearer::from_request_parts(parts, auth).await?;
        Self::check(auth, claims).await
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;
    use crate::error::ErrorCode;

    #[derive(Debug, Deserialize, PartialEq, Default)]
    #[serde(default)]
    struct Body {
        email: String,
        code_challenge: Option<String>,
        data: Option<Map<String, Value>>,
    }

    #[test]
    fn null_is_a_missing_field_and_names_ignore_case() {
        let body: Body = parse_json(br#"{"EMAIL":"a","code_challenge":null,"email":"b","other":[1]}"#).unwrap();
        assert_eq!(body, Body { email: "b".into(), code_challenge: None, data: None });
        assert_eq!(parse_json::<Body>(b"null").unwrap(), Body::default());
    }

    #[test]
    fn a_body_that_is_not_an_object_is_bad_json() {
        let deep = format!(r#"{{"data":{}1{}}}"#, "[".repeat(100), "]".repeat(100));
        for body in [
            b"".as_slice(),
            b"{",
            b"[]",
            b"\"text\"",
            b"{\"email\":1}",
            b"{\"email\":\"\xff\"}",
            br#"{"email":"a\u0000b"}"#,
            br#"{"data":{"a":["\u0000"]}}"#,
            deep.as_bytes(),
        ] {
            let error = parse_json::<Body>(body).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadJson);
            assert!(error.to_string().starts_with("Could not parse request body as JSON: "));
        }
        assert!(parse_json::<Body>(br#"{"email":"a\\u0000b"}"#).is_ok());
    }

    #[test]
    fn the_address_of_the_configured_proxy_wins() {
        let ip = |sb_forwarded_for: bool, value: &'static str| {
            let (mut parts, ()) = http::Request::new(()).into_parts();
            parts.extensions.insert(ClientAddress("192.0.2.1".parse().unwrap()));
            parts.headers.insert("sb-forwarded-for", http::HeaderValue::from_static(value));
            client_ip(&parts, sb_forwarded_for).unwrap().to_string()
        };
        assert_eq!(ip(true, "2001:db8::1, 198.51.100.7"), "2001:db8::1");
        assert_eq!(ip(true, "::ffff:198.51.100.7"), "198.51.100.7");
        for nonsense in ["", "unknown, 198.51.100.7", "198.51.100.7:80"] {
            assert_eq!(ip(true, nonsense), "192.0.2.1", "{nonsense:?}");
        }
        assert_eq!(ip(false, "198.51.100.7"), "192.0.2.1");
    }

    proptest! {
        #[test]
        fn bodies_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[\\[\\]{}\"\\\\u0a:, ]{0,80}") {
            let _ = parse_json::<Body>(&bytes);
            let _ = parse_json::<Body>(text.as_bytes());
            Query::parse(&text);
        }
    }
}
