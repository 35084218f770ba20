//! `auth.users` and `auth.identities` as a sign-in at a provider looks at them: who is this, and what may stay.

use serde_json::Value;
use time::OffsetDateTime;
use tokio_postgres::Error;

use super::{Params, Run, Tx};
use crate::model::ids::{IdentityId, UserId};
use crate::model::{Identity, JsonObject, identity_columns};

/// Every statement of this file.
pub const ALL: &[(&str, &str)] = &[
    ("accounts::IDENTITY", IDENTITY),
    ("accounts::OWNERS_BY_IDENTITY", OWNERS_BY_IDENTITY),
    ("accounts::OWNERS_BY_ADDRESS", OWNERS_BY_ADDRESS),
    ("accounts::IS_ADDRESS_TAKEN", IS_ADDRESS_TAKEN),
    ("accounts::IS_ADDRESS_PROVED", IS_ADDRESS_PROVED),
    ("accounts::KEEP_ONLY_IDENTITY", KEEP_ONLY_IDENTITY),
    ("accounts::START_OVER", START_OVER),
    ("accounts::ADOPT_EMAIL", ADOPT_EMAIL),
    ("accounts::LOSE_ANONYMITY", LOSE_ANONYMITY),
    ("accounts::DELETE_IDENTITY", DELETE_IDENTITY),
    ("accounts::CLEAR_PHONE", CLEAR_PHONE),
    ("accounts::DELETE_FACTORS", DELETE_FACTORS),
    ("accounts::PROMOTE_EMAIL", PROMOTE_EMAIL),
    ("accounts::DELETE_ONE_TIME_TOKENS", DELETE_ONE_TIME_TOKENS),
    ("accounts::LOCK_OLD_ANONYMOUS", LOCK_OLD_ANONYMOUS),
    ("accounts::LOCK_SESSIONS", LOCK_SESSIONS),
    ("accounts::DELETE_OLD_ANONYMOUS", DELETE_OLD_ANONYMOUS),
];

const IDENTITY: &str = concat!(
    "select ",
    identity_columns!(),
    " from auth.identities where identities.provider = $1 and identities.provider_id = $2"
);
/// Who proved one of the addresses in the linking domain. An identity that merely claims an address counts only if it is
/// also the account's own: such an account is unconfirmed, and whoever proves the address takes it over completely. Not so an
/// account whose owner proved a number: it stays theirs. The identity of a number proves no address, whatever its data says.
const OWNERS_BY_IDENTITY: &str = "
    select distinct identities.user_id
      from auth.identities
      join auth.users on users.id = identities.user_id
     where identities.email = any ($1)
       and identities.provider <> 'phone'
       and users.aud = $2
       and case when $3::text[] is not null
                then identities.provider = any ($3)
                else identities.provider not like 'sso:%' and identities.provider <> all ($4)
           end
       and ((identities.identity_data ->> 'email_verified') = 'true' or lower(users.email) = identities.email)
       and (users.email_confirmed_at is not null or users.phone_confirmed_at is null)
     limit 2";
const OWNERS_BY_ADDRESS: &str = "
    select users.id
      from auth.users
     where users.instance_id = '00000000-0000-0000-0000-000000000000'
       and lower(users.email) = any ($1)
       and users.aud = $2
       and not users.is_sso_user
       and (users.email_confirmed_at is not null or users.phone_confirmed_at is null)
     limit 2";
const IS_ADDRESS_TAKEN: &str = "
    select 1
      from auth.users
     where lower(users.email) = $1
       and users.aud = $2
       and not users.is_sso_user
       and users.id is distinct from $3
     limit 1";
/// As `users::LOCK_OWNER_OF_EMAIL`, but a claim that its owner has not proved does not count, and nothing is locked.
const IS_ADDRESS_PROVED: &str = "
    select 1
      from auth.users
     where users.aud = $2
       and not users.is_sso_user
       and users.id is distinct from $3
       and users.id in (select identities.user_id
                          from auth.identities
                         where identities.email = $1
                           and (identities.identity_data ->> 'email_verified') = 'true'
                           and identities.provider <> 'phone'
                           and identities.provider not like 'sso:%'
                           and identities.provider <> all ($4)
                        union all
                        select owners.id
                          from auth.users as owners
                         where owners.instance_id = '00000000-0000-0000-0000-000000000000'
                           and lower(owners.email) = $1
                           and owners.email_confirmed_at is not null)
     limit 1";
