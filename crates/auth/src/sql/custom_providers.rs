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
    /// An OpenID Connect issuer, else plain OAuth 2.
    pub is_oidc: bool,
    /// `custom:acme`
    pub identifier: String,
    /// Ours there.
    pub client_id: String,
    /// Ours there; may be sealed.
    pub client_secret: String,
    /// Further audiences of id_tokens.
    pub acceptable_client_ids: Vec<String>,
    /// What is asked for.
    pub scopes: Vec<String>,
    /// We send a proof key.
    pub pkce_enabled: bool,
    /// Target claim to source claim, or a literal.
    pub attribute_mapping: Map<String, Value>,
    /// Sent to the authorize page.
    pub authorization_params: Map<String, Value>,
    /// It may be used.
    pub enabled: bool,
    /// Accounts without an e-mail address may sign in.
    pub email_optional: bool,
    /// Of an OpenID Connect provider.
    pub issuer: Option<String>,
    /// Where its document is, if not at the usual place.
    pub discovery_url: Option<String>,
    /// Accept id_tokens without a nonce check.
    pub skip_nonce_check: bool,
    /// Of a plain OAuth 2 provider.
    pub authorization_url: Option<String>,
    /// Of a plain OAuth 2 provider.
    pub token_url: Option<String>,
    /// Of a plain OAuth 2 provider.
    pub userinfo_url: Option<String>,
    /// Raw claims to keep.
    pub custom_claims_allowlist: Vec<String>,
}

/// The provider of that name.
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
