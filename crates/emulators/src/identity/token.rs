//! The token, userinfo and revocation endpoints.

use axum::{
    Json,
    extract::{RawForm, State},
    response::{IntoResponse, Response},
};
use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use portico_base::hash;
use serde_json::{Map, Value, json};

use super::{
    IdentityProvider,
    account::Account,
    grant::{Exchange, Grant, IssuedTokens, TOKEN_LIFETIME},
    key,
};

/// An error response of RFC 6749.
struct TokenEndpointError {
    status: StatusCode,
    error: &'static str,
    text: String,
}

impl TokenEndpointError {
    fn new(error: &'static str, text: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error, text: text.into() }
    }
}

impl IntoResponse for TokenEndpointError {
    fn into_response(self) -> Response {
        let body = Json(json!({"error": self.error, "error_description": self.text}));
        let mut response = (self.status, [(header::CACHE_CONTROL, "no-store")], body).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"token\""));
        }
        response
    }
}

struct Form(Vec<(String, String)>);

impl Form {
    fn read(body: &[u8]) -> Self {
        Self(form_urlencoded::parse(body).into_owned().take(32).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn needed(&self, name: &str) -> Result<&str, TokenEndpointError> {
        self.get(name)
            .filter(|value| !value.is_empty())
            .ok_or_else(|| TokenEndpointError::new("invalid_request", format!("The parameter {name} is missing.")))
    }
}

/// `POST /token`
pub(super) async fn token(
    State(provider): State<IdentityProvider>,
    headers: HeaderMap,
    RawForm(body): RawForm,
) -> Response {
    match respond(&provider, &headers, &Form::read(&body)).await {
        Ok(body) => ([(header::CACHE_CONTROL, "no-store")], Json(body)).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn respond(provider: &IdentityProvider, headers: &HeaderMap, form: &Form) -> Result<Value, TokenEndpointError> {
    check_client(provider, headers, form)?;
    let now = provider.inner.clock.now();
    let issued = match form.needed("grant_type")? {
        "authorization_code" => {
            let challenge = form
                .get("code_verifier")
                .map(|verifier| BASE64_URL_SAFE_NO_PAD.encode(hash::sha256(verifier.as_bytes())));
            let exchange =
                Exchange { code: form.needed("code")?, redirect_uri: form.needed("redirect_uri")?, challenge };
            provider.grants().exchange(&exchange, now).map_err(|text| TokenEndpointError::new("invalid_grant", text))?
        }
        "refresh_token" => provider.grants().refresh(form.needed("refresh_token")?, now).ok_or_else(|| {
            TokenEndpointError::new("invalid_grant", "The refresh token is not known or was revoked.")
        })?,
        other => {
            let text = format!("The grant type {:?} is not supported.", other.chars().take(64).collect::<String>());
            return Err(TokenEndpointError::new("unsupported_grant_type", text));
        }
    };
    let account = provider.accounts().find(&issued.grant.sub).cloned();
    let account = account.ok_or_else(|| TokenEndpointError::new("invalid_grant", "The account was removed."))?;
    let mut body = json!({
        "access_token": issued.access_token,
        "expires_in": TOKEN_LIFETIME.whole_seconds() - 1,
        "scope": issued.grant.scope,
        "token_type": "Bearer",
    });
    // Google treats email and profile as asking for openid
    if ["openid", "email", "profile"].iter().any(|scope| has_scope(&issued.grant, scope)) {
        let key = key::get().await.map_err(server_error)?;
        body["id_token"] = key.sign(&id_token(provider, &issued, &account)).map_err(server_error)?.into();
    }
    if let Some(refresh_token) = issued.refresh_token {
        body["refresh_token"] = refresh_token.into();
    }
    Ok(body)
}

fn server_error(error: key::KeyFailure) -> TokenEndpointError {
    tracing::error!(error = %error, "a token could not be signed");
    TokenEndpointError { status: StatusCode::INTERNAL_SERVER_ERROR, error: "server_error", text: error.to_string() }
}

/// Checks the client's proof, in the header or in the form; never both.
fn check_client(provider: &IdentityProvider, headers: &HeaderMap, form: &Form) -> Result<(), TokenEndpointError> {
    let settings = &provider.inner.settings;
    let basic = headers.get(header::AUTHORIZATION).map(|value| basic(value).unwrap_or_default());
    let (id, secret) = match basic {
        Some(pair) => pair,
        None => (
            form.get("client_id").unwrap_or_default().to_owned(),
            form.get("client_secret").unwrap_or_default().to_owned(),
        ),
    };
    if id == settings.client_id && settings.client_secret == *secret {
        return Ok(());
    }
    let text =
        format!("The client id or secret is wrong. This stand-in expects the client id {:?}.", settings.client_id);
    Err(TokenEndpointError { status: StatusCode::UNAUTHORIZED, error: "invalid_client", text })
}

fn basic(header: &HeaderValue) -> Option<(String, String)> {
    let (scheme, encoded) = header.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (id, secret) = pair.split_once(':')?;
    // RFC 6749, 2.3.1: both are form-encoded before they are joined
    let decode = |text: &str| {
        percent_encoding::percent_decode_str(&text.replace('+', " ")).decode_utf8().ok().map(|text| text.into_owned())
    };
    Some((decode(id)?, decode(secret)?))
}

fn has_scope(grant: &Grant, wanted: &str) -> bool {
    grant.scope.split_whitespace().any(|scope| {
        scope == wanted
            || scope.strip_prefix("https://www.googleapis.com/auth/userinfo.").is_some_and(|name| name == wanted)
    })
}

fn id_token(provider: &IdentityProvider, issued: &IssuedTokens, account: &Account) -> Value {
    let settings = &provider.inner.settings;
    let now = provider.inner.clock.now();
    let mut claims = Map::new();
    claims.insert("iss".to_owned(), settings.issuer.clone().into());
    claims.insert("azp".to_owned(), settings.client_id.clone().into());
    claims.insert("aud".to_owned(), settings.client_id.clone().into());
    claims.extend(person(provider, &issued.grant, account));
    let at_hash = BASE64_URL_SAFE_NO_PAD.encode(&hash::sha256(issued.access_token.as_bytes())[..16]);
    claims.insert("at_hash".to_owned(), at_hash.into());
    if let Some(nonce) = &issued.grant.nonce {
        claims.insert("nonce".to_owned(), nonce.clone().into());
    }
    claims.insert("iat".to_owned(), now.unix_timestamp().into());
    claims.insert("exp".to_owned(), (now + TOKEN_LIFETIME).unix_timestamp().into());
    Value::Object(claims)
}

/// Returns the claims about the account that the scope permits.
fn person(provider: &IdentityProvider, grant: &Grant, account: &Account) -> Map<String, Value> {
    let mut claims = Map::new();
    let mut tell = |name: &str, value: Value| claims.insert(name.to_owned(), value);
    tell("sub", account.sub.clone().into());
    if let Some(domain) = &grant.hosted_domain {
        tell("hd", domain.clone().into());
    }
    if has_scope(grant, "email") {
        tell("email", account.email.clone().into());
        tell("email_verified", account.email_verified.into());
    }
    if has_scope(grant, "profile") {
        tell("name", account.name.clone().into());
        tell("picture", provider.url(&format!("/avatar/{}.svg", account.sub)).into());
        tell("given_name", account.given_name().into());
        if let Some(family) = account.family_name() {
            tell("family_name", family.into());
        }
        tell("locale", "en".into());
    }
    claims
}

/// `GET` or `POST /userinfo`
pub(super) async fn userinfo(State(provider): State<IdentityProvider>, headers: HeaderMap) -> Response {
    let token = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    let grant = token.and_then(|token| provider.grants().access(token, provider.inner.clock.now()).cloned());
    let known = grant.and_then(|grant| {
        let account = provider.accounts().find(&grant.sub).cloned()?;
        Some(person(&provider, &grant, &account))
    });
    match known {
        Some(claims) => ([(header::CACHE_CONTROL, "no-store")], Json(Value::Object(claims))).into_response(),
        None => (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, "Bearer error=\"invalid_token\"")],
            Json(json!({"error": "invalid_token", "error_description": "The access token is missing, expired or revoked."})),
        )
            .into_response(),
    }
}

/// `POST /revoke`: a token that is not known is revoked already (RFC 7009).
pub(super) async fn revoke(State(provider): State<IdentityProvider>, RawForm(body): RawForm) -> Response {
    match Form::read(&body).needed("token") {
        Ok(token) => {
            provider.grants().revoke(token);
            Json(json!({})).into_response()
        }
        Err(error) => error.into_response(),
    }
}
