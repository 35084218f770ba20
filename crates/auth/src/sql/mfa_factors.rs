//! `auth.mfa_factors`.

use serde_json::Value;
use time::OffsetDateTime;
use tokio_postgres::Error;
use uuid::Uuid;

use super::{Run, Tx};
use crate::model::ids::{FactorId, PhoneNumber, UserId};
use crate::model::{Factor, factor_columns};

statements! {
    const OF_USER = concat!(
        "select ",
        factor_columns!(),
        " from auth.mfa_factors as factors where factors.user_id = $1 order by factors.created_at, factors.id"
    );
    const LOCK = concat!(
        "select ",
        factor_columns!(),
        " from auth.mfa_factors as factors where factors.id = $1 for no key update"
    );
    const INSERT = "
        insert into auth.mfa_factors
            (id, user_id, friendly_name, factor_type, status, created_at, updated_at, secret, phone)
        values ($1, $2, $3, $4::text::auth.factor_type, 'unverified', $5, $5, $6, $7)";
    const SECRET = "select secret from auth.mfa_factors where id = $1";
    const SET_SECRET = "update auth.mfa_factors set secret = $2 where id = $1";
    /// The column is unique: factors that are challenged at the same time get different times.
    const SET_CHALLENGED = "
        update auth.mfa_factors
           set last_challenged_at = (select $2::timestamptz + place * interval '1 microsecond'
                                       from generate_series(0, 999) as place
                                      where not exists (select
                                                          from auth.mfa_factors as other
                                                         where other.last_challenged_at
                                                               = $2 + place * interval '1 microsecond')
                                      order by place
                                      limit 1),
               updated_at = $2
         where id = $1";
    /// Changes nothing if another challenge was recorded since.
    const UNDO_CHALLENGED = "
        update auth.mfa_factors
           set last_challenged_at = $3
         where id = $1
           and last_challenged_at between $2 and $2 + interval '1 millisecond'";
    const SET_VERIFIED = "update auth.mfa_factors set status = 'verified', updated_at = $2 where id = $1";
    const KEYS = "
        select web_authn_credential
          from auth.mfa_factors
         where user_id = $1
           and factor_type = 'webauthn'
           and status = 'verified'
           and web_authn_credential is not null
         order by created_at, id";
    const SET_KEY = "update auth.mfa_factors set web_authn_credential = $2, web_authn_aaguid = $3 where id = $1";
    const CHANGE = "
        update auth.mfa_factors
           set friendly_name = coalesce($2, friendly_name), phone = coalesce($3, phone), updated_at = $4
         where id = $1";
    const DELETE = "delete from auth.mfa_factors where id = $1";
    const DELETE_UNVERIFIED_PHONE = "
        delete from auth.mfa_factors where user_id = $1 and phone = $2 and status = 'unverified'";
    const DELETE_OTHER_UNVERIFIED = "
        delete from auth.mfa_factors
         where user_id = $1
           and id <> $2
           and factor_type = $3::text::auth.factor_type
           and status = 'unverified'";
    const DELETE_UNCHALLENGED = "
        delete from auth.mfa_factors
         where user_id = $1
           and created_at < $2
           and status = 'unverified'
           and not exists (select from auth.mfa_challenges as known where known.factor_id = mfa_factors.id)";
    const DELETE_ALL = "delete from auth.mfa_factors where user_id = $1";
    const DELETE_ABANDONED = "
        delete from auth.mfa_factors
         where id in (select old.id
                        from auth.mfa_factors as old
                       where old.created_at < $1
                         and old.status = 'unverified'
                       limit 500
                         for update skip locked)";
}

/// A factor to insert; it is not verified yet.
pub struct NewFactor<'a> {
    /// Primary key.
    pub id: FactorId,
    /// The user.
    pub user_id: UserId,
    /// The name that the person gave; may be empty.
    pub friendly_name: &'a str,
    /// `totp`, `phone`, `webauthn`
    pub factor_type: &'static str,
    /// The stored form of the secret of an authenticator app.
    pub secret: Option<String>,
    /// The number of a phone.
    pub phone: Option<String>,
}

/// Returns the second factors of a user, oldest first.
pub async fn of_user(run: &impl Run, user: UserId) -> Result<Vec<Factor>, Error> {
    Ok(run.rows(OF_USER, &[&user]).await?.iter().map(Factor::from_row).collect())
}

