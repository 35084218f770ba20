//! An OpenID provider in Google's place: a true authorization-code flow with signed `id_token`s, in
//! which the person at the development machine chooses an account.
//!
//! # Endpoints, below the issuer
//!
//! | Path | What |
//! | --- | --- |
//! | `/.well-known/openid-configuration`, `/jwks` | discovery and the public key (RS256) |
//! | `/authorize` | the account chooser (GET or POST) |
//! | `/authorize/decision` | the chooser's forms post here |
//! | `/token`, `/userinfo`, `/revoke` | as discovery tells |
//! | `/avatar/{sub}.svg` | `picture` of an account |
//!
//! # Driving the chooser without a browser
//!
//! `POST {issuer}/authorize/decision`, form-encoded, with the field `request` (the query string of
//! the authorization request, exactly as it would have been sent to `/authorize`) and one of:
//!
//! | Fields | Effect |
//! | --- | --- |
//! | `account=<sub or email>` | signs in as an account that exists |
//! | `action=add`, `name`, `email`, optionally `unverified=on` | makes the account (or changes the one with this address) and signs in |
//! | `action=cancel` | the person declines: `error=access_denied` |
//! | `action=fail` | the provider breaks: `error=server_error` |
//! | `forget=<sub>` | removes the account and shows the chooser again |
//!
//! The response is a 303 to the `redirect_uri`. `prompt=none` with a `login_hint` that is a known
//! address signs in without the page; without one the response is `login_required`.

mod account;
mod authorize;
mod error;
mod grant;
mod key;
mod page;
mod token;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, State},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::{StatusCode, header};
use portico_base::{AllowedOrigins, Clock, Secret};
use serde_json::{Value, json};

use crate::Development;
use crate::admission::{self, AdmissionRules};
pub use error::IdentityProviderError;

use account::Accounts;
use grant::Grants;

/// The client id that the emulated Google knows.
pub const GOOGLE_CLIENT_ID: &str = "portico-development.apps.googleusercontent.com";

/// The client's secret. It protects nothing: it is public.
pub const GOOGLE_CLIENT_SECRET: &str = "portico-development-secret";

/// The provider's identity and its clients.
#[derive(Debug, Clone)]
pub struct IdentityProviderSettings {
    /// Public URL of the router, such as `http://127.0.0.1:54321/emulators/google`, without a slash
    /// at the end.
    pub issuer: String,
    /// The one client.
    pub client_id: String,
    /// Its secret.
    pub client_secret: Secret,
    /// The allowed redirect targets, compared exactly.
    pub redirect_uris: Vec<String>,
    /// The file that keeps the accounts; without one they are forgotten with the program.
    pub accounts: Option<PathBuf>,
    /// The people whose accounts exist from the start: name and address.
    pub people: Vec<(String, String)>,
}

impl Default for IdentityProviderSettings {
    /// Makes the published client; the issuer and the redirect targets are to be filled in.
    fn default() -> Self {
        Self {
            issuer: String::new(),
            client_id: GOOGLE_CLIENT_ID.to_owned(),
            client_secret: Secret::new(GOOGLE_CLIENT_SECRET),
            redirect_uris: Vec::new(),
            accounts: None,
            people: Vec::new(),
        }
    }
}

impl IdentityProviderSettings {
    /// Returns the settings of Google's stand-in with the published client, sending people back to
    /// `callback`.
    pub fn google(issuer: impl Into<String>, callback: impl Into<String>) -> Self {
        Self { issuer: issuer.into(), redirect_uris: vec![callback.into()], ..Self::default() }
    }
}

/// The provider. Clones are the same provider.
#[derive(Clone)]
pub struct IdentityProvider {
    inner: Arc<IdentityProviderState>,
}

struct IdentityProviderState {
    settings: IdentityProviderSettings,
    accounts: Mutex<Accounts>,
    grants: Mutex<Grants>,
    clock: Clock,
}

impl IdentityProvider {
    /// Prepares the provider. Its signing key is made when it is first needed.
    ///
    /// # Errors
    ///
    /// [`IdentityProviderError`] if the issuer is no URL, or the file of accounts cannot be read.
    pub fn new(
        _: Development,
        mut settings: IdentityProviderSettings,
        clock: Clock,
    ) -> Result<Self, IdentityProviderError> {
        settings.issuer.truncate(settings.issuer.trim_end_matches('/').len());
        let usable = url::Url::parse(&settings.issuer).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https") && url.query().is_none() && url.fragment().is_none()
        });
        if !usable {
            return Err(IdentityProviderError::Issuer(settings.issuer));
        }
        let mut accounts = Accounts::load(settings.accounts.clone())?;
        accounts.add_missing(&settings.people);
        Ok(Self {
            inner: Arc::new(IdentityProviderState {
                settings,
                accounts: Mutex::new(accounts),
                grants: Mutex::new(Grants::default()),
                clock,
            }),
        })
    }

    /// Returns the endpoints, to be mounted where the issuer says: for programs, and for pages of
    /// this machine and of `origins`. Pages of other websites are rejected, and no page may read
    /// the responses to calls across origins.
    pub fn router(&self, origins: AllowedOrigins) -> Router {
        let admission = AdmissionRules { origins, shares: false };
        Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/jwks", get(jwks))
            .route("/authorize", get(authorize::show).post(authorize::show_posted))
            .route("/authorize/decision", post(authorize::decide))
            .route("/token", post(token::token))
            .route("/userinfo", get(token::userinfo).post(token::userinfo))
            .route("/revoke", post(token::revoke))
            .route("/avatar/{file}", get(avatar))
            .route("/style.css", get(page::style))
            .layer(DefaultBodyLimit::max(64 << 10))
            .layer(middleware::from_fn_with_state(admission, admission::admit))
            .with_state(self.clone())
    }

    /// Returns the settings.
    pub fn settings(&self) -> &IdentityProviderSettings {
        &self.inner.settings
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.inner.settings.issuer)
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.inner.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grants(&self) -> MutexGuard<'_, Grants> {
        self.inner.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `GET /.well-known/openid-configuration`
async fn discovery(State(provider): State<IdentityProvider>) -> Json<Value> {
    Json(json!({
        "issuer": provider.inner.settings.issuer,
        "authorization_endpoint": provider.url("/authorize"),
        "token_endpoint": provider.url("/token"),
        "userinfo_endpoint": provider.url("/userinfo"),
        "revocation_endpoint": provider.url("/revoke"),
        "jwks_uri": provider.url("/jwks"),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "scopes_supported": ["openid", "email", "profile"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        "claims_supported": [
            "aud", "at_hash", "azp", "email", "email_verified", "exp", "family_name", "given_name", "hd", "iat", "iss", "locale",
            "name", "nonce", "picture", "sub",
        ],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
    }))
}

/// `GET /jwks`
async fn jwks() -> Response {
    match key::get().await {
        Ok(key) => Json(key.jwks()).into_response(),
        Err(error) => error.into_response(),
    }
}

/// `GET /avatar/{sub}.svg`
async fn avatar(State(provider): State<IdentityProvider>, Path(file): Path<String>) -> Response {
    let account = file.strip_suffix(".svg").and_then(|sub| provider.accounts().find(sub).cloned());
    match account {
        Some(account) => (
            [
                (header::CONTENT_TYPE, "image/svg+xml"),
                (header::CONTENT_SECURITY_POLICY, "default-src 'none'"),
                (header::CACHE_CONTROL, "no-cache"),
                (http::HeaderName::from_static("cross-origin-resource-policy"), "cross-origin"),
            ],
            page::avatar(&account),
        )
            .into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
