//! `portico.signing_keys`: the signing keys that all servers on the database share.
//!
//! Only the owner of schema `portico` may read or write it, so these statements run on a connection
//! of [`Database::service`](portico_database::Database::service).

use time::OffsetDateTime;
use tokio_postgres::{Error, GenericClient, Row};

use crate::signing_keys::state::KeyState;

/// The channel on which changes are announced.
pub const CHANNEL: &str = "portico_signing_keys";

statements! {
    const SELECT = "
        select id, algorithm, state, jwk, created_at, in_use_since, retired_at, revoked_at
          from portico.signing_keys
         order by created_at, id";
    /// One change at a time: two rotations at once would leave the first one's key without effect.
    const LOCK = "lock table portico.signing_keys in share row exclusive mode";
    const NOTIFY = "notify portico_signing_keys";
    const INSERT = "
        insert into portico.signing_keys (id, algorithm, state, jwk, created_at)
        values ($1, $2, 'standby', $3, $4)";
    const STORE_JWK = "update portico.signing_keys set jwk = $2 where id = $1";
    const RETIRE = "
        update portico.signing_keys
           set state = 'previously_used', retired_at = $1
         where state = 'in_use'";
    const USE = "
        update portico.signing_keys
           set state = 'in_use', in_use_since = $2, retired_at = null
         where id = $1";
    const REVOKE = "
        insert into portico.signing_keys (id, algorithm, state, created_at, revoked_at)
        values ($1, $2, 'revoked', $3, $3)
            on conflict (id) do update
           set state = 'revoked', jwk = null, revoked_at = excluded.revoked_at";
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningKeyRow {
    /// `kid`
    pub id: String,
    /// The registered name.
    pub algorithm: String,
    /// The state.
    pub state: KeyState,
    /// The encrypted JWK; `None` once the key is revoked.
    pub jwk: Option<String>,
    /// The time of creation.
    pub created_at: OffsetDateTime,
    /// The last time at which it began to sign.
    pub in_use_since: Option<OffsetDateTime>,
    /// The last time at which it ceased to sign.
    pub retired_at: Option<OffsetDateTime>,
    /// The time at which its tokens became invalid.
    pub revoked_at: Option<OffsetDateTime>,
}

impl SigningKeyRow {
    fn of(row: &Row) -> Self {
        Self {
            id: row.get(0),
            algorithm: row.get(1),
            state: KeyState::parse(row.get(2)),
            jwk: row.get(3),
            created_at: row.get(4),
            in_use_since: row.get(5),
            retired_at: row.get(6),
            revoked_at: row.get(7),
        }
    }
}

/// Returns all rows, the oldest first.
pub async fn all_rows(client: &impl GenericClient) -> Result<Vec<SigningKeyRow>, Error> {
    Ok(client.query(SELECT, &[]).await?.iter().map(SigningKeyRow::of).collect())
}

/// Waits for the end of another change and keeps further ones out until the end of the transaction,
/// which then announces the change.
pub async fn begin_change(tx: &impl GenericClient) -> Result<(), Error> {
    tx.batch_execute(LOCK).await?;
    tx.batch_execute(NOTIFY).await
}

/// Adds a standby key.
pub async fn insert(
    tx: &impl GenericClient,
    id: &str,
    algorithm: &str,
    jwk: &str,
    now: OffsetDateTime,
) -> Result<(), Error> {
    tx.execute(INSERT, &[&id, &algorithm, &jwk, &now]).await.map(drop)
}

/// Stores a JWK that was encrypted anew.
pub async fn store_jwk(tx: &impl GenericClient, id: &str, jwk: &str) -> Result<(), Error> {
    tx.execute(STORE_JWK, &[&id, &jwk]).await.map(drop)
}

/// Makes the key in use, if a row is that, a previously used one.
pub async fn retire(tx: &impl GenericClient, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(RETIRE, &[&now]).await.map(drop)
}

/// Makes a key the one in use. No other may be.
pub async fn use_key(tx: &impl GenericClient, id: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(USE, &[&id, &now]).await.map(drop)
}

/// Revokes a key and deletes its JWK. A configured key gets a row.
pub async fn revoke(tx: &impl GenericClient, id: &str, algorithm: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(REVOKE, &[&id, &algorithm, &now]).await.map(drop)
}
