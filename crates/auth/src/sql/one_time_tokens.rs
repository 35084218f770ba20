//! `auth.one_time_tokens`: one row per user and kind, in step with the columns of `auth.users`.

use time::OffsetDateTime;
use tokio_postgres::Error;
use uuid::Uuid;

use super::{Run as _, Tx};
use crate::model::ids::UserId;

statements! {
    const PUT = "
        insert into auth.one_time_tokens (id, user_id, token_type, token_hash, relates_to, created_at, updated_at)
        values ($1, $2, $3::text::auth.one_time_token_type, $4, $5, $6::timestamptz at time zone 'utc',
                $6::timestamptz at time zone 'utc')
        on conflict (user_id, token_type) do update
           set token_hash = excluded.token_hash,
               relates_to = excluded.relates_to,
               created_at = excluded.created_at,
               updated_at = excluded.updated_at";
    /// The newest ones only: every valid code makes guessing one likelier. The links of the others
    /// still work.
    const SENT_TO = "
        select token_hash
          from auth.one_time_tokens
         where relates_to = $1 and token_type = $2::text::auth.one_time_token_type
         order by created_at desc
         limit 10";
    /// Codes that have not expired only, and not all of them: each valid code makes guessing one
    /// likelier. To displace the code of another account, a stranger would have to make the service
    /// send this many messages to the number during the life of one code.
    const PENDING_PHONE_CHANGES = "
        select tokens.token_hash
          from auth.one_time_tokens as tokens
          join auth.users on users.id = tokens.user_id and users.phone_change_token = tokens.token_hash
         where tokens.relates_to = $1
           and tokens.token_type = 'phone_change_token'
           and tokens.created_at > $3::timestamptz at time zone 'utc'
           and users.phone_change = $1
           and users.aud = $2
           and not users.is_sso_user
           and ($4::uuid is null or users.id = $4)
         order by tokens.created_at desc
         limit 50";
    const DELETE_KIND =
        "delete from auth.one_time_tokens where user_id = $1 and token_type = $2::text::auth.one_time_token_type";
    const DELETE_KINDS = "
        delete from auth.one_time_tokens where user_id = $1 and token_type = any ($2::text[]::auth.one_time_token_type[])";
    const DELETE_HASH = "delete from auth.one_time_tokens where user_id = $1 and token_hash = $2";
    const DELETE_ALL = "delete from auth.one_time_tokens where user_id = $1";
}

/// Stores a token, which replaces an older one of the kind.
pub async fn put(
    tx: &Tx,
    user: UserId,
    kind: &str,
    hash: &str,
    relates_to: &str,
    now: OffsetDateTime,
) -> Result<(), Error> {
    let id: Uuid = portico_base::random::uuid();
    tx.execute(PUT, &[&id, &user, &kind, &hash, &relates_to, &now]).await.map(drop)
}

/// Returns the hashes of the newest tokens of a kind that were sent to a contact, for any account.
pub async fn sent_to(tx: &Tx, address: &str, kind: &str) -> Result<Vec<String>, Error> {
    Ok(tx.rows(SENT_TO, &[&address, &kind]).await?.iter().map(|row| row.get(0)).collect())
}

/// The accounts with a pending change to a number.
#[derive(Debug, Clone, Copy)]
pub struct PendingPhoneChanges<'a> {
    /// The number.
    pub phone: &'a str,
    /// The audience of the accounts.
    pub aud: &'a str,
    /// Requests before this time are not pending any more.
    pub since: OffsetDateTime,
    /// Only this account.
    pub only: Option<UserId>,
}

/// Returns the hashes of the tokens of accounts with a pending change to a number, the newest
/// first.
pub async fn pending_phone_changes(tx: &Tx, accounts: &PendingPhoneChanges<'_>) -> Result<Vec<String>, Error> {
    let PendingPhoneChanges { phone, aud, since, only } = accounts;
    Ok(tx.rows(PENDING_PHONE_CHANGES, &[phone, aud, since, only]).await?.iter().map(|row| row.get(0)).collect())
}

/// Deletes the token of a kind.
pub async fn delete_kind(tx: &Tx, user: UserId, kind: &str) -> Result<(), Error> {
    tx.execute(DELETE_KIND, &[&user, &kind]).await.map(drop)
}

/// Deletes the tokens of these kinds.
pub async fn delete_kinds(tx: &Tx, user: UserId, kinds: &[&str]) -> Result<(), Error> {
    tx.execute(DELETE_KINDS, &[&user, &kinds]).await.map(drop)
}

/// Deletes one token.
pub async fn delete_hash(tx: &Tx, user: UserId, hash: &str) -> Result<(), Error> {
    tx.execute(DELETE_HASH, &[&user, &hash]).await.map(drop)
}

/// Deletes all tokens of a user.
pub async fn delete_all(tx: &Tx, user: UserId) -> Result<(), Error> {
    tx.execute(DELETE_ALL, &[&user]).await.map(drop)
}