const KEEP_ONLY_IDENTITY: &str = "delete from auth.identities where user_id = $1 and id <> $2";
/// Nothing that somebody else chose for an account that nobody confirmed stays.
const START_OVER: &str = "
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
const ADOPT_EMAIL: &str = "update auth.users set email = $2, updated_at = $3 where id = $1";
const LOSE_ANONYMITY: &str =
    "update auth.users set is_anonymous = false, updated_at = $2 where id = $1 and is_anonymous";
const DELETE_IDENTITY: &str = "delete from auth.identities where id = $1 and user_id = $2";
const CLEAR_PHONE: &str =
    "update auth.users set phone = null, phone_confirmed_at = null, updated_at = $2 where id = $1";
const DELETE_FACTORS: &str = "delete from auth.mfa_factors where user_id = $1";
/// The address of another identity becomes the account's; messages on their way to the old one are worth nothing.
const PROMOTE_EMAIL: &str = "
    update auth.users
       set email = nullif($2, ''),
           email_confirmed_at = case when $3 then coalesce(email_confirmed_at, $4) end,
           raw_user_meta_data = case when $3 then raw_user_meta_data
                                     else coalesce(raw_user_meta_data, '{}') || '{\"email_verified\": false}' end,
           confirmation_token = '',
           recovery_token = '',
           email_change = '',
           email_change_token_new = '',
           email_change_token_current = '',
           email_change_confirm_status = 0,
           phone_change = '',
           phone_change_token = '',
           reauthentication_token = '',
           updated_at = $4
     where id = $1";
