//! The statements that make an account, and change its role, metadata and password.

use serde_json::Value;
use time::OffsetDateTime;
use tokio_postgres::Error;

use crate::model::JsonObject;
use crate::model::ids::UserId;
use crate::sql::{Params, Tx, one_time_tokens};

statements! {
    const INSERT = "
        insert into auth.users
            (instance_id, id, aud, role, email, encrypted_password, email_confirmed_at, invited_at, confirmation_token,
             confirmation_sent_at, recovery_token, recovery_sent_at, email_change_token_new, email_change,
             email_change_sent_at, last_sign_in_at, raw_app_meta_data, raw_user_meta_data, created_at, updated_at, phone,
             phone_confirmed_at, phone_change, phone_change_token, phone_change_sent_at, email_change_token_current,
             email_change_confirm_status, banned_until, reauthentication_token, reauthentication_sent_at, is_sso_user,
             deleted_at, is_anonymous)
        values
            ('00000000-0000-0000-0000-000000000000', $1, $2, '', nullif($3, ''), $4, null, null, '',
             null, '', null, '', '',
             null, null, $6, $7, $8, $8, nullif($5, ''),
             null, '', '', null, '',
             0, null, '', null, $9,
             null, $10)";
    const SIGNED_IN_NOW = "update auth.users set last_sign_in_at = $2, updated_at = $2 where id = $1";
    const SET_ROLE = "update auth.users set role = $2, updated_at = $3 where id = $1";
    const SET_USER_METADATA = "update auth.users set raw_user_meta_data = $2, updated_at = $3 where id = $1";
    const SET_APP_METADATA = "update auth.users set raw_app_meta_data = $2, updated_at = $3 where id = $1";
    /// `provider` is that of the oldest identity, `providers` are all, by age. An account without
    /// identities is not changed.
    const REFRESH_PROVIDERS = "
        update auth.users
           set raw_app_meta_data = coalesce(users.raw_app_meta_data, '{}')
                                   || jsonb_build_object('provider', linked.providers -> 0, 'providers', linked.providers),
               updated_at = $2
          from (select jsonb_agg(oldest.provider order by oldest.first_made, oldest.provider) as providers
                  from (select identities.provider, min(identities.created_at) as first_made
                          from auth.identities
                         where identities.user_id = $1
                         group by identities.provider) as oldest) as linked
         where users.id = $1
           and linked.providers is not null
           and (users.raw_app_meta_data -> 'providers') is distinct from linked.providers";
    /// A new password also invalidates every message on its way.
    const SET_PASSWORD = "
        update auth.users
           set encrypted_password = $2,
               confirmation_token = '',
               recovery_token = '',
               email_change_token_new = '',
               email_change_token_current = '',
               phone_change_token = '',
               reauthentication_token = '',
               updated_at = $3
         where id = $1";
    /// Changes nothing when the password was changed meanwhile.
    const REHASH_PASSWORD = "
        update auth.users set encrypted_password = $3 where id = $1 and encrypted_password = $2";
    /// A repeated sign-up replaces the password and data of an account that was not confirmed.
    const REPLACE_CREDENTIALS = "
        update auth.users set encrypted_password = $2, raw_user_meta_data = $3, updated_at = $4 where id = $1";
    /// Clears everything that another person may have chosen for an account that was not confirmed.
    const START_OVER = "
        update auth.users
           set encrypted_password = '',
               raw_user_meta_data = $2,
               confirmation_token = '',
               recovery_token = '',
               email_change = '',
               email_change_token_new = '',
               email_change_token_current = '',
               phone = case when phone_confirmed_at is not null then phone end,
               phone_change = '',
               phone_change_token = '',
               reauthentication_token = '',
               updated_at = $3
         where id = $1";
    const LOSE_ANONYMITY =
        "update auth.users set is_anonymous = false, updated_at = $2 where id = $1 and is_anonymous";
}

/// The row of a new user.
#[derive(Debug, Clone)]
pub struct NewUser<'a> {
    /// Primary key.
    pub id: UserId,
    /// The audience.
    pub aud: &'a str,
    /// The address; empty when there is none.
    pub email: &'a str,
    /// The number; empty when there is none.
    pub phone: &'a str,
    /// The hash; empty when there is none.
    pub encrypted_password: &'a str,
    /// `raw_app_meta_data`
    pub app_metadata: JsonObject,
    /// `raw_user_meta_data`
    pub user_metadata: JsonObject,
    /// Belongs to another linking domain than `default`.
    pub is_sso_user: bool,
    /// The account has no contact and no identity.
    pub is_anonymous: bool,
}

/// Inserts a user with an empty role, which triggers of applications expect; [`set_role`] follows.
pub async fn insert(tx: &Tx, user: &NewUser<'_>, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(
        INSERT,
        &[
            &user.id,
            &user.aud,
            &user.email,
            &user.encrypted_password,
            &user.phone,
            &Value::Object(user.app_metadata.clone()),
            &Value::Object(user.user_metadata.clone()),
            &now,
            &user.is_sso_user,
            &user.is_anonymous,
        ],
    )
    .await
    .map(drop)
}

/// Sets the time of the last sign-in.
pub async fn record_sign_in(tx: &Tx, id: UserId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SIGNED_IN_NOW, &[&id, &now]).await.map(drop)
}

/// Sets the database role.
pub async fn set_role(tx: &Tx, id: UserId, role: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_ROLE, &[&id, &role, &now]).await.map(drop)
}

/// Replaces `user_metadata`.
pub async fn set_user_metadata(tx: &Tx, id: UserId, data: &JsonObject, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_USER_METADATA, &[&id, &Value::Object(data.clone()), &now]).await.map(drop)
}

/// Replaces `app_metadata`.
pub async fn set_app_metadata(tx: &Tx, id: UserId, data: &JsonObject, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_APP_METADATA, &[&id, &Value::Object(data.clone()), &now]).await.map(drop)
}

/// Recomputes `provider` and `providers` of `app_metadata` from the identities.
pub async fn refresh_providers(tx: &Tx, id: UserId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(REFRESH_PROVIDERS, &[&id, &now]).await.map(drop)
}

/// Sets the password and clears every token that was sent.
pub async fn set_password(tx: &Tx, id: UserId, hash: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_PASSWORD, &[&id, &hash, &now]).await.map(drop)
}

/// Stores the same password in a newer form.
pub async fn rehash_password(tx: &Tx, id: UserId, old: &str, new: &str) -> Result<(), Error> {
    tx.execute(REHASH_PASSWORD, &[&id, &old, &new]).await.map(drop)
}

/// Replaces the password and data of an unconfirmed account by those of a repeated sign-up.
pub async fn replace_credentials(
    tx: &Tx,
    id: UserId,
    hash: &str,
    data: &JsonObject,
    now: OffsetDateTime,
) -> Result<(), Error> {
    tx.execute(REPLACE_CREDENTIALS, &[&id, &hash, &Value::Object(data.clone()), &now]).await.map(drop)
}

/// Clears the password, the metadata and every token that was sent.
pub async fn start_over(tx: &Tx, user: UserId, data: &JsonObject, now: OffsetDateTime) -> Result<(), Error> {
    let data = Value::Object(data.clone());
    let row: Params<'_> = &[&user, &data, &now];
    let (user_changed, tokens) =
        tokio::join!(biased; tx.execute(START_OVER, row), one_time_tokens::delete_all(tx, user));
    user_changed?;
    tokens
}

/// Makes an anonymous account a permanent one.
pub async fn lose_anonymity(tx: &Tx, user: UserId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(LOSE_ANONYMITY, &[&user, &now]).await.map(drop)
}
