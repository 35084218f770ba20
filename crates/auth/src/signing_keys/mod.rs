//! The signing keys of access tokens: those of the configuration, and those that an operator makes
//! while servers run.
//!
//! A key is made as *standby* (it verifies and is published), becomes the one *in use* (it signs),
//! then *previously used* (it verifies), then *revoked*. So a rotation ends no session, and nodes
//! that learn of it at different moments accept each other's tokens. Made keys are in
//! `portico.signing_keys`, encrypted with a key of the operator's; without one in use the
//! configured key signs.

mod follow;
pub(crate) mod state;

use std::sync::Arc;

use aws_lc_rs::digest;
use portico_base::{Clock, Secret, random};
use portico_database::{Database, DatabaseError};
use portico_tokens::{Algorithm, ApiKeyError, ApiKeys, CurrentKeys, KeptKey, KeyError, KeyRing, SECRET_ID, SigningKey};
use serde::Serialize;
use time::{Duration, OffsetDateTime};
use tokio_postgres::GenericClient;
use uuid::Uuid;

use crate::protection::column_encryption::{ColumnKeys, DecryptError};
use crate::settings::{EncryptionSettings, SettingsError};
use crate::sql::signing_keys::{self as sql, SigningKeyRow};

pub use follow::{KeyFollower, follow};
pub use state::KeyState;

/// The algorithms of keys that can be made.
pub const ALGORITHMS: [Algorithm; 4] = [Algorithm::Es256, Algorithm::Rs256, Algorithm::EdDsa, Algorithm::Hs256];

/// The time after which caches of the published keys contain a new one: ten minutes in caches that
/// honour the header, and as long in the client library.
pub const PUBLICATION_TIME: Duration = Duration::minutes(20);

/// The lifetime of API keys that stand in for those of a revoked secret.
const API_KEY_LIFETIME: Duration = Duration::days(3650);
/// The issuer of these API keys.
const API_KEY_ISSUER: &str = "supabase";
/// Keys that are not revoked, at most: each is tried for a token without a `kid`.
const MAX_KEYS: usize = 32;

/// A key as an operator sees it.
#[derive(Debug, Clone, Serialize)]
pub struct SigningKeySummary {
    /// `kid` of its tokens; [`SECRET_ID`] for the JWT secret, whose tokens have none.
    pub id: String,
    /// The registered name of the algorithm.
    pub algorithm: String,
    /// The state.
    pub state: KeyState,
    /// True if it comes from the configuration.
    pub configured: bool,
    /// The time of creation, if it is known.
    #[serde(with = "time::serde::rfc3339::option")]
    pub created_at: Option<OffsetDateTime>,
    /// The last time at which it began to sign.
    #[serde(with = "time::serde::rfc3339::option")]
    pub in_use_since: Option<OffsetDateTime>,
    /// The last time at which it ceased to sign.
    #[serde(with = "time::serde::rfc3339::option")]
    pub retired_at: Option<OffsetDateTime>,
    /// The time at which its tokens became invalid.
    #[serde(with = "time::serde::rfc3339::option")]
    pub revoked_at: Option<OffsetDateTime>,
}

/// The reasons for which an operation on signing keys fails.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeyError {
    /// There is no key to rotate to.
    #[error("there is no standby key: make one with `portico keys create`")]
    NoStandbyKey,
    /// No key has this id.
    #[error("there is no key {0:?}: `portico keys list` shows all")]
    UnknownKey(String),
    /// The key cannot be rotated to.
    #[error(
        "the key {0:?} is {1}: only a standby or previously used key, or the configured signing key, can be put in use"
    )]
    NotUsable(String, &'static str),
    /// The key is in use.
    #[error("the key {0:?} is in use: put another one in use with `portico keys rotate` first")]
    InUse(String),
    /// The JWT secret also signs the legacy API keys.
    #[error(
        "the JWT secret has signed the anon and service_role API keys as well: with it they become invalid. If no \
         application uses them, add --with-api-keys (publishable and secret keys stay valid)"
    )]
    SignsApiKeys,
    /// There are too many keys.
    #[error("there are {MAX_KEYS} keys already: revoke those whose tokens have expired")]
    TooManyKeys,
    /// The algorithm of the key is not accepted.
    #[error("{0} is not among [auth] jwt_valid_methods in supabase/portico.toml, so its tokens would be rejected")]
    MethodNotAccepted(&'static str),
    /// A stored key cannot be read.
    #[error(
        "the signing key {id} cannot be read: {source}. Restore the [auth.encryption] key or the JWT secret with which \
         it was stored, or put another key in use with `portico keys rotate`"
    )]
    Unreadable {
        /// The key.
        id: String,
        /// The error.
        #[source]
        source: UnreadableKey,
    },
    /// The keys do not go together.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The legacy API keys could not be signed.
    #[error(transparent)]
    ApiKeys(#[from] ApiKeyError),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl From<tokio_postgres::Error> for SigningKeyError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error.into())
    }
}

