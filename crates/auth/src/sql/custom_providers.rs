//! `auth.custom_oauth_providers`: providers that an administrator added at run time.

use serde_json::{Map, Value};
use tokio_postgres::Error;
use uuid::Uuid;

use super::Run;

statements! {
    const BY_NAME = "
        select providers.provider_type, providers.identifier, providers.client_id, providers.client_secret,
               providers.acceptable_client_ids, providers.scopes, providers.pkce_enabled, providers.attribute_mapping,
               providers.authorization_params, providers.enabled, providers.email_optional, providers.issuer,
               providers.discovery_url, providers.skip_nonce_check, providers.authorization_url, providers.token_url,
               providers.userinfo_url, providers.custom_claims_allowlist,
               providers.id
          from auth.custom_oauth_providers as providers
         where providers.identifier = $1";
}

/// A row of the table.
pub struct CustomProvider {
    /// Primary key.
    pub id: Uuid,
    /// The provider is an OpenID Connect issuer; otherwise it is plain OAuth 2.
    pub is_oidc: bool,
    /// `custom:acme`
    pub identifier: String,
    /// The client id of this project at the provider.
    pub client_id: String,
    /// The client secret; may be encrypted.
    pub client_secret: String,
    /// Further audiences of id_tokens.
    pub acceptable_client_ids: Vec<String>,
    /// The requested scopes.
    pub scopes: Vec<String>,
    /// The flow uses a proof key.
    pub pkce_enabled: bool,
    /// Maps each target claim to a source claim or a literal.
    pub attribute_mapping: Map<String, Value>,
    /// Parameters for the authorization page.
    pub authorization_params: Map<String, Value>,
    /// The provider may be used.
    pub enabled: bool,
    /// Accounts without an email address may sign in.
    pub email_optional: bool,
    /// The issuer of an OpenID Connect provider.
    pub issuer: Option<String>,
    /// The address of the discovery document, if it is not the usual one.
    pub discovery_url: Option<String>,
    /// The nonce of id_tokens is not checked.
    pub skip_nonce_check: bool,
    /// Of a plain OAuth 2 provider.
    pub authorization_url: Option<String>,
    /// Of a plain OAuth 2 provider.
    pub token_url: Option<String>,
    /// Of a plain OAuth 2 provider.
    pub userinfo_url: Option<String>,
    /// The raw claims that are kept.
    pub custom_claims_allowlist: Vec<String>,
}

/// Returns the provider with that name.
pub async fn by_name(run: &impl Run, name: &str) -> Result<Option<CustomProvider>, Error> {
    let object = |value: Value| match value {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    Ok(run.rows(BY_NAME, &[&name]).await?.first().map(|row| CustomProvider {
        is_oidc: row.get::<_, &str>(0) == "oidc",
        identifier: row.get(1),
        client_id: row.get(2),
        client_secret: row.get(3),
        acceptable_client_ids: row.get(4),
        scopes: row.get(5),
        pkce_enabled: row.get(6),
        attribute_mapping: object(row.get(7)),
        authorization_params: object(row.get(8)),
        enabled: row.get(9),
        email_optional: row.get(10),
        issuer: row.get(11),
        discovery_url: row.get(12),
        skip_nonce_check: row.get(13),
        authorization_url: row.get(14),
        token_url: row.get(15),
        userinfo_url: row.get(16),
        custom_claims_allowlist: row.get(17),
        id: row.get(18),
    }))
}