const DELETE_ONE_TIME_TOKENS: &str = "delete from auth.one_time_tokens where user_id = $1";
/// Accounts that were last used before a time: by the latest of their creation, sign-in, and refresh of a session.
macro_rules! unused_since {
    ($time:literal) => {
        concat!(
            "old.is_anonymous
             and old.created_at < ",
            $time,
            "
             and (old.last_sign_in_at is null or old.last_sign_in_at < ",
            $time,
            ")
             and not exists (select
                               from auth.sessions
                              where sessions.user_id = old.id
                                and (sessions.created_at >= ",
            $time,
            "
                                     or sessions.refreshed_at at time zone 'utc' >= ",
            $time,
            "
                                     or exists (select
                                                  from auth.refresh_tokens as tokens
                                                 where tokens.session_id = sessions.id
                                                   and tokens.updated_at >= ",
            $time,
            ")))"
        )
    };
}
/// A locked account gets no new session.
const LOCK_OLD_ANONYMOUS: &str = concat!(
    "select old.id
       from auth.users as old
      where ",
    unused_since!("$1"),
    "
      limit 100
        for update skip locked"
);
/// A locked session is not refreshed.
const LOCK_SESSIONS: &str = "select from auth.sessions where user_id = any ($1) order by id for update";
/// Once more, with a snapshot from behind the locks: an account may have been used while they were waited for.
const DELETE_OLD_ANONYMOUS: &str =
    concat!("delete from auth.users as old where old.id = any ($2) and ", unused_since!("$1"));

/// The identity of a provider's subject.
pub async fn identity(run: &impl Run, provider: &str, subject: &str) -> Result<Option<Identity>, Error> {
    Ok(run.rows(IDENTITY, &[&provider, &subject]).await?.first().map(Identity::from_row))
}

/// Which providers share their accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkingDomain {
    /// All that are not in a domain of their own; these are.
    Default {
        /// Providers of other domains.
        except: Vec<String>,
    },
    /// Only these.
    Named {
        /// Providers of the domain.
        providers: Vec<String>,
    },
}

/// Up to two users who have one of the (lower-case) addresses by an identity of the domain.
pub async fn owners_by_identity(
    tx: &Tx,
    addresses: &[String],
    aud: &str,
    domain: &LinkingDomain,
) -> Result<Vec<UserId>, Error> {
    let (only, except): (Option<&[String]>, &[String]) = match domain {
        LinkingDomain::Default { except } => (None, except),
        LinkingDomain::Named { providers } => (Some(providers), &[]),
    };
    let rows = tx.query(OWNERS_BY_IDENTITY, &[&addresses, &aud, &only, &except]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Up to two users of the default domain who have one of the (lower-case) addresses as their own.
pub async fn owners_by_address(tx: &Tx, addresses: &[String], aud: &str) -> Result<Vec<UserId>, Error> {
    Ok(tx.query(OWNERS_BY_ADDRESS, &[&addresses, &aud]).await?.iter().map(|row| row.get(0)).collect())
}

/// Whether somebody else has the address as their own.
pub async fn is_address_taken(tx: &Tx, address: &str, aud: &str, except: Option<UserId>) -> Result<bool, Error> {
    Ok(tx.query_opt(IS_ADDRESS_TAKEN, &[&address, &aud, &except]).await?.is_some())
}

/// Returns whether another account of the default linking domain has proved the address, as its own or by an identity.
pub async fn is_address_proved(
    tx: &Tx,
    address: &str,
    aud: &str,
    except: Option<UserId>,
    other_domain_providers: &[String],
) -> Result<bool, Error> {
    Ok(tx.query_opt(IS_ADDRESS_PROVED, &[&address, &aud, &except, &other_domain_providers]).await?.is_some())
}

/// Removes every other identity of a user.
pub async fn keep_only_identity(tx: &Tx, user: UserId, keep: IdentityId) -> Result<(), Error> {
    tx.execute(KEEP_ONLY_IDENTITY, &[&user, &keep]).await.map(drop)
}

/// Forgets the password, the metadata and every message on its way.
pub async fn start_over(tx: &Tx, user: UserId, data: &JsonObject, now: OffsetDateTime) -> Result<(), Error> {
    let data = Value::Object(data.clone());
    let (row, id): (Params<'_>, Params<'_>) = (&[&user, &data, &now], &[&user]);
    let (user_changed, tokens) =
        tokio::join!(biased; tx.execute(START_OVER, row), tx.execute(DELETE_ONE_TIME_TOKENS, id));
    user_changed?;
    tokens.map(drop)
}

/// Gives an account without address one.
pub async fn adopt_email(tx: &Tx, user: UserId, address: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(ADOPT_EMAIL, &[&user, &address, &now]).await.map(drop)
}

/// An anonymous user becomes a permanent one.
pub async fn lose_anonymity(tx: &Tx, user: UserId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(LOSE_ANONYMITY, &[&user, &now]).await.map(drop)
}

/// Removes an identity of a user.
pub async fn delete_identity(tx: &Tx, id: IdentityId, user: UserId) -> Result<bool, Error> {
    Ok(tx.execute(DELETE_IDENTITY, &[&id, &user]).await? > 0)
}

/// The account has no number any more.
pub async fn clear_phone(tx: &Tx, user: UserId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(CLEAR_PHONE, &[&user, &now]).await.map(drop)
}

/// Removes every second factor of a user.
pub async fn delete_factors(tx: &Tx, user: UserId) -> Result<(), Error> {
    tx.execute(DELETE_FACTORS, &[&user]).await.map(drop)
}

/// Makes `address` (empty: none) the account's own, `confirmed` or not.
pub async fn promote_email(
    tx: &Tx,
    user: UserId,
    address: &str,
    confirmed: bool,
    now: OffsetDateTime,
) -> Result<(), Error> {
    let (row, id): (Params<'_>, Params<'_>) = (&[&user, &address, &confirmed, &now], &[&user]);
    let (user_changed, tokens) =
        tokio::join!(biased; tx.execute(PROMOTE_EMAIL, row), tx.execute(DELETE_ONE_TIME_TOKENS, id));
    user_changed?;
    tokens.map(drop)
}

/// Removes anonymous users whose account was last used before `before`. Returns how many.
pub async fn delete_old_anonymous(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    let old: Vec<UserId> = tx.rows(LOCK_OLD_ANONYMOUS, &[&before]).await?.iter().map(|row| row.get(0)).collect();
    if old.is_empty() {
        return Ok(0);
    }
    tx.execute(LOCK_SESSIONS, &[&old]).await?;
    tx.execute(DELETE_OLD_ANONYMOUS, &[&before, &old]).await
}