/// The reasons for which a stored key cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableKey {
    /// It cannot be decrypted.
    #[error("{0}")]
    Encryption(String),
    /// It is not a key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl From<DecryptError> for UnreadableKey {
    fn from(error: DecryptError) -> Self {
        Self::Encryption(error.to_string())
    }
}

/// The outcome of a rotation.
#[derive(Debug, Clone, Serialize)]
pub struct Rotation {
    /// The key that signs now.
    pub in_use: String,
    /// The key that signed before.
    pub previously_used: String,
    /// The time until which caches may not contain the key yet. `None`: they do.
    #[serde(with = "time::serde::rfc3339::option")]
    pub published_at: Option<OffsetDateTime>,
}

/// The signing keys of a server: the configured ones, and those in its database.
pub struct SigningKeys {
    database: Database,
    columns: ColumnKeys,
    configured: Arc<KeyRing>,
    api: Arc<ApiKeys>,
    clock: Clock,
}

/// The keys of a server's configuration.
#[derive(Debug, Clone)]
pub struct ConfiguredKeys {
    /// The key ring that signs and verifies access tokens.
    pub ring: Arc<KeyRing>,
    /// The API keys.
    pub api: Arc<ApiKeys>,
    /// The HS256 secret.
    pub jwt_secret: Secret,
}

impl SigningKeys {
    /// Returns the keys of a server with this configuration and database. Stored keys are encrypted
    /// with the operator's current encryption key, else with one that is derived from the JWT
    /// secret.
    ///
    /// # Errors
    /// When an encryption key is not usable.
    pub fn new(
        database: Database,
        encryption: &EncryptionSettings,
        configured: ConfiguredKeys,
        clock: Clock,
    ) -> Result<Self, SettingsError> {
        let ConfiguredKeys { ring, api, jwt_secret } = configured;
        let columns = ColumnKeys::with_derived_key(encryption, &jwt_secret)?;
        Ok(Self { database, columns, configured: ring, api, clock })
    }

    /// Puts the keys in force as they are now.
    ///
    /// # Errors
    /// When the database does not respond, or the key in use cannot be read.
    pub async fn load_into(&self, current: &CurrentKeys) -> Result<(), SigningKeyError> {
        let (ring, api) = self.assemble(&self.rows().await?)?;
        current.replace(ring, api);
        Ok(())
    }

    async fn rows(&self) -> Result<Vec<SigningKeyRow>, SigningKeyError> {
        let client = self.database.login_client().await?;
        Ok(sql::all_rows(&**client).await?)
    }

    /// Returns the key ring and the API keys that follow from the rows.
    fn assemble(&self, rows: &[SigningKeyRow]) -> Result<(Arc<KeyRing>, Arc<ApiKeys>), SigningKeyError> {
        let mut kept = Vec::new();
        for row in rows.iter().filter(|row| row.state != KeyState::Revoked) {
            match self.read(row) {
                Ok(key) => kept.push(KeptKey { key: Arc::new(key), signs: row.state == KeyState::InUse }),
                Err(source) if row.state == KeyState::InUse => {
                    return Err(SigningKeyError::Unreadable { id: row.id.clone(), source });
                }
                Err(error) => {
                    tracing::error!(key = row.id, error = %error, "a signing key cannot be read: its tokens are rejected");
                }
            }
        }
        let revoked = rows.iter().filter(|row| row.state == KeyState::Revoked);
        let revoked: Vec<String> = revoked.map(|row| row.id.clone()).collect();
        if kept.is_empty() && revoked.is_empty() {
            return Ok((Arc::clone(&self.configured), Arc::clone(&self.api)));
        }
        let ring = self.configured.with_kept_keys(kept, &revoked)?;
        // The opaque keys stand for the legacy tokens, which must be valid
        let api = match ring.has_secret() {
            true => Arc::clone(&self.api),
            false => Arc::new(self.resigned_api_keys(&ring)?),
        };
        Ok((Arc::new(ring), api))
    }