/// Locks a factor until the transaction ends, and returns it.
pub async fn lock(tx: &Tx, id: FactorId) -> Result<Option<Factor>, Error> {
    Ok(tx.query_opt(LOCK, &[&id]).await?.as_ref().map(Factor::from_row))
}

/// Inserts a factor.
pub async fn insert(tx: &Tx, new: &NewFactor<'_>, now: OffsetDateTime) -> Result<(), Error> {
    let NewFactor { id, user_id, friendly_name, factor_type, secret, phone } = new;
    tx.execute(INSERT, &[id, user_id, friendly_name, factor_type, &now, secret, phone]).await.map(drop)
}

/// Returns the stored form of the secret of an authenticator app.
pub async fn secret(run: &impl Run, id: FactorId) -> Result<Option<String>, Error> {
    Ok(run.rows(SECRET, &[&id]).await?.first().and_then(|row| row.get(0)))
}

/// Stores the same secret in a newer form.
pub async fn set_secret(tx: &Tx, id: FactorId, secret: &str) -> Result<(), Error> {
    tx.execute(SET_SECRET, &[&id, &secret]).await.map(drop)
}

/// Records a challenge. Returns false if the factor does not exist any more.
pub async fn set_challenged(tx: &Tx, id: FactorId, now: OffsetDateTime) -> Result<bool, Error> {
    Ok(tx.execute(SET_CHALLENGED, &[&id, &now]).await? > 0)
}

/// Undoes [`set_challenged`] with the time `at`: `before` is the time of the challenge before it.
pub async fn undo_challenged(
    tx: &Tx,
    id: FactorId,
    at: OffsetDateTime,
    before: Option<OffsetDateTime>,
) -> Result<(), Error> {
    tx.execute(UNDO_CHALLENGED, &[&id, &at, &before]).await.map(drop)
}

/// Marks a factor as verified.
pub async fn set_verified(tx: &Tx, id: FactorId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_VERIFIED, &[&id, &now]).await.map(drop)
}

/// Returns the credentials of the verified security keys of a user, oldest first.
pub async fn keys(run: &impl Run, user: UserId) -> Result<Vec<Value>, Error> {
    Ok(run.rows(KEYS, &[&user]).await?.iter().map(|row| row.get(0)).collect())
}

/// Stores the credential of a security key.
pub async fn set_key(tx: &Tx, id: FactorId, credential: &Value, aaguid: Option<Uuid>) -> Result<(), Error> {
    tx.execute(SET_KEY, &[&id, credential, &aaguid]).await.map(drop)
}

/// Changes the name and the number of a factor; `None` keeps a value.
pub async fn change(
    tx: &Tx,
    id: FactorId,
    name: Option<&str>,
    phone: Option<&PhoneNumber>,
    now: OffsetDateTime,
) -> Result<(), Error> {
    tx.execute(CHANGE, &[&id, &name, &phone.map(PhoneNumber::as_str), &now]).await.map(drop)
}

/// Deletes a factor and its challenges.
pub async fn delete(tx: &Tx, id: FactorId) -> Result<(), Error> {
    tx.execute(DELETE, &[&id]).await.map(drop)
}

/// Deletes the unverified factors of a user with this number.
pub async fn delete_unverified_phone(tx: &Tx, user: UserId, phone: &str) -> Result<(), Error> {
    tx.execute(DELETE_UNVERIFIED_PHONE, &[&user, &phone]).await.map(drop)
}

/// Deletes the unverified factors of a user and a type but one.
pub async fn delete_other_unverified(
    tx: &Tx,
    user: UserId,
    keep: FactorId,
    factor_type: &str,
) -> Result<(), Error> {
    tx.execute(DELETE_OTHER_UNVERIFIED, &[&user, &keep, &factor_type]).await.map(drop)
}

/// Deletes the factors of a user whose enrolment began before `before` and was not continued.
pub async fn delete_unchallenged(tx: &Tx, user: UserId, before: OffsetDateTime) -> Result<(), Error> {
    tx.execute(DELETE_UNCHALLENGED, &[&user, &before]).await.map(drop)
}

/// Deletes the second factors of a user.
pub async fn delete_all(tx: &Tx, user: UserId) -> Result<(), Error> {
    tx.execute(DELETE_ALL, &[&user]).await.map(drop)
}

/// Deletes factors whose enrolment began before `before` and was not completed. Returns their
/// number.
pub async fn delete_abandoned(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(DELETE_ABANDONED, &[&before]).await
}
