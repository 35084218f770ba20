//! The documents that other services need to verify access tokens: the public keys, and the
//! discovery document.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CACHE_CONTROL;
use serde_json::{Value, json};

use crate::Auth;
use crate::error::{AuthError, ContractError};

/// Clients may cache both for ten minutes. A new key is published at least that long before it
/// signs.
const CACHED: &str = "public, max-age=600";

fn cached(body: Value) -> Response {
    ([(CACHE_CONTROL, CACHED)], axum::Json(body)).into_response()
}

/// `GET /.well-known/jwks.json`
pub(crate) async fn jwks(State(auth): State<Auth>) -> Response {
    cached(auth.keys().jwks())
}

/// `GET /.well-known/openid-configuration`
pub(crate) async fn openid_configuration(State(auth): State<Auth>) -> Response {
    let settings = auth.settings();
    let configured = match settings.jwt.issuer.is_empty() {
        true => &settings.external_url,
        false => &settings.jwt.issuer,
    };
    let issuer = configured.trim_end_matches('/');
    // Those that every client expects, and those of the own keys
    let ring = auth.keys().ring();
    let mut algorithms = vec!["RS256", "HS256", "ES256"];
    for key in ring.keys() {
        let name = key.algorithm().name();
        if !algorithms.contains(&name) {
            algorithms.push(name);
        }
    }
    cached(json!({
        "issuer": configured,
        "authorization_endpoint": format!("{issuer}/oauth/authorize"),
        "token_endpoint": format!("{issuer}/oauth/token"),
        "jwks_uri": format!("{issuer}/.well-known/jwks.json"),
        "userinfo_endpoint": format!("{issuer}/oauth/userinfo"),
        "scopes_supported": ["openid", "profile", "email", "phone", "offline_access"],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms,
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
        "claims_supported": [
            "sub", "aud", "iss", "exp", "iat", "auth_time", "nonce", "email", "email_verified", "phone_number",
            "phone_number_verified", "name", "picture", "preferred_username", "updated_at",
        ],
        "code_challenge_methods_supported": ["S256", "plain"],
    }))
}

/// `GET /.well-known/oauth-authorization-server`: rejected, since there is no OAuth server.
pub(crate) async fn oauth_authorization_server() -> AuthError {
    AuthError::from(ContractError::OauthServerOff)
}
