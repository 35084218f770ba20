//! `auth.custom_oauth_providers`: providers that an administrator added at run time.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::{Run, Tx};
use crate::model::Timestamp;

/// The columns of [`CustomProvider::from_row`].
macro_rules! provider_columns {
    () => {
        "providers.provider_type, providers.identifier, providers.client_id, providers.client_secret, \
         providers.acceptable_client_ids, providers.scopes, providers.pkce_enabled, providers.attribute_mapping, \
         providers.authorization_params, providers.enabled, providers.email_optional, providers.issuer, \
         providers.discovery_url, providers.skip_nonce_check, providers.authorization_url, providers.token_url, \
         providers.userinfo_url, providers.custom_claims_allowlist, providers.id, providers.name, \
         providers.cached_discovery, providers.discovery_cached_at, providers.jwks_uri, providers.created_at, \
         providers.updated_at"
    };
}

statements! {
    const BY_NAME = concat!(
        "select ",
        provider_columns!(),
        " from auth.custom_oauth_providers as providers where providers.identifier = $1"
    );
    const LOCK_BY_NAME = concat!(
        "select ",
        provider_columns!(),
        " from auth.custom_oauth_providers as providers where providers.identifier = $1 for update"
    );
    const LIST = concat!(
        "select ",
        provider_columns!(),
        " from auth.custom_oauth_providers as providers
         where $1::text is null or providers.provider_type = $1
         order by providers.created_at desc, providers.id"
    );
    const LOCK = "lock table auth.custom_oauth_providers in share row exclusive mode";
    const COUNT = "select count(*) from auth.custom_oauth_providers";
    const INSERT = "
        insert into auth.custom_oauth_providers
            (id, provider_type, identifier, name, client_id, client_secret, acceptable_client_ids, scopes, pkce_enabled,
             attribute_mapping, authorization_params, enabled, email_optional, issuer, discovery_url, skip_nonce_check,
             cached_discovery, discovery_cached_at, authorization_url, token_url, userinfo_url, jwks_uri,
             custom_claims_allowlist, created_at, updated_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
                $23, $24, $25)";
    /// Type, identifier and time of creation are fixed.
    const REPLACE = "
        update auth.custom_oauth_providers
           set name = $2,
               client_id = $3,
               client_secret = $4,
               acceptable_client_ids = $5,
               scopes = $6,
               pkce_enabled = $7,
               attribute_mapping = $8,
               authorization_params = $9,
               enabled = $10,
               email_optional = $11,
               issuer = $12,
               discovery_url = $13,
               skip_nonce_check = $14,
               cached_discovery = $15,
               discovery_cached_at = $16,
               authorization_url = $17,
               token_url = $18,
               userinfo_url = $19,
               jwks_uri = $20,
               custom_claims_allowlist = $21,
               updated_at = $22
         where id = $1";
    const DELETE = "delete from auth.custom_oauth_providers where id = $1";
}

/// A row of the table.
#[derive(Clone)]
pub struct CustomProvider {
    /// Primary key.
    pub id: Uuid,
    /// The provider is an OpenID Connect issuer; otherwise it is plain OAuth 2.
    pub is_oidc: bool,
    /// `custom:acme`
    pub identifier: String,
    /// The name for people.
    pub name: String,
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
    /// The discovery document as it was when the provider was stored.
    pub cached_discovery: Option<Value>,
    /// The time at which the document was read.
    pub discovery_cached_at: Option<OffsetDateTime>,
    /// Of a plain OAuth 2 provider.
    pub authorization_url: Option<String>,
    /// Of a plain OAuth 2 provider.
    pub token_url: Option<String>,
    /// Of a plain OAuth 2 provider.
    pub userinfo_url: Option<String>,
    /// Of a plain OAuth 2 provider.
    pub jwks_uri: Option<String>,
    /// The raw claims that are kept.
    pub custom_claims_allowlist: Vec<String>,
    /// The time of creation.
    pub created_at: OffsetDateTime,
    /// The time of the last change.
    pub updated_at: OffsetDateTime,
}

impl CustomProvider {
    fn from_row(row: &Row) -> Self {
        let object = |at: usize| match row.get(at) {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        Self {
            is_oidc: row.get::<_, &str>(0) == "oidc",
            identifier: row.get(1),
            client_id: row.get(2),
            client_secret: row.get(3),
            acceptable_client_ids: row.get(4),
            scopes: row.get(5),
            pkce_enabled: row.get(6),
            attribute_mapping: object(7),
            authorization_params: object(8),
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
            name: row.get(19),
            cached_discovery: row.get(20),
            discovery_cached_at: row.get(21),
            jwks_uri: row.get(22),
            created_at: row.get(23),
            updated_at: row.get(24),
        }
    }

    fn provider_type(&self) -> &'static str {
        if self.is_oidc { "oidc" } else { "oauth2" }
    }
}

