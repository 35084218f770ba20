//! `/admin/custom-providers`: identity providers that are added at run time.

mod address;
mod attributes;
mod document;

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use http::StatusCode;
use http::request::Parts;
use serde_json::{Value, json};

use crate::Auth;
use crate::admin::administrator::Administrator;
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::http::extract::{self, Query, RequestInfo};
use crate::sql::Tx;
use crate::sql::custom_providers::{self, CustomProvider};
use attributes::ProviderAttributes;

/// An administrator, where custom providers are enabled.
pub(crate) struct ProviderAdministrator;

impl FromRequestParts<Auth> for ProviderAdministrator {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        Administrator::from_request_parts(parts, auth).await?;
        if auth.settings().custom_providers.enabled {
            Ok(Self)
        } else {
            Err(ContractError::CustomProvidersAdminOff.into())
        }
    }
}

/// `GET /admin/custom-providers`
pub(crate) async fn list(
    State(auth): State<Auth>,
    _: ProviderAdministrator,
    query: Query,
) -> Result<Json<Value>, AuthError> {
    let provider_type = query.get("type");
    if provider_type.is_some_and(|name| !matches!(name, "oauth2" | "oidc")) {
        return Err(ContractError::ProviderTypeFilterUnknown.into());
    }
    let client = auth.database().client().await?;
    let providers = custom_providers::list(&client, provider_type).await?;
    drop(client);
    Ok(Json(json!({"providers": providers})))
}

/// `POST /admin/custom-providers`
pub(crate) async fn create(
    State(auth): State<Auth>,
    _: ProviderAdministrator,
    request: RequestInfo,
    extract::Json(body): extract::Json<ProviderAttributes>,
) -> Result<(StatusCode, Json<CustomProvider>), AuthError> {
    body.check_creation()?;
    address::check_all(&auth, body.urls()).await?;
    let mut provider = body.into_provider(request.now);
    provider.client_secret = auth.columns().encrypt(provider.id, &provider.client_secret);
    // Before the transaction: it holds a connection
    document::attach(&auth, &mut provider, request.now).await?;
    let tx = Tx::begin(auth.database()).await?;
    if let Some(most) = auth.settings().custom_providers.max_providers
        && custom_providers::lock_and_count(&tx).await? >= i64::from(most.get())
    {
        return Err(ContractError::TooManyCustomProviders.into());
    }
    custom_providers::insert(&tx, &provider)
        .await
        .on_constraint("custom_oauth_providers_identifier_key", ContractError::CustomProviderExists)?;
    tx.commit().await?;
    evict_issuer(&auth, &provider);
    Ok((StatusCode::CREATED, Json(provider)))
}

/// `GET /admin/custom-providers/{identifier}`
pub(crate) async fn get(
    State(auth): State<Auth>,
    _: ProviderAdministrator,
    Path(identifier): Path<String>,
) -> Result<Json<CustomProvider>, AuthError> {
    find(&auth, &identifier).await.map(Json)
}

/// `PUT /admin/custom-providers/{identifier}`
pub(crate) async fn put(
    State(auth): State<Auth>,
    _: ProviderAdministrator,
    request: RequestInfo,
    Path(identifier): Path<String>,
    extract::Json(body): extract::Json<ProviderAttributes>,
) -> Result<Json<CustomProvider>, AuthError> {
    let before = find(&auth, &identifier).await?;
    body.check_change()?;
    address::check_all(&auth, body.urls()).await?;
    let discovered = match before.is_oidc && body.changes_issuer() {
        true => {
            let mut planned = before.clone();
            body.apply(&mut planned);
            document::attach(&auth, &mut planned, request.now).await?;
            Some((planned.cached_discovery, planned.discovery_cached_at))
        }
        false => None,
    };
    let tx = Tx::begin(auth.database()).await?;
    let mut provider =
        custom_providers::lock_by_name(&tx, &before.identifier).await?.ok_or(ContractError::CustomProviderGone)?;
    body.apply(&mut provider);
    if let Some(secret) = body.new_secret() {
        provider.client_secret = auth.columns().encrypt(provider.id, secret);
    }
    if let Some((document, at)) = discovered {
        (provider.cached_discovery, provider.discovery_cached_at) = (document, at);
    }
    provider.updated_at = request.now;
    custom_providers::replace(&tx, &provider).await?;
    tx.commit().await?;
    evict_issuer(&auth, &before);
    evict_issuer(&auth, &provider);
    Ok(Json(provider))
}

/// `DELETE /admin/custom-providers/{identifier}`
pub(crate) async fn delete(
    State(auth): State<Auth>,
    _: ProviderAdministrator,
    Path(identifier): Path<String>,
) -> Result<StatusCode, AuthError> {
    let provider = find(&auth, &identifier).await?;
    let tx = Tx::begin(auth.database()).await?;
    if !custom_providers::delete(&tx, provider.id).await? {
        return Err(ContractError::CustomProviderGone.into());
    }
    tx.commit().await?;
    evict_issuer(&auth, &provider);
    Ok(StatusCode::NO_CONTENT)
}

async fn find(auth: &Auth, identifier: &str) -> Result<CustomProvider, AuthError> {
    if identifier.contains('\0') {
        return Err(ContractError::CustomProviderGone.into());
    }
    let client = auth.database().client().await?;
    custom_providers::by_name(&client, identifier).await?.ok_or_else(|| ContractError::CustomProviderGone.into())
}

/// Makes the next sign-in read the documents of the provider again.
fn evict_issuer(auth: &Auth, provider: &CustomProvider) {
    if let Some(issuer) = document::issuer(provider) {
        auth.provider_connections().issuers.evict(&issuer);
    }
}
