//! Features that this version does not have. They answer like features that are switched off
//! (auth-advanced 2), so that a client gets a refusal with a code, and not a failure.
//!
//! The order of the checks is the contract's: the switch comes first where a whole feature is
//! behind it, and the caller comes first below `/admin` and `/factors`.

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::routing::{any, delete, get, patch, post};
use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;
use uuid::Uuid;

use crate::Auth;
use crate::http::error::{AuthError, ErrorCode};
use crate::http::extract::{Bearer, Json, RequestInfo, SignedIn};

/// All paths of such features.
pub(crate) fn routes() -> Router<Auth> {
    Router::new().merge(factors()).merge(passkeys()).merge(sso()).merge(oauth_server()).merge(administration())
}

fn factors() -> Router<Auth> {
    Router::new()
        .route("/factors", post(enroll))
        .route("/factors/{id}", delete(factor))
        .route("/factors/{id}/challenge", post(factor))
        .route("/factors/{id}/verify", post(factor))
}

fn passkeys() -> Router<Auth> {
    let off = async || refuse(ErrorCode::PasskeyDisabled, "Passkeys are disabled");
    Router::new()
        .route("/passkeys", get(off))
        .route("/passkeys/{id}", patch(off).delete(off))
        .route("/passkeys/registration/options", post(off))
        .route("/passkeys/registration/verify", post(off))
        .route("/passkeys/authentication/options", post(off))
        .route("/passkeys/authentication/verify", post(off))
}

fn sso() -> Router<Auth> {
    Router::new()
        .route("/sso", post(saml))
        .route("/sso/saml/metadata", get(saml))
        .route("/sso/saml/acs", post(saml))
        .route("/scim/v2/{*path}", any(async || disabled("SCIM server is disabled")))
}

fn oauth_server() -> Router<Auth> {
    Router::new()
        .route("/oauth/authorize", get(oauth))
        .route("/oauth/authorizations/{id}", get(oauth))
        .route("/oauth/authorizations/{id}/consent", post(oauth))
        .route("/oauth/token", post(oauth))
        .route("/oauth/clients/register", post(oauth))
        .route("/oauth/userinfo", get(oauth))
        .route("/user/oauth/grants", get(oauth).delete(oauth))
}

/// Everything below `/admin`, and invitations. Callers are checked although nothing is there yet, so
/// that the answer to others stays the same when it is.
fn administration() -> Router<Auth> {
    let missing = async |_: Operator| disabled("The admin API is disabled");
    let oauth = async |_: Operator| oauth().await;
    let saml = async |_: Operator| saml().await;
    let providers = async |_: Operator| disabled("Custom OAuth providers are disabled");
    Router::new()
        .route("/invite", post(missing))
        .route("/admin/{*path}", any(missing))
        .route("/admin/oauth/clients", get(oauth).post(oauth))
        .route("/admin/oauth/clients/{id}", get(oauth).put(oauth).delete(oauth))
        .route("/admin/oauth/clients/{id}/regenerate_secret", post(oauth))
        .route("/admin/sso/providers", get(saml).post(saml))
        .route("/admin/sso/providers/{id}", get(saml).put(saml).delete(saml))
        .route("/admin/custom-providers", get(providers).post(providers))
        .route("/admin/custom-providers/{id}", get(providers).put(providers).delete(providers))
}

fn refuse(code: ErrorCode, message: &'static str) -> AuthError {
    AuthError::refuse(code, message)
}

fn disabled(message: &'static str) -> AuthError {
    refuse(ErrorCode::FeatureDisabled, message)
}

async fn saml() -> AuthError {
    refuse(ErrorCode::SamlProviderDisabled, "SAML 2.0 is disabled")
}

async fn oauth() -> AuthError {
    disabled("OAuth server is disabled")
}

/// `POST /token?grant_type=web3`
pub(crate) fn web3() -> AuthError {
    refuse(ErrorCode::Web3ProviderDisabled, "Web3 provider is disabled")
}

/// Checks that the caller may use the routes of administrators (auth-advanced 11.1).
struct Operator;

impl FromRequestParts<Auth> for Operator {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        if RequestInfo::from_request_parts(parts, auth).await?.is_operator {
            return Ok(Self);
        }
        Bearer::from_request_parts(parts, auth).await?;
        Err(refuse(ErrorCode::NotAdmin, "User not allowed"))
    }
}

/// Checks that the caller may have factors: is signed in, and not anonymous.
struct FactorOwner;

impl FromRequestParts<Auth> for FactorOwner {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        if SignedIn::from_request_parts(parts, auth).await?.user.is_anonymous {
            return Err(AuthError::refuse_with(
                StatusCode::FORBIDDEN,
                ErrorCode::NoAuthorization,
                "Anonymous user not allowed to perform these actions",
            ));
        }
        Ok(Self)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Enrollment {
    factor_type: String,
}

/// `POST /factors`: refuses every type of factor.
async fn enroll(_: FactorOwner, Json(body): Json<Enrollment>) -> AuthError {
    match body.factor_type.as_str() {
        "totp" => refuse(ErrorCode::MfaTotpEnrollNotEnabled, "MFA enroll is disabled for TOTP"),
        "phone" => refuse(ErrorCode::MfaPhoneEnrollNotEnabled, "MFA enroll is disabled for Phone"),
        "webauthn" => refuse(ErrorCode::MfaWebauthnEnrollNotEnabled, "MFA enroll is disabled for WebAuthn"),
        _ => AuthError::validation("factor_type needs to be totp, phone, or webauthn"),
    }
}

/// The routes of one factor: refuses, since there is none.
async fn factor(_: FactorOwner, Path(id): Path<String>) -> AuthError {
    if Uuid::try_parse(&id).is_err() {
        let text = "factor_id must be an UUID";
        return AuthError::refuse_with(StatusCode::NOT_FOUND, ErrorCode::ValidationFailed, text);
    }
    refuse(ErrorCode::MfaFactorNotFound, "Factor not found")
}
