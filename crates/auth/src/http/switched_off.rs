//! Features that this version does not have. They respond like disabled features, so that a client
//! receives an error with a code.
//!
//! The order of the checks is that of the reference: for a whole feature the check that it is
//! enabled comes first; below `/admin` and `/factors` the check of the caller does.

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::routing::{any, delete, get, patch, post};
use http::request::Parts;
use serde::Deserialize;
use uuid::Uuid;

use crate::Auth;
use crate::admin::administrator::Administrator;
use crate::error::{AuthError, ContractError};
use crate::http::extract::{Json, SignedIn};

/// Returns the routes of these features.
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
    let off = async || AuthError::from(ContractError::PasskeysOff);
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
        .route("/scim/v2/{*path}", any(async || AuthError::from(ContractError::ScimOff)))
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

/// Returns the routes below `/admin`, and of invitations. Callers are checked already, so that the
/// responses to other callers do not change when these features are added.
fn administration() -> Router<Auth> {
    let missing = async |_: Administrator| AuthError::from(ContractError::AdminApiOff);
    let oauth = async |_: Administrator| oauth().await;
    let saml = async |_: Administrator| saml().await;
    let providers = async |_: Administrator| AuthError::from(ContractError::CustomProvidersAdminOff);
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

async fn saml() -> AuthError {
    ContractError::SamlOff.into()
}

async fn oauth() -> AuthError {
    ContractError::OauthServerOff.into()
}

/// `POST /token?grant_type=web3`
pub(crate) fn web3() -> AuthError {
    ContractError::Web3Off.into()
}

/// Checks that the caller may have factors: is signed in, and not anonymous.
struct FactorOwner;

impl FromRequestParts<Auth> for FactorOwner {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        if SignedIn::from_request_parts(parts, auth).await?.user.is_anonymous {
            return Err(ContractError::AnonymousNotAllowed.into());
        }
        Ok(Self)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Enrollment {
    factor_type: String,
}

/// `POST /factors`: rejects every type of factor.
async fn enroll(_: FactorOwner, Json(body): Json<Enrollment>) -> AuthError {
    let error = match body.factor_type.as_str() {
        "totp" => ContractError::TotpEnrollOff,
        "phone" => ContractError::PhoneEnrollOff,
        "webauthn" => ContractError::WebauthnEnrollOff,
        _ => ContractError::FactorTypeUnknown,
    };
    error.into()
}

/// The routes of one factor: rejected, since there is none.
async fn factor(_: FactorOwner, Path(id): Path<String>) -> AuthError {
    if Uuid::try_parse(&id).is_err() {
        return ContractError::FactorIdNotUuid.into();
    }
    ContractError::FactorUnknown.into()
}
