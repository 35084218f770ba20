//! Features that this version does not have. They respond like disabled features, so that a client
//! receives an error with a code.
//!
//! The order of the checks is that of the reference: for a whole feature the check that it is
//! enabled comes first; below `/admin` the check of the caller does.

use axum::Router;
use axum::routing::{any, get, post};

use crate::Auth;
use crate::admin::administrator::Administrator;
use crate::error::{AuthError, ContractError};

/// Returns the routes of these features.
pub(crate) fn routes() -> Router<Auth> {
    Router::new().merge(sso()).merge(oauth_server()).merge(administration())
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

/// Returns the routes below `/admin`. Callers are checked already, so that the responses to other
/// callers do not change when these features are added.
fn administration() -> Router<Auth> {
    let oauth = async |_: Administrator| oauth().await;
    let saml = async |_: Administrator| saml().await;
    Router::new()
        .route("/admin/oauth/clients", get(oauth).post(oauth))
        .route("/admin/oauth/clients/{id}", get(oauth).put(oauth).delete(oauth))
        .route("/admin/oauth/clients/{id}/regenerate_secret", post(oauth))
        .route("/admin/sso/providers", get(saml).post(saml))
        .route("/admin/sso/providers/{id}", get(saml).put(saml).delete(saml))
}

async fn saml() -> AuthError {
    ContractError::SamlOff.into()
}

async fn oauth() -> AuthError {
    ContractError::OauthServerOff.into()
}
