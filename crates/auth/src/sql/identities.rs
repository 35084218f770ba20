//! `auth.identities`.

use serde_json::Value;
use time::OffsetDateTime;
use tokio_postgres::Error;

use super::{Run, Tx};
use crate::model::ids::{IdentityId, UserId};
use crate::model::{Identity, JsonObject, identity_columns};

statements! {
    const OF_USER = concat!(
        "select ",
        identity_columns!(),
        " from auth.identities where identities.user_id = $1 order by identities.created_at, identities.provider, \
         identities.id"
    );
    const INSERT = concat!(
        "insert into auth.identities
            (id, provider_id, user_id, identity_data, provider, last_sign_in_at, created_at, updated_at)
         values ($1, $2, $3, $4, $5, $6, $6, $6)
         returning ",
        identity_columns!()
    );
    const SET_DATA =
        "update auth.identities set identity_data = $2, last_sign_in_at = $3, updated_at = $3 where id = $1";
    const VERIFY_EMAIL = "
        update auth.identities
           set identity_data = identity_data || '{\"email_verified\": true}', updated_at = $3
         where user_id = $1
           and email = $2
           and (identity_data -> 'email_verified') is distinct from 'true'";
    /// Identities of other providers that do not prove the address.
    const DELETE_UNVERIFIED = "
        delete from auth.identities
         where user_id = $1
           and provider not in ('email', 'phone')
           and ((identity_data ->> 'email_verified') is distinct from 'true' or email is distinct from $2)";
    const DELETE_PHONE = "delete from auth.identities where user_id = $1 and provider = 'phone'";
    /// Inserts or updates the identity that stands for the account's own contact.
    const UPSERT_CONTACT = "
        insert into auth.identities
            (id, provider_id, user_id, identity_data, provider, last_sign_in_at, created_at, updated_at)
        values ($1, $2, $3, $4, $5, $6, $6, $6)
        on conflict (provider_id, provider) do update
           set identity_data = identities.identity_data || excluded.identity_data, updated_at = excluded.updated_at";
    const BY_SUBJECT = concat!(
        "select ",
        identity_columns!(),
        " from auth.identities where identities.provider = $1 and identities.provider_id = $2"
    );
    const KEEP_ONLY = "delete from auth.identities where user_id = $1 and id <> $2";
    const DELETE = "delete from auth.identities where id = $1 and user_id = $2";
    const OBFUSCATE =
        "update auth.identities set identity_data = '{}', provider_id = $2, updated_at = $3 where id = $1";
}

/// Returns the identities of a user, oldest first.
pub async fn of_user(run: &impl Run, user: UserId) -> Result<Vec<Identity>, Error> {
    Ok(run.rows(OF_USER, &[&user]).await?.iter().map(Identity::from_row).collect())
}

/// An identity that is to be inserted.
#[derive(Debug, Clone, Copy)]
pub struct NewIdentity<'a> {
    /// Primary key.
    pub id: IdentityId,
    /// The user.
    pub user: UserId,
    /// `email`, `phone`, `google`, ...
    pub provider: &'a str,
    /// The provider's subject; for email and phone the user's id.
    pub provider_id: &'a str,
    /// Claims. `email` is stored in lower case.
    pub data: &'a JsonObject,
}

/// Adds an identity.
pub async fn insert(tx: &Tx, new: &NewIdentity<'_>, now: OffsetDateTime) -> Result<Identity, Error> {
    let data = Value::Object(with_lower_email(new.data));
    let rows = tx.query(INSERT, &[&new.id, &new.provider_id, &new.user, &data, &new.provider, &now]).await?;
    Ok(Identity::from_row(&rows[0]))
}

/// Replaces the claims.
pub async fn set_data(tx: &Tx, id: IdentityId, data: &JsonObject, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_DATA, &[&id, &Value::Object(with_lower_email(data)), &now]).await.map(drop)
}

/// Marks the address as verified in the identities that carry it.
pub async fn verify_email(tx: &Tx, user: UserId, email: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(VERIFY_EMAIL, &[&user, &email, &now]).await.map(drop)
}

/// Deletes identities of providers that do not prove the address.
pub async fn delete_unverified(tx: &Tx, user: UserId, email: &str) -> Result<(), Error> {
    tx.execute(DELETE_UNVERIFIED, &[&user, &email]).await.map(drop)
}

/// Deletes the identity of a number.
pub async fn delete_phone(tx: &Tx, user: UserId) -> Result<(), Error> {
    tx.execute(DELETE_PHONE, &[&user]).await.map(drop)
}

/// Inserts the `email` or `phone` identity of a user, or updates the one that exists, whose id
/// stays.
pub async fn upsert_contact(tx: &Tx, new: &NewIdentity<'_>, now: OffsetDateTime) -> Result<(), Error> {
    let data = Value::Object(with_lower_email(new.data));
    tx.execute(UPSERT_CONTACT, &[&new.id, &new.provider_id, &new.user, &data, &new.provider, &now]).await.map(drop)
}

fn with_lower_email(data: &JsonObject) -> JsonObject {
    let mut data = data.clone();
    if let Some(Value::String(email)) = data.get_mut("email") {
        *email = email.to_lowercase();
    }
    data
}

/// Returns the identity of a subject of a provider.
pub async fn by_subject(run: &impl Run, provider: &str, subject: &str) -> Result<Option<Identity>, Error> {
    Ok(run.rows(BY_SUBJECT, &[&provider, &subject]).await?.first().map(Identity::from_row))
}

/// Deletes every other identity of a user.
pub async fn keep_only(tx: &Tx, user: UserId, keep: IdentityId) -> Result<(), Error> {
    tx.execute(KEEP_ONLY, &[&user, &keep]).await.map(drop)
}

/// Replaces the personal data of an identity of a deleted account.
pub async fn obfuscate(tx: &Tx, id: IdentityId, provider_id: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(OBFUSCATE, &[&id, &provider_id, &now]).await.map(drop)
}

/// Deletes an identity of a user. Returns true if there was one.
pub async fn delete(tx: &Tx, id: IdentityId, user: UserId) -> Result<bool, Error> {
    Ok(tx.execute(DELETE, &[&id, &user]).await? > 0)
}
