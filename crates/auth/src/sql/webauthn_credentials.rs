//! `auth.webauthn_credentials`: passkeys.

use serde_json::Value;
use time::OffsetDateTime;
use tokio_postgres::Error;
use uuid::Uuid;

use super::{Params, Run, Tx};
use crate::model::ids::{PasskeyId, UserId};
use crate::model::{Passkey, passkey_columns};
use crate::webauthn::{Assertion, NewCredential};

statements! {
    const OF_USER = concat!(
        "select ",
        passkey_columns!(),
        " from auth.webauthn_credentials as passkeys
         where passkeys.user_id = $1
         order by passkeys.created_at, passkeys.id"
    );
    const LOCK_BY_CREDENTIAL = concat!(
        "select ",
        passkey_columns!(),
        " from auth.webauthn_credentials as passkeys
         where passkeys.credential_id = $1 and passkeys.user_id = $2
         for no key update"
    );
    /// Without a row for a credential that is registered already, by this user or another one.
    const INSERT = concat!(
        "insert into auth.webauthn_credentials as passkeys
            (id, user_id, credential_id, public_key, attestation_type, aaguid, sign_count, transports,
             backup_eligible, backed_up, friendly_name, created_at, updated_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12)
         on conflict (credential_id) do nothing
         returning ",
        passkey_columns!()
    );
    /// The counter never decreases: an authenticator that reports a lower one is tolerated.
    const RECORD_USE = "
        update auth.webauthn_credentials
           set sign_count = greatest(sign_count, $2), backed_up = $3, last_used_at = $4, updated_at = $4
         where id = $1";
    const RENAME = concat!(
        "update auth.webauthn_credentials as passkeys
           set friendly_name = $3, updated_at = $4
         where passkeys.id = $1 and passkeys.user_id = $2
         returning ",
        passkey_columns!()
    );
    const DELETE = concat!(
        "delete from auth.webauthn_credentials as passkeys
          where passkeys.id = $1 and passkeys.user_id = $2
         returning ",
        passkey_columns!()
    );
    const DELETE_ALL = "delete from auth.webauthn_credentials where user_id = $1";
}

/// Returns the passkeys of a user, oldest first.
pub(crate) async fn of_user(run: &impl Run, user: UserId) -> Result<Vec<Passkey>, Error> {
    Ok(run.rows(OF_USER, &[&user]).await?.iter().map(Passkey::from_row).collect())
}

/// Returns the user's passkey with this credential, and locks it until the transaction ends.
pub(crate) async fn lock_by_credential(
    tx: &Tx,
    credential_id: &[u8],
    user: UserId,
) -> Result<Option<Passkey>, Error> {
    Ok(tx.query_opt(LOCK_BY_CREDENTIAL, &[&credential_id, &user]).await?.as_ref().map(Passkey::from_row))
}

/// Adds a passkey. `None`: its credential is registered already.
pub(crate) async fn insert(
    tx: &Tx,
    user: UserId,
    credential: &NewCredential,
    friendly_name: &str,
    now: OffsetDateTime,
) -> Result<Option<Passkey>, Error> {
    let aaguid = Some(Uuid::from_bytes(credential.aaguid)).filter(|aaguid| !aaguid.is_nil());
    let transports = Value::from(credential.transports.clone());
    let row: Params<'_> = &[
        &PasskeyId::random(),
        &user,
        &credential.id,
        &credential.public_key,
        &credential.attestation_format,
        &aaguid,
        &i64::from(credential.sign_count),
        &transports,
        &credential.is_backup_eligible,
        &credential.is_backed_up,
        &friendly_name,
        &now,
    ];
    Ok(tx.query_opt(INSERT, row).await?.as_ref().map(Passkey::from_row))
}

/// Records a sign-in with a passkey.
pub(crate) async fn record_use(
    tx: &Tx,
    id: PasskeyId,
    assertion: &Assertion,
    now: OffsetDateTime,
) -> Result<(), Error> {
    tx.execute(RECORD_USE, &[&id, &i64::from(assertion.sign_count), &assertion.is_backed_up, &now]).await.map(drop)
}

/// Renames a passkey of the user. `None`: the user has no such passkey.
pub(crate) async fn rename(
    tx: &Tx,
    id: PasskeyId,
    user: UserId,
    friendly_name: &str,
    now: OffsetDateTime,
) -> Result<Option<Passkey>, Error> {
    Ok(tx.query_opt(RENAME, &[&id, &user, &friendly_name, &now]).await?.as_ref().map(Passkey::from_row))
}

/// Deletes a passkey of the user and returns it. `None`: the user has no such passkey.
pub(crate) async fn delete(tx: &Tx, id: PasskeyId, user: UserId) -> Result<Option<Passkey>, Error> {
    Ok(tx.query_opt(DELETE, &[&id, &user]).await?.as_ref().map(Passkey::from_row))
}

/// Deletes the passkeys of a user.
pub(crate) async fn delete_all(tx: &Tx, user: UserId) -> Result<(), Error> {
    tx.execute(DELETE_ALL, &[&user]).await.map(drop)
}