    fn resigned_api_keys(&self, ring: &KeyRing) -> Result<ApiKeys, SigningKeyError> {
        let expires = self.clock.now() + API_KEY_LIFETIME;
        Ok(ApiKeys::mint(ring, API_KEY_ISSUER, expires, self.api.publishable(), self.api.secret())?)
    }

    fn read(&self, row: &SigningKeyRow) -> Result<SigningKey, UnreadableKey> {
        let stored = row.jwk.as_deref().ok_or(KeyError::Member("jwk"))?;
        let jwk = self.columns.decrypt_sealed(encryption_id(&row.id), stored)?.text;
        let jwk = serde_json::from_str(&jwk).map_err(|_| KeyError::Member("jwk"))?;
        let key = SigningKey::parse_jwk(&jwk)?;
        match key.id() == Some(&row.id) {
            true => Ok(key),
            false => Err(KeyError::Member("kid").into()),
        }
    }

    /// Returns all keys: the configured ones, then the made ones, each group the oldest first.
    ///
    /// # Errors
    /// When the database does not respond.
    pub async fn list(&self) -> Result<Vec<SigningKeySummary>, SigningKeyError> {
        let rows = self.rows().await?;
        let is_kept_in_use = rows.iter().any(|row| row.state == KeyState::InUse);
        let row_of = |id: &str| rows.iter().find(|row| row.id == id);
        let configured = self.configured_keys().map(|(id, algorithm)| {
            let revoked = row_of(id).filter(|row| row.state == KeyState::Revoked);
            let signs = id == self.configured.signing_id();
            let state = match (revoked, signs) {
                (Some(_), _) => KeyState::Revoked,
                (None, true) if is_kept_in_use => KeyState::PreviouslyUsed,
                (None, true) => KeyState::InUse,
                (None, false) => KeyState::VerifyOnly,
            };
            SigningKeySummary {
                id: id.to_owned(),
                algorithm: algorithm.name().to_owned(),
                state,
                configured: true,
                created_at: None,
                in_use_since: None,
                retired_at: None,
                revoked_at: revoked.and_then(|row| row.revoked_at),
            }
        });
        let is_configured = |id: &str| self.configured_keys().any(|(known, _)| known == id);
        let made = rows.iter().filter(|row| !is_configured(&row.id)).map(|row| SigningKeySummary {
            id: row.id.clone(),
            algorithm: row.algorithm.clone(),
            state: row.state,
            configured: false,
            created_at: Some(row.created_at),
            in_use_since: row.in_use_since,
            retired_at: row.retired_at,
            revoked_at: row.revoked_at,
        });
        Ok(configured.chain(made).collect())
    }

    /// Returns the configured keys that have a name, with their algorithms.
    fn configured_keys(&self) -> impl Iterator<Item = (&str, Algorithm)> {
        let named = self.configured.keys().filter_map(|key| Some((key.id()?, key.algorithm())));
        named.chain(self.configured.has_secret().then_some((SECRET_ID, Algorithm::Hs256)))
    }