impl std::fmt::Debug for CustomProvider {
    // The secret is not shown
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CustomProvider").field("identifier", &self.identifier).finish_non_exhaustive()
    }
}

impl Serialize for CustomProvider {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("provider_type", self.provider_type())?;
        map.serialize_entry("identifier", &self.identifier)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("client_id", &self.client_id)?;
        map.serialize_entry("acceptable_client_ids", &self.acceptable_client_ids)?;
        map.serialize_entry("scopes", &self.scopes)?;
        map.serialize_entry("pkce_enabled", &self.pkce_enabled)?;
        map.serialize_entry("attribute_mapping", &self.attribute_mapping)?;
        map.serialize_entry("custom_claims_allowlist", &self.custom_claims_allowlist)?;
        map.serialize_entry("authorization_params", &self.authorization_params)?;
        map.serialize_entry("enabled", &self.enabled)?;
        map.serialize_entry("email_optional", &self.email_optional)?;
        map.serialize_entry("skip_nonce_check", &self.skip_nonce_check)?;
        if let Some(document) = &self.cached_discovery {
            map.serialize_entry("discovery_document", document)?;
        }
        for (name, url) in [
            ("issuer", &self.issuer),
            ("discovery_url", &self.discovery_url),
            ("authorization_url", &self.authorization_url),
            ("token_url", &self.token_url),
            ("userinfo_url", &self.userinfo_url),
            ("jwks_uri", &self.jwks_uri),
        ] {
            if let Some(url) = url {
                map.serialize_entry(name, url)?;
            }
        }
        map.serialize_entry("created_at", &Timestamp(self.created_at))?;
        map.serialize_entry("updated_at", &Timestamp(self.updated_at))?;
        map.end()
    }
}

/// Returns the provider with that name.
pub async fn by_name(run: &impl Run, name: &str) -> Result<Option<CustomProvider>, Error> {
    Ok(run.rows(BY_NAME, &[&name]).await?.first().map(CustomProvider::from_row))
}

/// Returns the row of [`by_name`], locked until the transaction ends.
pub async fn lock_by_name(tx: &Tx, name: &str) -> Result<Option<CustomProvider>, Error> {
    Ok(tx.rows(LOCK_BY_NAME, &[&name]).await?.first().map(CustomProvider::from_row))
}

/// Returns the providers of a type (`oauth2` or `oidc`), or all, the newest first.
pub async fn list(run: &impl Run, provider_type: Option<&str>) -> Result<Vec<CustomProvider>, Error> {
    Ok(run.rows(LIST, &[&provider_type]).await?.iter().map(CustomProvider::from_row).collect())
}

/// Returns the number of providers, which does not change until the transaction ends.
pub async fn lock_and_count(tx: &Tx) -> Result<i64, Error> {
    tx.execute(LOCK, &[]).await?;
    Ok(tx.query(COUNT, &[]).await?[0].get(0))
}

/// Inserts a provider.
pub async fn insert(tx: &Tx, new: &CustomProvider) -> Result<(), Error> {
    tx.execute(
        INSERT,
        &[
            &new.id,
            &new.provider_type(),
            &new.identifier,
            &new.name,
            &new.client_id,
            &new.client_secret,
            &new.acceptable_client_ids,
            &new.scopes,
            &new.pkce_enabled,
            &Value::Object(new.attribute_mapping.clone()),
            &Value::Object(new.authorization_params.clone()),
            &new.enabled,
            &new.email_optional,
            &new.issuer,
            &new.discovery_url,
            &new.skip_nonce_check,
            &new.cached_discovery,
            &new.discovery_cached_at,
            &new.authorization_url,
            &new.token_url,
            &new.userinfo_url,
            &new.jwks_uri,
            &new.custom_claims_allowlist,
            &new.created_at,
            &new.updated_at,
        ],
    )
    .await
    .map(drop)
}

/// Replaces the values of a provider.
pub async fn replace(tx: &Tx, changed: &CustomProvider) -> Result<(), Error> {
    tx.execute(
        REPLACE,
        &[
            &changed.id,
            &changed.name,
            &changed.client_id,
            &changed.client_secret,
            &changed.acceptable_client_ids,
            &changed.scopes,
            &changed.pkce_enabled,
            &Value::Object(changed.attribute_mapping.clone()),
            &Value::Object(changed.authorization_params.clone()),
            &changed.enabled,
            &changed.email_optional,
            &changed.issuer,
            &changed.discovery_url,
            &changed.skip_nonce_check,
            &changed.cached_discovery,
            &changed.discovery_cached_at,
            &changed.authorization_url,
            &changed.token_url,
            &changed.userinfo_url,
            &changed.jwks_uri,
            &changed.custom_claims_allowlist,
            &changed.updated_at,
        ],
    )
    .await
    .map(drop)
}

/// Deletes a provider. Returns true if there was one.
pub async fn delete(tx: &Tx, id: Uuid) -> Result<bool, Error> {
    Ok(tx.execute(DELETE, &[&id]).await? > 0)
}