    /// Makes a standby key, and returns its id.
    ///
    /// # Errors
    /// When the algorithm is not accepted, there are too many keys, or the database fails.
    pub async fn create(&self, algorithm: Algorithm) -> Result<String, SigningKeyError> {
        if !self.configured.accepts_method(algorithm) {
            return Err(SigningKeyError::MethodNotAccepted(algorithm.name()));
        }
        let id = random::uuid().hyphenated().to_string();
        let jwk = portico_tokens::generate_jwk(algorithm, &id)?;
        let sealed = self.columns.encrypt(encryption_id(&id), &jwk.to_string());
        let now = self.clock.now();
        let mut client = self.database.login_client().await?;
        let tx = client.transaction().await?;
        sql::begin_change(&*tx).await?;
        let rows = sql::all_rows(&*tx).await?;
        if rows.iter().filter(|row| row.state != KeyState::Revoked).count() >= MAX_KEYS {
            return Err(SigningKeyError::TooManyKeys);
        }
        self.seal_anew(&*tx, &rows).await?;
        sql::insert(&*tx, &id, algorithm.name(), &sealed, now).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// Puts the key `to`, by default the oldest standby key, in use. The one that was in use still
    /// verifies.
    ///
    /// # Errors
    /// When there is no such key, it cannot sign, or the database fails.
    pub async fn rotate(&self, to: Option<&str>) -> Result<Rotation, SigningKeyError> {
        let now = self.clock.now();
        let mut client = self.database.login_client().await?;
        let tx = client.transaction().await?;
        sql::begin_change(&*tx).await?;
        let rows = sql::all_rows(&*tx).await?;
        let before = rows.iter().find(|row| row.state == KeyState::InUse).map(|row| row.id.as_str());
        let before = before.unwrap_or(self.configured.signing_id());
        let standby = rows.iter().find(|row| row.state == KeyState::Standby).map(|row| row.id.as_str());
        let target = to.or(standby).ok_or(SigningKeyError::NoStandbyKey)?;
        let row = rows.iter().find(|row| row.id == target);
        let unusable = |why| SigningKeyError::NotUsable(target.to_owned(), why);
        if target == before {
            return Err(unusable("in use"));
        }
        self.seal_anew(&*tx, &rows).await?;
        match row {
            Some(row) if row.state == KeyState::Revoked => return Err(unusable("revoked")),
            Some(row) => {
                let unreadable = |source| SigningKeyError::Unreadable { id: row.id.clone(), source };
                let algorithm = self.read(row).map_err(unreadable)?.algorithm();
                if !self.configured.accepts_method(algorithm) {
                    return Err(SigningKeyError::MethodNotAccepted(algorithm.name()));
                }
                sql::retire(&*tx, now).await?;
                sql::use_key(&*tx, target, now).await?;
            }
            None if target == self.configured.signing_id() => sql::retire(&*tx, now).await?,
            None if self.configured_keys().any(|(id, _)| id == target) => {
                return Err(unusable("for verification only"));
            }
            None => return Err(SigningKeyError::UnknownKey(target.to_owned())),
        }
        tx.commit().await?;
        let published_at = row.map(|row| row.created_at + PUBLICATION_TIME).filter(|time| *time > now);
        Ok(Rotation { in_use: target.to_owned(), previously_used: before.to_owned(), published_at })
    }

    /// Makes all tokens of a key invalid, and deletes it. `with_api_keys` permits to revoke the JWT
    /// secret, with the legacy API keys.
    ///
    /// # Errors
    /// When there is no such key, it is in use, or the database fails.
    pub async fn revoke(&self, id: &str, with_api_keys: bool) -> Result<(), SigningKeyError> {
        let now = self.clock.now();
        let mut client = self.database.login_client().await?;
        let tx = client.transaction().await?;
        sql::begin_change(&*tx).await?;
        let rows = sql::all_rows(&*tx).await?;
        let in_use = rows.iter().find(|row| row.state == KeyState::InUse).map(|row| row.id.as_str());
        let row = rows.iter().find(|row| row.id == id);
        let algorithm = match (row, self.configured_keys().find(|(known, _)| *known == id)) {
            (Some(row), _) => row.algorithm.clone(),
            (None, Some((_, algorithm))) => algorithm.name().to_owned(),
            (None, None) => return Err(SigningKeyError::UnknownKey(id.to_owned())),
        };
        if in_use.unwrap_or(self.configured.signing_id()) == id {
            return Err(SigningKeyError::InUse(id.to_owned()));
        }
        if id == SECRET_ID && !with_api_keys {
            return Err(SigningKeyError::SignsApiKeys);
        }
        if row.is_none_or(|row| row.state != KeyState::Revoked) {
            sql::revoke(&*tx, id, &algorithm, now).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// Encrypts keys with the current encryption key that are encrypted with an earlier one.
    async fn seal_anew(&self, tx: &impl GenericClient, rows: &[SigningKeyRow]) -> Result<(), SigningKeyError> {
        for row in rows {
            let Some(stored) = &row.jwk else { continue };
            let id = encryption_id(&row.id);
            // A key that cannot be read stays as it is
            let Ok(opened) = self.columns.decrypt_sealed(id, stored) else { continue };
            if opened.is_outdated {
                sql::store_jwk(tx, &row.id, &self.columns.encrypt(id, &opened.text)).await?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKeys").field("configured", &self.configured).finish_non_exhaustive()
    }
}

/// Returns the id that a key is encrypted for, so that a value copied into another row cannot be
/// decrypted.
fn encryption_id(id: &str) -> Uuid {
    let hash = digest::digest(&digest::SHA256, id.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_ref()[..16]);
    Uuid::from_bytes(bytes)
}
